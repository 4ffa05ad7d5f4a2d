"""Links: what can be read of them is, what cannot is told, and none costs much to read.

A link holds an experiment's settings, or the hash of a stored result (`run`), and may hide
controls (`hide`). Anybody can write one, so its fields are counted and measured before anything
reads them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from attnkit.experiment.experiment import (
    SCHEMA,
    Experiment,
    default_settings,
    from_params,
    settings,
)
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.tasks import TASKS
from attnkit.variants import InvalidVariant, Variant
from attnkit.variants.sharing import Sharing
from attnkit.variants.text import LONGEST

MOST_FIELDS = 100
"""Fields read of a link; an experiment has about thirty."""

LONGEST_NAME = 60
LONGEST_VALUE = 200

MOST_VARIANTS = 12
"""Variants read of a link: making their costs equal takes up to 0.05 s for each."""

_LISTS = {"sharing": MOST_VARIANTS * (LONGEST + 2), "hide": 4000}
"""Fields that list something, and how long they may be."""

_LIKENESS = 0.7
"""From 0 to 1: how much like a name of ours an unknown name must be to be taken for a slip."""

_MOST_TRIES = 120
"""Experiments tried until one is valid, times their variants; but a dozen in any case."""

_MOST_TOLD = 4
"""Problems of a link that are told in full."""

GROUPS = {
    "task": "The choice of task",
    "sharing": "The choice of variants",
    "add_variant": "“Add a variant”",
    "settings": "All settings",
    "more": "The settings under “More”",
    "buttons": "Pause, Step, Reset, New seeds and the switches",
}
"""What a class link can hide besides single settings, and what it is called."""


@dataclass(frozen=True)
class Link:
    """What a link says.

    Attributes:
        hidden: controls that are not shown, in the order of `hideable`.
        problems: what was not understood or not taken, and why.
    """

    experiment: Experiment
    hidden: tuple[str, ...]
    problems: list[Problem]


def read_link(
    params: Mapping[str, Any], experiment_of: Callable[[str], Experiment | str | None]
) -> Link:
    """Read a link whatever it holds.

    Args:
        experiment_of: the experiment of a stored result by its hash; None if there is none, or
            a text that says why nobody can tell.
    """
    fields, problems = _measured(params)
    hidden, unknown = _read_hidden(fields.pop("hide", ""))
    problems += unknown
    run = fields.pop("run", None)
    if run is not None:
        stored = _stored(run, experiment_of)
        if isinstance(stored, Experiment):
            beside = fields.keys() - {"v"}
            problems += [
                Problem(name, fields[name], "nothing beside run, which brings its own settings")
                for name in sorted(beside)
            ]
            return Link(stored, hidden, problems)
        problems.append(stored)
    experiment, wrong = _repaired(fields)
    return Link(experiment, hidden, problems + wrong)


def from_broken_params(params: Mapping[str, Any]) -> tuple[Experiment, list[Problem]]:
    """Read what can be read of settings: wrong ones take their defaults and are reported."""
    fields, problems = _measured(params)
    experiment, wrong = _repaired(fields)
    return experiment, problems + wrong


def link_params(experiment: Experiment, hidden: Collection[str] = ()) -> dict[str, str]:
    """The fields of a link to an experiment: what differs from the defaults, and what is hidden."""
    params = experiment.to_params()
    if hidden:
        params = {"v": str(SCHEMA), **params, "hide": ",".join(hidden)}
    return params


def link_text(experiment: Experiment, hidden: Collection[str] = ()) -> str:
    """The same as one query string with its question mark; empty for the default experiment."""
    query = urlencode(link_params(experiment, hidden), safe=",")
    return f"?{query}" if query else ""


def hideable(tasks: Iterable[str] = TASKS) -> dict[str, str]:
    """What a class link can hide, and what it is called: groups, then the settings of tasks."""
    labels = {s.name: s.label for task in tasks for s in settings(task).values()}
    return GROUPS | {name: label for name, label in labels.items() if name not in GROUPS}


def is_ours(name: str) -> bool:
    """Whether a field of a link is meant for this program: a name of ours, or one like it.

    Links that are passed on gain fields of others, such as `utm_source` and `fbclid`.
    """
    known = _known_names(tuple(TASKS))
    return name in known or bool(difflib.get_close_matches(name, known, 1, _LIKENESS))


def problems_in_words(problems: list[Problem]) -> str:
    """Problems in sentences: the first few in full, and how many more there are."""
    sentences = [problem.sentence for problem in problems[:_MOST_TOLD]]
    more = len(problems) - _MOST_TOLD
    return " ".join([*sentences, f"And {more} more."] if more > 0 else sentences)


def _measured(params: Mapping[str, Any]) -> tuple[dict[str, str], list[Problem]]:
    """The fields that may be read, as texts; of the others, why they may not.

    Fields of others are left out in silence.
    """
    fields: dict[str, str] = {}
    problems = []
    if len(params) > MOST_FIELDS:
        allowed = f"at most {MOST_FIELDS} fields: the others are left out"
        problems.append(Problem("link", len(params), allowed))
    for name, value in islice(params.items(), MOST_FIELDS):
        text, longest = _text(value), _LISTS.get(name, LONGEST_VALUE)
        if len(name) > LONGEST_NAME or not name.isprintable():
            allowed = f"names of at most {LONGEST_NAME} readable characters"
            problems.append(Problem("link", name, allowed))
        elif not is_ours(name):
            continue
        elif text is None:
            problems.append(Problem(name, type(value).__name__, "a text or a number"))
        elif len(text) > longest:
            problems.append(Problem(name, text[:LONGEST_VALUE], f"at most {longest} characters"))
        else:
            fields[name] = text
    if "sharing" in fields:
        variants, wrong = _read_variants(fields.pop("sharing"))
        problems += wrong
        if variants:
            fields["sharing"] = ",".join(variants)
    return fields, problems


@lru_cache(1)
def _known_names(tasks: tuple[str, ...]) -> frozenset[str]:
    """Every name that a link can have, for these tasks."""
    return frozenset({"v", "run", "hide"}.union(*map(default_settings, tasks)))


def _text(value: Any) -> str | None:
    """A value as it stands in a link; None if it cannot stand there."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, float)):
        return str(value)
    if isinstance(value, int):  # a huge one takes long to write
        return str(value) if value.bit_length() < 64 else f"2**{value.bit_length()}"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return None


