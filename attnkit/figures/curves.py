"""Learning curves, one panel per variant: values in, a Plotly figure out."""

from __future__ import annotations

import math

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
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import REFERENCE, colors_of, translucent

_LINE_STYLES = {"asymmetry": "solid", "right token": "dash", "mirrored entry": "dot"}


def plot_accuracy(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Held-out accuracy over steps: mean with 95% interval, every seed, and reference levels.

    Args:
        previous: an earlier experiment, drawn grey where it has the same sharing.
    """
    experiment = snapshot.experiment
    steps, kept = thin(snapshot.eval_steps)
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])[kept]  # (e, sharing, seed)
    interval = mean_interval(accuracy)
    span = [0, experiment.training.steps]
    traces: list[Trace] = []
    colors = colors_of(experiment.sharing)
    for panel, (sharing, color) in enumerate(zip(experiment.sharing, colors, strict=True)):
        levels = [(experiment.task.chance, "dot"), (interval.mean[0, panel], "dash")]
        if experiment.plateau is not None and stays_at_plateau(sharing):
            levels.append((experiment.plateau, "longdashdot"))
        traces += [level(panel, span, height, dash) for height, dash in levels]
        traces += _turn(panel, snapshot, (-0.02, 1.04))
        if previous is not None and sharing in previous.experiment.sharing:
            index = previous.experiment.sharing.index(sharing)
            traces.append(_previous(panel, previous, index, "accuracy"))
        low, high = (limit[:, panel].clip(0, 1) for limit in (interval.low, interval.high))
        traces += [
            band(panel, steps, low, high, color),
            _single_runs(panel, steps, accuracy[:, panel], color),
            mean_line(panel, steps, interval.mean[:, panel], color, low=low, high=high),
        ]
    return {"data": traces, "layout": _layout(colors, span, snapshot)}


def plot_loss(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Held-out cross-entropy over steps, in nats, with the loss of a simple model to beat.

    Args:
        previous: an earlier experiment, drawn grey where it has the same sharing.
    """
    experiment = snapshot.experiment
    steps, kept = thin(snapshot.eval_steps)
    loss = snapshot.per_sharing(snapshot.history["loss"])[kept]
    interval = mean_interval(loss)
    span = [0, experiment.training.steps]
    to_beat = experiment.task.loss_to_beat
    at_start = loss[0][np.isfinite(loss[0])]
    top = 1.05 * max([math.log(experiment.task.n_classes), to_beat or 0.0, *at_start.tolist()])
    traces: list[Trace] = []
    colors = colors_of(experiment.sharing)
    for panel, (sharing, color) in enumerate(zip(experiment.sharing, colors, strict=True)):
        if to_beat is not None:
            traces.append(level(panel, span, to_beat, "dot"))
        traces += _turn(panel, snapshot, (0.0, top))
        if previous is not None and sharing in previous.experiment.sharing:
            index = previous.experiment.sharing.index(sharing)
            traces.append(_previous(panel, previous, index, "loss"))
        low, high = (limit[:, panel].clip(0, top) for limit in (interval.low, interval.high))
        traces += [
            band(panel, steps, low, high, color),
            _single_runs(panel, steps, loss[:, panel], color),
            mean_line(panel, steps, interval.mean[:, panel], color, low=low, high=high),
        ]
    layout = _layout(colors, span, snapshot)
    scale_losses(layout, top)
    return {"data": traces, "layout": layout}


def loss_legend(snapshot: Snapshot, previous: Snapshot | None) -> list[dict[str, str]]:
    """What the lines of `plot_loss` are."""
    experiment = snapshot.experiment
    entries = [{"dash": "solid", "text": "loss (cross-entropy), mean of seeds"}]
    if experiment.task.loss_to_beat is not None:
        text = f"{experiment.task.simple_model} {experiment.task.loss_to_beat:.2f}"
        entries.append({"dash": "dot", "text": text})
    if previous is not None:
        entries.append({"dash": "previous", "text": "previous experiment"})
    return entries


def plot_attention_measures(snapshot: Snapshot) -> Figure:
    """Asymmetry of the scores, and attention on the right token and on the mirrored entry."""
    experiment = snapshot.experiment
    steps, kept = thin(snapshot.eval_steps)
    measures = {
        "asymmetry": snapshot.asymmetry,
        "right token": snapshot.history["mass_on_target"],
        "mirrored entry": snapshot.history["mass_on_reverse"],
    }
    span = [0, experiment.training.steps]
    colors = colors_of(experiment.sharing)
    traces: list[Trace] = []
    for panel in range(len(colors)):
        traces += _turn(panel, snapshot, (-0.02, 1.04))
    for name, values in measures.items():
        interval = mean_interval(snapshot.per_sharing(values)[kept])
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


def accuracy_legend(snapshot: Snapshot, previous: Snapshot | None) -> list[dict[str, str]]:
    """What the lines of `plot_accuracy` are, for a legend beside it."""
    experiment = snapshot.experiment
    entries = [
        {"dash": "solid", "text": f"mean of {experiment.n_seeds} seeds, 95% interval"},
        {"dash": "thin", "text": "each seed"},
    ]
    if experiment.n_seeds == 1:
        entries = [{"dash": "solid", "text": "accuracy of the one seed"}]
    entries += [
        {"dash": "dot", "text": f"chance {experiment.task.chance:.2f}"},
        {"dash": "dash", "text": "untrained"},
    ]
    if experiment.plateau is not None and any(map(stays_at_plateau, experiment.sharing)):
        text = f"guess between two entries {experiment.plateau:.2f}"
        entries.append({"dash": "longdashdot", "text": text})
    if experiment.training.earlier_steps:
        text = "upright line: the embedding is frozen, all else starts anew"
        entries.append({"dash": "thin", "text": text})
    if previous is not None:
        entries.append({"dash": "previous", "text": "previous experiment"})
    return entries


def measures_legend(snapshot: Snapshot) -> list[dict[str, str]]:
    """What the lines of `plot_attention_measures` are."""
    texts = {
        "asymmetry": "asymmetry of the scores: 0 if a pair scores alike both ways, about ½ if its "
        "two scores are unrelated (mean over heads and layers)",
        "right token": "attention on the token that holds the answer",
        "mirrored entry": "attention on the mirrored entry, which asks for the asker",
    }
    measured = {
        "asymmetry": snapshot.asymmetry,
        "right token": snapshot.history["mass_on_target"],
        "mirrored entry": snapshot.history["mass_on_reverse"],
    }
    return [
        {"dash": dash, "text": texts[name]}
        for name, dash in _LINE_STYLES.items()
        if not np.isnan(measured[name]).all()
    ]


def stays_at_plateau(variant: Variant) -> bool:
    """Whether the plateau of symmetric scores was observed for it: a plain Q=K or Q=K=V."""
    return variant.is_partition and variant.sharing.symmetric


def _turn(panel: int, snapshot: Snapshot, heights: tuple[float, float]) -> list[Trace]:
    """The step at which training turns from the earlier task to the task itself, upright."""
    step = snapshot.experiment.training.earlier_steps
    if not step:
        return []
    style = {"color": REFERENCE, "width": 1}
    return [line(panel, np.full(2, step), np.array(heights), **style)]


def _previous(panel: int, previous: Snapshot, index: int, name: str) -> Trace:
    steps, kept = thin(previous.eval_steps)
    values = previous.per_sharing(previous.history[name])[kept, index]
    color = translucent(REFERENCE, 0.55)
    return line(panel, steps, mean_interval(values).mean, color=color, width=3)


def _single_runs(panel: int, steps: np.ndarray, values: np.ndarray, color: str) -> Trace:
    """All seeds as one trace, (e, seed), with gaps between them."""
    n_seeds = values.shape[1]
    x = np.append(steps.astype(np.float32), np.nan)
    y = np.vstack([values, np.full((1, n_seeds), np.nan)]).T.ravel()
    runs = line(panel, np.tile(x, n_seeds), y, color=translucent(color, 0.4), width=1)
    return {**runs, "meta": "single runs"}


def _layout(colors: list[str], span: list[int], snapshot: Snapshot) -> Figure:
    """One panel per variant, in its colour."""
    titles = [
        Title(title_of(variant), second_line_of(variant), color)
        for variant, color in zip(snapshot.experiment.sharing, colors, strict=True)
    ]
    revision = snapshot.experiment.hash
    return panels_layout(titles, span, revision=revision, step=snapshot.step)
