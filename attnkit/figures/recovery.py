"""Figure that compares a variant that is tied during training with the same one untied."""

from __future__ import annotations

from attnkit.analysis.recovery import tied_variant
from attnkit.figures.curves import intervals_of, metric_axis, stays_at_plateau
from attnkit.figures.marks import level, mean_curve
from attnkit.figures.panels import Axis, Figure, Panel, Title, draw_live, thin
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, REFERENCE


def plot_recovery(snapshot: Snapshot) -> Figure:
    """Plot held-out accuracy of both over steps: means with 95% intervals, and the tying step."""
    experiment = snapshot.experiment
    tied = tied_variant(experiment)
    untied = tied.stages[0]
    steps, indices = thin(snapshot.eval_steps)
    accuracy = intervals_of(snapshot.per_sharing(snapshot.history["accuracy"])[indices])
    color, chance, tie_step = color_of(tied), experiment.task.chance, experiment.tie_step(tied)
    seeds = f", mean of {experiment.n_seeds} seeds, 95% interval" if experiment.n_seeds > 1 else ""
    legend = [
        {"dash": "solid", "color": color, "text": f"tied at step {tie_step}{seeds}"},
        {"dash": "dash", "color": REFERENCE, "text": "the same, never tied"},
        {"dash": "thin", "text": "vertical line: the step at which it is tied"},
        {"dash": "dot", "text": f"chance {percent(chance)}"},
    ]
    marks = [level(chance, width=1.2), level(tie_step, "solid", upright=True, width=1)]
    if _becomes_symmetric(tied) and experiment.plateau is not None:
        marks.append(level(experiment.plateau, "longdashdot", width=1.2))
        text = f"guess between two entries {percent(experiment.plateau)}"
        legend.append({"dash": "longdashdot", "text": text})
    of_untied, of_tied = (accuracy[experiment.sharing.index(one)] for one in (untied, tied))
    curves = (
        mean_curve(steps, of_untied, REFERENCE, dash="dash", name="untied"),
        mean_curve(steps, of_tied, color, name="tied"),
    )
    marks += [mark for layer in zip(*curves, strict=True) for mark in layer]
    title = Title(f"{untied.value}, then {tied.stages[-1].value}", tied.value, color)
    x = Axis(0, experiment.training.steps, "steps", n_ticks=3)
    panel = Panel(x, metric_axis("accuracy", 1.0), marks, title)
    return draw_live([panel], legend, experiment.hash, snapshot.step)


def color_of(tied: Variant) -> str:
    """Return the colour of the sharing after tying."""
    return COLORS[tied.stages[-1].sharing]


def _becomes_symmetric(tied: Variant) -> bool:
    """Return whether tying gives a plain sharing with symmetric scores, which has a plateau."""
    return stays_at_plateau(tied.stages[-1])
