"""Measures of the similarity of two projections of a head, of their weights and their activations.

A projection is a matrix W (m, d) that maps a row x of the residual stream to x @ W. What a measure
says depends on the changes of W that it is sensitive to:

| sensitive to … | scale | same rotation of both bases | rotation of one | any change of one basis |
|---|---|---|---|---|
| `cosine`, `mean_cosine` | no | no | **yes** | yes |
| `linear_cka`, `weights_cka` | no | no | no | **yes** |
| `overlap` | no | no | no | no |

A head computes the same function if its queries and keys are rotated alike, or its values and W_O.
So the cosine of W_Q and W_K is a property of the head, but the cosine of W_V and either of them
depends on an arbitrary basis, unless they are tied. Compare each measure with `random_band`, its
distribution for independent random matrices.

Pure numpy in double precision, batched over leading axes and independent of models. Input that is
not finite gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from attnkit.foundation.slices import pause

Array = np.ndarray

N_DRAWS = 1000
"""Pairs of random matrices from which the band of a measure of weights is estimated."""

N_PROJECTIONS = 10
"""Random matrices on each side, all pairs of which give the band of a measure of activations."""

_NORMAL = 1.959964
"""Standard deviations on both sides of the mean that hold 95% of a normal distribution."""

_MOST_NUMBERS = 2**20
"""Most random numbers in memory at the same time."""


@dataclass(frozen=True, eq=False)
class Band:
    """Mean of a measure over random pairs, and the limits between which 95% of them lie."""

    mean: Float[Array, " *n"]
    low: Float[Array, " *n"]
    high: Float[Array, " *n"]

    @staticmethod
    def of(values: Float[Array, " draws *n"]) -> Band:
        """Return the band of values measured on random pairs."""
        low, high = np.percentile(values, [2.5, 97.5], axis=0)
        return Band(values.mean(0), low, high)

    @property
    def stacked(self) -> Float[Array, "*n 3"]:
        """Mean, low, high along a last axis."""
        return np.stack([self.mean, self.low, self.high], -1)


def cosine(a: Float[Array, "*n m d"], b: Float[Array, "*n m d"]) -> Float[Array, " *n"]:
    """Return ⟨A, B⟩ / (‖A‖ ‖B‖), the cosine of two matrices of the same shape as flat vectors.

    Returns:
        −1 … 1: 1 if one is a positive multiple of the other; 0 ± 1/√(m·d) for independent Gaussian
        matrices; NaN if one is zero.
    """
    a, b = _double(a), _double(b)
    return _ratio((a * b).sum((-2, -1)), _norm(a) * _norm(b))


def column_space(w: Float[Array, "*n m d"]) -> Float[Array, "*n m d"]:
    """Return an orthonormal basis of the column space of W, as columns; zeros beyond its rank.

    x @ W does not change if x changes orthogonally to this space. Singular values below the float32
    rounding of the largest count as zero, so that products of thin matrices keep their rank.
    """
    w = _double(w)
    finite = np.isfinite(w).all((-2, -1), keepdims=True)
    basis, singular, _ = np.linalg.svd(np.where(finite, w, 0.0), full_matrices=False)
    least = np.finfo(np.float32).eps * max(w.shape[-2:]) * singular[..., :1]
    within_rank = (singular > least)[..., None, :] & finite
    return np.where(within_rank, basis, 0.0)


def subspace_cosines(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, "*n k"]:
    """Return the cosines of the principal angles, largest first; NaN beyond the smaller rank.

    The first is that of the smallest angle between a direction of each column space; every further
    one is the smallest among directions orthogonal to the earlier ones.

    Source:
        Björck & Golub 1973, "Numerical methods for computing angles between linear subspaces".
    """
    return cosines_between(column_space(a), column_space(b))


def cosines_between(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, "*n k"]:
    """Return `subspace_cosines` of two bases that `column_space` has returned."""
    cosines = np.linalg.svd(np.swapaxes(a, -2, -1) @ b, compute_uv=False)
    ranks = np.minimum((a != 0).any(-2).sum(-1), (b != 0).any(-2).sum(-1))
    beyond = np.arange(cosines.shape[-1]) >= ranks[..., None]
    return np.where(beyond, np.nan, np.minimum(cosines, 1.0))


def overlap(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, " *n"]:
    """Return the mean cos² of the principal angles, the share of the smaller subspace in the other.

    Returns:
        0 … 1: 0 for orthogonal subspaces; 1 if one lies within the other, so always if one is the
        whole residual stream; max(d, e) / m for independent Gaussian matrices.
    """
    return mean_square(subspace_cosines(a, b))


def mean_square(cosines: Float[Array, "*n k"]) -> Float[Array, " *n"]:
    """Return the `overlap` of two subspaces with these `subspace_cosines`."""
    return _ratio(np.nansum(cosines**2, -1), (~np.isnan(cosines)).sum(-1))


def linear_cka(
    x: Float[Array, "*n t d"], y: Float[Array, "*n t e"], *, centred: bool = True
) -> Float[Array, " *n"]:
    """Return the linear centred kernel alignment (CKA), ‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖).

    It is the cosine of XXᵀ and YYᵀ, the inner products among the rows of each side: high if the
    same pairs of rows are similar on both sides.

    Args:
        x: Activations of t tokens. For weights, rows are the directions of the residual stream;
            uncentred CKA of weights is that of activations on isotropic inputs.
        y: Activations of the same tokens on the other side.
        centred: Whether to subtract the mean of each column.

    Returns:
        0 … 1; NaN if a side does not vary. Random projections do not give 0: for few rows, or
        inputs that vary in few directions, any two are similar (see `projected_bands`).

    Source:
        Kornblith et al. 2019, arXiv 1905.00414, equation 4 and section 3.
    """
    x, y = _double(x), _double(y)
    if centred:
        x, y = x - x.mean(-2, keepdims=True), y - y.mean(-2, keepdims=True)
    norm_x, norm_y = (_norm(np.swapaxes(side, -2, -1) @ side) for side in (x, y))
    return _ratio(_norm(np.swapaxes(y, -2, -1) @ x) ** 2, norm_x * norm_y)


def mean_cosine(x: Float[Array, "*n t d"], y: Float[Array, "*n t d"]) -> Float[Array, " *n"]:
    """Return the mean cosine of corresponding rows of x and y; NaN if one row is all zero."""
    x, y = _double(x), _double(y)
    norms = np.sqrt(np.einsum("...d,...d->...", x, x) * np.einsum("...d,...d->...", y, y))
    cosines: Array = _ratio(np.einsum("...d,...d->...", x, y), norms).mean(-1)
    return cosines


def weights_cka(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, " *n"]:
    """Return the uncentred `linear_cka` of weights, the cosine of AAᵀ and BBᵀ."""
    return linear_cka(a, b, centred=False)


@lru_cache(256)
def random_band(
    measure: Callable[[Array, Array], Array],
    d_model: int,
    d_a: int,
    d_b: int,
) -> Band:
    """Return the band of a measure of weights for independent Gaussian matrices of these shapes.

    The draws are seeded by the shapes, so the band is always the same.
    """
    generator, values = np.random.default_rng([d_model, d_a, d_b]), []
    most = max(1, _MOST_NUMBERS // (d_model * (d_a + d_b)))
    for start in range(0, N_DRAWS, most):
        n_drawn = min(most, N_DRAWS - start)
        a = generator.normal(size=(n_drawn, d_model, d_a))
        values.append(measure(a, generator.normal(size=(n_drawn, d_model, d_b))))
        pause()
    return Band.of(np.concatenate(values))


def projected_bands(
    x: Float[Array, "*n t m"], y: Float[Array, "*n t m"], d_x: int, d_y: int
) -> tuple[Band, Band]:
    """Return the bands of `mean_cosine` and `linear_cka` for random projections of given inputs.

    If the inputs vary in few directions, any two projections of them are similar. So compare
    trained projections with these bands, not with 0. The limits of the cosine are those of a normal
    distribution: for independent Gaussian projections and d not small, the mean cosine has mean 0
    and variance mean(ρ_tt' ρ'_tt') / d over pairs of rows with cosines ρ in x and ρ' in y.

    Args:
        x: Rows of the residual stream that the first side projects.
        y: Rows of the residual stream that the second side projects, of the same tokens.
        d_x: Width of the first projection.
        d_y: Width of the second projection.

    Returns:
        The bands of the two measures; the first is NaN if the widths differ.
    """
    units = [_ratio(rows, np.linalg.norm(rows, axis=-1, keepdims=True)) for rows in (x, y)]
    spread = _norm(np.swapaxes(units[0], -2, -1) @ units[1]) / x.shape[-2] / np.sqrt(d_x)
    limits = _NORMAL * spread if d_x == d_y else np.full_like(spread, np.nan)
    left, right = _projections(x.shape[-1], d_x, 0), _projections(y.shape[-1], d_y, 1)
    x, y = (rows - rows.mean(-2, keepdims=True) for rows in (x, y))
    covariances = [np.swapaxes(a, -2, -1) @ b for a, b in ((x, x), (x, y), (y, y))]
    shape = covariances[0].shape[:-2]
    alignments = np.empty((N_PROJECTIONS**2, *shape))
    rows = left.swapaxes(1, 2).reshape(-1, x.shape[-1])  # (s·d, m)
    columns = right.swapaxes(0, 1).reshape(y.shape[-1], -1)  # (m, s·d)
    for index in np.ndindex(shape):
        pause()
        of_x, of_both, of_y = (covariance[index] for covariance in covariances)
        norm_x = _norm(left.swapaxes(1, 2) @ of_x @ left)
        norm_y = _norm(right.swapaxes(1, 2) @ of_y @ right)
        blocks = (rows @ of_both @ columns).reshape(N_PROJECTIONS, d_x, N_PROJECTIONS, d_y)
        shared = np.einsum("sdue,sdue->su", blocks, blocks)
        alignments[:, *index] = _ratio(shared, norm_x[:, None] * norm_y).ravel()
    return Band(0 * limits, -limits, limits), Band.of(alignments)


@lru_cache(64)
def _projections(d_model: int, d: int, side: int) -> Float[Array, "s m d"]:
    """Return the random projections of one side, always the same for the same shape."""
    generator = np.random.default_rng([d_model, d, side])
    return generator.normal(size=(N_PROJECTIONS, d_model, d)).astype(np.float32)


def _double(values: Array) -> Array:
    return np.asarray(values, np.float64)


def _norm(matrices: Float[Array, "*n i j"]) -> Float[Array, " *n"]:
    norms: Array = np.sqrt(np.einsum("...ij,...ij->...", matrices, matrices))
    return norms


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return the quotient; NaN where the denominator is not positive."""
    result = np.full(np.broadcast_shapes(np.shape(numerator), np.shape(denominator)), np.nan)
    positive = np.greater(denominator, 0)
    with np.errstate(invalid="ignore"):  # inputs may be infinite or NaN
        quotient: Array = np.divide(numerator, denominator, out=result, where=positive)
    return quotient
