"""Sentences that answer a sweep: which variant needs the largest value of an axis, by how much.

Every sentence is computed from the runs and holds for any sweep: a variant is said to need more
only if the 95% interval excludes equality.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnkit.experiment.experiment import settings
from attnkit.foundation.language import in_language, mark, tr, tr_n
from attnkit.foundation.settings import Value
from attnkit.foundation.words import MOST_NAMED, listed, shortened
from attnkit.sweeps.boundary import Boundary, MeanRatio, boundary, mean_ratio
from attnkit.sweeps.cells import runs_at
from attnkit.tasks import TASKS
from attnkit.training.summary import percent
from attnkit.variants.catalogue import title_of

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.sweeps.result import SweepResult

_NEEDS: dict[tuple[bool, bool], dict[str, str]] = {
    # Translators: {interval} is for example "95% interval 1.9 to 2.2".
    (True, True): {
        "d_head": mark(
            "{variant} needs the widest heads: about {times} times as wide as {base} ({interval})"
        ),
        "d_model": mark(
            "{variant} needs the widest models: about {times} times as wide as {base} ({interval})"
        ),
        "d_mlp": mark(
            "{variant} needs the widest MLPs: about {times} times as wide as {base} ({interval})"
        ),
        "n_heads": mark(
            "{variant} needs the most heads: about {times} times as many as {base} ({interval})"
        ),
        "n_layers": mark(
            "{variant} needs the most layers: about {times} times as many as {base} ({interval})"
        ),
        "steps": mark(
            "{variant} needs the most steps: about {times} times as many as {base} ({interval})"
        ),
        "": mark(
            "{variant} needs the largest “{label}”: about {times} times as large as {base} "
            "({interval})"
        ),
    },
    (True, False): {
        "d_head": mark("{variant} needs heads about {times} times as wide as {base} ({interval})"),
        "d_model": mark(
            "{variant} needs models about {times} times as wide as {base} ({interval})"
        ),
        "d_mlp": mark("{variant} needs MLPs about {times} times as wide as {base} ({interval})"),
        "n_heads": mark("{variant} needs about {times} times as many heads as {base} ({interval})"),
        "n_layers": mark(
            "{variant} needs about {times} times as many layers as {base} ({interval})"
        ),
        "steps": mark("{variant} needs about {times} times as many steps as {base} ({interval})"),
        "": mark(
            "{variant} needs a value of “{label}” about {times} times as large as {base} "
            "({interval})"
        ),
    },
    (False, True): {
        "": mark(
            "{variant} fails first as “{label}” grows: at about {times} times the value of {base} "
            "({interval})"
        )
    },
    (False, False): {
        "": mark("{variant} fails from about {times} times the “{label}” of {base} on ({interval})")
    },
}
"""Sentences, without a full stop, on the ratio of a variant's boundary to that of another one.

