"""Linear maps from keys to values, fitted on activations: V ≈ K M for row vectors.

A head whose values are K M computes the same as a head with the values K and the output matrix
M W_O. So a map that repairs a head after its keys and values were tied costs no parameter and no
cache.

Pure numpy in double precision, batched over leading axes and independent of models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

Array = np.ndarray

SMALLEST = 1e-5
"""Smallest singular value of the keys, as a share of the largest, that a fit uses. Smaller ones are
rounding errors of activations in single precision."""


def linear_map(
    keys: Float[Array, "*n t d"], values: Float[Array, "*n t e"]
) -> Float[Array, "*n d e"]:
    """Return the map M with the smallest ‖K M − V‖; of several, the one with the smallest ‖M‖.

    Args:
        keys: Keys of t tokens.
        values: Values of the same tokens.
    """
    keys, values = _double(keys), _double(values)
    transposed = np.swapaxes(keys, -2, -1)
    inverse = np.linalg.pinv(transposed @ keys, rcond=SMALLEST**2, hermitian=True)
    fitted: Array = inverse @ (transposed @ values)
    return fitted


def truncated(maps: Float[Array, "*n d e"], rank: int) -> Float[Array, "*n d e"]:
    """Return the matrices of at most this rank that are nearest to the given ones.

    Source:
        Eckart & Young 1936, "The approximation of one matrix by another of lower rank".
    """
    left, singular, right = np.linalg.svd(_double(maps), full_matrices=False)
    nearest: Array = (left[..., :rank] * singular[..., None, :rank]) @ right[..., :rank, :]
    return nearest


def reduced_map(
    keys: Float[Array, "*n t d"], values: Float[Array, "*n t e"], rank: int
) -> Float[Array, "*n d e"]:
    """Return the map M of at most this rank with the smallest ‖K M − V‖.

    It is never worse on these tokens than the truncated `linear_map`, which ignores how large the
    keys are in each direction.

    Source:
        Izenman 1975, "Reduced-rank regression for the multivariate linear model".
    """
    full = linear_map(keys, values)
    fitted = _double(keys) @ full
    directions = np.linalg.eigh(np.swapaxes(fitted, -2, -1) @ fitted)[1][..., -rank:]
    reduced: Array = full @ directions @ np.swapaxes(directions, -2, -1)
    return reduced


def orthogonal_map(
    keys: Float[Array, "*n t d"], values: Float[Array, "*n t d"]
) -> Float[Array, "*n d d"]:
    """Return the orthogonal matrix M with the smallest ‖K M − V‖.

    Source:
        Schönemann 1966, "A generalized solution of the orthogonal Procrustes problem".
    """
    left, _, right = np.linalg.svd(np.swapaxes(_double(keys), -2, -1) @ _double(values))
    nearest: Array = left @ right
    return nearest


def random_orthogonal_maps(seeds: Sequence[int], n_maps: int, d: int) -> Float[Array, "n d d"]:
    """Return orthogonal matrices drawn uniformly; equal numbers as seeds give equal matrices.

    Source:
        Mezzadri 2007, arXiv math-ph/0609050: QR with a positive diagonal of R.
    """
    drawn = np.random.default_rng([*seeds, n_maps, d]).normal(size=(n_maps, d, d))
    q, r = np.linalg.qr(drawn)
    uniform: Array = q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[:, None, :]
    return uniform


def _double(values: Array) -> Array:
    return np.asarray(values, np.float64)
