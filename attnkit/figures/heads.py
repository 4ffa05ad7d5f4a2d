"""Table of trained models' accuracies without each of their heads, coloured by the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.figures.marks import colored_name
from attnkit.foundation.tables import Cell, Row, csv_table, html_table
from attnkit.training.summary import percent
from attnkit.variants.palette import REFERENCE, translucent

TOLERATED_LOSS = 0.01
"""Largest loss of accuracy without a head for which the head can be removed."""

_STRONGEST = 0.55
"""Opacity of a cell's grey where all accuracy is lost."""


@dataclass(frozen=True, eq=False)
class Ablation:
    """Accuracies of one variant with and without its heads.

    Attributes:
        name: Name of the variant.
        color: Colour of the variant.
        layers: Names of its attention layers.
        accuracy: Accuracy with all heads.
        without_all: Accuracy without any head.
        without_head: (l, h) accuracy without one head.
        without_layer: (l,) accuracy without all heads of one layer.
    """

    name: str
    color: str
    layers: tuple[str, ...]
    accuracy: float
    without_all: float
    without_head: Float[np.ndarray, "l h"]
    without_layer: Float[np.ndarray, " l"]

    @property
    def is_single(self) -> bool:
        """Whether the variant has only one head, in one layer."""
        return self.without_head.size == 1

    @property
    def learnt(self) -> bool:
        """Whether the heads have learnt anything that can be lost."""
        return self.accuracy - self.without_all > TOLERATED_LOSS

    @property
    def removable(self) -> list[str]:
        """Names of the heads that can be removed one at a time."""
        indices = np.argwhere(self.accuracy - self.without_head <= TOLERATED_LOSS)
        return [self.head_name(int(layer), int(head)) for layer, head in indices]

    @property
    def most_important(self) -> tuple[str, float]:
        """Name of the head whose removal costs most, and the accuracy without it."""
        flat_index = int(self.without_head.argmin())
        layer, head = np.unravel_index(flat_index, self.without_head.shape)
        return self.head_name(int(layer), int(head)), float(self.without_head[layer, head])

    @property
    def finding(self) -> str:
        """Sentence about the most important head and the removable ones."""
        accuracy, without_all = percent(self.accuracy), percent(self.without_all)
        if not self.learnt:
            return f"Its heads do nothing yet: {accuracy} with them, {without_all} without."
        if self.is_single:
            return f"Without its head: {accuracy} → {without_all}."
        name, lowest = self.most_important
        if self.accuracy - lowest <= TOLERATED_LOSS:
            return (
                f"No head matters alone: {accuracy} with all, at least {percent(lowest)} "
                "without one."
            )
        text = f"It needs {name} most: {accuracy} → {percent(lowest)} without."
        removable = self.removable
        if not removable:
            return f"{text} None can go."
        if len(removable) <= 2:
            return f"{text} Can go alone: {'; '.join(removable)}."
        return f"{text} {len(removable)} of {self.without_head.size} can go, one at a time."

    def head_name(self, layer: int, head: int) -> str:
        """Return the name of a head, without a layer or number that is the only one."""
        n_layers, n_heads = self.without_head.shape
        layer_name = self.layers[layer].lower() if n_layers > 1 else ""
        return ", ".join(filter(None, [layer_name, f"head {head + 1}" if n_heads > 1 else ""]))


def ablations_of(inspected: InspectionResult) -> list[Ablation]:
    """Return the ablations of all variants from the result of the view "heads"."""
    header, fixed = inspected.header, inspected.fixed
    return [
        Ablation(
            variant["name"],
            variant["color"],
            tuple(header["places"]),
            float(fixed["accuracy_whole"][index]),
            float(fixed[f"{index}.none"][0]),
            fixed[f"{index}.head"],
            fixed[f"{index}.layer"],
        )
        for index, variant in enumerate(header["variants"])
    ]


