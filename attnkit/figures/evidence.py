"""Figures of a claim: scores arm by arm, differences in pairs, learning curves, and elsewhere.

Evidence of a run in progress may lack arms and seeds; what is there is plotted.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from html import escape

import numpy as np

from attnkit.claims import Claim
from attnkit.claims.base import Arm, arm_title
from attnkit.claims.measures import Measure, multiples
from attnkit.claims.statements import Statement
from attnkit.evidence.elsewhere import TITLES, Elsewhere, in_words
from attnkit.evidence.elsewhere import value_in_words as side_in_words
from attnkit.evidence.record import Curve, Evidence
from attnkit.evidence.verdict import Finding, differences
from attnkit.evidence.words import (
    difference_in_words,
    finding_in_words,
    longer_in_words,
    tested_in_words,
)
from attnkit.figures.marks import (
    LINE,
    OUTLINE,
    STRIPE,
    SYMBOLS,
    Mark,
    band,
    curve,
    dots,
    level,
    limits,
    region,
    row_offsets,
    stripes,
    text,
)
from attnkit.figures.panels import Axis, Figure, Panel, draw, row_axis
from attnkit.foundation.language import in_language, mark, tr, tr_n
from attnkit.foundation.words import capitalised
from attnkit.training.metrics import SHOWN
from attnkit.training.statistics import Interval, mean_interval, median_interval
from attnkit.training.summary import fixed, in_percent, percent
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, REFERENCE, translucent

EVIDENCE_KEY = mark(
    "A small mark is one seed; the large mark is their median, or the mean of losses and "
    "symmetries; its bar is the 95% interval."
)
"""How to read `plot_evidence`."""

DIFFERENCES_KEY = mark(
    "A dot is the difference of both arms with one seed, filled in the shaded region, where the "
    "statement holds. A triangle at the edge: one of both runs never solves its task. The diamond "
    "is the median of counted pairs, or else the mean; its bar is the 95% interval."
)
"""How to read `plot_differences`."""

ELSEWHERE_KEY = mark(
    "Three new seeds in every structure, each variant at the best of three learning rates. "
    "✓ the claim holds, ✗ it does not hold, ~ it holds with some seeds, – no variant learns."
)
"""How to read `plot_elsewhere`."""

_LABEL, _HEADING = 19, 48
"""Most characters in a line of an arm's name, which leave room for the figure on a phone, and in a
line of text above a row of differences."""

_HEIGHT = 34
"""Height of the dots of a row of differences in pixels."""

_FORMS = ("", "-open", "-open-dot", "-dot")
"""Forms of the symbols of the first, second, … arm with the same sharing."""

_MOST_TICKS = 5
"""Largest number of doublings between the ends of an axis that are all labelled."""

_PLACE_HEIGHT = 19
"""Height of the row of a structure in pixels."""

_REGION = translucent(REFERENCE, 0.3)
"""Colour of the region in which a statement holds: grey, as colours mean variants."""

_INCLUDED = {"asymmetry": (0.0, 0.5), "weight_symmetry": (0.0, 1.0), "mass_on_target": (0.0, 1.0)}
"""Range of values of a measure that the axis always includes."""

_AVERAGES = {
    (True, True): mark("mean {value} [{low} to {high}]"),
    (True, False): mark("mean {value}"),
    (False, True): mark("median {value} [{low} to {high}]"),
    (False, False): mark("median {value}"),
}
"""Averages by whether they are means, and by whether they have an interval."""

_TITLES = {
    "points": mark("difference in points"),
    "doublings": mark("difference in doublings"),
    "nats": mark("difference in nats"),
}
"""Title of the axis of differences by their unit."""


def plot_evidence(evidence: Evidence) -> Figure:
    """Plot a row per arm: its seeds, their median or mean, and its 95% interval.

    Every arm is read by the measure of the first statement, at the step at which its own statement
    reads it.
    """
    rows, plotted = _rows_of(evidence)
    labels = [row.label for row in rows]
    tallest = max((label.count("<br>") + 1 for label in labels), default=1)
    marks = stripes(len(rows)) + (_chance(rows) if plotted.unit == "points" else [])
    marks += [one for y, row in enumerate(rows) for one in row.marks(y)]
    height = max(40, LINE * tallest + 8) * max(1, len(rows))
    return draw([Panel(_axis(plotted, rows), row_axis(labels), marks, height=height)], top=24)


def describe_evidence(evidence: Evidence) -> str:
    """Describe in words what `plot_evidence` shows."""
    rows, plotted = _rows_of(evidence)
    heading = tr("{measure}, arm by arm.", measure=capitalised(_axis_title(plotted)))
    return " ".join([heading, *(f"{row.title}: {row.in_words}." for row in rows)])


def plot_differences(evidence: Evidence) -> Figure:
    """Plot the pairs of every statement in a row, with average and region; a panel per unit."""
    groups: dict[str, list[_Difference]] = {}
    for finding in evidence.findings:
        unit = finding.statement.measured.unit or finding.statement.measure
        groups.setdefault(unit, []).append(_Difference(evidence, finding))
    return draw([_panel(rows) for rows in groups.values()], right=8, top=6, bottom=46)


def describe_differences(evidence: Evidence) -> str:
    """Describe in words what `plot_differences` shows."""
    rows = [_Difference(evidence, finding) for finding in evidence.findings]
    return " ".join(f"{row.tested}: {row.in_words}." for row in rows) or tr("Nothing yet.")


def _rows_of(evidence: Evidence) -> tuple[list[_Row], Measure]:
    """Return rows for the claim's arms in their order, then for arms that it no longer has.

    An arm has one row, with its best recipe. The measure is that of the first statement that was
    tested; if none was, of the claim's first one.
    """
    first = (*evidence.statements, *evidence.claim.statements)[0]
    # The first statement on an arm says at which multiple of the base steps it is read.
    times = {arm.name: arm.up_to for _, arm in evidence.lost}
    for statement in reversed(evidence.statements):
        times |= dict.fromkeys(statement.arms, statement.at)
    rivals = {arm.name for arm in evidence.rivals}
    arms, scores = evidence.arms, evidence.scores_at(first.measure)
    rows = [
        _Row(evidence, name, arms.get(name), first.measured, times.get(name, first.at))
        for name in dict.fromkeys((*arms, *scores))
        if name in scores and name not in rivals
    ]
    return rows, first.measured


def _tips(seeds: Sequence[int], values: np.ndarray, form: Callable[[float], str]) -> list[str]:
    pairs = zip(seeds, values, strict=True)
    return [tr("seed {seed}: {value}", seed=seed, value=form(value)) for seed, value in pairs]


class _Row:
    """An arm and the scores of its seeds, read after `times` base steps, on the axis's scale."""

    def __init__(
        self, evidence: Evidence, name: str, arm: Arm | None, measure: Measure, times: int
    ) -> None:
        values = evidence.scores_at(measure.name, times)[name] * _scale_of(measure)
        finite = np.isfinite(values)
        self.measure, self.values = measure, values[finite]
        self.seeds = np.array(evidence.seeds)[: len(values)][finite].tolist()
        interval = mean_interval(self.values) if measure.compares_means else median_interval(values)
        self.interval = interval.within(*_bounds(measure))
        self.chance = None if arm is None else 100 * arm.experiment.task.chance
        self.color, self.symbol = _color_and_symbol(arm)
        tuned = evidence.tuned.get(name)
        self.recipe = [] if tuned is None else [tr("learning rate {rate:g}", rate=tuned.rate)]

        n_unsolved = int(np.isinf(values).sum())
        # An arm that is never tied has no accuracy when tied; it has not diverged if it has a loss.
        n_lost = int(np.isnan(evidence.scores_at("loss", times).get(name, values)).sum())
        n_solved, n_all = evidence.n_solved(name, times) if measure.name == "accuracy" else (0, 0)
        solved = tr_n("{n} of {total} solves it", "{n} of {total} solve it", n_solved, total=n_all)
        failures = {
            tr_n("{n} diverged", "{n} diverged", n_lost): n_lost,
            tr_n("{n} unsolved", "{n} unsolved", n_unsolved): n_unsolved,
            solved: 0 < n_solved < n_all,
        }
        self.failures = [text for text, is_so in failures.items() if is_so]

        name, steps = arm_title(name), []
        if arm in evidence.claim.arms and (times := min(times, arm.up_to)) > 1:
            steps = [tr_n("{n:,} step", "{n:,} steps", times * arm.base_steps)]
        self.title = ", ".join([name, *steps])
        lines = textwrap.wrap(name, _LABEL, max_lines=3, placeholder="…")
        self.label = "<br>".join([*map(escape, lines), *steps, *self.failures])

    def marks(self, y: int) -> list[Mark]:
        """Return the marks of a row at height y: seeds below, their median or mean above."""
        form, name = partial(_value_in_words, measure=self.measure), escape(self.title)
        texts = _tips(self.seeds, self.values, form)
        tips = ["<br>".join([name, one, *self.recipe]) for one in texts]
        places = [y + 0.02 + 0.3 * offset for offset in row_offsets(len(self.values))]
        x, color, symbol = self.values, self.color, self.symbol
        marks = [dots(x, places, color, symbol=symbol, opacity=0.75, tips=tips)]
        if np.isfinite(self.interval.mean):
            tip = "<br>".join([name, self.in_words, *self.recipe])
            marks.append(_mean_mark(self.interval, y - 0.2, color, symbol, tip))
        return marks

    @property
    def in_words(self) -> str:
        n, form = len(self.values), partial(_value_in_words, measure=self.measure)
        if not n:
            return ", ".join([tr("no value"), *self.failures])
        average, *ends = (float(number) for number in vars(self.interval).values())
        if math.isfinite(average):
            low, high = map(form, ends) if np.isfinite(ends).all() else ("", "")
            template = _AVERAGES[self.measure.compares_means, low != high]
            words = tr(template, value=form(average), low=low, high=high)
        else:
            median = form(float(np.median(self.values)))
            words = tr("median of those that solve it {value}", value=median)
        return ", ".join([words, tr_n("{n} seed", "{n} seeds", n), *self.failures])