By whether variants need large values instead of small ones, by whether the variant needs the
largest or smallest value of all, and by setting; "" for any other setting.
"""

_INTERVALS = {
    (True, True): mark("95% interval {low} to {high}"),
    (True, False): mark("95% interval at least {low}"),
    (False, True): mark("95% interval at most {high}"),
    # Translators: an interval without limits.
    (False, False): mark("95% interval without limits"),
}
_LIMITS = {
    (True, True): mark("{low} to {high}"),
    (True, False): mark("at least {low}"),
    (False, True): mark("at most {high}"),
    # Translators: an interval without limits.
    (False, False): mark("without limits"),
}
"""Limits of an interval, by whether there is a lower one and an upper one; the first names it."""

_SOLVE_AT = {
    (True, False): mark(
        "Half of the seeds of {variant} solve the task at “{label}” {values} or more."
    ),
    (False, False): mark(
        "Half of the seeds of {variant} solve the task at “{label}” {values} or less."
    ),
    (True, True): mark(
        "Half of the seeds of {variant} solve the task at “{label}” {values} or more, depending on "
        "“{other}”."
    ),
    (False, True): mark(
        "Half of the seeds of {variant} solve the task at “{label}” {values} or less, depending on "
        "“{other}”."
    ),
}
"""Sentences about a boundary, by whether the variant needs large values instead of small ones, and
by whether the boundary depends on a second axis."""

_SHARES = mark("Share of the runs that solve the task: {variants}.")
_UNSOLVED = mark("No run solves the task. Mean accuracy: {variants}.")
"""Sentences about sweeps without a boundary."""


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
    result: SweepResult, x: str, y: str | None = None, fixed: Mapping[str, Value] | None = None
) -> Conclusion:
    """Return the conclusion about the boundaries of all variants.

    Ratios are to the boundary of QKV or, if QKV has none, of the first variant that has one, and
    are averaged over the values of `y`. `fixed` has a value for every other axis.
    """
    runs = runs_at(result, fixed or {}, x, y)
    if runs.empty:
        return Conclusion(tr("Nothing has been trained here yet."), False)
    task = result.sweep.task or str((fixed or {}).get("task", ""))
    text, has_ratios = _sentences(result, runs, x, y, fixed)
    if task not in TASKS:
        return Conclusion(text, has_ratios)
    solving = runs["sharing"][runs["steps_to_threshold"].notna()]
    text = tr("On “{task}”: {text}", task=tr(TASKS[task].title), text=text)
    return Conclusion(text, has_ratios, direction_note(task, set(solving)))


def direction_note(task: str, solving: Collection[str]) -> str:
    """Return why variants that fail on a relation with a direction can solve this task.

    It is one sentence; empty if this task has a direction, too, or if no such variant is `solving`
    it in some run.
    """
    names = [name for name in ("Q=K", "Q=K=V") if name in solving]
    if not names or TASKS[task]().plateau is not None:
        return ""
    return tr_n(
        "{variants} fails on “{task}”, but not here: no question of this task has an opposite one "
        "with another answer, so a model can solve it although its scores are the same in both "
        "directions.",
        "{variants} fail on “{task}”, but not here: no question of this task has an opposite one "
        "with another answer, so a model can solve it although its scores are the same in both "
        "directions.",
        len(names),
        variants=listed(names),
        task=tr(TASKS["directed"].title),
    )


def _sentences(
    result: SweepResult,
    runs: pd.DataFrame,
    x: str,
    y: str | None,
    fixed: Mapping[str, Value] | None,
) -> tuple[str, bool]:
    trained = [v.value for v in result.sweep.sharing if (runs["sharing"] == v.value).any()]
    shares = runs["steps_to_threshold"].notna().groupby(runs["sharing"]).mean()
    found = {
        name: line
        for name in trained
        if (line := boundary(result, name, x, y, fixed)) is not None and line.measured.any()
    }
    if not found:
        known = shares if shares.any() else runs["accuracy"].groupby(runs["sharing"]).mean()
        each = shortened([f"{title_of(name)} {percent(known[name])}" for name in trained])
        template = _SHARES if shares.any() else _UNSOLVED
        return tr(template, variants=", ".join(each)), False
    never, always = ([n for n in trained if shares[n] == share] for share in (0, 1))
    sentences = []
    if never:
        sentences.append(
            tr_n(
                "{variants} solves the task in no run.",
                "{variants} solve the task in no run.",
                len(never),
                variants=_names(never),
            )
        )
    ratios = _about_ratios(x, found, complete=not never)
    if ratios:
        sentences += [*ratios, *_beyond(list(found.values()))]
    else:
        sentences += [_boundary_in_words(line) for line in list(found.values())[:MOST_NAMED]]
    if always:
        sentences.append(
            tr_n(
                "{variants} solves the task in every run.",
                "{variants} solve the task in every run.",
                len(always),
                variants=_names(always),
            )
        )
    return " ".join(sentences), bool(ratios)


def _about_ratios(x: str, found: Mapping[str, Boundary], *, complete: bool) -> list[str]:
    """Return the sentences on the ratios of all boundaries to one of them, the clear ones first.

    No variant is said to need the most unless every one solves the task in some run (`complete`).
    """
    base = "QKV" if "QKV" in found else next(iter(found))
    title, rises = title_of(base), found[base].rises
    ratios = {name: mean_ratio(line, found[base]) for name, line in found.items() if name != base}
    by_size = sorted(
        (name for name, ratio in ratios.items() if ratio.n_compared),
        key=lambda name: ratios[name].ratio,
        reverse=rises,
    )
    is_first = chain([True], repeat(False))  # the first interval says what it is

    def ratio_of(name: str, sentence: str) -> str:
        return tr(
            sentence,
            variant=title_of(name),
            base=title,
            label=tr(label_of(x)),
            times=_times(ratios[name].ratio),
            interval=_limits(ratios[name], named=next(is_first)),
        )

    def needs(name: str, *, most: bool) -> str:
        sentences = _NEEDS[rises, most]
        return ratio_of(name, sentences.get(x, sentences[""]))

    clear = [name for name in by_size if ratios[name].is_clear]
    unclear = [name for name in by_size if not ratios[name].is_clear]
    others = {name: [line for key, line in found.items() if key != name] for name in clear}
    most = [n for n in clear if complete and all(_exceeds(found[n], one) for one in others[n])]
    sentences = [f"{needs(name, most=True)}." for name in most]
    first, *next_ones = [name for name in clear if name not in most] or [""]
    if first:
        texts, brief = [needs(first, most=False)], mark("{variant}: {times} times ({interval})")
        texts += [ratio_of(name, brief) for name in next_ones]
        sentences.append(f"{'; '.join(shortened(texts))}.")
    if len(unclear) > MOST_NAMED:
        sentences.append(
            tr_n(
                "{n} other is not clearly different from {base}.",
                "{n} others are not clearly different from {base}.",
                len(unclear),
                base=title,
            )
        )
    elif unclear:
        label = mark("{variant} ({times} times, {interval})")
        names = ", ".join([ratio_of(name, label) for name in unclear])
        sentences.append(
            tr("Not clearly different from {base}: {variants}.", base=title, variants=names)
        )
    return sentences


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
    values = line.half[line.measured]
    least, most = two_digits(values.min()), two_digits(values.max())
    shown = {"variant": title_of(line.sharing), "label": tr(label_of(line.x)), "values": least}
    if len(values) == 1:
        row = int(line.measured.argmax())
        low, high = line.low[row], line.high[row]
        limits = _INTERVALS[math.isfinite(low), math.isfinite(high)]
        interval = tr(limits, low=two_digits(low), high=two_digits(high))
        shown["values"] = tr("{value} ({interval})", value=least, interval=interval)
    elif least != most:
        shown["values"] = tr("{low} to {high}", low=least, high=most)
    depends = line.y is not None and least != most
    shown["other"] = tr(label_of(line.y)) if line.y is not None else ""
    return tr(_SOLVE_AT[line.rises, depends], **shown)


def _beyond(found: Sequence[Boundary]) -> list[str]:
    """Return a sentence on the rows that the ratios leave out, if there are any."""
    texts = []
    for line in found:
        rows = [str(at) for at in np.array(line.at, object)[~line.measured]]
        if rows and line.y is not None:
            # Translators: the values of an axis at which a variant is not counted.
            text = tr("{variant} at {values}", variant=title_of(line.sharing), values=listed(rows))
            texts.append(text)
    if not texts:
        return []
    return [
        tr(
            "Values of “{y}” where the boundary lies outside of the values of “{x}” are not "
            "counted: {variants}.",
            x=tr(label_of(found[0].x)),
            y=tr(label_of(found[0].y or "")),
            variants="; ".join(shortened(texts)),
        )
    ]


def _limits(ratio: MeanRatio, *, named: bool) -> str:
    """Return the limits of a ratio; if they are named, the text says that it is an interval."""
    limited = ratio.low > 0, math.isfinite(ratio.high)
    texts = _INTERVALS if named else _LIMITS
    return tr(texts[limited], low=_times(ratio.low), high=_times(ratio.high))


def _times(ratio: float) -> str:
    """Return a ratio with two digits, and with three if it would read as 1."""
    text = f"{ratio:.1f}" if 0.95 <= ratio < 9.95 else two_digits(ratio)
    return f"{ratio:.2f}" if text == "1.0" and ratio != 1 else text


def two_digits(value: float) -> str:
    """Return a number with two significant digits, or as a whole number from 10 on."""
    return in_language(f"{value:,.0f}" if abs(value) >= 9.95 else f"{value:.2g}", value)


def _names(sharings: Sequence[str]) -> str:
    return listed(shortened([title_of(name) for name in sharings]))