def overall_finding(ablations: Sequence[Ablation]) -> str:
    """Return one or two sentences about the heads of all variants together."""
    ablations = [ablation for ablation in ablations if ablation.learnt]
    if not ablations:
        return "The heads have learnt nothing yet that could be lost."
    worst = min(ablations, key=lambda ablation: ablation.most_important[1] - ablation.accuracy)
    name, lowest = worst.most_important
    fall = f"{percent(worst.accuracy)} → {percent(lowest)}"
    if all(ablation.is_single for ablation in ablations):
        falls = "falls most" if len(ablations) > 1 else "falls"
        return f"Without its only head, {worst.name} {falls}: {fall}."
    several = [ablation for ablation in ablations if not ablation.is_single]
    n_heads = sum(int(ablation.without_head.size) for ablation in several)
    n_removable = sum(len(ablation.removable) for ablation in several)
    if n_removable == n_heads:
        return f"No single head is needed: each of the {n_heads} can go, one at a time."
    needed = f"{worst.name} loses most without {name or 'its only head'}: {fall}."
    return f"{needed} {n_removable or 'None'} of the {n_heads} heads can go, one at a time."


def heads_table(ablations: Sequence[Ablation]) -> str:
    """Return an HTML table, a row per variant and layer, coloured by the loss of accuracy."""
    n_heads = max(ablation.without_head.shape[1] for ablation in ablations)
    has_layers = any(len(ablation.layers) > 1 for ablation in ablations)
    has_findings = any(not ablation.is_single for ablation in ablations)
    head: list[str | Cell] = ["variant", *["layer"] * has_layers, "all heads on"]
    head += _columns(n_heads)
    head += [Cell("in words", 'class="ak-finding"')] * has_findings
    bodies = (_body(ablation, n_heads, has_layers, has_findings) for ablation in ablations)
    return f'<div class="ak-heads">{html_table(head, *bodies)}</div>'


def _columns(n_heads: int) -> list[str]:
    """Return the titles of the columns of accuracies without heads."""
    if n_heads == 1:
        return ["head off"]
    return [f"head {head + 1} off" for head in range(n_heads)] + ["all off"]


def heads_csv(ablations: Sequence[Ablation]) -> str:
    """Return all numbers of the tables as CSV."""
    rows: list[tuple[object, ...]] = []
    for ablation in ablations:
        rows.append((ablation.name, "", "", ablation.accuracy))
        for layer, name in enumerate(ablation.layers):
            of_heads = enumerate(ablation.without_head[layer], start=1)
            rows += [(ablation.name, name, head, accuracy) for head, accuracy in of_heads]
            rows.append((ablation.name, name, "all", ablation.without_layer[layer]))
        rows.append((ablation.name, "all", "all", ablation.without_all))
    return csv_table(["variant", "layer", "head_off", "accuracy"], rows)


def _body(ablation: Ablation, n_heads: int, has_layers: bool, has_findings: bool) -> list[Row]:
    """Return the rows of one variant, with as many columns as the table has."""
    n_layers, n_own = ablation.without_head.shape
    several = n_layers > 1
    span = f'rowspan="{n_layers + several}"'
    name = Cell(colored_name(ablation.color, ablation.name), span, is_name=True)
    intact = Cell(percent(ablation.accuracy), span)
    words = Cell(escape(ablation.finding), f'class="ak-finding" {span}')
    rows: list[Row] = []
    for layer in range(n_layers):
        place = [Cell(escape(ablation.layers[layer]), is_name=True)] * has_layers
        cells = [_cell(ablation, float(value)) for value in ablation.without_head[layer]]
        if n_heads > n_own:
            cells.append(Cell("", f'class="ak-gap" colspan="{n_heads - n_own}"'))
        if n_heads > 1:
            cells.append(_cell(ablation, float(ablation.without_layer[layer])))
        is_first = layer == 0
        first, last = [name] * is_first, [words] * (is_first and has_findings)
        rows.append([*first, *place, *[intact] * is_first, *cells, *last])
    if several:
        last_cell = _cell(ablation, ablation.without_all, n_heads + (n_heads > 1))
        rows.append([Cell("all layers off", is_name=True), last_cell])
    return rows


def _cell(ablation: Ablation, accuracy: float, n_columns: int = 1) -> Cell:
    share = 0.0
    if ablation.learnt:
        most = max(ablation.accuracy - ablation.without_all, TOLERATED_LOSS)
        share = min(max((ablation.accuracy - accuracy) / most, 0.0), 1.0)
    color = translucent(REFERENCE, round(share * _STRONGEST, 3))
    return Cell(percent(accuracy), f'style="background:{color}" colspan="{n_columns}"')
