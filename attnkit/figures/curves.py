"""Learning curves, one panel per variant: values in, a Plotly figure out.

Figures are plain dictionaries in Plotly's own schema, arrays packed as float32: a live page sends
them several times a second, and building validated figure objects would cost more than training.
`plotly.graph_objects.Figure(figure)` accepts them as they are.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from attnkit.figures.palette import REFERENCE, colors_of, translucent
from attnkit.results import Snapshot
from attnkit.statistics import mean_interval
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of

MAX_POINTS = 160
"""Points per curve on screen; statistics never come from thinned curves."""

Trace = dict[str, Any]
Figure = dict[str, Any]

_LINE_STYLES = {"asymmetry": "solid", "right token": "dash", "reversed entry": "dot"}


def plot_accuracy(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Held-out accuracy over steps: mean with 95% interval, every seed, and reference levels.

    Args:
        previous: an earlier experiment, drawn grey where it has the same sharing.
    """
    experiment = snapshot.experiment
    steps, kept = _thin(snapshot.eval_steps)
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])[kept]  # (e, sharing, seed)
    interval = mean_interval(accuracy)
    span = [0, experiment.training.steps]
    traces: list[Trace] = []
    colors = colors_of(experiment.sharing)
    for panel, (sharing, color) in enumerate(zip(experiment.sharing, colors, strict=True)):
        levels = [(experiment.task.chance, "dot"), (interval.mean[0, panel], "dash")]
        if experiment.plateau is not None and _stays_at_plateau(sharing):
            levels.append((experiment.plateau, "longdashdot"))
        traces += [_level(panel, span, level, dash) for level, dash in levels]
        traces += _turn(panel, snapshot, (-0.02, 1.04))
        if previous is not None and sharing in previous.experiment.sharing:
            index = previous.experiment.sharing.index(sharing)
            traces.append(_previous(panel, previous, index, "accuracy"))
        low, high = (limit[:, panel].clip(0, 1) for limit in (interval.low, interval.high))
        traces += [
            _band(panel, steps, low, high, color),
            _single_runs(panel, steps, accuracy[:, panel], color),
            _mean(panel, steps, interval.mean[:, panel], color, low=low, high=high),
        ]
    return {"data": traces, "layout": _layout(colors, span, snapshot)}


def plot_loss(snapshot: Snapshot, previous: Snapshot | None = None) -> Figure:
    """Held-out cross-entropy over steps, in nats, with the loss of a simple model to beat.

    Args:
        previous: an earlier experiment, drawn grey where it has the same sharing.
    """
    experiment = snapshot.experiment
    steps, kept = _thin(snapshot.eval_steps)
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
            traces.append(_level(panel, span, to_beat, "dot"))
        traces += _turn(panel, snapshot, (0.0, top))
        if previous is not None and sharing in previous.experiment.sharing:
            index = previous.experiment.sharing.index(sharing)
            traces.append(_previous(panel, previous, index, "loss"))
        low, high = (limit[:, panel].clip(0, top) for limit in (interval.low, interval.high))
        traces += [
            _band(panel, steps, low, high, color),
            _single_runs(panel, steps, loss[:, panel], color),
            _mean(panel, steps, interval.mean[:, panel], color, low=low, high=high),
        ]
    layout = _layout(colors, span, snapshot)
    for name, axis in layout.items():
        if name.startswith("yaxis"):
            axis.update(range=[0, top], tickvals=None, ticktext=None, nticks=5)
    return {"data": traces, "layout": layout}


def loss_legend(snapshot: Snapshot, previous: Snapshot | None) -> list[dict[str, str]]:
    """What the lines of `plot_loss` are."""
    experiment = snapshot.experiment
    entries = [{"dash": "solid", "text": "loss in nats, mean of seeds"}]
    if experiment.task.loss_to_beat is not None:
        text = f"{experiment.task.simple_model} {experiment.task.loss_to_beat:.2f}"
        entries.append({"dash": "dot", "text": text})
    if previous is not None:
        entries.append({"dash": "previous", "text": "previous experiment"})
    return entries


