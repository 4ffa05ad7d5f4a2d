"""Learning curves of several experiments over each other, one panel per variant."""

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
    mean_line,
    panels_layout,
    scale_losses,
    thin,
)
from attnkit.training.statistics import mean_interval
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import COLORS, FURTHER

STYLES = tuple(
    zip(
        (*COLORS.values(), FURTHER[0], FURTHER[2], FURTHER[1]),
        ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash"),
        strict=True,
    )
)
"""Colour and dash of every letter: nobody needs the colour to tell two lines apart."""


def style_of(one: ComparedExperiment) -> tuple[str, str]:
    """The colour and the dash of an experiment's lines."""
    return STYLES[ord(one.letter) - ord("A")]


def plot_overlay(
    compared: Sequence[ComparedExperiment], variants: Sequence[Variant], metric: Metric
) -> Figure:
    """Means over seeds with 95% intervals, by training step, on held-out examples.

    Args:
        variants: one panel each.
    """
    span = [0, max(one.experiment.training.steps for one in compared)]
    to_compare, top = _level_of(compared, metric), _top(compared, metric)
    traces: list[Trace] = []
    for panel, variant in enumerate(variants):
        if to_compare is not None:
            traces.append(level(panel, span, to_compare[0], "dot"))
        having = [one for one in compared if variant in one.experiment.sharing]
        curves = [_curve(panel, one, variant, metric, top) for one in having]
        traces += [trace for pair in curves for trace in pair[:1]]  # bands lie under all lines
        traces += [trace for pair in curves for trace in pair[1:]]
    titles = [Title(title_of(variant), second_line_of(variant)) for variant in variants]
    revision = "-".join([metric, *(one.experiment.hash for one in compared)])
    layout = panels_layout(titles, span, revision=revision, step=span[1])
    if metric == "loss":
        scale_losses(layout, top)
    return {"data": traces, "layout": layout}


def overlay_legend(compared: Sequence[ComparedExperiment], metric: Metric) -> list[dict[str, str]]:
    """What the lines of `plot_overlay` are."""
    entries = []
    for one in compared:
        color, dash = style_of(one)
        entries.append({"dash": dash, "color": color, "text": f"{one.letter} {one.name}"})
    to_compare = _level_of(compared, metric)
    if to_compare is not None:
        entries.append({"dash": "dot", "text": f"{to_compare[1]} {to_compare[0]:.2f}"})
    return entries


def _curve(
    panel: int, one: ComparedExperiment, variant: Variant, metric: Metric, top: float
) -> tuple[Trace, Trace]:
    """The band and the mean of a variant of an experiment."""
    color, dash = style_of(one)
    steps, kept = thin(one.snapshot.eval_steps)
    values = one.snapshot.per_sharing(one.snapshot.history[metric])
    interval = mean_interval(values[kept, one.experiment.sharing.index(variant)])
    low, high = interval.low.clip(0, top), interval.high.clip(0, top)
    curve = mean_line(panel, steps, interval.mean, color, low=low, high=high)
    curve["line"]["dash"] = dash
    curve["hovertemplate"] = f"{one.letter} {curve['hovertemplate']}"
    return band(panel, steps, low, high, color), curve


def _level_of(compared: Sequence[ComparedExperiment], metric: Metric) -> tuple[float, str] | None:
    """What all accuracies, or losses, are to be compared with, if it is the same for all."""
    tasks = [one.experiment.task for one in compared]
    levels = {task.chance if metric == "accuracy" else task.loss_to_beat for task in tasks}
    found = levels.pop()
    if levels or found is None:
        return None
    return found, "chance" if metric == "accuracy" else tasks[0].simple_model


def _top(compared: Sequence[ComparedExperiment], metric: Metric) -> float:
    """The upper end of what is drawn."""
    if metric == "accuracy":
        return 1.0
    tops = [math.log(one.experiment.task.n_classes) for one in compared]
    tops += [one.experiment.task.loss_to_beat or 0.0 for one in compared]
    for one in compared:
        at_start = one.snapshot.history["loss"][0]
        tops += at_start[np.isfinite(at_start)].tolist()
    return 1.05 * max(tops)
