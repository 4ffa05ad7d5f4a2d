"""Figures of learning curves and attention measures over training, one panel per variant."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnkit.figures.panels import (
    Figure,
    Title,
    Trace,
    band,
    level,
    line,
    mean_line,
    panels_layout,
    scale_losses,
    thin,
)
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
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
    return _plot_metric("accuracy", snapshot, previous, levels, (-0.02, 1.04), 1.0)


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
    figure = _plot_metric("loss", snapshot, previous, levels * n_variants, (0.0, top), top)
    scale_losses(figure["layout"], top)
    return figure


def _plot_metric(
    name: str,
    snapshot: Snapshot,
    previous: Snapshot | None,
    levels: Sequence[Sequence[tuple[float, str]]],
    ends: tuple[float, float],
    top: float,
) -> Figure:
    """Plot the history of a metric, one panel per variant.

    Args:
        name: "accuracy" or "loss".
        snapshot: Snapshot of the experiment.
        previous: Snapshot of an earlier experiment.
        levels: (value, dash) of the reference levels of each variant.
        ends: Ends of the line that marks the switch of tasks.
        top: Highest value of an interval's limits.
    """
    experiment = snapshot.experiment
    steps, indices = thin(snapshot.eval_steps)
    values = snapshot.per_sharing(snapshot.history[name])[indices]  # (e, variant, seed)
    interval = mean_interval(values)
    span = [0, experiment.training.steps]
    traces: list[Trace] = []
    colors = colors_of(experiment.sharing)
    for panel, (variant, color) in enumerate(zip(experiment.sharing, colors, strict=True)):
        traces += [level(panel, span, value, dash) for value, dash in levels[panel]]
        traces += _switch_line(panel, snapshot, ends)
        if previous is not None and variant in previous.experiment.sharing:
            traces.append(_previous(panel, previous, variant, name))
        low, high = (limit[:, panel].clip(0, top) for limit in (interval.low, interval.high))
        traces += [
            band(panel, steps, low, high, color),
            _single_runs(panel, steps, values[:, panel], color),
            mean_line(panel, steps, interval.mean[:, panel], color, low=low, high=high),
        ]
    return {"data": traces, "layout": _layout(colors, span, snapshot)}


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
    experiment = snapshot.experiment
    steps, indices = thin(snapshot.eval_steps)
    span = [0, experiment.training.steps]
    colors = colors_of(experiment.sharing)
    traces: list[Trace] = []
    for panel in range(len(colors)):
        traces += _switch_line(panel, snapshot, (-0.02, 1.04))
    for name, values in _attention_measures(snapshot).items():
        interval = mean_interval(snapshot.per_sharing(values)[indices])
        for panel, color in enumerate(colors):
            mean, low, high = (
                limit[:, panel] for limit in (interval.mean, interval.low, interval.high)
            )
            if np.isnan(mean).all():
                continue
            traces.append(band(panel, steps, low.clip(0, 1), high.clip(0, 1), color))
            curve = mean_line(panel, steps, mean, color, low=low, high=high)
            curve["line"]["dash"] = _LINE_STYLES[name]
            curve["hovertemplate"] = f"{name} {curve['hovertemplate']}"
            traces.append(curve)
    return {"data": traces, "layout": _layout(colors, span, snapshot)}


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


def _switch_line(panel: int, snapshot: Snapshot, ends: tuple[float, float]) -> list[Trace]:
    """Return a vertical line at the switch from an earlier task to the task, if there is one."""
    step = snapshot.experiment.training.earlier_steps
    if not step:
        return []
    style = {"color": REFERENCE, "width": 1}
    return [line(panel, np.full(2, step), np.array(ends), **style)]


def _previous(panel: int, previous: Snapshot, variant: Variant, name: str) -> Trace:
    steps, indices = thin(previous.eval_steps)
    index = previous.experiment.sharing.index(variant)
    values = previous.per_sharing(previous.history[name])[indices, index]
    color = translucent(REFERENCE, 0.55)
    return line(panel, steps, mean_interval(values).mean, color=color, width=3)


def _single_runs(panel: int, steps: np.ndarray, values: np.ndarray, color: str) -> Trace:
    """Return the lines of all seeds, (e, seed), as one trace with gaps between them."""
    n_seeds = values.shape[1]
    x = np.append(steps.astype(np.float32), np.nan)
    y = np.vstack([values, np.full((1, n_seeds), np.nan)]).T.ravel()
    runs = line(panel, np.tile(x, n_seeds), y, color=translucent(color, 0.4), width=1)
    return {**runs, "meta": "single runs"}


def _layout(colors: list[str], span: list[int], snapshot: Snapshot) -> Figure:
    """Return the layout with one panel per variant, in its colour."""
    titles = [
        Title(title_of(variant), second_line_of(variant), color)
        for variant, color in zip(snapshot.experiment.sharing, colors, strict=True)
    ]
    revision = snapshot.experiment.hash
    return panels_layout(titles, span, revision=revision, step=snapshot.step)
