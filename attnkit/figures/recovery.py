"""Figure that compares a variant that is tied during training with the same one untied."""

from __future__ import annotations

from attnkit.analysis.recovery import tied_variant
from attnkit.figures.curves import (
    History,
    metric_axis,
    plateau_levels,
    reference_levels,
    step_axis,
)
from attnkit.figures.marks import level, mean_curve
from attnkit.figures.panels import Figure, Panel, Title, draw_live
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, REFERENCE


def plot_recovery(snapshot: Snapshot) -> Figure:
    """Plot held-out accuracy of both over steps: means with 95% intervals, and the tying step."""
    experiment, history = snapshot.experiment, History.of("accuracy", snapshot)
    tied = tied_variant(experiment)
    untied = tied.stages[0]
    color, tie_step = color_of(tied), experiment.tie_step(tied)
    levels = reference_levels("accuracy", experiment.task)[:1]
    levels += plateau_levels(experiment, tied.stages[-1])
    seeds = f", mean of {experiment.n_seeds} seeds, 95% interval" if experiment.n_seeds > 1 else ""
    legend = [
        {"dash": "solid", "color": color, "text": f"tied at step {tie_step}{seeds}"},
        {"dash": "dash", "color": REFERENCE, "text": "the same, never tied"},
        {"dash": "thin", "text": "vertical line: the step at which it is tied"},
        *({"dash": one.dash, "text": one.text} for one in levels),
    ]
    marks = [level(one.value, one.dash, width=1.2) for one in levels]
    marks.append(level(tie_step, "solid", upright=True, width=1))
    intervals = history.intervals
    curves = (
        mean_curve(history.steps, intervals[untied], REFERENCE, dash="dash", name="untied"),
        mean_curve(history.steps, intervals[tied], color, name="tied"),
    )
    marks += [mark for layer in zip(*curves, strict=True) for mark in layer]
    title = Title(f"{untied.value}, then {tied.stages[-1].value}", tied.value, color)
    panel = Panel(step_axis(experiment), metric_axis("accuracy", 1.0), marks, title)
    return draw_live([panel], legend, experiment.hash, snapshot.step)


def color_of(tied: Variant) -> str:
    """Return the colour of the sharing after tying."""
    return COLORS[tied.stages[-1].sharing]
