"""Learning curves of kept experiments: several in panels, one per variant, or one as a film.

The browser shows a film with the player of all films. The store keeps every evaluation but the
weights of the last step only, so this film has no attention maps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnkit.analysis.comparison import ComparedExperiment, Metric, levels_in_words
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.figures.curves import History, Level, metric_axis, reference_levels, top_of
from attnkit.figures.marks import Mark, level, mean_curve, words
from attnkit.figures.panels import Axis, Figure, Panel, Title, draw_live, thin
from attnkit.training.metrics import SHOWN
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import REFERENCE, colors_of

INK = "currentColor"
"""The colour of the text: dark on a light page, light on a dark one."""

CURVES = ("accuracy", "loss", "asymmetry", "mass_on_target", "mass_on_reverse")
"""Metrics that have a curve; those without a number are left out."""

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
    levels = _common_levels(compared, metric)
    top = top_of(metric, [one.snapshot for one in compared])
    histories = [History.of(metric, one.snapshot) for one in compared]
    x, y = Axis(0, last, "steps", n_ticks=3), metric_axis(metric, top)
    panels = []
    for variant in variants:
        curves = [
            _curve(one, history, variant, top, len(compared))
            for one, history in zip(compared, histories, strict=True)
            if variant in history.intervals
        ]
        marks = [level(one.value, width=1.2) for one in levels]
        marks += [mark for layer in zip(*curves, strict=True) for mark in layer]
        panels.append(Panel(x, y, marks, Title(title_of(variant), second_line_of(variant))))
    legend = [
        {"dash": dash, "color": color, "text": f"{one.letter} {one.name}"}
        for one in compared
        for color, dash in [style_of(one)]
    ]
    legend += [{"dash": one.dash, "text": one.text} for one in levels]
    revision = "-".join([metric, *(one.experiment.hash for one in compared)])
    return draw_live(panels, legend, revision, last)


def _curve(
    compared: ComparedExperiment, history: History, variant: Variant, top: float, n_compared: int
) -> tuple[Mark, Mark, Mark]:
    """Return the band and the mean of a variant of an experiment, and the letter below its line.

    Bands lie under all lines. Letters of equal lines stand beside each other.
    """
    (color, dash), letter, steps = style_of(compared), compared.letter, history.steps
    color = "" if color == INK else color
    interval = history.intervals[variant]
    area, line = mean_curve(steps, interval, color, top=top, dash=dash, name=letter)
    place = round((ord(letter) - ord("A") + 1) / (n_compared + 1) * (len(steps) - 1))
    return area, line, words(steps[[place]], interval.mean[[place]], [letter], below=True)


def _common_levels(compared: Sequence[ComparedExperiment], metric: Metric) -> list[Level]:
    """Return chance or the loss to beat, if all experiments have the same."""
    levels = [reference_levels(metric, one.experiment.task)[:1] for one in compared]
    return levels[0] if levels.count(levels[0]) == len(levels) else []


def replay(snapshot: Snapshot, variants: Sequence[Variant], metric: Metric) -> bytes:
    """Return the curves of some variants, the means over seeds with their 95% intervals.

    Args:
        snapshot: The last snapshot of the experiment.
        variants: The variants that are shown.
        metric: Measure of the first curve and of the sentence at each step.
    """
    experiment = snapshot.experiment
    steps, moments = thin(snapshot.eval_steps)
    columns = [experiment.sharing.index(variant) for variant in variants]
    arrays, hints = dict[str, np.ndarray](), dict[str, str]()
    for name in CURVES:
        values = snapshot.per_sharing(snapshot.curve(name))[moments][:, columns]
        if np.isnan(values).all() and name != metric:
            continue
        interval = mean_interval(values).within(*SHOWN[name].limits)
        arrays[name] = interval.mean
        arrays |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
        bands = "; bands: 95% intervals" * bool((interval.high > interval.low).any())
        hints[name] = f"Means of {experiment.n_seeds} seeds{bands}."
        if experiment.n_seeds == 1:
            hints[name] = "One seed."
    colors = dict(zip(experiment.sharing, colors_of(experiment.sharing), strict=True))
    header = {
        "film": experiment.hash,
        "view": "replay",
        "task": experiment.task.name,
        "request": {"metric": metric, "variants": [variant.value for variant in variants]},
        "title": experiment.task.title,
        "chance": experiment.task.chance,
        "loss_to_beat": experiment.task.loss_to_beat,
        "simple_model": experiment.task.simple_model,
        "hints": hints,
        "steps": steps.tolist(),
        "total_steps": experiment.training.steps,
        "curves": {name: SHOWN[name].heading for name in CURVES if name in arrays},
        "sentences": {
            "conclusion": [
                levels_in_words(
                    variants, means.tolist(), metric, f"At step {step}, " if step else "Untrained, "
                )
                for step, means in zip(steps, arrays[metric], strict=True)
            ]
        },
        "variants": [
            {"name": title_of(variant), "text": variant.value, "color": colors[variant]}
            for variant in variants
        ],
    }
    framed = {name: values.astype(np.float32) for name, values in arrays.items()}
    return InspectionResult(header, framed, {}).to_bytes()
