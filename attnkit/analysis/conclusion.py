"""Sentences that answer a sweep: which variant needs the largest value of an axis, by how much.

Every sentence is computed from the runs and holds for any sweep: a variant is said to need more
only if the 95% interval excludes equality.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

from attnkit.analysis.boundary import Boundary, MeanRatio, boundary, mean_ratio
from attnkit.analysis.capacity import Swept, runs_at
from attnkit.experiment.experiment import settings
from attnkit.foundation.settings import Value
from attnkit.foundation.words import MOST_NAMED, listed, shortened, verb
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
    """Return why variants that fail on a relation with a direction can solve this task.

    Args:
        solving: Text forms of the variants that solve the task in some run.

    Returns:
        One sentence; empty if this task has a direction, too, or if no such variant solves it.
    """
    names = [name for name in ("Q=K", "Q=K=V") if name in solving]
    if not names or TASKS[task]().plateau is not None:
        return ""
    return (
        f"{listed(names)} {verb(names, 'fails', 'fail')} on “{TASKS['directed'].title}”, but "
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
        each = shortened([f"{_title(name)} {percent(shares[name])}" for name in trained])
        text = f"Share of the runs that solve the task: {', '.join(each)}."
        return text, False
    never, always = ([n for n in trained if shares[n] == share] for share in (0, 1))
    sentences = []
    if never:
        sentences.append(f"{_names(never)} {verb(never, 'solves', 'solve')} the task in no run.")
    ratios = _about_ratios(x, found, complete=not never)
    if ratios:
        sentences += [*ratios, *_beyond(list(found.values()))]
    else:
        sentences += [_boundary_in_words(line) for line in list(found.values())[:MOST_NAMED]]
    if always:
        solve = verb(always, "solves", "solve")
        sentences.append(f"{_names(always)} {solve} the task in every run.")
    return " ".join(sentences), bool(ratios)


def _about_ratios(x: str, found: Mapping[str, Boundary], *, complete: bool) -> list[str]:
    """Return the sentences on the ratios of all boundaries to one of them, the clear ones first.

    Args:
        x: Axis of the boundaries.
        found: Boundary of every variant that has one.
        complete: Whether every variant solves the task in some run; otherwise none of them is
            said to need the most.
    """
    base = "QKV" if "QKV" in found else next(iter(found))
    ratios = {name: mean_ratio(line, found[base]) for name, line in found.items() if name != base}
    known = {name: ratio for name, ratio in ratios.items() if ratio.n_compared}
    title, rises = _title(base), found[base].rises
    kinds = chain(["95% interval "], repeat(""))  # the first interval says what it is

    def times(name: str) -> str:
        return f"{_times(known[name].ratio)} times"

    def interval(name: str) -> str:
        return f"{next(kinds)}{_limits(known[name])}"

    def needs(name: str, *, most: bool) -> str:
        words = _need_in_words(x, f"about {times(name)}", title, rises=rises, most=most)
        return f"{_title(name)} {words} ({interval(name)} times)"

    by_size = sorted(known, key=lambda name: known[name].ratio, reverse=rises)
    clear = [name for name in by_size if known[name].is_clear]
    unclear = [name for name in by_size if not known[name].is_clear]
    most = [name for name in clear if complete and _needs_most(name, found)]
    sentences = [f"{needs(name, most=True)}." for name in most]
    first, *others = [name for name in clear if name not in most] or [""]
    if first:
        texts = [needs(first, most=False)]
        texts += [f"{_title(name)} {times(name)} ({interval(name)})" for name in others]
        sentences.append(f"{', '.join(shortened(texts))}.")
    if len(unclear) > MOST_NAMED:
        sentences.append(f"{len(unclear)} others are not clearly different from {title}.")
    elif unclear:
        texts = [f"{_title(name)} ({times(name)}, {interval(name)})" for name in unclear]
        sentences.append(f"Not clearly different from {title}: {', '.join(texts)}.")
    return sentences


def _need_in_words(x: str, times: str, base: str, *, rises: bool, most: bool) -> str:
    """Return in words how large a value a variant needs, or that it needs the largest of all."""
    label = f"“{label_of(x)}”"
    if not rises:
        if most:
            return f"fails first as {label} grows: at {times} the value of {base}"
        return f"fails from {times} the {label} of {base} on"
    noun, adjective, superlative = _WORDS.get(x, (label, "large", "largest"))
    if most:
        return f"needs the {superlative} {noun}: {times} as {adjective} as {base}"
    if adjective == "many":
        return f"needs {times} as many {noun} as {base}"
    noun = noun if x in _WORDS else f"a value of {noun}"
    return f"needs {noun} {times} as {adjective} as {base}"


def _needs_most(name: str, found: Mapping[str, Boundary]) -> bool:
    """Return whether a variant clearly needs more than every other one."""
    return all(_exceeds(found[name], other) for key, other in found.items() if key != name)


def _exceeds(a: Boundary, b: Boundary) -> bool:
    """Return whether `a` is clearly beyond `b`, and lies outside of the sweep wherever `b` does."""
    ratio = mean_ratio(a, b)
    outside = math.inf if a.rises else -math.inf
    beyond_a, beyond_b = (
        {at for at, half in zip(line.at, line.half, strict=True) if half == outside}
        for line in (a, b)
    )
    more = ratio.low > 1 if a.rises else ratio.high < 1
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
            texts.append(f"{_title(line.sharing)} at {listed(rows)}")
    if not texts:
        return []
    x, y = label_of(found[0].x), label_of(found[0].y or "")
    outside = f"where the boundary lies outside of the values of “{x}”"
    return [f"Values of “{y}” {outside} are not counted: {'; '.join(shortened(texts))}."]


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
    return listed(shortened([_title(name) for name in sharings]))
