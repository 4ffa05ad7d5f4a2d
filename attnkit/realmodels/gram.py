"""Gram matrices of the heads of a layer, and what follows from them without the matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Array

_MIN_EIGENVALUE = 1e-14
"""Eigenvalues of WᵀW below this share of the largest count as zero."""


@dataclass(frozen=True, eq=False)
class Gram:
    """Gram matrices WᵀW of some heads, and values that follow from them.

    Attributes:
        matrix: WᵀW.
        norm: Frobenius norm of W.
        effective_rank: Effective rank of W.
        whiten: W @ whiten has orthonormal columns, and zeros beyond the rank of W.
        root: A matrix R with R Rᵀ = WᵀW.
        rank: Rank of W.
    """

    matrix: Float[Array, "h d d"]
    norm: Float[Array, " h"]
    effective_rank: Float[Array, " h"]
    whiten: Float[Array, "h d d"]
    root: Float[Array, "h d d"]
    rank: Float[Array, " h"]

    @staticmethod
    def of(w: Float[Array, "h m d"]) -> Gram:
        """Return the Gram matrices of the heads `w`."""
        matrix = w.swapaxes(1, 2) @ w
        values, vectors = np.linalg.eigh(matrix)
        values = values.clip(0)
        positive = values > _MIN_EIGENVALUE * values[:, -1:]
        inverse = np.where(positive, 1 / np.sqrt(np.where(positive, values, 1)), 0)
        return Gram(
            matrix,
            norm=np.sqrt(np.trace(matrix, axis1=1, axis2=2)),
            effective_rank=effective_rank(np.sqrt(values)),
            whiten=vectors * inverse[:, None, :],
            root=vectors * np.sqrt(values)[:, None, :],
            rank=positive.sum(1),
        )


def bases_of(w: Float[Array, "h m d"]) -> Float[Array, "h m d"]:
    """Return orthonormal bases of the subspaces that matrices read, as columns; zeros beyond rank.

    Ten times as fast as `attnkit.analysis.similarity.column_space`, but less accurate for matrices
    that nearly lose a dimension, because WᵀW has the square of their condition number.
    """
    w = w.astype(np.float64)
    bases: Array = w @ Gram.of(w).whiten
    return bases


def effective_rank(singular: Float[Array, "*n d"]) -> Float[Array, " *n"]:
    """Return exp of the entropy of singular values as shares of their sum; NaN if all are 0.

    Source:
        Roy & Vetterli 2007, "The effective rank: a measure of effective dimensionality".
    """
    total = singular.sum(-1, keepdims=True)
    shares = np.divide(singular, total, out=np.full_like(singular, np.nan), where=total > 0)
    logs = np.log(np.where(shares > 0, shares, 1))
    rank: Array = np.exp(-(shares * logs).sum(-1))
    return rank


def sum_of_squares(matrices: Float[Array, "*n i j"]) -> Float[Array, " *n"]:
    """Return the sum of the squares of the elements of every matrix."""
    squares: Array = np.einsum("...ij,...ij->...", matrices, matrices)
    return squares


def ratio(numerator: Array, denominator: Array) -> Array:
    """Divide; NaN where the denominator is not positive."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    quotient: Array = np.divide(
        numerator, denominator, out=np.full(shape, np.nan), where=np.greater(denominator, 0)
    )
    return quotient