def _read_variants(text: str) -> tuple[list[str], list[Problem]]:
    """The variants of a link that are some, and why the others are none."""
    texts = text.split(",")
    kept, problems = [], []
    if len(texts) > MOST_VARIANTS:
        allowed = f"at most {MOST_VARIANTS} variants in a link: the others are left out"
        problems.append(Problem("sharing", len(texts), allowed))
    for given in texts[:MOST_VARIANTS]:
        try:
            kept.append(Variant(given).value)
        except InvalidVariant as error:
            problems.append(Problem("sharing", given, f"but {error}"))
    return kept, problems


def _read_hidden(text: str) -> tuple[tuple[str, ...], list[Problem]]:
    """What a link hides, in one order for every order given; unknown names are told."""
    given = {name.strip() for name in text.split(",")} - {""}
    if not given:
        return (), []
    known = hideable()
    unknown = ", ".join(sorted(given - known.keys()))
    allowed = f"{', '.join(GROUPS)} or names of settings such as steps"
    problems = [Problem("hide", unknown, allowed)] if unknown else []
    return tuple(name for name in known if name in given), problems


def _stored(
    run: str, experiment_of: Callable[[str], Experiment | str | None]
) -> Experiment | Problem:
    """The experiment of a stored result, or what is wrong with the hash."""
    if re.fullmatch("[0-9a-f]{16}", run) is None:
        return Problem("run", run, "sixteen digits from 0 to 9 and a to f")
    found = experiment_of(run)
    if isinstance(found, Experiment):
        return found
    reason = found or "no result of that name is kept here, or no longer"
    return Problem("run", run, f"but {reason}")


class _GaveUp(Exception):
    """Too many experiments were tried."""


class _Trial:
    """Builds experiments until it was asked too often."""

    def __init__(self, n_variants: int) -> None:
        self._left = max(12, _MOST_TRIES // n_variants)

    def build(self, fields: Mapping[str, str]) -> Experiment:
        if self._left == 0:
            raise _GaveUp
        self._left -= 1
        return from_params(fields)

    def is_cured(self, fields: Mapping[str, str], name: str, error: InvalidExperiment) -> bool:
        """Whether the problems are gone without one of the settings."""
        try:
            self.build({key: value for key, value in fields.items() if key != name})
        except InvalidExperiment as left:
            return not {p.field for p in left.problems} & {p.field for p in error.problems}
        return True


def _repaired(fields: Mapping[str, str]) -> tuple[Experiment, list[Problem]]:
    """The experiment of the settings that go together, and what is wrong with the others."""
    remaining = dict(fields)
    problems: list[Problem] = []
    variants = remaining.get("sharing", ",".join(Sharing))
    trial = _Trial(1 + variants.count(","))
    try:
        while True:
            try:
                return trial.build(remaining), problems
            except InvalidExperiment as error:
                problems += error.problems
                _give_up(remaining, error, trial)
    except _GaveUp:
        pass
    allowed = "settings that go together: all are at their defaults"
    problems.append(Problem("link", ", ".join(remaining), allowed))
    return Experiment(), problems


def _give_up(remaining: dict[str, str], error: InvalidExperiment, trial: _Trial) -> None:
    """Take out what is wrong; or, if a default disagrees with what was given, one of that."""
    wrong = {problem.field for problem in error.problems} & remaining.keys()
    if not wrong:
        others = [name for p in error.problems for name in p.others if name in remaining]
        helping = [name for name in others if trial.is_cured(remaining, name, error)]
        wrong = set((helping or others)[:1]) or set(remaining)
    for name in wrong:
        kept = _without(remaining[name], error) if name == "sharing" else ""
        if kept:
            remaining[name] = kept
        else:
            del remaining[name]


def _without(variants: str, error: InvalidExperiment) -> str:
    """The variants of a link but the one that is told to be wrong; empty if that is all."""
    wrong = {str(problem.value) for problem in error.problems if problem.field == "sharing"}
    texts = variants.split(",")
    kept = [text for text in texts if text not in wrong]
    return ",".join(kept) if len(kept) < len(texts) else ""
