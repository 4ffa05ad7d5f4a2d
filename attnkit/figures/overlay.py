"""Figure of the learning curves of several experiments, one panel per variant."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnkit.analysis.comparison import ComparedExperiment, Metric
from attnkit.figures.curves import intervals_of, metric_axis
from attnkit.figures.marks import Mark, level, mean_curve, words
from attnkit.figures.panels import Axis, Figure, Panel, Title, draw_live, thin
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
    last = max(one.experiment.training.steps for one in compared)
    reference, top = _reference_level(compared, metric), _top(compared, metric)
    x, y = Axis(0, last, "steps", n_ticks=3), metric_axis(metric, top)
    panels = []
    for variant in variants:
        curves = [
            _curve(one, variant, metric, top, len(compared))
            for one in compared
            if variant in one.experiment.sharing
        ]
        marks = [] if reference is None else [level(reference[0], width=1.2)]
        marks += [mark for layer in zip(*curves, strict=True) for mark in layer]
        panels.append(Panel(x, y, marks, Title(title_of(variant), second_line_of(variant))))
    legend = [
        {"dash": dash, "color": color, "text": f"{one.letter} {one.name}"}
        for one in compared
        for color, dash in [style_of(one)]
    ]
    if reference is not None:
        value, name = reference
        text = percent(value) if metric == "accuracy" else f"{value:.2f}"
        legend.append({"dash": "dot", "text": f"{name} {text}"})
    revision = "-".join([metric, *(one.experiment.hash for one in compared)])
    return draw_live(panels, legend, revision, last)


def _curve(
    compared: ComparedExperiment, variant: Variant, metric: Metric, top: float, n_compared: int
) -> tuple[Mark, Mark, Mark]:
    """Return the band and the mean of a variant of an experiment, and the letter below its line.

    Bands lie under all lines. Letters of equal lines stand beside each other.
    """
    (color, dash), letter = style_of(compared), compared.letter
    snapshot = compared.snapshot
    steps, indices = thin(snapshot.eval_steps)
    values = snapshot.per_sharing(snapshot.history[metric])[indices]
    index = compared.experiment.sharing.index(variant)
    color = "" if color == INK else color
    area, line = mean_curve(
        steps, intervals_of(values)[index], color, top=top, dash=dash, name=letter
    )
    place = round((ord(letter) - ord("A") + 1) / (n_compared + 1) * (len(steps) - 1))
    return area, line, words(steps[[place]], line.values["y"][[place]], [letter], below=True)


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