def _bounds(measure: Measure) -> tuple[float, float]:
    """Return the range of possible values, where it is known; shares in percent."""
    if measure.unit == "points":
        return 0.0, 100.0
    return (-math.inf, math.inf) if measure.unit else SHOWN[measure.name].limits


def _axis(measure: Measure, rows: Sequence[_Row]) -> Axis:
    ends = [end for row in rows for end in (*row.values, row.interval.low, row.interval.high)]
    ends += _bounds(measure) if measure.unit == "points" else _INCLUDED.get(measure.name, ())
    finite = [float(end) for end in ends if math.isfinite(end)] or [0.0, 1.0]
    margin = 0.03 * (max(finite) - min(finite)) or 0.1
    low, high = min(finite) - margin, max(finite) + margin
    ticks: Sequence[int] | None = (0, 25, 50, 75, 100) if measure.unit == "points" else None
    texts = None
    if measure.unit == "doublings":
        powers = range(math.ceil(low), math.floor(high) + 1)
        ticks = powers[:: 1 + len(powers) // 6]
        texts = [in_language(f"{2**power:,}", 2**power) for power in ticks]
    return Axis(low, high, _axis_title(measure), ticks, texts)


def _chance(rows: Sequence[_Row]) -> list[Mark]:
    """Return a dotted line at the chance level of every row, and its value above them."""
    known = [(y, row.chance) for y, row in enumerate(rows) if row.chance is not None]
    if not known:
        return []
    least, most = (end(chance for _, chance in known) for end in (min, max))
    low, high = f"{least:.3g}", f"{most:.3g}"
    words = tr("chance {share}", share=in_percent(low))
    if low != high:
        words = tr("chance {low} to {high}", low=low, high=in_percent(high))
    lines = [level(chance, upright=True, ends=(y - 0.5, y + 0.5)) for y, chance in known]
    return [*lines, text(words, least, x_anchor="center" if least > 15 else "left")]


class _Difference:
    """A statement with the differences of its pairs, its finding, and both in words."""

    def __init__(self, evidence: Evidence, found: Finding) -> None:
        self.statement = statement = found.statement
        values = differences(statement, evidence.scores_at(statement.measure, statement.at))
        present = ~np.isnan(values)
        self.values = values[present]
        self.seeds = np.array(evidence.seeds)[: len(values)][present].tolist()
        self.color = _color_and_symbol(evidence.arms.get(statement.left))[0]
        effect = (found.effect, found.effect_low, found.effect_high)
        self.scale = _scale_of(statement.measured)
        self.effect = Interval(*(self.scale * np.array(effect)))
        self.region = (self.scale * statement.low, self.scale * statement.high)
        self.tested = tested_in_words(found)
        self.in_words = f"{tr(found.verdict)}: {finding_in_words(found)}"
        bold = [f"<b>{escape(line)}</b>" for line in textwrap.wrap(self.tested, _HEADING)]
        plain = map(escape, textwrap.wrap(self.in_words, _HEADING + 6))
        self.lines = [*bold, *plain]
        self.height = LINE * len(self.lines) + _HEIGHT + 14

    def marks(self, top: int, low: float, high: float) -> list[Mark]:
        """Return the row below `top`: text, region, limits, zero, pairs, and mean with interval.

        Infinite pairs stand at the edges of the axis from `low` to `high`.
        """
        lower = top + self.height - 10
        middle, ends = lower - _HEIGHT / 2, (lower - _HEIGHT, lower)
        limits = [limit for limit in self.region if math.isfinite(limit) and limit]
        shaded = (max(low, self.region[0]), min(high, self.region[1]))
        inset, values = 0.02 * (high - low), self.values
        inside = (values > self.statement.low) | math.isinf(self.statement.low)
        inside &= (values < self.statement.high) | math.isinf(self.statement.high)
        shapes = {-math.inf: "triangle-left", math.inf: "triangle-right"}
        symbols = [
            shapes.get(value, "circle") + ("" if is_inside else "-open")
            for value, is_inside in zip(values, inside, strict=True)
        ]
        form = partial(difference_in_words, statement=self.statement)
        pairs = dots(
            (self.scale * values).clip(low + inset, high - inset),
            [middle + 10 * offset for offset in row_offsets(len(values))],
            self.color,
            symbol=symbols,
            size=8,
            opacity=0.8,
            edge={"color": self.color, "width": 1.5},
            tips=_tips(self.seeds, values, form),
        )
        marks = [
            text("<br>".join(self.lines), None, top, y_anchor="top", is_html=True),
            region(None, ends, STRIPE),
            region(shaded, ends, _REGION),
            *(level(limit, "solid", upright=True, ends=ends) for limit in limits),
            level(0.0, upright=True, ends=ends),
            pairs,
        ]
        if np.isfinite(self.effect.mean):
            tip = escape(self.in_words)
            marks.append(_mean_mark(self.effect, middle - 9, self.color, "diamond", tip))
        return marks


def _panel(rows: Sequence[_Difference]) -> Panel:
    """Return the panel of rows with the same unit; the unit of its vertical axis is one pixel.

    The horizontal axis has zero and all finite pairs, intervals and limits.
    """
    ends = [0.0]
    for row in rows:
        ends += [*(row.scale * row.values), *vars(row.effect).values(), *row.region]
    finite = [float(end) for end in ends if math.isfinite(end)]
    margin = 0.1 * (max(finite) - min(finite)) or 1.0
    low, high = min(finite) - margin, max(finite) + margin
    marks, top = [], 0
    for row in rows:
        marks += row.marks(top, low, high)
        top += row.height
    x = Axis(low, high, _title(rows), grid=False)  # Lines would cross the text above the rows.
    return Panel(x, Axis(top, 0, visible=False), marks, height=top)


def _title(rows: Sequence[_Difference]) -> str:
    measure = rows[0].statement.measured
    if measure.unit:
        return tr(_TITLES[measure.unit])
    of_one_arm = [row.statement.right is None for row in rows]
    if all(of_one_arm):
        return _axis_title(measure)
    if any(of_one_arm):
        # Translators: differences of a measure between two variants, or the measure of one.
        return tr("{measure}: difference, or itself", measure=tr(measure.title))
    return tr("{measure}: difference", measure=tr(measure.title))


def plot_elsewhere(claim: Claim, result: Elsewhere) -> Figure:
    """Plot a row for the structure of the claim and for every other one: its mark and the arms."""
    measure = claim.statements[0].measured
    own = next(place for place in result.places if place.is_own)
    places = [own, *(place for place in result.places if not place.is_own)]
    arms = [arm for arm in claim.arms if arm.name in own.values]
    marks, ends = stripes(len(places)), [0.0, 100.0] if measure.unit == "points" else []
    spread = np.linspace(-0.2, 0.2, len(arms)) if len(arms) > 1 else [0.0]
    for arm, offset in zip(arms, spread, strict=True):
        values = np.array([place.values[arm.name] for place in places]) * _scale_of(measure)
        known = np.flatnonzero(np.isfinite(values))
        x, y = values[known].tolist(), (known + offset).tolist()
        color, symbol = _color_and_symbol(arm)
        n_alike = sum(_color_and_symbol(one) == (color, symbol) for one in arms[: arms.index(arm)])
        symbol += _FORMS[n_alike % len(_FORMS)]
        name = escape(arm_title(arm.name))
        tips = [f"{name}: {_value_in_words(value, measure)}" for value in x]
        marks.append(dots(x, y, color, symbol=symbol, size=9, edge=OUTLINE, tips=tips, name=name))
        ends += x
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = 0.05 * (high - low) or 0.5
    axis = Axis(low - margin, high + margin, _axis_title(measure))
    if measure.unit == "doublings":
        every = max(1, math.ceil((high - low) / _MOST_TICKS))
        ticks = range(math.ceil(low), math.floor(high) + 1, every)
        axis = replace(axis, ticks=ticks, texts=[f"{2**tick:,}" for tick in ticks])
    # Translators: label of the structure (layers, heads, widths) that a claim has itself.
    as_claimed = tr("as claimed")
    others = (f"{tr(TITLES[p.side])} {side_in_words(p)} {p.outcome.mark}" for p in places[1:])
    labels = [f"<b>{as_claimed} {own.outcome.mark}</b>", *map(escape, others)]
    return draw(
        [Panel(axis, row_axis(labels), marks, height=_PLACE_HEIGHT * len(places))],
        top=6,
        legend="below",
    )


def describe_elsewhere(result: Elsewhere) -> str:
    """Describe in words what `plot_elsewhere` shows."""
    return tr("Where it holds. {places}.", places=in_words(result))


LEARNING_KEY = mark(
    "A line is the mean over seeds, its band the middle half of them; a mark stands at every "
    "doubling of the steps. Dashed upright line: the end of a short run. Thin dotted line: "
    "the last value of an arm that is trained for fewer steps."
)
"""How to read `plot_learning`."""

COURSE_KEY = mark("A line is the mean over seeds, its band the middle half of them.")
"""How to read `plot_learning` of one statement."""

NARROW = 480
"""Width in pixels of a figure up to which the names of lines stand below the panels."""

_DASHES = ("solid", "dash", "dashdot", "longdash", "dot")
"""Dashes of the first, second, … line of the same colour in a panel."""

_LARGE, _SMALL = (16, 230), (27, 84)
"""Most characters in a line of a label, and height of the smallest panel in pixels: in the figure
of all arms, and in that of one statement."""

_LABEL_LINE, _GAP = 14, 7
"""Height of a line of a label and gap between labels in pixels."""


def plot_learning(
    evidence: Evidence, statement: Statement | None = None, *, narrow: bool = False
) -> Figure | None:
    """Plot a panel for every task with long runs, a line per arm; None if there is nothing to plot.

    Args:
        evidence: The evidence.
        statement: Statement of whose task a small panel is plotted instead. Arms that no statement
            compares are left out, and so are those that confirm an inability, unless this statement
            compares them.
        narrow: Whether the names of the arms stand below the panels instead of beside them.
    """
    size = _LARGE if statement is None else _SMALL
    panels = [_learning_panel(lines, size, narrow) for lines in _arms_of(evidence, statement)]
    if not panels:
        return None
    right = 12 if narrow else 28 + 6 * size[0]
    return draw(panels, left=46, right=right, top=28, bottom=52, legend="below" if narrow else "")


def describe_learning(evidence: Evidence, statement: Statement | None = None) -> str:
    """Describe in words what `plot_learning` shows."""
    texts = [tr("How the arms learn.")]
    for line in (line for lines in _arms_of(evidence, statement) for line in lines):
        means = ", ".join(
            tr_n(
                "{value} after {n:,} step",
                "{value} after {n:,} steps",
                times * line.arm.base_steps,
                value=line.form(line.scale * evidence.mean(line.arm.name, line.by, times)),
            )
            for times in multiples(line.arm.up_to)
        )
        if line.by == "accuracy":
            texts.append(tr("{arm}: mean accuracy {values}.", arm=line.title, values=means))
        else:
            texts.append(tr("{arm}: mean loss {values}.", arm=line.title, values=means))
    texts.append(longer_in_words(evidence) if statement is None else "")
    return " ".join(filter(None, texts))


class _Line:
    """The curve of an arm, from an eighth of the base steps on, accuracies in percent."""

    def __init__(self, arm: Arm, curve: Curve, dash: str, title: str) -> None:
        self.arm, self.dash, self.title, self.by = arm, dash, title, curve.by
        self.color, self.symbol = _color_and_symbol(arm)
        self.scale = 100.0 if curve.by == "accuracy" else 1.0
        shown = curve.steps >= arm.base_steps / 8
        self.steps = curve.steps[shown]
        curves = (curve.mean, curve.low, curve.high)
        self.mean, self.low, self.high = (self.scale * values[shown] for values in curves)

    def form(self, value: float) -> str:
        """Return the text of a value as it is drawn."""
        if math.isnan(value):
            return tr("diverged")
        is_loss = self.by == "loss"
        return tr("{loss:.2f} nats", loss=value) if is_loss else percent(value / 100)


def _arms_of(evidence: Evidence, statement: Statement | None) -> list[list[_Line]]:
    """Return the lines of every panel: one for each task and its base steps."""
    rivals = {arm.name for arm in evidence.rivals}
    names = [name for name in evidence.arms if name in evidence.curves and name not in rivals]
    arms = {name: evidence.arms[name] for name in names}
    if statement is None:  # arms with long runs, and arms compared with these
        shown = {name for name, arm in arms.items() if arm.up_to > 1}
        shown.update(name for name, _ in evidence.lost)
        compared = [one.arms for one in evidence.statements if shown.intersection(one.arms)]
        shown = shown.union(*compared)
    else:
        shown = {arm.name for arm in evidence.claim.compared_arms}.union(statement.arms)
    panels: dict[tuple[str, int], list[_Line]] = {}
    for name, arm in arms.items():
        known = evidence.curves[name]
        if name in shown and len(known.steps):
            lines = panels.setdefault((repr(arm.experiment.task), arm.base_steps), [])
            n_alike = sum((one.color, one.symbol) == _color_and_symbol(arm) for one in lines)
            dash = _DASHES[n_alike % len(_DASHES)]
            lines.append(_Line(arm, known, dash, arm_title(name)))
    return [
        lines
        for lines in panels.values()
        if statement is None or statement.left in [line.arm.name for line in lines]
    ]


def _learning_panel(lines: list[_Line], size: tuple[int, int], narrow: bool) -> Panel:
    """Return the panel of lines of one task; a legend below a narrow figure has their names."""
    task, base = lines[0].arm.experiment.task, lines[0].arm.base_steps
    is_loss = lines[0].by == "loss"
    last = max(float(line.steps[-1]) for line in lines)
    to_beat = task.loss_to_beat if is_loss else 100 * task.chance
    ends = [0.0, 100.0]
    if is_loss:
        drawn = [values for line in lines for values in (line.low, line.high)]
        ends = [float(end) for values in drawn for end in (values.min(), values.max())]
    ends += [] if to_beat is None else [to_beat]
    margin = 0.03 * (max(ends) - min(ends))
    low, high = min(ends) - margin, max(ends) + margin
    y = Axis(low, high)
    if not is_loss:
        ticks = range(0, 101, 25)
        y = replace(y, ticks=ticks, texts=[in_percent(f"{tick}") for tick in ticks])
    powers = range(-3, math.floor(math.log2(last / base)) + 1)
    labelled_every = 1 if len(powers) <= 5 else 2
    places = [base * 2.0**power for power in powers]
    texts = [
        "" if power % labelled_every else in_language(f"{place:,.0f}", place)
        for power, place in zip(powers, places, strict=True)
    ]
    x = Axis(base / 8, last, tr("steps"), places, texts, log=True)
    measure = tr("loss, nats") if is_loss else tr("accuracy")
    end = tr_n("{n:,} step", "{n:,} steps", base)
    marks = [
        text(measure, shift=(-42, 0)),
        level(base, "dash", upright=True),
        text(end, base, high, x_anchor="right" if base == last else "left"),
    ]
    if to_beat is not None:
        name = tr("chance {share}", share=in_percent(f"{to_beat:.3g}"))
        if is_loss:
            name = f"{tr(task.simple_model)} {to_beat:.2f}"
        below = is_loss or to_beat > 10  # Curves rise from chance, and losses fall.
        anchor = "top" if below else "bottom"
        marks += [level(to_beat), text(name, base / 8, to_beat, y_anchor=anchor)]
    width, height = size
    marks += [one for line in lines for one in _marks_of(line, last, narrow)]
    if not narrow:
        labels = [textwrap.wrap(one.title, width, max_lines=4, placeholder="…") for one in lines]
        height = max(height, sum(_LABEL_LINE * len(label) + _GAP for label in labels))
        marks += _labels(lines, labels, (low, high), last, height)
    return Panel(x, y, marks, height=height)


def _labels(
    lines: list[_Line],
    labels: list[list[str]],
    span: tuple[float, float],
    last: float,
    height: int,
) -> list[Mark]:
    """Return the labels beside the ends of their lines, in their order and without overlaps."""
    tips = [float(np.interp(line.mean[-1], span, [height, 0])) for line in lines]
    heights = [_LABEL_LINE * len(label) for label in labels]
    order = sorted(range(len(tips)), key=tips.__getitem__)
    tops, upper, lower = [0.0] * len(tips), 0.0, float(height) + _GAP
    for index in order:  # from the top: below the previous label
        tops[index] = max(upper, tips[index] - heights[index] / 2)
        upper = tops[index] + heights[index] + _GAP
    for index in reversed(order):  # from the bottom: within the panel
        tops[index] = min(tops[index], lower - heights[index] - _GAP)
        lower = tops[index]
    return [
        text(
            "<br>".join(map(escape, label)),
            last,
            float(line.mean[-1]),
            y_anchor="middle",
            pointer=(16, top + own / 2 - tip),
            color=line.color,
            is_html=True,
        )
        for line, label, tip, top, own in zip(lines, labels, tips, tops, heights, strict=True)
    ]


def _marks_of(line: _Line, last: float, named: bool) -> list[Mark]:
    """Return band, line and dots, and a line at the last value until the right end, `last`."""
    texts = [
        tr_n(
            "{n:,.0f} step: mean {mean}, quartiles {low} to {high}",
            "{n:,.0f} steps: mean {mean}, quartiles {low} to {high}",
            step,
            mean=line.form(mean),
            low=line.form(low),
            high=line.form(high),
        )
        for step, mean, low, high in zip(line.steps, line.mean, line.low, line.high, strict=True)
    ]
    tips = [f"{escape(line.title)}<br>{one}" for one in texts]
    at = [line.arm.base_steps * times for times in multiples(line.arm.up_to)]
    name = line.title if named else ""
    marks = [
        band(line.steps, line.low, line.high, line.color, 0.15),
        curve(line.steps, line.mean, line.color, dash=line.dash, tips=tips, name=name),
        dots(at, np.interp(at, line.steps, line.mean), line.color, symbol=line.symbol, size=8),
    ]
    if line.steps[-1] < last:
        rest = line.mean[[-1, -1]]
        marks.append(curve([line.steps[-1], last], rest, line.color, width=1.2, dash="dot"))
    return marks


def _mean_mark(interval: Interval, y: float, color: str, symbol: str, tip: str) -> Mark:
    """Return a large mark at a mean, with a bar between its limits if both are finite."""
    known = np.isfinite(interval.low) and np.isfinite(interval.high)
    return dots(
        [interval.mean],
        [y],
        color,
        symbol=symbol,
        size=13,
        edge=OUTLINE,
        error_x=limits(interval, color, 4) if known else None,
        tips=[tip],
    )


def _color_and_symbol(arm: Arm | None) -> tuple[str, str]:
    """Return colour and symbol of the sharing of an arm; grey and "x" for None."""
    if arm is None:
        return REFERENCE, "x"
    sharing = Variant(arm.variant).sharing
    return COLORS[sharing], SYMBOLS[sharing]


def _axis_title(measure: Measure) -> str:
    """Return the title of an axis: the name of a measure with its unit."""
    title = tr(measure.title)
    if measure.unit == "points":
        return tr("{measure}, percent", measure=title)
    return tr("{measure}, nats", measure=title) if measure.unit == "nats" else title


def _scale_of(measure: Measure) -> float:
    """Return the factor from values of a measure to values on screen: shares become percent."""
    return 100.0 if measure.unit == "points" else 1.0


def _value_in_words(value: float, measure: Measure) -> str:
    """Return the text of a value that has been multiplied by `_scale_of`, with its unit."""
    if measure.unit == "doublings":
        return tr_n("{n:,.0f} step", "{n:,.0f} steps", 2**value)
    if measure.unit == "points":
        return percent(value / 100)
    number = fixed(value, 3)
    return tr("{number} nats", number=number) if measure.unit == "nats" else number
