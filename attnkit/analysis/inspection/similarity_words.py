"""Conclusion of the similarity view: how alike vectors are, compared with random matrices.

A side is −1 where a measure is below what random matrices give, 0 within, and 1 above; NaN where
there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnkit.analysis.inspection.result import Sentences
from attnkit.foundation.words import capitalised, listed, said_in_english
from attnkit.training.summary import two_decimals

TWIN = 0.999995
"""Value of a measure above which two matrices, or two vectors, are one and the same."""

_SIDES = {-1: "less alike", 0: "as alike", 1: "more alike"}
_MARKS = {-1: " ▼", 0: " =", 1: " ▲"}


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
    counts = {side: int((sides == side).sum()) for side in _SIDES if (sides == side).any()}
    n, most = sum(counts.values()), _most(sides)
    side = next(iter(counts), 0) if most is None else most
    n_side = counts.get(side, 0)
    numbers = SimpleNamespace(
        n=n,
        all_shared=all_shared,
        before="" if step else "before training, ",
        most=most,
        learnt=step and most and untrained is not None and _most(untrained) != most,
        are=f"{n_side} are" if n_side > 1 else f"{n_side} is",
        side=_SIDES[side],
        than="than" if side else "as",
        others=listed([f"{count} {_SIDES[k]}" for k, count in counts.items() if k != side]),
        mostly="" if n_side == n else "mostly ",
        of_all="" if n_side == n else f" ({n_side} of {n} pairs)",
    )
    return capitalised(said_in_english(_CONCLUSIONS, numbers))


_CONCLUSIONS = {
    "Each pair here shares one matrix, so there is nothing to compare.": lambda n: (
        not n.n and n.all_shared
    ),
    "Nothing can be compared here.": lambda n: not n.n,
    "{before}of {n} pairs with matrices of their own, {are} {side} {than} random matrices make "
    "them, {others}.": lambda n: n.most is None,
    "{before}where two of Q, K and V have matrices of their own, training makes their vectors "
    "{mostly}{side} {than} random matrices do{of_all}.": lambda n: n.learnt,
    "{before}where two of Q, K and V have matrices of their own, their vectors are {mostly}{side} "
    "{than} random matrices make them{of_all}.": lambda n: True,
}
"""Conclusions on how alike the vectors of different matrices are."""


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
