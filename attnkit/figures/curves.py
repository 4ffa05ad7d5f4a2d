"""Figures of learning curves and attention measures over training, one panel per variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnkit.analysis.comparison import Metric
from attnkit.figures.marks import Mark, curve, level, mean_curve
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, draw_live, thin, titles_of
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import REFERENCE, colors_of, translucent

_LINE_STYLES = {"asymmetry": "solid", "right token": "dash", "mirrored entry": "dot"}


def plot_accuracy(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Plot held-out accuracy over steps: mean with 95% interval, all seeds, reference levels.

    Args:
        snapshot: Snapshot of the experiment.
        previous: Snapshot of an earlier experiment, drawn in grey for the variants of both.
    """
    experiment = snapshot.experiment
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])
    start = mean_interval(accuracy[0]).mean
    levels = []
    for index, variant in enumerate(experiment.sharing):
        levels.append([(experiment.task.chance, "dot"), (start[index], "dash")])
        if experiment.plateau is not None and stays_at_plateau(variant):
            levels[-1].append((experiment.plateau, "longdashdot"))
    return _plot_metric("accuracy", snapshot, previous, levels, 1.0)


def plot_loss(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Plot held-out cross-entropy over steps, in nats, with the loss of a simple model to beat.

    Arguments are those of `plot_accuracy`.
    """
    task = snapshot.experiment.task
    at_start = snapshot.per_sharing(snapshot.history["loss"])[0]
    at_start = at_start[np.isfinite(at_start)]
    top = 1.05 * max([math.log(task.n_classes), task.loss_to_beat or 0.0, *at_start.tolist()])
    levels = [[] if task.loss_to_beat is None else [(task.loss_to_beat, "dot")]]
    n_variants = len(snapshot.experiment.sharing)
    return _plot_metric("loss", snapshot, previous, levels * n_variants, top)


def _plot_metric(
    name: Metric,
    snapshot: Snapshot,
    previous: Snapshot | None,
    levels: Sequence[Sequence[tuple[float, str]]],
    top: float,
) -> Figure:
    """Plot the history of a metric, one panel per variant.

    Args:
        name: Name of the metric.
        snapshot: Snapshot of the experiment.
        previous: Snapshot of an earlier experiment.
        levels: (value, dash) of the reference levels of each variant.
        top: Highest value of an interval's limits.
    """
    experiment = snapshot.experiment
    steps, indices = thin(snapshot.eval_steps)
    values = snapshot.per_sharing(snapshot.history[name])[indices]  # (e, variant, seed)
    panels = []
    colors = colors_of(experiment.sharing)
    for index, (variant, color) in enumerate(zip(experiment.sharing, colors, strict=True)):
        marks = [level(value, dash, width=1.2) for value, dash in levels[index]]
        marks += _switch_line(snapshot)
        if previous is not None and variant in previous.experiment.sharing:
            marks.append(_previous(previous, variant, name))
        area, line = mean_curve(steps, values[:, index], color, top=top)
        panels.append([*marks, area, _single_runs(steps, values[:, index], color), line])
    return _variant_panels(panels, snapshot, metric_axis(name, top))


def loss_legend(snapshot: Snapshot, previous: Snapshot | None) -> list[dict[str, str]]:
    """Return the legend of `plot_loss`: a text for each style of line."""
    experiment = snapshot.experiment
    entries = [{"dash": "solid", "text": "loss (cross-entropy), mean of seeds"}]
    if experiment.task.loss_to_beat is not None:
        text = f"{experiment.task.simple_model} {experiment.task.loss_to_beat:.2f}"
        entries.append({"dash": "dot", "text": text})
    if previous is not None:
        entries.append({"dash": "previous", "text": "previous experiment"})
    return entries


def plot_attention_measures(snapshot: Snapshot) -> Figure:
    """Plot score asymmetry, and attention on the right token and on the mirrored entry."""
    steps, indices = thin(snapshot.eval_steps)
    colors = colors_of(snapshot.experiment.sharing)
    panels = [_switch_line(snapshot) for _ in colors]
    for name, values in _attention_measures(snapshot).items():
        of_seeds = snapshot.per_sharing(values)[indices]  # (e, variant, seed)
        for index, color in enumerate(colors):
            if not np.isnan(of_seeds[:, index]).all():
                dash = _LINE_STYLES[name]
                panels[index] += mean_curve(steps, of_seeds[:, index], color, dash=dash, name=name)
    return _variant_panels(panels, snapshot, metric_axis("accuracy", 1.0))


def _variant_panels(panels: Sequence[Sequence[Mark]], snapshot: Snapshot, y: Axis) -> Figure:
    """Return a live figure of marks over the steps of training, a panel per variant."""
    experiment = snapshot.experiment
    x = Axis(0, experiment.training.steps, "steps", n_ticks=3)
    titles = titles_of(experiment.sharing)
    drawn = [Panel(x, y, marks, title) for marks, title in zip(panels, titles, strict=True)]
    return draw_live(drawn, experiment.hash, snapshot.step)


def metric_axis(metric: Metric, top: float) -> Axis:
    """Return the vertical axis of a metric that ends at `top`; accuracies end at 1."""
    if metric == "loss":
        return Axis(0.0, top, n_ticks=5)
    return replace(SHARES, texts=("0", "", "½", "", "1"))


def _attention_measures(snapshot: Snapshot) -> dict[str, np.ndarray]:
    return {
        "asymmetry": snapshot.asymmetry,
        "right token": snapshot.history["mass_on_target"],
        "mirrored entry": snapshot.history["mass_on_reverse"],
    }


def accuracy_legend(snapshot: Snapshot, previous: Snapshot | None) -> list[dict[str, str]]:
    """Return the legend of `plot_accuracy`: a text for each style of line."""
    experiment = snapshot.experiment
    entries = [
        {"dash": "solid", "text": f"mean of {experiment.n_seeds} seeds, 95% interval"},
        {"dash": "thin", "text": "each seed"},
    ]
    if experiment.n_seeds == 1:
        entries = [{"dash": "solid", "text": "accuracy of the one seed"}]
    entries += [
        {"dash": "dot", "text": f"chance {percent(experiment.task.chance)}"},
        {"dash": "dash", "text": "untrained"},
    ]
    if experiment.plateau is not None and any(map(stays_at_plateau, experiment.sharing)):
        text = f"guess between two entries {percent(experiment.plateau)}"
        entries.append({"dash": "longdashdot", "text": text})
    if experiment.training.earlier_steps:
        text = "vertical line: the embedding is frozen, and all else starts anew"
        entries.append({"dash": "thin", "text": text})
    if previous is not None:
        entries.append({"dash": "previous", "text": "previous experiment"})
    return entries


def measures_legend(snapshot: Snapshot) -> list[dict[str, str]]:
    """Return the legend of `plot_attention_measures`: a text for each style of line."""
    texts = {
        "asymmetry": "asymmetry of the scores: 0 if a pair scores alike both ways, about ½ if its "
        "two scores are unrelated (mean over heads and layers)",
        "right token": "attention on the token that holds the answer",
        "mirrored entry": "attention on the mirrored entry, which points back at the query",
    }
    values = _attention_measures(snapshot)
    return [
        {"dash": dash, "text": texts[name]}
        for name, dash in _LINE_STYLES.items()
        if not np.isnan(values[name]).all()
    ]


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
