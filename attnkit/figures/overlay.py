"""Figure of the learning curves of several experiments, one panel per variant."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnkit.analysis.comparison import ComparedExperiment, Metric
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
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import REFERENCE

INK = "currentColor"
"""The colour of the text: dark on a light page, light on a dark one."""

STYLES = tuple(
    zip(
        (INK, REFERENCE) * 4,
        ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "dash", "solid"),
        strict=True,
    )
)
"""Colour and dash for every letter: colours mean variants, so experiments differ in their dash."""


def style_of(experiment: ComparedExperiment) -> tuple[str, str]:
    """Return colour and dash of an experiment's lines."""
    return STYLES[ord(experiment.letter) - ord("A")]


def plot_overlay(
    compared: Sequence[ComparedExperiment], variants: Sequence[Variant], metric: Metric
) -> Figure:
    """Plot means over seeds with 95% intervals, by training step, on held-out examples.

    Lines carry the letters of their experiments. Those in the colour of the text have none of their
    own: the page gives it to them.

    Args:
        compared: The experiments.
        variants: Variants, each in a panel with a line per experiment that has it.
        metric: "accuracy" or "loss".
    """
    span = [0, max(one.experiment.training.steps for one in compared)]
    reference, top = _reference_level(compared, metric), _top(compared, metric)
    traces: list[Trace] = []
    for panel, variant in enumerate(variants):
        if reference is not None:
            traces.append(level(panel, span, reference[0], "dot"))
        curves = [
            _curve(panel, one, variant, metric, top, len(compared))
            for one in compared
            if variant in one.experiment.sharing
        ]
        traces += [area for area, _, _ in curves]  # Bands lie under all lines.
        traces += [mean for _, mean, _ in curves]
        traces += [letter for _, _, letter in curves]
    titles = [Title(title_of(variant), second_line_of(variant)) for variant in variants]
    revision = "-".join([metric, *(one.experiment.hash for one in compared)])
    layout = panels_layout(titles, span, revision=revision, step=span[1])
    if metric == "loss":
        scale_losses(layout, top)
    return {"data": traces, "layout": layout}


def overlay_legend(compared: Sequence[ComparedExperiment], metric: Metric) -> list[dict[str, str]]:
    """Return the legend of `plot_overlay`: a text for each style of line."""
    entries = []
    for one in compared:
        color, dash = style_of(one)
        entries.append({"dash": dash, "color": color, "text": f"{one.letter} {one.name}"})
    reference = _reference_level(compared, metric)
    if reference is not None:
        value, name = reference
        text = percent(value) if metric == "accuracy" else f"{value:.2f}"
        entries.append({"dash": "dot", "text": f"{name} {text}"})
    return entries


def _curve(
    panel: int,
    compared: ComparedExperiment,
    variant: Variant,
    metric: Metric,
    top: float,
    n_compared: int,
) -> tuple[Trace, Trace, Trace]:
    """Return the band and the mean of a variant of an experiment, and the letter on its line."""
    color, dash = style_of(compared)
    snapshot = compared.snapshot
    steps, indices = thin(snapshot.eval_steps)
    values = snapshot.per_sharing(snapshot.history[metric])
    interval = mean_interval(values[indices, compared.experiment.sharing.index(variant)])
    low, high = interval.low.clip(0, top), interval.high.clip(0, top)
    curve = mean_line(panel, steps, interval.mean, color, low=low, high=high)
    curve["line"]["dash"] = dash
    if color == INK:
        del curve["line"]["color"]
    curve["hovertemplate"] = f"{compared.letter} {curve['hovertemplate']}"
    area = band(panel, steps, low, high, REFERENCE)
    return area, curve, _letter(panel, compared.letter, steps, interval.mean, n_compared)


def _letter(panel: int, letter: str, steps: np.ndarray, mean: np.ndarray, n: int) -> Trace:
    """Return a letter below its line; letters of equal lines stand beside each other."""
    place = round((ord(letter) - ord("A") + 1) / (n + 1) * (len(steps) - 1))
    return {
        **line(panel, steps[place : place + 1], mean[place : place + 1]),
        "mode": "text",
        "text": [letter],
        "textposition": "bottom center",
    }


def _reference_level(
    compared: Sequence[ComparedExperiment], metric: Metric
) -> tuple[float, str] | None:
    """Return value and name of chance or of the loss to beat, if all experiments have the same."""
    tasks = [one.experiment.task for one in compared]
    levels = {task.chance if metric == "accuracy" else task.loss_to_beat for task in tasks}
    value = levels.pop()
    if levels or value is None:
        return None
    return value, "chance" if metric == "accuracy" else tasks[0].simple_model


def _top(compared: Sequence[ComparedExperiment], metric: Metric) -> float:
    """Return the upper end of the vertical axis."""
    if metric == "accuracy":
        return 1.0
    tops = [math.log(one.experiment.task.n_classes) for one in compared]
    tops += [one.experiment.task.loss_to_beat or 0.0 for one in compared]
    for one in compared:
        at_start = one.snapshot.history["loss"][0]
        tops += at_start[np.isfinite(at_start)].tolist()
    return 1.05 * max(tops)
