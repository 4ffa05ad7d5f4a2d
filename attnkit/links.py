"""Links that are not quite right: what can be read of them is, and what cannot is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnkit.experiment import Experiment, from_params
from attnkit.settings import InvalidExperiment, Problem
from attnkit.variants import InvalidVariant, Variant


def from_broken_params(params: Mapping[str, Any]) -> tuple[Experiment, list[Problem]]:
    """Read what can be read of a link: wrong fields take their defaults and are reported."""
    remaining = dict(params)
    problems: list[Problem] = []
    while True:
        try:
            return from_params(remaining), problems
        except InvalidExperiment as error:
            problems += error.problems
            wrong = {problem.field for problem in error.problems} & remaining.keys()
            if not wrong:  # a default disagrees with what was given: give that up, one at a time
                others = [name for p in error.problems for name in p.others if name in remaining]
                helping = [name for name in others if _is_cured(remaining, name, error)]
                wrong = set((helping or others)[:1]) or set(remaining)
            for name in wrong:
                kept = _without(remaining[name], error) if name == "sharing" else ""
                if kept:
                    remaining[name] = kept
                else:
                    del remaining[name]


def _without(given: Any, error: InvalidExperiment) -> str:
    """The variants of a link but the one that is told to be wrong; empty if that is all."""
    wrong = {str(problem.value) for problem in error.problems if problem.field == "sharing"}
    texts = given.split(",") if isinstance(given, str) else []
    kept = [text for text in texts if text not in wrong and _canonical(text) not in wrong]
    return ",".join(kept) if len(kept) < len(texts) else ""


def _canonical(text: str) -> str:
    try:
        return Variant(text).value
    except InvalidVariant:
        return text


def _is_cured(params: Mapping[str, Any], name: str, error: InvalidExperiment) -> bool:
    """Whether the problems are gone without one of the settings."""
    try:
        from_params({key: value for key, value in params.items() if key != name})
    except InvalidExperiment as left:
        return not {p.field for p in left.problems} & {p.field for p in error.problems}
    return True
