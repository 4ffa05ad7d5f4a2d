"""Sentences that answer a sweep: which variant needs the largest value of an axis, by how much.

Every sentence is computed from the runs and holds for any sweep: a variant is said to need more
only if the 95% interval excludes equality.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

from attnkit.analysis.boundary import Boundary, MeanRatio, boundary, mean_ratio
from attnkit.analysis.capacity import Swept, runs_at
from attnkit.analysis.reached import joined
from attnkit.experiment.experiment import settings
from attnkit.foundation.settings import Value
from attnkit.tasks import TASKS
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

if TYPE_CHECKING:
    import pandas as pd

_WORDS = {
    "d_head": ("heads", "wide", "widest"),
    "d_model": ("models", "wide", "widest"),
    "d_mlp": ("MLPs", "wide", "widest"),
    "n_heads": ("heads", "many", "most"),
    "n_layers": ("layers", "many", "most"),
    "steps": ("steps", "many", "most"),
}
"""Noun, adjective and superlative of settings; others are called by their labels."""


_MOST = 5
"""Most variants that a sentence names."""


def label_of(setting: str) -> str:
    """Return the label of a setting, or its name if no task has it."""
    for task in TASKS:
        known = settings(task)
        if setting in known:
            return known[setting].label
    return "Task" if setting == "task" else setting


class Conclusion(NamedTuple):
    """Conclusion of a sweep.

    Attributes:
        text: Its sentences; they begin with the name of the task if all cells have the same one.
        has_ratios: Whether they name ratios of boundaries, which are averaged over the values of
            the second axis.
        note: Why variants with symmetric scores solve this task, but not a relation with a
            direction; may be empty.
    """

    text: str
    has_ratios: bool
    note: str = ""


def conclusion(
    result: Swept, x: str, y: str | None = None, fixed: Mapping[str, Value] | None = None
) -> Conclusion:
    """Return the conclusion about the boundaries of all variants.

    Ratios are to the boundary of QKV or, if QKV has none, of the first variant that has one.

    Args:
        result: Result of the sweep.
        x: Axis that is compared, such as the head width.
        y: Another axis, over whose values ratios are averaged; None for a sweep with one axis.
        fixed: A value for every other axis.
    """
    runs = runs_at(result, fixed or {}, x, y)
    if runs.empty:
        return Conclusion("Nothing has been trained here yet.", False)
    task = result.sweep.task or str((fixed or {}).get("task", ""))
    text, has_ratios = _sentences(result, runs, x, y, fixed)
    if task not in TASKS:
        return Conclusion(text, has_ratios)
    solving = runs["sharing"][runs["steps_to_threshold"].notna()]
    return Conclusion(
        f"On “{TASKS[task].title}”: {text}", has_ratios, direction_note(task, set(solving))
    )


def direction_note(task: str, solving: Collection[str]) -> str:
    """Return why variants with symmetric scores solve a task, unlike a relation with a direction.

    Args:
        solving: Text forms of variants that solve it in some run.

    Returns:
        One sentence; empty if the task has a direction, too, or if they do not solve it.
    """
    names = [name for name in ("Q=K", "Q=K=V") if name in solving]
    if not names or TASKS[task]().plateau is not None:
        return ""
    return (
        f"{' and '.join(names)} fail{'s' * (len(names) == 1)} on “{TASKS['directed'].title}”, but "
        "not here: no question of this task has an opposite one with another answer, so a model "
        "can solve it although its scores are the same in both directions."
    )


def _sentences(
    result: Swept, runs: pd.DataFrame, x: str, y: str | None, fixed: Mapping[str, Value] | None
) -> tuple[str, bool]:
    """Return the sentences of a conclusion, and whether they name ratios."""
    trained = [v.value for v in result.sweep.sharing if (runs["sharing"] == v.value).any()]
    shares = runs["steps_to_threshold"].notna().groupby(runs["sharing"]).mean()
    found = {
        name: line
        for name in trained
        if (line := boundary(result, name, x, y, fixed)) is not None and line.measured.any()
    }
    if not found:
        each = _shortened([f"{_title(name)} {percent(shares[name])}" for name in trained])
        text = f"Share of the runs that solve the task: {', '.join(each)}."
        return text, False
    never, always = ([n for n in trained if shares[n] == share] for share in (0, 1))
    sentences = []
    if never:
        sentences.append(f"{_names(never)} never solve{'s' * (len(never) == 1)} the task here.")
    base = "QKV" if "QKV" in found else next(iter(found))
    compared = {name: mean_ratio(line, found[base]) for name, line in found.items() if name != base}
    has_ratios = any(ratio.n_compared for ratio in compared.values())
    if has_ratios:
        answer = _Answer(x, base, found, compared)
        sentences += answer.sentences(complete=not never)
        sentences += _beyond(list(found.values()))
    else:
        sentences += [_boundary_in_words(line) for line in list(found.values())[:_MOST]]
    if always:
        sentences.append(f"{_names(always)} solve{'s' * (len(always) == 1)} the task in every run.")
    return " ".join(sentences), has_ratios


def _most_in_words(x: str, ratio: MeanRatio, base: str, *, rises: bool) -> str:
    """Say that one variant needs the largest value of an axis, after its name."""
    times, label = f"about {_times(ratio.ratio)} times", f"“{label_of(x)}”"
    if not rises:
        return f"fails first as {label} grows: at {times} the value of {base}"
    noun, adjective, superlative = _WORDS.get(x, (label, "large", "largest"))
    return f"needs the {superlative} {noun}: {times} as {adjective} as {base}"


def _more_in_words(x: str, ratio: MeanRatio, base: str, *, rises: bool) -> str:
    """Say how large a value of an axis a variant needs, after its name."""
    times, label = f"about {_times(ratio.ratio)} times", f"“{label_of(x)}”"
    if not rises:
        return f"fails from {times} the {label} of {base} on"
    noun, adjective, _ = _WORDS.get(x, (f"a value of {label}", "large", "largest"))
    if adjective == "many":
        return f"needs {times} as many {noun} as {base}"
    return f"needs {noun} {times} as {adjective} as {base}"


@dataclass(frozen=True)
class _Answer:
    """The boundaries of several variants, compared with that of one of them."""

    x: str
    base: str
    found: dict[str, Boundary]
    compared: dict[str, MeanRatio]

    @property
    def rises(self) -> bool:
        return self.found[self.base].rises

    def sentences(self, complete: bool) -> list[str]:
        """Return the sentences on the ratios, the clear ones first.

        Args:
            complete: Whether every variant solves the task in some run; otherwise none of them is
                said to need the most.
        """
        known = {name: ratio for name, ratio in self.compared.items() if ratio.n_compared}
        by_size = sorted(known, key=lambda n: known[n].ratio, reverse=self.rises)
        clear = [name for name in by_size if known[name].is_clear]
        unclear = [name for name in by_size if not known[name].is_clear]
        base, sentences, rises = _title(self.base), list[str](), self.rises
        kinds = chain(["95% interval "], repeat(""))  # the first interval says what it is
        most = [name for name in clear if complete and self._needs_most(name)]
        for name in most:
            said = _most_in_words(self.x, known[name], base, rises=rises)
            limits = f"{next(kinds)}{_limits(known[name])}"
            sentences.append(f"{_title(name)} {said} ({limits} times).")
        rest = [name for name in clear if name not in most]
        if rest:
            said = _more_in_words(self.x, known[rest[0]], base, rises=rises)
            limits = f"{next(kinds)}{_limits(known[rest[0]])}"
            texts = [f"{_title(rest[0])} {said} ({limits} times)"]
            texts += [
                f"{_title(n)} {_times(known[n].ratio)} times ({_limits(known[n])})"
                for n in rest[1:]
            ]
            sentences.append(f"{', '.join(_shortened(texts))}.")
        if len(unclear) > _MOST:
            sentences.append(f"{len(unclear)} others are not clearly different from {base}.")
        elif unclear:
            texts = [
                f"{_title(n)} ({_times(known[n].ratio)} times, {next(kinds)}{_limits(known[n])})"
                for n in unclear
            ]
            sentences.append(f"Not clearly different from {base}: {', '.join(texts)}.")
        return sentences

    def _needs_most(self, name: str) -> bool:
        """Return whether a variant clearly needs more than every other one."""
        return all(
            self._exceeds(self.found[name], other)
            for key, other in self.found.items()
            if key != name
        )

    def _exceeds(self, a: Boundary, b: Boundary) -> bool:
        ratio = mean_ratio(a, b)
        outside = math.inf if self.rises else -math.inf
        beyond_a, beyond_b = (
            {at for at, half in zip(line.at, line.half, strict=True) if half == outside}
            for line in (a, b)
        )
        more = ratio.low > 1 if self.rises else ratio.high < 1
        return more and beyond_b <= beyond_a


def _boundary_in_words(line: Boundary) -> str:
    """Return a sentence on the boundary of one variant."""
    values = line.half[line.measured]
    least, most = two_digits(values.min()), two_digits(values.max())
    where = least if least == most else f"{least} to {most}"
    if len(values) == 1:
        row = int(line.measured.argmax())
        where = (
            f"{least} (95% interval {two_digits(line.low[row])} to {two_digits(line.high[row])})"
        )
    by = f", depending on “{label_of(line.y)}”" if line.y is not None and least != most else ""
    return (
        f"Half of the seeds of {_title(line.sharing)} solve the task at “{label_of(line.x)}” "
        f"{where} or {'more' if line.rises else 'less'}{by}."
    )


def _beyond(found: Sequence[Boundary]) -> list[str]:
    """Return a sentence on the rows that the ratios leave out, if there are any."""
    texts = []
    for line in found:
        rows = [
            str(at) for at, measured in zip(line.at, line.measured, strict=True) if not measured
        ]
        if rows and line.y is not None:
            texts.append(f"{_title(line.sharing)} at {joined(rows)}")
    if not texts:
        return []
    x, y = label_of(found[0].x), label_of(found[0].y or "")
    outside = f"where the boundary lies outside of the values of “{x}”"
    return [f"Values of “{y}” {outside} are not counted: {'; '.join(_shortened(texts))}."]


def _limits(ratio: MeanRatio) -> str:
    if not math.isfinite(ratio.high):
        return f"at least {_times(ratio.low)}" if ratio.low > 0 else "without limits"
    if ratio.low <= 0:
        return f"at most {_times(ratio.high)}"
    return f"{_times(ratio.low)} to {_times(ratio.high)}"


def _times(ratio: float) -> str:
    """Return a ratio with two digits, and with three if it would read as 1."""
    text = f"{ratio:.1f}" if 0.95 <= ratio < 9.95 else two_digits(ratio)
    return f"{ratio:.2f}" if text == "1.0" and ratio != 1 else text


def two_digits(value: float) -> str:
    """Return a number with two significant digits, or as a whole number from 10 on."""
    return f"{value:,.0f}" if abs(value) >= 9.95 else f"{value:.2g}"


def _title(sharing: str) -> str:
    return title_of(Variant(sharing))


def _names(sharings: Sequence[str]) -> str:
    return joined(_shortened([_title(name) for name in sharings]))


def _shortened(texts: list[str]) -> list[str]:
    """Return the first texts and the number of all others, if there are many."""
    if len(texts) <= _MOST:
        return texts
    return [*texts[: _MOST - 1], f"{len(texts) - _MOST + 1} others"]
