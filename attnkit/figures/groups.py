"""Groups of the heads of real models: all heads of one model in layers of one kind.

Every group is compared with random matrices of its own shape, on which chance levels depend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from itertools import cycle

import numpy as np
import pandas as pd

from attnkit.foundation.words import counted, listed
from attnkit.realmodels.answer import tied_layers
from attnkit.realmodels.atlas import K_IS_V, KV_PLACE, Q_IS_K
from attnkit.realmodels.measures import OF_ACTIVATIONS, Measure
from attnkit.training.summary import fixed
from attnkit.variants.palette import COLORS, FURTHER

INKS = (FURTHER[1], FURTHER[3], FURTHER[2], FURTHER[0])
"""Colours of real models; none is the colour of a sharing, which toy models have."""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon", "x")
"""Symbols of groups of real models, so that groups differ in more than colour."""

TOY_SYMBOLS = {"encoder": "circle-open", "causal": "triangle-up-open", "cross": "diamond-open"}
"""Hollow symbols of attnkit's own small models, by the kind of layer."""

KINDS = {
    "encoder": "encoder: tokens look at all tokens",
    "causal": "causal: tokens look back",
    "cross": "cross: tokens look at another sequence",
}
"""Description of each kind of layer."""

TOY = "toy"
"""Family of attnkit's own small models, and the prefix of the names of their groups."""

_OF_KEYS_AND_VALUES = ("_k", "_v", "_kv")
"""Endings of the names of measures that do not depend on queries."""


def number_text(value: float) -> str:
    """Return a number with few digits and a typographic minus; “–” if it is not finite."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    return fixed(value, 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 3)


@dataclass(frozen=True, eq=False)
class Group:
    """Heads of one model in layers of one kind, with their values of a measure.

    attnkit's own small models of one variant are one group, whatever task they were trained on.

    Attributes:
        model: Name of the model, or "toy" and the variant.
        kind: Kind of the layers, a key of `KINDS`.
        heads: Rows of the table of heads, (n,).
        values: (n,) values of the measure, all finite.
        random: Mean and standard deviation of the measure for random matrices of the same shape;
            NaN if unknown.
        color: Colour of the marks.
        symbol: Plotly symbol of the marks.
    """

    model: str
    kind: str
    heads: pd.DataFrame
    values: np.ndarray
    random: tuple[float, float]
    color: str
    symbol: str

    @property
    def name(self) -> str:
        """Model and kind of layers, for texts."""
        return f"{self.model}, {self.kind}"

    @property
    def is_toy(self) -> bool:
        """Whether these are attnkit's own small models."""
        return bool((self.heads["family"] == TOY).all())

    @property
    def count(self) -> str:
        """Number of heads, in words."""
        return counted(len(self.values), "head")

    @property
    def median(self) -> float:
        """Median of the values over heads."""
        return float(np.median(self.values))

    @property
    def in_words(self) -> str:
        """Median, range and random level, in words."""
        low, high = number_text(self.values.min()), number_text(self.values.max())
        text = f"median {number_text(self.median)}, {low} to {high}, {self.count}"
        mean, sd = self.random
        if not math.isfinite(mean):
            return text
        return f"{text}; random {number_text(mean)} ± {number_text(sd)}"

    def tips(self, title: str) -> list[str]:
        """Return the texts shown on hover, one per head."""
        return [
            f"{escape(model)}, {self.kind}<br>layer {layer}, head {head}: {escape(title)} "
            f"{number_text(value)}"
            for model, layer, head, value in zip(
                *(self.heads[name] for name in ("model", "layer", "head")), self.values, strict=True
            )
        ]


def heads_in(table: pd.DataFrame, fold: bool, offset: int) -> pd.DataFrame:
    """Return one row per head, measured with these settings where a model has such rows.

    A model without them, such as one without rotary positions, keeps the rows of its first setting.

    Args:
        table: Table of an atlas.
        fold: Whether gains of the norm before attention are multiplied into the matrices.
        offset: Distance of query and key positions in tokens.
    """
    heads = table[table["head"].notna()]
    selected = []
    for _, rows in heads.groupby(["model", "kind"], sort=False):
        for name, value in (("folded", fold), ("offset", offset)):
            same = rows[rows[name] == value]
            rows = same if len(same) else rows[rows[name] == rows[name].iloc[0]]
        selected.append(rows)
    return pd.concat(selected, ignore_index=True) if selected else heads


def names_of_groups(heads: pd.DataFrame) -> pd.Series[str]:
    """Return the name of every head's group: its model, or "toy" and its variant."""
    variants = f"{TOY} " + heads["model"].str.rsplit(", ", n=1).str[-1]  # also of no heads
    return heads["model"].where(heads["family"] != TOY, variants)


