"""Figure that compares a variant that is tied during training with the same one untied."""

from __future__ import annotations

import numpy as np

from attnkit.analysis.recovery import tied_variant
from attnkit.figures.curves import stays_at_plateau
from attnkit.figures.panels import (
    Figure,
    Title,
    Trace,
    band,
    level,
    line,
    mean_line,
    panels_layout,
    thin,
)
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, REFERENCE

_LOW, _HIGH = -0.02, 1.04
"""Ends of the vertical axis."""


def plot_recovery(snapshot: Snapshot) -> Figure:
    """Plot held-out accuracy of both over steps: means with 95% intervals, and the tying step."""
    experiment = snapshot.experiment
    tied = tied_variant(experiment)
    untied = tied.stages[0]
    steps, indices = thin(snapshot.eval_steps)
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])[indices]
    interval = mean_interval(accuracy)
    span = [0, experiment.training.steps]
    tie_step = np.full(2, experiment.tie_step(tied))
    traces: list[Trace] = [
        level(0, span, experiment.task.chance, "dot"),
        line(0, tie_step, np.array([_LOW, _HIGH]), color=REFERENCE, width=1),
    ]
    if _becomes_symmetric(tied) and experiment.plateau is not None:
        traces.append(level(0, span, experiment.plateau, "longdashdot"))
    curves: list[Trace] = []
    for variant, color, dash in ((untied, REFERENCE, "dash"), (tied, color_of(tied), "solid")):
        index = experiment.sharing.index(variant)
        mean = interval.mean[:, index]
        low, high = (limit[:, index].clip(0, 1) for limit in (interval.low, interval.high))
        traces.append(band(0, steps, low, high, color))
        curve = mean_line(0, steps, mean, color, low=low, high=high)
        curve["line"]["dash"] = dash
        name = "tied" if variant == tied else "untied"
        curve["hovertemplate"] = f"{name} {curve['hovertemplate']}"
        curves.append(curve)
    title = Title(f"{untied.value}, then {tied.stages[-1].value}", tied.value, color_of(tied))
    layout = panels_layout([title], span, revision=experiment.hash, step=snapshot.step)
    return {"data": traces + curves, "layout": layout}


def recovery_legend(snapshot: Snapshot) -> list[dict[str, str]]:
    """Return the legend of `plot_recovery`: a text for each style of line."""
    experiment = snapshot.experiment
    tied = tied_variant(experiment)
    seeds = f", mean of {experiment.n_seeds} seeds, 95% interval" if experiment.n_seeds > 1 else ""
    entries = [
        {
            "dash": "solid",
            "color": color_of(tied),
            "text": f"tied at step {experiment.tie_step(tied)}{seeds}",
        },
        {"dash": "dash", "color": REFERENCE, "text": "the same, never tied"},
        {"dash": "thin", "text": "vertical line: the step at which it is tied"},
        {"dash": "dot", "text": f"chance {percent(experiment.task.chance)}"},
    ]
    if _becomes_symmetric(tied) and experiment.plateau is not None:
        text = f"guess between two entries {percent(experiment.plateau)}"
        entries.append({"dash": "longdashdot", "text": text})
    return entries


def color_of(tied: Variant) -> str:
    """Return the colour of the sharing after tying."""
    return COLORS[tied.stages[-1].sharing]


def _becomes_symmetric(tied: Variant) -> bool:
    """Return whether tying gives a plain sharing with symmetric scores, which has a plateau."""
    return stays_at_plateau(tied.stages[-1])
