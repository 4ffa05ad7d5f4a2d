"""Matrices tied after training: every way at once, mixtures with the map, and training on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.tying import (
    ALPHAS,
    MIXTURE_NAMES,
    NEAR_CHANCE,
    TyingResult,
    percent_of,
    tied_variant,
)
from attnkit.figures.curves import (
    History,
    metric_axis,
    plateau_levels,
    reference_levels,
    step_axis,
)
from attnkit.figures.marks import OUTLINE, colored_name, dots, level, mean_curve
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, Title, draw, draw_live
from attnkit.foundation.tables import Cell, Row, csv_of_frame, csv_table, html_table
from attnkit.foundation.words import counted
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import COLORS, REFERENCE
from attnkit.variants.sharing import Sharing


@dataclass(frozen=True)
class TieOption:
    """One way to tie a trained model.

    Attributes:
        variant: Text form of the trained variant.
        tie: The sharing after tying, such as "K=V".
        by: Values of the tied matrix, such as "average" or "keep_K".
        text: Text form of the variant that is tied halfway through training; empty if there is
            none.
        refusal: Reason why the model cannot be tied in this way; empty if it can.
        at_once: Accuracy right after tying; NaN if the model cannot be tied in this way.
    """

    variant: str
    tie: str
    by: str
    text: str
    refusal: str
    before: float
    at_once: float

    @property
    def method(self) -> str:
        """Text of `by` on screen: "average" or, say, "keep W_K"."""
        return "average" if self.by == "average" else f"keep W_{self.by[-1]}"

    def conclusion(self, name: str, chance: float) -> str:
        """Return a sentence about what tying costs at once."""
        if self.refusal:
            return f"{name} cannot be tied to {self.tie} in this way. {self.refusal}"
        before, at_once = percent(self.before), percent(self.at_once)
        if self.before < chance + NEAR_CHANCE:
            return (
                f"{name} has little to lose yet: it is near chance ({percent(chance)}), with "
                f"{before} before tying and {at_once} after."
            )
        *first, last = (f"W_{role}" for role in self.tie.split("="))
        how = "to their average" if self.by == "average" else f"by keeping W_{self.by[-1]}"
        tying = f"Tying {', '.join(first)} and {last} {how}"
        if self.before == self.at_once:
            return f"{tying} costs {name} nothing at once: it stays at {at_once}."
        points = int(before.removesuffix("%")) - int(at_once.removesuffix("%"))
        if points == 0 or abs(self.before - self.at_once) < 0.01:
            change = f"it stays at {at_once}" if points == 0 else f"{before} → {at_once}"
            return f"{tying} changes {name} by less than one point at once: {change}."
        count = counted(abs(points), "point")
        effect = f"costs {name} {count}" if points > 0 else f"raises {name} by {count}"
        return f"{tying} {effect} at once: {before} → {at_once}."


def ways_of(inspected: InspectionResult) -> list[TieOption]:
    """Return the ways to tie from the result of the view "ties"."""
    variants = inspected.header["variants"]
    return [
        TieOption(
            variants[row["variant"]]["text"],
            row["tie"],
            row["by"],
            row["text"],
            row["refusal"],
            float(inspected.fixed["untied"][row["variant"]]),
            float(inspected.fixed["tied"][index]),
        )
        for index, row in enumerate(inspected.header["rows"])
    ]


def way_in_words(tied: Variant) -> str:
    """Return how a variant is tied during training: the sharing and how it comes about."""
    kept = tied.given.get("tie_by")
    return f"{tied.stages[-1].sharing}, {f'keep W_{kept.value[-1]}' if kept else 'average'}"


def ways_table(ways: Sequence[TieOption], chosen: TieOption, chance: float) -> str:
    """Return an HTML table for each tie of one variant: name of the way, bar, accuracy."""
    tables = ""
    for tie in dict.fromkeys(way.tie for way in ways):
        color, shown = COLORS[Sharing(tie)], [way for way in ways if way.tie == tie]
        rows: list[Row] = []
        for way in shown:
            name = Cell(f"{'▸ ' * (way == chosen)}{escape(way.method)}", is_name=True)
            if way.refusal:
                rows.append([name, Cell(escape(way.refusal), 'class="ak-not" colspan="2"')])
            else:
                rows.append([name, *_accuracy_cells(way.at_once, way.before, chance, color)])
        current = shown.index(chosen) if chosen in shown else None
        tables += html_table([], rows, caption=colored_name(color, tie), current=current)
    legend = _legend_of_levels(ways[0].before, chance, "<span>▸ chosen</span>")
    return f'<div class="ak-ways">{tables}</div>{legend}'


def ways_csv(ways: Sequence[TieOption]) -> str:
    """Return all ways of all variants as CSV."""
    head = ["sharing", "tie", "by", "accuracy_before", "accuracy_at_once", "why_not"]
    rows = [
        (one.variant, one.tie, one.by, one.before, "" if one.refusal else one.at_once, one.refusal)
        for one in ways
    ]
    return csv_table(head, rows)


def _legend_of_levels(before: float, chance: float, more: str = "") -> str:
    sample = '<span><i class="ak-sample {}" aria-hidden="true"></i>'
    return (
        '<div class="ak-legend">'
        f"{sample.format('ak-before')} before tying {percent(before)}</span>"
        f"{sample.format('ak-chance')} chance {percent(chance)}</span>{more}</div>"
    )


def _accuracy_cells(accuracy: float, before: float, chance: float, color: str) -> tuple[str, str]:
    """Return the HTML cells of one accuracy: a bar with both levels, and the number."""
    bar = (
        f'<i style="width:{accuracy:.1%};background:{color}"></i>'
        f'<i class="ak-chance" style="left:{chance:.1%}"></i>'
        f'<i class="ak-before" style="left:{before:.1%}"></i>'
    )
    return f'<div class="ak-bar" aria-hidden="true">{bar}</div>', percent(accuracy)


_COLOR = COLORS[Sharing.K_V]
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
        alpha: The chosen share of W_K, one of `ALPHAS`.
    """
    before = float(mean_interval(result.before).mean)
    area, line = mean_curve(np.array(ALPHAS), mean_interval(result.mixed.T), _COLOR)
    at_alpha = line.values["y"][[ALPHAS.index(alpha)]]
    marks = [
        level(result.chance, width=1.2),
        level(before, "solid", width=1.2),
        level(alpha, "solid", upright=True, width=1),
        area,
        line,
        dots([alpha], at_alpha, _COLOR, size=14, edge={**OUTLINE, "width": 2}),
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
        bar, _ = _accuracy_cells(float(interval.mean), before, result.chance, _COLOR)
        body.append((Cell(name, is_name=True), bar, percent_of(interval)))
    table = html_table([], body, caption="Keep W_K and multiply the values by …")
    return f'<div class="ak-ways">{table}</div>{_legend_of_levels(before, result.chance)}'


def tying_csv(results: Sequence[TyingResult]) -> str:
    """Return the tables of some variants as CSV."""
    import pandas as pd

    return csv_of_frame(pd.concat([result.table for result in results]))


def plot_recovery(snapshot: Snapshot) -> Figure:
    """Plot held-out accuracy of both over steps: means with 95% intervals, and the tying step."""
    experiment, history = snapshot.experiment, History.of("accuracy", snapshot)
    tied = tied_variant(experiment)
    untied = tied.stages[0]
    color, tie_step = COLORS[tied.stages[-1].sharing], experiment.tie_step(tied)
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