def looks_of_groups(heads: pd.DataFrame) -> dict[tuple[str, str], tuple[str, str]]:
    """Return model and kind of each group → colour and symbol.

    Toys have the colour of their sharing. Real models have one ink each, and a symbol for each kind
    of layer, in the order of the table.
    """
    of_toys = {f"{TOY} {sharing.value}": color for sharing, color in COLORS.items()}
    inks, symbols = cycle(INKS), cycle(SYMBOLS)
    colors: dict[str, str] = {}
    looks = {}
    groups = pd.DataFrame({"name": names_of_groups(heads), "kind": heads["kind"]})
    for name, kind in groups.drop_duplicates().itertuples(index=False):
        if name not in colors:
            colors[name] = of_toys.get(name) or next(inks)
        symbol = TOY_SYMBOLS.get(kind, "square-open") if name in of_toys else next(symbols)
        looks[name, kind] = (colors[name], symbol)
    return looks


def counting_heads(heads: pd.DataFrame, measure: str, once: bool) -> pd.DataFrame:
    """Return the rows of heads that count for a measure.

    Args:
        heads: Table with a row per query head.
        measure: Name of the measure.
        once: Whether a key and value head that several query heads share counts only once, if the
            measure does not depend on queries.
    """
    if not once or not measure.endswith(_OF_KEYS_AND_VALUES):
        return heads
    return heads.drop_duplicates(KV_PLACE)


def groups_of(heads: pd.DataFrame, measure: str, once: bool = False) -> list[Group]:
    """Return the groups that have values of a measure, in the order of the table.

    Arguments are those of `counting_heads`.
    """
    looks = looks_of_groups(heads)
    groups = []
    names = names_of_groups(heads)
    for (model, kind), members in heads.groupby([names, heads["kind"]], sort=False):
        rows = counting_heads(members, measure, once)
        rows = rows[np.isfinite(rows[measure].to_numpy(float))]
        if len(rows):
            values = rows[measure].to_numpy(float)
            random = random_of(rows, measure)
            look = looks[str(model), str(kind)]
            groups.append(Group(str(model), str(kind), rows, values, random, *look))
    return groups


def two_models(groups: list[Group]) -> tuple[Group, Group]:
    """Return groups of two models if there are two; of causal layers if both have them."""
    causal = [group for group in groups if group.kind == "causal"]
    first = (causal or groups)[0]
    others = [group for group in (*causal, *groups) if group.model != first.model]
    return first, (others or [groups[-1]])[0]


def random_of(heads: pd.DataFrame | pd.Series, measure: str) -> tuple[float, float]:
    """Return mean and standard deviation of a measure for random matrices of the heads' shape.

    They are NaN if they are unknown.

    Args:
        heads: Rows of heads, or the row of one head.
        measure: Name of the measure.
    """
    names = (f"{measure}_random", f"{measure}_random_sd")
    mean, sd = (float(np.mean(heads[name])) if name in heads else math.nan for name in names)
    return mean, sd


def describe_groups(groups: list[Group], title: str) -> str:
    """Describe in words what grids and strips of the groups show, for screen readers."""
    texts = [f"{group.name}: {group.in_words}" for group in groups]
    return f"{title}. {'. '.join(texts)}." if texts else f"{title}: 0 heads have it."


def describe_tied(heads: pd.DataFrame) -> str:
    """Name the models in which one matrix has two roles in some layers; may be empty."""
    sentences = []
    for tied, words in _TIED.items():
        places = [
            f"in {share} of {model}"
            for model, rows in heads.groupby("model", sort=False)
            if (share := tied_layers(rows, tied))
        ]
        sentences += [words.format(" and ".join(places))] if places else []
    return " ".join(sentences)


_TIED = {
    K_IS_V: "One matrix serves as W_K and as W_V {}: comparisons with W_V are left out there, and "
    "out of all averages.",
    Q_IS_K: "Q and K are tied {}: one matrix serves as W_Q and as W_K, so their cosine, their "
    "overlap and the symmetry of W_Q W_Kᵀ are 1. This is a positive control of the measures.",
}
"""Sentence about layers with each sharing; the places come where the braces are."""


def describe_lacking(heads: pd.DataFrame, measure: Measure) -> str:
    """Name the models, or kinds of their layers, without values of a measure; may be empty."""
    names = heads["model"].where(heads["family"] != TOY, "the toy models")
    has_value = pd.Series(np.isfinite(heads[measure.name].to_numpy(float)), heads.index)
    lacking = []
    for name, of_model in has_value.groupby(names, sort=False):
        if not of_model.any():
            lacking.append(str(name))
        elif name != "the toy models":
            by_kind = of_model.groupby(heads.loc[of_model.index, "kind"], sort=False).any()
            lacking += [f"{name} ({kind})" for kind in by_kind.index[~by_kind]]
    if not lacking:
        return ""
    if measure.name not in OF_ACTIVATIONS:
        return f"Not defined: {listed(lacking)}."
    were = "were" if len(lacking) > 1 or lacking == ["the toy models"] else "was"
    return f"Not measured: {listed(lacking)}, which {were} not run."
