"""Figures of learning curves and attention measures over training, one panel per variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnkit.analysis.comparison import Metric
from attnkit.experiment import Experiment
from attnkit.figures.marks import Mark, curve, level, mean_curve
from attnkit.figures.panels import (
    MAX_POINTS,
    SHARES,
    Axis,
    Figure,
    Panel,
    draw_live,
    thin,
    titles_of,
)
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import Interval, mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import REFERENCE, colors_of, translucent

_MEASURES = {
    "asymmetry": ("solid", "asymmetry of the scores: 0 if a pair scores alike both ways, about ½ "
    "if its two scores are unrelated (mean over heads and layers)"),
    "right token": ("dash", "attention on the token that holds the answer"),
    "mirrored entry": ("dot", "attention on the mirrored entry, which points back at the query"),
}  # fmt: skip
"""Dash and description of each measure of attention."""


Curves = tuple[list[Panel], list[dict[str, str]]]
"""A panel for each variant, and the dash and text of each style of line."""


def plot_accuracy(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Plot held-out accuracy over steps: mean with 95% interval, all seeds, reference levels.

    Args:
        snapshot: Snapshot of the experiment.
        previous: Snapshot of an earlier experiment, drawn in grey for the variants of both.
    """
    return _drawn(snapshot, metric_curves("accuracy", snapshot, previous))


