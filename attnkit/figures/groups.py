"""Heads of real models in groups: the layers of one kind in one model, beside random matrices.

A group has a random level of its own, for that hangs on the shape of its matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from itertools import cycle

import numpy as np
import pandas as pd

from attnkit.realmodels.measures import OF_ACTIVATIONS, Measure
from attnkit.variants.palette import COLORS, FURTHER

LEGEND = {
    "orientation": "h",
    "y": 1.02,
    "yanchor": "bottom",
    "x": 0,
    "itemclick": False,
    "itemdoubleclick": False,
}
"""Of a figure with few kinds of marks: above it, and nothing to press."""

SYMBOLS = {"encoder": "circle", "causal": "triangle-up", "cross": "diamond"}
"""By kind; nobody needs to tell colours apart."""

KINDS = {
    "encoder": "encoder: tokens look at all tokens",
    "causal": "causal: tokens look back",
    "cross": "cross: tokens look at another sequence",
}
"""What kinds mean, in words."""

TOY = "toy"
"""The family of our own small models, and how the names of their groups begin."""

_COLORS = (*COLORS.values(), *FURTHER)

_OF_KEYS_AND_VALUES = ("_k", "_v", "_kv")


def entry(text: str) -> str:
    """A text of a legend, with some room: a saved file may be shown in a wider font."""
    return escape(text) + "\u00a0" * (3 + len(text) // 8)


def real(x: float) -> str:
    """A number as one reads it: a true minus, “–” for none."""
    if not math.isfinite(x):
        return "–"
    size = abs(x)
    digits = 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 3
    return f"{x:z.{digits}f}".replace("-", "−")


@dataclass(frozen=True, eq=False)
class Group:
    """Heads of one kind in one model that have a measure.

    Our own small models of one variant are one group, whatever task they learned.

    Attributes:
        heads: rows of the table, one per head.
        values: of the measure, (n,), all finite.
        random: mean and standard deviation of random matrices of that shape, maybe NaN.
    """

    model: str
    kind: str
    heads: pd.DataFrame
    values: np.ndarray
    random: tuple[float, float]
    color: str

    @property
    def name(self) -> str:
        """Of the model and the kind."""
        return f"{self.model}, {self.kind}"

    @property
    def symbol(self) -> str:
        """Of its dots; hollow for our own small models."""
        return SYMBOLS.get(self.kind, "square") + "-open" * self.ours

    @property
    def ours(self) -> bool:
        """Whether these are our own small models."""
        return bool((self.heads["family"] == TOY).all())

    @property
    def median(self) -> float:
        """Over heads."""
        return float(np.median(self.values))

    @property
    def in_words(self) -> str:
        """Median, ends and the random level, in words."""
        n = len(self.values)
        low, high = real(self.values.min()), real(self.values.max())
        text = f"median {real(self.median)}, {low} to {high}, {n} head{'s' * (n > 1)}"
        mean, sd = self.random
        if not math.isfinite(mean):
            return text
        return f"{text}; random {real(mean)} ± {real(sd)}"

    def tips(self, title: str) -> list[str]:
        """Words per head."""
        return [
            f"{escape(model)}, {self.kind}<br>layer {layer}, head {head}: {escape(title)} "
            f"{real(value)}"
            for model, layer, head, value in zip(
                *(self.heads[name] for name in ("model", "layer", "head")), self.values, strict=True
            )
        ]


def names_of_groups(heads: pd.DataFrame) -> pd.Series[str]:
    """Of every head its model's name; of our own small models their variant's."""
    variants = f"{TOY} " + heads["model"].str.rpartition(", ")[2]
    return heads["model"].where(heads["family"] != TOY, variants)


def colors_of_groups(heads: pd.DataFrame) -> dict[str, str]:
    """A colour for each name of a group: models in the order of the table, toys by sharing."""
    names = names_of_groups(heads).drop_duplicates()
    own = {f"{TOY} {sharing.value}": color for sharing, color in COLORS.items()}
    free = cycle(_COLORS)
    return {name: own.get(name) or next(free) for name in names}


def counted(heads: pd.DataFrame, measure: str, once: bool) -> pd.DataFrame:
    """The heads that count for a measure.

    Args:
        once: whether a key and value head that several query heads share counts once, where
            queries play no part.
    """
    if not once or not measure.endswith(_OF_KEYS_AND_VALUES):
        return heads
    return heads.drop_duplicates(["model", "kind", "layer", "kv_head"])


def groups_of(heads: pd.DataFrame, measure: str, once: bool = False) -> list[Group]:
    """Every model's kinds that have numbers, in the order of the table; `once` as in `counted`."""
    colors = colors_of_groups(heads)
    groups = []
    names = names_of_groups(heads)
    for (model, kind), own in heads.groupby([names, heads["kind"]], sort=False):
        own = counted(own, measure, once)
        values = own[measure].to_numpy(float)
        known = np.isfinite(values)
        if known.any():
            own = own[known]
            groups.append(
                Group(
                    str(model),
                    str(kind),
                    own,
                    values[known],
                    random_of(own, measure),
                    colors[str(model)],
                )
            )
    return groups


def random_of(heads: pd.DataFrame, measure: str) -> tuple[float, float]:
    """Mean and standard deviation of a measure of random matrices of these heads' shape."""
    names = (f"{measure}_random", f"{measure}_random_sd")
    mean, sd = (
        float(heads[name].to_numpy(float).mean()) if name in heads else math.nan for name in names
    )
    return mean, sd


def describe_groups(groups: list[Group], title: str) -> str:
    """What grids and strips show, for those who do not see them."""
    said = [f"{group.name}: {group.in_words}" for group in groups]
    return f"{title}. {'. '.join(said)}." if said else f"{title}: 0 heads have it."


def describe_lacking(heads: pd.DataFrame, measure: Measure) -> str:
    """Which models, or kinds of layers of a model, have no number of a measure; empty if none."""
    ours = heads["family"] == TOY
    names = heads["model"].where(~ours, "the toy models")
    known = pd.Series(np.isfinite(heads[measure.name].to_numpy(float)), heads.index)
    lacking = []
    for name, own in known.groupby(names, sort=False):
        if not own.any():
            lacking.append(str(name))
        elif name != "the toy models":
            by_kind = own.groupby(heads.loc[own.index, "kind"], sort=False).any()
            lacking += [f"{name} ({kind})" for kind in by_kind.index[~by_kind]]
    if not lacking:
        return ""
    *first, last = lacking
    named = f"{', '.join(first)} and {last}" if first else last
    if measure.name not in OF_ACTIVATIONS:
        return f"Not defined: {named}."
    were = "were" if len(lacking) > 1 or lacking == ["the toy models"] else "was"
    return f"Not measured: {named}, which {were} not run."
