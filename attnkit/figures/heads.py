"""Accuracy without each head of a trained model: values in, small tables of colours out."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.training.summary import percent
from attnkit.variants.palette import translucent

SPARED = 0.01
"""A head can go if accuracy falls by at most so much without it."""

_ROW_TITLE, _COLUMN = 96, 52
"""Pixels that a table needs at least."""

_LOST, _STRONGEST = "#D55E00", 0.55
"""The colour of a loss, and how much of it covers the page where all is lost."""


@dataclass(frozen=True, eq=False)
class Ablation:
    """What one variant's heads are worth.

    Attributes:
        name: of the variant. color: of it.
        places: its attention layers.
        whole: accuracy with all heads. none: with none.
        head: without one of them. layer: without all of one layer.
    """

    name: str
    color: str
    places: tuple[str, ...]
    whole: float
    none: float
    head: Float[np.ndarray, "l h"]
    layer: Float[np.ndarray, " l"]

    @property
    def is_single(self) -> bool:
        """Whether it has one head in one layer, and so no other."""
        return self.head.size == 1

    @property
    def learnt(self) -> bool:
        """Whether its heads have learnt anything that can be lost."""
        return self.whole - self.none > SPARED

    @property
    def spared(self) -> list[str]:
        """The heads without any one of which it is as good, in words."""
        places = np.argwhere(self.whole - self.head <= SPARED)
        return [self.named(int(layer), int(head)) for layer, head in places]

    @property
    def heaviest(self) -> tuple[str, float]:
        """The head that it needs most, in words, and the accuracy without it."""
        layer, head = np.unravel_index(int(self.head.argmin()), self.head.shape)
        return self.named(int(layer), int(head)), float(self.head[layer, head])

    @property
    def finding(self) -> str:
        """Which head matters most, which can go."""
        whole = percent(self.whole)
        if not self.learnt:
            return f"Its heads do nothing yet: {whole} with them, {percent(self.none)} without."
        if self.is_single:
            return f"Without its head: {whole} → {percent(self.none)}."
        name, without = self.heaviest
        if self.whole - without <= SPARED:
            return (
                f"No head matters alone: {whole} with all, at least {percent(without)} without one."
            )
        spared = self.spared
        told = f"Most without {name}: {whole} → {percent(without)}."
        if not spared:
            return f"{told} None can go."
        if len(spared) <= 2:
            return f"{told} Can go alone: {'; '.join(spared)}."
        return f"{told} {len(spared)} of {self.head.size} can go, one at a time."

    def named(self, layer: int, head: int) -> str:
        """A head in words, as far as there is a choice."""
        n_layers, n_heads = self.head.shape
        place = self.places[layer].lower() if n_layers > 1 else ""
        return ", ".join(filter(None, [place, f"head {head + 1}" if n_heads > 1 else ""]))


def ablations_of(inspected: InspectionResult) -> list[Ablation]:
    """The variants of the view "heads"."""
    header, fixed = inspected.header, inspected.fixed
    return [
        Ablation(
            variant["name"],
            variant["color"],
            tuple(header["places"]),
            float(fixed["accuracy_whole"][p]),
            float(fixed[f"{p}.none"][0]),
            fixed[f"{p}.head"],
            fixed[f"{p}.layer"],
        )
        for p, variant in enumerate(header["variants"])
    ]


def overall_finding(ablations: Sequence[Ablation]) -> str:
    """What holds for all of them."""
    if all(one.is_single for one in ablations):
        return "One head in one layer: without it nothing is left to look things up."
    able = [one for one in ablations if one.learnt and not one.is_single]
    if not able:
        return "No variant's heads have learnt anything that could be lost."
    n_heads = sum(int(one.head.size) for one in able)
    n_spared = sum(len(one.spared) for one in able)
    if n_spared == n_heads:
        return f"No head matters alone: each of the {n_heads} can go, one at a time."
    worst = min(able, key=lambda one: one.heaviest[1] - one.whole)
    name, without = worst.heaviest
    return (
        f"Most is lost by {worst.name} without {name}: {percent(worst.whole)} → "
        f"{percent(without)}. {n_spared or 'None'} of the {n_heads} heads can go, one at a time."
    )


def heads_tables(ablations: Sequence[Ablation]) -> str:
    """One small table per variant: layers × heads, coloured by what is lost."""
    most = max(one.head.shape[1] for one in ablations)
    width = _ROW_TITLE + _COLUMN * (most + 1)
    columns = f"repeat(auto-fill, minmax(min(100%, {width}px), 1fr))"
    tables = "".join(map(_table, ablations))
    return f'<div class="ak-heads" style="grid-template-columns:{columns}">{tables}</div>'


def heads_csv(ablations: Sequence[Ablation]) -> str:
    """Every number of the tables."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["variant", "layer", "head_off", "accuracy"])
    for one in ablations:
        table.writerow([one.name, "", "", one.whole])
        for layer, place in enumerate(one.places):
            for head, accuracy in enumerate(one.head[layer]):
                table.writerow([one.name, place, head + 1, accuracy])
            table.writerow([one.name, place, "all", one.layer[layer]])
        table.writerow([one.name, "all", "all", one.none])
    return text.getvalue()


def _table(one: Ablation) -> str:
    n_layers, n_heads = one.head.shape
    square = f'<span style="color:{one.color}" aria-hidden="true">■</span>'
    caption = (
        f"<caption>{square} <b>{escape(one.name)}</b> {percent(one.whole)} with all heads"
        f"<small>{escape(one.finding)}</small></caption>"
    )
    titles = [str(head + 1) for head in range(n_heads)] + ["all"] * (n_heads > 1)
    columns = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "".join(
        f'<tr><th scope="row">{escape(one.places[layer])}</th>'
        + "".join(_cell(one, float(accuracy)) for accuracy in one.head[layer])
        + (_cell(one, float(one.layer[layer])) if n_heads > 1 else "")
        + "</tr>"
        for layer in range(n_layers)
    )
    if n_layers > 1:
        last = _cell(one, one.none, n_heads + (n_heads > 1))
        rows += f'<tr><th scope="row">all layers</th>{last}</tr>'
    return (
        f'<table>{caption}<thead><tr><th scope="col">head off</th>{columns}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _cell(one: Ablation, accuracy: float, span: int = 1) -> str:
    scale = max(one.whole - one.none, SPARED)
    lost = min(max((one.whole - accuracy) / scale, 0.0), 1.0) if one.learnt else 0.0
    wide = f' colspan="{span}"' if span > 1 else ""
    color = translucent(_LOST, round(lost * _STRONGEST, 3))
    return f'<td{wide} style="background:{color}">{percent(accuracy)}</td>'