def plot_loss(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Plot held-out cross-entropy over steps, in nats, with the loss of a simple model to beat.

    Arguments are those of `plot_accuracy`.
    """
    return _drawn(snapshot, metric_curves("loss", snapshot, previous))


def _drawn(snapshot: Snapshot, curves: Curves) -> Figure:
    return draw_live(*curves, snapshot.experiment.hash, snapshot.step)


def metric_curves(
    metric: Metric, snapshot: Snapshot, previous: Snapshot | None = None, most: int = MAX_POINTS
) -> Curves:
    """Return the panels of the history of a metric, with curves of at most so many points."""
    experiment, n = snapshot.experiment, snapshot.experiment.n_seeds
    at_start = snapshot.per_sharing(snapshot.history[metric])[0]
    steps, indices = thin(snapshot.eval_steps, most)
    values = snapshot.per_sharing(snapshot.history[metric])[indices]  # (e, variant, seed)
    levels = _levels(metric, experiment, at_start)
    top = 1.0
    if metric == "loss":
        ends = [math.log(experiment.task.n_classes), experiment.task.loss_to_beat or 0.0]
        top = 1.05 * max([*ends, *at_start[np.isfinite(at_start)].tolist()])
    panels, intervals = [], intervals_of(values)
    colors = colors_of(experiment.sharing)
    for index, (variant, color) in enumerate(zip(experiment.sharing, colors, strict=True)):
        marks = [level(value, dash, width=1.2) for value, dash, _ in levels[index]]
        marks += _switch_line(snapshot)
        if previous is not None and variant in previous.experiment.sharing:
            marks.append(_previous(previous, variant, metric))
        area, line = mean_curve(steps, intervals[index], color, top=top)
        panels.append([*marks, area, _single_runs(steps, values[:, index], color), line])
    legend = {f"{metric} of the one seed": "solid"}
    if n > 1:
        legend = {f"mean of {n} seeds, 95% interval": "solid", "each seed": "thin"}
    legend |= {text: dash for of_variant in levels for _, dash, text in of_variant}
    if experiment.training.earlier_steps:
        legend["vertical line: the embedding is frozen, and all else starts anew"] = "thin"
    if previous is not None:
        legend["previous experiment"] = "previous"
    return _variant_panels(panels, legend, snapshot, metric_axis(metric, top))


def _levels(
    metric: Metric, experiment: Experiment, at_start: np.ndarray
) -> list[list[tuple[float, str, str]]]:
    """Return value, dash and name of the reference levels of every variant.

    Args:
        metric: The metric.
        experiment: The experiment.
        at_start: (variant, seed) values of the metric before training.
    """
    task, plateau = experiment.task, experiment.plateau
    if metric == "loss":
        to_beat = task.loss_to_beat
        if to_beat is None:
            return [[] for _ in at_start]
        return [[(to_beat, "dot", f"{task.simple_model} {to_beat:.2f}")] for _ in at_start]
    chance = (task.chance, "dot", f"chance {percent(task.chance)}")
    starts = mean_interval(at_start).mean.tolist()
    levels = [[chance, (start, "dash", "untrained")] for start in starts]
    if plateau is not None:
        text = f"guess between two entries {percent(plateau)}"
        for variant, of_variant in zip(experiment.sharing, levels, strict=True):
            if stays_at_plateau(variant):
                of_variant.append((plateau, "longdashdot", text))
    return levels


def intervals_of(values: np.ndarray) -> list[Interval]:
    """Return the interval over seeds for every variant, from (e, variant, seed) values."""
    interval = mean_interval(values)
    limits = (interval.mean.T, interval.low.T, interval.high.T)
    return [Interval(*of_variant) for of_variant in zip(*limits, strict=True)]


def plot_attention_measures(snapshot: Snapshot) -> Figure:
    """Plot score asymmetry, and attention on the right token and on the mirrored entry."""
    steps, indices = thin(snapshot.eval_steps)
    history, colors = snapshot.history, colors_of(snapshot.experiment.sharing)
    panels, legend = [_switch_line(snapshot) for _ in colors], {}
    measured = (snapshot.asymmetry, history["mass_on_target"], history["mass_on_reverse"])
    for (name, (dash, text)), values in zip(_MEASURES.items(), measured, strict=True):
        intervals = intervals_of(snapshot.per_sharing(values)[indices])
        for marks, interval, color in zip(panels, intervals, colors, strict=True):
            if not np.isnan(interval.mean).all():
                legend[text] = dash
                marks += mean_curve(steps, interval, color, dash=dash, name=name)
    curves = _variant_panels(panels, legend, snapshot, metric_axis("accuracy", 1.0))
    return _drawn(snapshot, curves)


def _variant_panels(
    panels: Sequence[Sequence[Mark]], legend: dict[str, str], snapshot: Snapshot, y: Axis
) -> Curves:
    """Return panels of marks over the steps of training, one per variant, and their legend."""
    experiment = snapshot.experiment
    x = Axis(0, experiment.training.steps, "steps", n_ticks=3)
    titles = titles_of(experiment.sharing)
    drawn = [Panel(x, y, marks, title) for marks, title in zip(panels, titles, strict=True)]
    entries = [{"dash": dash, "text": text} for text, dash in legend.items()]
    return drawn, entries


def metric_axis(metric: Metric, top: float) -> Axis:
    """Return the vertical axis of a metric that ends at `top`; accuracies end at 1."""
    if metric == "loss":
        return Axis(0.0, top, n_ticks=5)
    return replace(SHARES, texts=("0", "", "½", "", "1"))


def stays_at_plateau(variant: Variant) -> bool:
    """Return whether symmetric scores can keep a variant at the plateau: plain Q=K or Q=K=V."""
    return variant.is_partition and variant.sharing.symmetric


def _switch_line(snapshot: Snapshot) -> list[Mark]:
    """Return a vertical line at the switch from an earlier task to the task, if there is one."""
    step = snapshot.experiment.training.earlier_steps
    return [level(step, "solid", upright=True, width=1)] if step else []


def _previous(previous: Snapshot, variant: Variant, name: str) -> Mark:
    steps, indices = thin(previous.eval_steps)
    index = previous.experiment.sharing.index(variant)
    values = previous.per_sharing(previous.history[name])[indices, index]
    return curve(steps, mean_interval(values).mean, translucent(REFERENCE, 0.55), width=3)


def _single_runs(steps: np.ndarray, values: np.ndarray, color: str) -> Mark:
    """Return the lines of all seeds, (e, seed), as one curve with gaps between them."""
    n_seeds = values.shape[1]
    x = np.append(steps.astype(np.float32), np.nan)
    y = np.vstack([values, np.full(n_seeds, np.nan)]).T.ravel()
    return curve(np.tile(x, n_seeds), y, translucent(color, 0.4), width=1)
