"""Learning curves: histories of metrics, their reference levels, and figures over training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int64

from attnkit.analysis.comparison import Metric
from attnkit.experiment import Experiment
from attnkit.figures.marks import Mark, curve, level, mean_curve
from attnkit.figures.panels import (
    SHARES,
    Axis,
    Figure,
    Panel,
    draw_live,
    thin,
    titles_of,
)
from attnkit.foundation.language import mark, tr
from attnkit.tasks import Task
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import Interval, mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import REFERENCE, colors_of, translucent

_MEASURES = {
    "asymmetry": (mark("asymmetry"), "solid",
    mark("asymmetry of the scores: 0 if a pair scores alike both ways, about ½ if its two scores "
    "are unrelated and zero on average (mean over heads and layers)")),
    "mass_on_target": (mark("right token"), "dash",
    mark("attention on the token that holds the answer")),
    "mass_on_reverse": (mark("mirrored entry"), "dot",
    mark("attention on the mirrored entry, which points back at the query")),
}  # fmt: skip
"""Name, dash and description of each measure of attention."""

_DASHES = {
    # Translators: before a colon and what is drawn with a solid line.
    "solid": mark("Line"), "thin": mark("Thin lines"), "dot": mark("Dotted"),
    "dash": mark("Dashed"), "longdashdot": mark("Dash-dotted"), "previous": mark("Grey"),
}  # fmt: skip
"""Names of the styles of lines."""

Legend = list[dict[str, str]]
"""Dash and text of every style of line."""


@dataclass(frozen=True, eq=False)
class History:
    """A metric at the steps that charts show.

    Attributes:
        steps: Steps of the evaluations.
        runs: Values of all seeds by variant.
        intervals: Means over seeds with their 95% limits by variant.
    """

    steps: Int64[np.ndarray, " e"]
    runs: dict[Variant, Float[np.ndarray, "e s"]]
    intervals: dict[Variant, Interval]

    @classmethod
    def of(cls, name: str, snapshot: Snapshot) -> History:
        """Return a metric of a snapshot at no more than `MAX_POINTS` evaluations."""
        steps, indices = thin(snapshot.eval_steps)
        by_variant = np.moveaxis(snapshot.per_sharing(snapshot.curve(name))[indices], 1, 0)
        runs = dict(zip(snapshot.experiment.sharing, by_variant, strict=True))
        limits = vars(mean_interval(by_variant)).values()  # all at once, which is faster
        intervals = (Interval(*of_variant) for of_variant in zip(*limits, strict=True))
        return cls(steps, runs, dict(zip(runs, intervals, strict=True)))


@dataclass(frozen=True)
class Level:
    """A reference level of a metric: its value, and the dash and the name of its line."""

    value: float
    dash: str
    text: str


def metric_of(task: Task) -> Metric:
    """Return the metric by which the variants of a task are judged."""
    return "accuracy" if task.loss_to_beat is None else "loss"


def reference_levels(metric: Metric, task: Task, at_start: float = 0.0) -> list[Level]:
    """Return the levels that all variants of a task have.

    They are chance and the accuracy at the start of training, if it is known; or the loss to beat,
    if there is one.
    """
    if metric == "accuracy":
        chance = tr("chance {share}", share=percent(task.chance))
        levels = [Level(task.chance, "dot", chance)]
        if not math.isnan(at_start):
            levels.append(Level(at_start, "dash", tr("untrained")))
        return levels
    if task.loss_to_beat is None:
        return []
    text = f"{tr(task.simple_model)} {task.loss_to_beat:.2f}"
    return [Level(task.loss_to_beat, "dot", text)]


def plateau_levels(experiment: Experiment, variant: Variant) -> list[Level]:
    """Return the accuracy at which symmetric scores can keep a variant: a plain Q=K or Q=K=V."""
    if experiment.plateau is None or not (variant.is_partition and variant.sharing.symmetric):
        return []
    text = tr("guess between two entries {share}", share=percent(experiment.plateau))
    return [Level(experiment.plateau, "longdashdot", text)]


def levels_of(
    metric: Metric, experiment: Experiment, history: History
) -> dict[Variant, list[Level]]:
    """Return the reference levels of every variant of a history."""
    levels = {}
    for variant, interval in history.intervals.items():
        levels[variant] = reference_levels(metric, experiment.task, float(interval.mean[0]))
        if metric == "accuracy":
            levels[variant] += plateau_levels(experiment, variant)
    return levels


def top_of(metric: Metric, snapshots: Iterable[Snapshot]) -> float:
    """Return the upper end of the vertical axis of learning curves."""
    if metric == "accuracy":
        return 1.0
    ends = []
    for snapshot in snapshots:
        task, at_start = snapshot.experiment.task, snapshot.history["loss"][0]
        ends += [math.log(task.n_classes), task.loss_to_beat or 0.0]
        ends += at_start[np.isfinite(at_start)].tolist()
    return 1.05 * max(ends)


def legend_of(
    metric: Metric, experiment: Experiment, levels: Iterable[Level], *, has_previous: bool = False
) -> Legend:
    """Return the legend of learning curves with their reference levels."""
    n = experiment.n_seeds
    if n > 1:
        legend = {
            tr("mean of {n} seeds, 95% interval", n=n): "solid",
            tr("each seed"): "thin",
        }
    elif metric == "accuracy":
        legend = {tr("accuracy of the one seed"): "solid"}
    else:
        legend = {tr("loss of the one seed"): "solid"}
    legend |= {level.text: level.dash for level in levels}
    if experiment.training.earlier_steps:
        line = tr("vertical line: the embedding is frozen, and all else starts anew")
        legend[line] = "thin"
    if has_previous:
        legend[tr("previous experiment")] = "previous"
    return _entries(legend)


def _entries(legend: dict[str, str]) -> Legend:
    return [{"dash": dash, "text": text} for text, dash in legend.items()]


def legend_in_words(legend: Legend) -> str:
    """Return the styles of lines and what they mean as a text."""
    return " ".join(f"{tr(_DASHES[entry['dash']])}: {entry['text']}." for entry in legend)


def plot_metric(
    snapshot: Snapshot, metric: Metric = "accuracy", previous: Snapshot | None = None
) -> Figure:
    """Plot a metric over steps: mean with 95% interval, all seeds, reference levels.

    Args:
        snapshot: Snapshot of the experiment.
        metric: Held-out accuracy, or held-out cross-entropy in nats.
        previous: Snapshot of an earlier experiment, drawn in grey for the variants of both.
    """
    experiment, history = snapshot.experiment, History.of(metric, snapshot)
    before = None if previous is None else History.of(metric, previous)
    levels, top = levels_of(metric, experiment, history), top_of(metric, [snapshot])
    panels = []
    for variant, color in zip(experiment.sharing, colors_of(experiment.sharing), strict=True):
        marks = [level(one.value, one.dash, width=1.2) for one in levels[variant]]
        marks += _switch_line(snapshot)
        if before is not None and variant in before.intervals:
            grey, mean = translucent(REFERENCE, 0.55), before.intervals[variant].mean
            marks.append(curve(before.steps, mean, grey, width=3))
        area, line = mean_curve(history.steps, history.intervals[variant], color, top=top)
        panels.append([*marks, area, _single_runs(history, variant, color), line])
    of_all = [one for of_variant in levels.values() for one in of_variant]
    legend = legend_of(metric, experiment, of_all, has_previous=previous is not None)
    return _drawn(snapshot, panels, metric_axis(metric, top), legend)


def plot_attention_measures(snapshot: Snapshot) -> Figure:
    """Plot score asymmetry, and attention on the right token and on the mirrored entry."""
    colors = colors_of(snapshot.experiment.sharing)
    panels, legend = [_switch_line(snapshot) for _ in colors], {}
    for metric, (name, dash, text) in _MEASURES.items():
        history = History.of(metric, snapshot)
        for marks, interval, color in zip(panels, history.intervals.values(), colors, strict=True):
            if not np.isnan(interval.mean).all():
                legend[tr(text)] = dash
                marks += mean_curve(history.steps, interval, color, dash=dash, name=tr(name))
    return _drawn(snapshot, panels, metric_axis("accuracy", 1.0), _entries(legend))


def _drawn(snapshot: Snapshot, marks: Sequence[Sequence[Mark]], y: Axis, legend: Legend) -> Figure:
    """Return a panel of marks over the steps of training for each variant."""
    x, titles = step_axis(snapshot.experiment), titles_of(snapshot.experiment.sharing)
    panels = [Panel(x, y, of_one, title) for of_one, title in zip(marks, titles, strict=True)]
    return draw_live(panels, legend, snapshot.experiment.hash, snapshot.step)


def step_axis(experiment: Experiment) -> Axis:
    """Return the horizontal axis of the steps of an experiment."""
    # Translators: name of the axis of the steps of training.
    return Axis(0, experiment.training.steps, tr("steps"), n_ticks=3)


def metric_axis(metric: Metric, top: float) -> Axis:
    """Return the vertical axis of a metric that ends at `top`; accuracies end at 1."""
    if metric == "loss":
        return Axis(0.0, top, n_ticks=5)
    return replace(SHARES, texts=("0", "", "½", "", "1"))


def _switch_line(snapshot: Snapshot) -> list[Mark]:
    """Return a vertical line at the switch from an earlier task to the task, if there is one."""
    step = snapshot.experiment.training.earlier_steps
    return [level(step, "solid", upright=True, width=1)] if step else []


def _single_runs(history: History, variant: Variant, color: str) -> Mark:
    """Return the lines of all seeds as one curve with gaps between them."""
    values = history.runs[variant]
    n_seeds = values.shape[1]
    x = np.append(history.steps.astype(np.float32), np.nan)
    y = np.vstack([values, np.full(n_seeds, np.nan)]).T.ravel()
    return curve(np.tile(x, n_seeds), y, translucent(color, 0.4), width=1)
