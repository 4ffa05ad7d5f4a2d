"""Figures of keys and values tied after training: accuracy of the mixtures, and of the map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.recovery import percent_of
from attnkit.analysis.tying import ALPHAS, MIXTURE_NAMES, TyingResult
from attnkit.figures.marks import OUTLINE, dots, level, mean_curve
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, draw
from attnkit.figures.ties import accuracy_cells, legend_of_levels
from attnkit.foundation.tables import Cell, csv_of_frame, html_table
from attnkit.training.statistics import mean_interval
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing

COLOR = COLORS[Sharing.K_V]
"""Colour of the sharing that all these ways lead to."""


def tying_results(inspected: InspectionResult) -> tuple[list[TyingResult], list[str]]:
    """Return the results of the view "tying", and why the other variants have none.

    A reason has the title of its variant before it, and no full stop.
    """
    results, refusals = [], []
    for index, entry in enumerate(inspected.header["tying"]):
        if entry["refusal"]:
            refusals.append(f"{title_of(Variant(entry['variant']))}: {entry['refusal']}")
            continue
        arrays = {
            name.partition(".")[2]: array
            for name, array in inspected.fixed.items()
            if name.startswith(f"{index}.")
        }
        results.append(TyingResult.from_parts(entry["result"], arrays))
    return results, refusals


def mixture_label(alpha: float) -> str:
    """Return a share of W_K, with the name of the mixture if it has one."""
    name = MIXTURE_NAMES.get(alpha)
    return f"{alpha:g} ({name})" if name else f"{alpha:g}"


def mixture_text(result: TyingResult, alpha: float) -> str:
    """Return a sentence about the accuracy of one mixture."""
    accuracy = percent_of(mean_interval(result.mixed[:, ALPHAS.index(alpha)]))
    return f"α = {mixture_label(alpha)}: {accuracy}."


def plot_mixtures(result: TyingResult, alpha: float) -> Figure:
    """Plot the accuracy of every mixture, with its interval over seeds, and mark the chosen one.

    Args:
        result: The measured variant.
        alpha: The chosen share of W_K, one of `ALPHAS`.
    """
    before = float(mean_interval(result.before).mean)
    area, line = mean_curve(np.array(ALPHAS), mean_interval(result.mixed.T), COLOR)
    at_alpha = line.values["y"][[ALPHAS.index(alpha)]]
    marks = [
        level(result.chance, width=1.2),
        level(before, "solid", width=1.2),
        level(alpha, "solid", upright=True, width=1),
        area,
        line,
        dots([alpha], at_alpha, COLOR, size=14, edge={**OUTLINE, "width": 2}),
    ]
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    texts = [f"{tick:g}<br>{MIXTURE_NAMES.get(tick, '')}" for tick in ticks]
    panel = Panel(Axis(0, 1, "", ticks, texts), SHARES, marks, height=214)
    return draw([panel], left=46, right=40, top=14, bottom=52, hover="x")


def repairs_table(result: TyingResult) -> str:
    """Return an HTML table with a row for W_K alone and one for the map: name, bar, accuracy.

    Accuracies have their interval over seeds. The legend below the table explains the levels of the
    curve, too.
    """
    before = float(mean_interval(result.before).mean)
    body = []
    for name, values in (("no map", result.kept_key), ("the fitted map", result.fitted)):
        interval = mean_interval(values)
        bar, _ = accuracy_cells(float(interval.mean), before, result.chance, COLOR)
        body.append((Cell(name, is_name=True), bar, percent_of(interval)))
    table = html_table([], body, caption="Keep W_K and multiply the values by …")
    return f'<div class="ak-ways">{table}</div>{legend_of_levels(before, result.chance)}'


def tying_csv(results: Sequence[TyingResult]) -> str:
    """Return the tables of some variants as CSV."""
    import pandas as pd

    return csv_of_frame(pd.concat([result.table for result in results]))
