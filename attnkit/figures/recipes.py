"""Figure of the best learning rates and schedules of a claim's arms, with their curves."""

from __future__ import annotations

from dataclasses import replace
from html import escape

from attnkit.claims.base import arm_title
from attnkit.evidence.record import Evidence
from attnkit.figures.learning import DASHES, SMALL_LABEL, SMALL_PLOT, Line, in_nats, panel_of
from attnkit.figures.panels import Figure, draw
from attnkit.foundation.language import mark, tr
from attnkit.training.summary import percent

RECIPES_KEY = mark(
    "A panel for every arm: its best four learning rates and schedules, on the seeds that tuned "
    "them. The solid line is the one that was chosen. A line is the mean over these seeds, its "
    "band the middle half of them."
)
"""How to read `plot_recipes`."""


def plot_recipes(evidence: Evidence, *, narrow: bool = False) -> Figure | None:
    """Plot a panel for every tuned arm, a line for each of its best recipes; None without any.

    Args:
        evidence: The evidence.
        narrow: Whether the names of the recipes stand below the panels instead of beside them.
    """
    panels = _lines_of(evidence)
    if not panels:
        return None
    drawn = [
        panel_of(lines, SMALL_PLOT, narrow, escape(arm_title(arm))) for arm, lines in panels.items()
    ]
    right = 12 if narrow else 28 + 6 * SMALL_LABEL
    return draw(drawn, left=46, right=right, top=28, bottom=52, legend="below" if narrow else "")


def describe_recipes(evidence: Evidence) -> str:
    """Describe in words what `plot_recipes` shows."""
    texts = []
    for name, lines in _lines_of(evidence).items():
        curve = lines[0].curve
        form = percent if curve.by == "accuracy" else in_nats
        ends = ", ".join(f"{line.title} {form(float(line.curve.mean[-1]))}" for line in lines)
        values = {"arm": arm_title(name), "steps": float(curve.steps[-1]), "recipes": ends}
        if curve.by == "accuracy":
            texts.append(tr("{arm}, mean accuracy after {steps:,.0f} steps: {recipes}.", **values))
        else:
            texts.append(tr("{arm}, mean loss after {steps:,.0f} steps: {recipes}.", **values))
    return " ".join(texts)


def _title_of(recipe: str) -> str:
    """Return a schedule and a learning rate on screen."""
    schedule, _, rate = recipe.partition(" ")
    return f"{tr(schedule)} {rate}"


def _lines_of(evidence: Evidence) -> dict[str, list[Line]]:
    """Return the lines of every panel by the name of its arm, without arms that are not tuned."""
    panels = {}
    shown = {arm.name for arm in (*evidence.claim.judged_arms, *(arm for _, arm in evidence.lost))}
    for name, arm in evidence.arms.items():
        tuned = evidence.tuned.get(name)
        if tuned is None or arm.recipe_of or name not in shown:
            continue
        tuned_arm = replace(arm, up_to=max(1, tuned.steps // arm.base_steps))
        lines = [
            Line(tuned_arm, curve, dash, SMALL_LABEL, _title_of(recipe))
            for (recipe, curve), dash in zip(tuned.curves.items(), DASHES, strict=False)
            if len(curve.steps)
        ]
        if lines:
            panels[name] = lines
    return panels