def plot_attention_measures(snapshot: Snapshot) -> Figure:
    """Asymmetry of the scores, and attention on the right token and on the reversed entry."""
    experiment = snapshot.experiment
    steps, kept = _thin(snapshot.eval_steps)
    measures = {
        "asymmetry": snapshot.asymmetry,
        "right token": snapshot.history["mass_on_target"],
        "reversed entry": snapshot.history["mass_on_reverse"],
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
            traces.append(_band(panel, steps, low.clip(0, 1), high.clip(0, 1), color))
            line = _mean(panel, steps, mean, color, low=low, high=high)
            line["line"]["dash"] = _LINE_STYLES[name]
            line["hovertemplate"] = f"{name} {line['hovertemplate']}"
            traces.append(line)
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
    if experiment.plateau is not None and any(map(_stays_at_plateau, experiment.sharing)):
        text = f"one of two picked at random {experiment.plateau:.2f}"
        entries.append({"dash": "longdashdot", "text": text})
    if experiment.training.earlier_steps:
        entries.append({"dash": "thin", "text": "upright: the embedding is frozen, all else anew"})
    if previous is not None:
        entries.append({"dash": "previous", "text": "previous experiment"})
    return entries


def measures_legend(snapshot: Snapshot) -> list[dict[str, str]]:
    """What the lines of `plot_attention_measures` are."""
    texts = {
        "asymmetry": "asymmetry of the scores: 0 symmetric, ½ unrelated (mean over heads, layers)",
        "right token": "attention on the token that holds the answer",
        "reversed entry": "attention on the reversed entry",
    }
    measured = {
        "asymmetry": snapshot.asymmetry,
        "right token": snapshot.history["mass_on_target"],
        "reversed entry": snapshot.history["mass_on_reverse"],
    }
    return [
        {"dash": dash, "text": texts[name]}
        for name, dash in _LINE_STYLES.items()
        if not np.isnan(measured[name]).all()
    ]


def _stays_at_plateau(variant: Variant) -> bool:
    """Whether the plateau of symmetric scores was observed for it: a plain Q=K or Q=K=V."""
    return variant.is_partition and variant.sharing.symmetric


def _thin(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evenly chosen evaluations, first and last included: their steps and their indices."""
    n_kept = min(len(steps), MAX_POINTS)
    kept = np.linspace(0, len(steps) - 1, n_kept).round().astype(int)
    return steps[kept], kept


def _packed(values: np.ndarray) -> dict[str, str]:
    """Plotly's form of a typed array."""
    blob = np.ascontiguousarray(values, np.float32).tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(blob).decode()}


def _axes(panel: int) -> dict[str, str]:
    suffix = "" if panel == 0 else str(panel + 1)
    return {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}


def _line(panel: int, x: np.ndarray, y: np.ndarray, **style: Any) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _packed(x),
        "y": _packed(y),
        "line": style,
        "showlegend": False,
        "hoverinfo": "skip",
        **_axes(panel),
    }


def _level(panel: int, span: list[int], level: float, dash: str) -> Trace:
    return _line(panel, np.array(span), np.full(2, level), color=REFERENCE, width=1.2, dash=dash)


def _turn(panel: int, snapshot: Snapshot, heights: tuple[float, float]) -> list[Trace]:
    """The step at which training turns from the earlier task to the task itself, upright."""
    step = snapshot.experiment.training.earlier_steps
    if not step:
        return []
    style = {"color": REFERENCE, "width": 1}
    return [_line(panel, np.full(2, step), np.array(heights), **style)]


def _previous(panel: int, previous: Snapshot, index: int, name: str) -> Trace:
    steps, kept = _thin(previous.eval_steps)
    values = previous.per_sharing(previous.history[name])[kept, index]
    color = translucent(REFERENCE, 0.55)
    return _line(panel, steps, mean_interval(values).mean, color=color, width=3)


def _single_runs(panel: int, steps: np.ndarray, values: np.ndarray, color: str) -> Trace:
    """All seeds as one trace, (e, seed), with gaps between them."""
    n_seeds = values.shape[1]
    x = np.append(steps.astype(np.float32), np.nan)
    y = np.vstack([values, np.full((1, n_seeds), np.nan)]).T.ravel()
    line = _line(panel, np.tile(x, n_seeds), y, color=translucent(color, 0.4), width=1)
    return {**line, "meta": "single runs"}


def _band(panel: int, steps: np.ndarray, low: np.ndarray, high: np.ndarray, color: str) -> Trace:
    present = ~np.isnan(low)
    x = np.concatenate([steps[present], steps[present][::-1]])
    y = np.concatenate([high[present], low[present][::-1]])
    band = _line(panel, x, y, width=0)
    return {**band, "fill": "toself", "fillcolor": translucent(color, 0.2)}


def _mean(
    panel: int, x: np.ndarray, y: np.ndarray, color: str, *, low: np.ndarray, high: np.ndarray
) -> Trace:
    line = _line(panel, x, y, color=color, width=2.5)
    limits = [f" [{a:.2f}, {b:.2f}]" if a == a else "" for a, b in zip(low, high, strict=True)]
    del line["hoverinfo"]
    return {**line, "text": limits, "hovertemplate": "%{y:.2f}%{text}<extra></extra>"}


def _layout(colors: list[str], span: list[int], snapshot: Snapshot) -> dict[str, Any]:
    """Axes and titles; a row of panels, which the page may wrap to its width, titles too."""
    variants = snapshot.experiment.sharing
    n = len(variants)
    gap = 0.03
    layout: dict[str, Any] = {
        "showlegend": False,
        "hovermode": "x",
        "dragmode": "zoom",
        "uirevision": snapshot.experiment.hash,
        "annotations": [],
        "margin": {"l": 34, "r": 8, "t": 24, "b": 30},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    for panel, (variant, color) in enumerate(zip(variants, colors, strict=True)):
        axes = _axes(panel)
        x_name, y_name = axes["xaxis"].replace("x", "xaxis"), axes["yaxis"].replace("y", "yaxis")
        width = (1 - gap * (n - 1)) / n
        start = panel * (width + gap)
        layout[x_name] = {
            "domain": [start, start + width],
            "anchor": axes["yaxis"],
            "range": span,
            "nticks": 3,
            "zeroline": False,
            "showspikes": False,
            **({"matches": "x"} if panel else {}),
        }
        layout[y_name] = {
            "anchor": axes["xaxis"],
            "range": [-0.02, 1.04],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0", "", "½", "", "1"],
            "zeroline": False,
            **({"matches": "y"} if panel else {}),
        }
        layout["annotations"].append(
            {
                "text": f'<span style="color:{color}">■</span> <b>{title_of(variant)}</b>',
                "hovertext": second_line_of(variant),
                "xref": f"{axes['xaxis']} domain",
                "yref": f"{axes['yaxis']} domain",
                "x": 0,
                "y": 1,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
    layout["meta"] = {"panels": n, "step": snapshot.step}
    return layout
