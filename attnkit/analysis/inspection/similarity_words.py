"""Conclusion of the similarity view: how alike vectors are, compared with random matrices.

A side is −1 where a measure is below what random matrices give, 0 within, and 1 above; NaN where
there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnkit.analysis.inspection.result import Sentences
from attnkit.foundation.words import capitalised, listed
from attnkit.training.summary import two_decimals

TWIN = 0.999995
"""Value of a measure above which two matrices, or two vectors, are one and the same."""

_SIDES = {-1: "less alike", 0: "as alike", 1: "more alike"}
_MARKS = {-1: " ▼", 0: " =", 1: " ▲"}

_WHERE = "where two of Q, K and V have matrices of their own,"


def alikeness_sentences(header: Mapping[str, Any], framed: Mapping[str, np.ndarray]) -> Sentences:
    """Return for every frame the conclusion, and the cells of a table of variants and pairs."""
    cos, cka, vectors = map(
        header["measures"].index, ("cos_weights", "cka_weights", "cka_activations")
    )
    names = [str(p) for p in range(len(header["variants"]))]
    alike = np.stack([framed[f"{p}.alike"] for p in names], 1)  # (f, v, c, 5)
    random = np.stack([framed[f"{p}.random"] for p in names], 1)
    has_head = np.array([note["has_head"] for note in header["notes"]])
    values, sides = alike[..., vectors], sides_of(alike[..., vectors], random[..., vectors, :])
    one_matrix = (alike[..., cka] > TWIN) & ~(alike[..., cos] <= TWIN)
    compared = np.where(one_matrix, np.nan, sides)[:, has_head]
    first = compared[0] if header["steps"][0] == 0 else None
    cells = np.where(one_matrix & ~(values <= TWIN), "same matrix", marked(values, sides))
    cells = np.where(cells == "–", "no token has both", cells)
    return {
        "conclusion": [
            conclude(
                compared[frame],
                step,
                first,
                all_shared=bool(has_head.any() and one_matrix[frame, has_head].all()),
            )
            for frame, step in enumerate(header["steps"])
        ],
        "alike": np.where(has_head[:, None], cells, "no such head").tolist(),
    }


def conclude(
    sides: np.ndarray, step: int, untrained: np.ndarray | None, *, all_shared: bool
) -> str:
    """Return the conclusion on how alike the vectors of different matrices are.

    Args:
        sides: Side of every variant and pair; NaN for those of one matrix.
        step: Training step.
        untrained: Sides before training; None if they are not known.
        all_shared: Whether each pair is made by one matrix.
    """
    counts = {side: int((sides == side).sum()) for side in _SIDES}
    n, most = sum(counts.values()), _most(sides)
    if not n:
        nothing = "Each pair here shares one matrix, so there is nothing to compare."
        return nothing if all_shared else "Nothing can be compared here."
    before = "" if step else "Before training, "
    if most is None:
        first, *others = [
            (f"{counts[side]} {'are' if counts[side] > 1 else 'is'}", counts[side], text)
            for side, text in _SIDES.items()
            if counts[side]
        ]
        more = listed([f"{count} {text}" for _, count, text in others])
        comparison = (
            f"{first[0]} {first[2]} {_as_or_than(first[2])} random matrices make them, {more}."
        )
        return capitalised(f"{before}of {n} pairs with matrices of their own, {comparison}")
    text = _SIDES[most] if counts[most] == n else f"mostly {_SIDES[most]}"
    how = f"{text} {_as_or_than(text)} random matrices"
    of_all = "" if counts[most] == n else f" ({counts[most]} of {n} pairs)"
    changed = step and most and untrained is not None and _most(untrained) != most
    end = (
        f"training makes their vectors {how} do"
        if changed
        else f"their vectors are {how} make them"
    )
    return capitalised(f"{before}{_WHERE} {end}{of_all}.")


def _as_or_than(text: str) -> str:
    """Return "as" or "than", whichever follows the text of a comparison."""
    return "as" if text.endswith("as alike") else "than"


def _most(sides: np.ndarray) -> int | None:
    """Return the side of at least two thirds of the pairs; None if there is none."""
    n = np.isfinite(sides).sum()
    return next((side for side in _SIDES if 3 * (sides == side).sum() >= 2 * n > 0), None)


def sides_of(values: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Return the sides of values.

    Args:
        values: Values of any shape.
        random: Mean, lower and upper limit for random matrices, along one more axis.
    """
    low, high = random[..., 1], random[..., 2]
    sides = (values > high).astype(float) - (values < low)
    return np.where(np.isfinite(values) & np.isfinite(low), sides, np.nan)


def marked(values: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Return values as texts, each with the mark of its side."""
    texts = np.vectorize(lambda value, side: two_decimals(value) + _MARKS.get(side, ""), ["U20"])
    return texts(values, sides) if values.size else values.astype(str)


def head_table(header: Mapping[str, Any], fixed: Mapping[str, np.ndarray]) -> tuple[list[Any], str]:
    """Return a table's cells by variant, layer and head, and what all heads have in common.

    Args:
        header: Header of the view.
        fixed: Its arrays `p.table` and `p.table_random`.
    """
    tables, own = [], []
    for p, variant in enumerate(header["variants"]):
        values = fixed[f"{p}.table"][:, : variant["n_heads"]]  # (l, h, c, 5)
        sides = sides_of(values, fixed[f"{p}.table_random"][:, None])
        sides[values > TWIN] = np.nan
        tables.append(marked(values, sides).reshape(*values.shape[:2], -1).tolist())
        own.append(sides[..., header["measures"].index("cka_weights")].reshape(-1, values.shape[2]))
    counts = (
        f"{pair[0]} and {pair[1]}: of {np.isfinite(sides).sum()} heads with matrices of their own, "
        f"{(sides == 1).sum()} have weights more alike than random, {(sides == -1).sum()} less."
        for pair, sides in zip(header["pairs"], np.concatenate(own).T, strict=True)
    )
    return tables, " ".join(counts)
