"""Measures of M = W_Q W_Kᵀ of heads, computed without M, and errors of the best tied matrices."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Array
from attnkit.realmodels.gram import Gram, effective_rank, ratio, sum_of_squares

OF_FORM = ("rank_qk", "rank_skew", "symmetry", "directionality", "tie_symmetric", "tie_qk")
"""Names of the measures of M."""

_MIN_SKEW = 1e-7
"""Singular values of the skew part of W_Q W_Kᵀ below this count as zero; both have norm 1."""

_ROUNDING = 1e-5
"""Norms whose relative difference is smaller count as equal."""


def measure_form(
    q: Float[Array, "h m d"], k: Float[Array, "1 m d"], gram_q: Gram, gram_k: Gram
) -> dict[str, Float[Array, " h"]]:
    """Compute the measures of M = W_Q W_Kᵀ without computing M."""
    singular = np.linalg.svd(gram_q.root.swapaxes(1, 2) @ gram_k.root, compute_uv=False)
    rank = effective_rank(singular)
    if q.shape[1] != k.shape[1]:
        return {name: rank if name == "rank_qk" else np.full(len(q), np.nan) for name in OF_FORM}
    cross = k.swapaxes(1, 2) @ q
    size = (gram_q.matrix * gram_k.matrix).sum((1, 2))  # ‖M‖²
    rows = (q @ gram_k.matrix * q).sum(-1)
    columns = (k @ gram_q.matrix * k).sum(-1)
    symmetry = ratio((cross * cross.swapaxes(1, 2)).sum((1, 2)), size)
    product = _in_common_basis(gram_q, gram_k, cross)
    skew = np.linalg.svd((product - product.swapaxes(1, 2)) / 2, compute_uv=False)
    values = {
        "rank_qk": rank,
        "rank_skew": effective_rank(np.where(skew > _MIN_SKEW, skew, 0)),
        "symmetry": symmetry,
        "directionality": directionality_of(np.sqrt(rows.clip(0)), np.sqrt(columns.clip(0))),
        "tie_symmetric": np.sqrt((1 - symmetry).clip(0) / 2),
        "tie_qk": _error_of_one_matrix(product),
    }
    return {name: values[name] for name in OF_FORM}


def _in_common_basis(
    gram_q: Gram, gram_k: Gram, cross: Float[Array, "h d d"]
) -> Float[Array, "h e e"]:
    """Return M in an orthonormal basis of what W_Q and W_K read, for both of norm 1.

    With B = [W_Q, W_K] and BᵀB = R Rᵀ it is R_Qᵀ R_K, where R_Q and R_K are the first and the last
    half of the rows of R. `cross` is W_KᵀW_Q.
    """
    d = cross.shape[1]
    size_q, size_k = (
        np.where(gram.norm > 0, gram.norm, 1)[:, None, None] for gram in (gram_q, gram_k)
    )
    cross = cross / size_q / size_k
    key_block = np.broadcast_to(gram_k.matrix / size_k**2, cross.shape)
    both = np.block([[gram_q.matrix / size_q**2, cross.swapaxes(1, 2)], [cross, key_block]])
    values, vectors = np.linalg.eigh(both)
    root = vectors * np.sqrt(values.clip(0))[:, None, :]
    product: Array = root[:, :d].swapaxes(1, 2) @ root[:, d:]
    return product


def _error_of_one_matrix(product: Float[Array, "h e e"]) -> Float[Array, " h"]:
    """Return ‖M − W Wᵀ‖ / ‖M‖ with the best W that is as wide as W_Q; NaN if M is zero.

    The best W Wᵀ keeps the positive eigenvalues of the symmetric part of M. Of these there are at
    most as many as the head is wide: 4 S = (W_Q + W_K)(W_Q + W_K)ᵀ − (W_Q − W_K)(W_Q − W_K)ᵀ.
    """
    kept = np.linalg.eigvalsh((product + product.swapaxes(1, 2)) / 2).clip(0)
    lost: Array = np.sqrt((1 - ratio((kept**2).sum(1), sum_of_squares(product))).clip(0))
    return lost


def shared_error(rotated: Float[Array, " h"]) -> Float[Array, " h"]:
    """Return the relative error of the best shared matrix from the cosine after a rotation.

    Of two matrices of norm 1 with this cosine, the best shared one is their average. Its distance
    from each of them is half of theirs.
    """
    error: Array = np.sqrt((1 - rotated).clip(0) / 2)
    return error


def directionality_of(
    rows: Float[Array, "*n m"], columns: Float[Array, "*n m"]
) -> Float[Array, " *n"]:
    """Return the directionality from the norms of all rows and all columns; 0 without outliers.

    It is (r − c) / (r + c). The norms of rows beyond their mean + 2 standard deviations are
    outliers; r is the sum of what they have beyond this limit, and c is the same sum for columns.

    Source:
        Saponati et al. 2025, arXiv 2502.10927; see `attnkit.training.metrics.directionality`.
    """
    excesses = []
    for norms in (rows, columns):
        limit = (norms.mean(-1) + 2 * norms.std(-1))[..., None]
        excess = norms - limit
        excesses.append(np.where(excess > _ROUNDING * limit, excess, 0).sum(-1))
    r, c = excesses
    both = r + c
    directionality: Array = np.divide(r - c, both, out=np.zeros_like(both), where=both != 0)
    return directionality
