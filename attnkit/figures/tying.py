"""Figures of keys and values tied after training: accuracy of the mixtures, and of the repairs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.recovery import percent_of
from attnkit.analysis.tying import ALPHAS, MIXTURE_NAMES, Repair, TyingResult
from attnkit.figures.panels import Figure, Trace, band, level, line, mean_line
from attnkit.figures.strips import OUTLINE, bare_layout
from attnkit.figures.ties import accuracy_cells, legend_of_levels
from attnkit.training.statistics import mean_interval
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import COLORS, REFERENCE
from attnkit.variants.sharing import Sharing

COLOR = COLORS[Sharing.K_V]
"""Colour of the sharing that all these ways lead to."""

_HEIGHT = 280
"""Height of `plot_mixtures` in pixels."""


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
    interval = mean_interval(result.mixed.T)
    alphas, before = np.array(ALPHAS), float(mean_interval(result.before).mean)
    low, high = (limit.clip(0, 1) for limit in (interval.low, interval.high))
    chosen = ALPHAS.index(alpha)
    mark: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [alpha],
        "y": [round(float(interval.mean[chosen]), 5)],
        "marker": {"size": 14, "color": COLOR, "line": {**OUTLINE, "width": 2}},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    traces = [
        level(0, [0, 1], result.chance, "dot"),
        level(0, [0, 1], before, "solid"),
        line(0, np.full(2, alpha), np.array([0.0, 1.0]), color=REFERENCE, width=1),
        band(0, alphas, low, high, COLOR),
        mean_line(0, alphas, interval.mean, COLOR, low=low, high=high),
        mark,
    ]
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    layout = {
        **bare_layout(),
        "hovermode": "x",
        "height": _HEIGHT,
        "margin": {"l": 46, "r": 40, "t": 14, "b": 52},
        "xaxis": {
            "range": [0, 1],
            "tickvals": ticks,
            "ticktext": [f"{tick:g}<br>{MIXTURE_NAMES.get(tick, '')}" for tick in ticks],
            "zeroline": False,
            "fixedrange": True,
        },
        "yaxis": {
            "range": [-0.02, 1.04],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0%", "25%", "50%", "75%", "100%"],
            "zeroline": False,
            "fixedrange": True,
        },
    }
    return {"data": traces, "layout": layout}


def repairs_table(result: TyingResult) -> str:
    """Return an HTML table with a row for W_K alone and for every repair: name, bar, accuracy.

    The table omits the maps of kind `reduced`; the CSV file contains them.
    The legend below it explains the levels of the curve, too.
    """
    before = float(mean_interval(result.before).mean)
    rows = [("no map", result.kept_key)]
    rows += [
        (_name_of(repair, result), result.of_repair(repair))
        for repair in result.repairs
        if repair.kind != "reduced"
    ]
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f"{accuracy_cells(float(mean_interval(values).mean), before, result.chance, COLOR)}</tr>"
        for name, values in rows
    )
    caption = "Keep W_K and multiply the values by …"
    return (
        f'<div class="ak-ways"><table><caption>{caption}</caption><tbody>{body}</tbody></table>'
        f"</div>{legend_of_levels(before, result.chance)}"
    )


def _name_of(repair: Repair, result: TyingResult) -> str:
    """Return the name of a repair on screen."""
    if repair.kind != "linear":
        return f"{repair.kind} map"
    return "linear map" if repair == result.repairs[0] else f"cut to rank {repair.rank}"


def tying_csv(results: Sequence[TyingResult]) -> str:
    """Return the tables of some variants as CSV."""
    import pandas as pd

    text: str = pd.concat([result.table for result in results]).to_csv(index=False)
    return text
