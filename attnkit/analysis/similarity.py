"""How alike two projections of a head are: in their weights, and in what they make of inputs.

A projection is a matrix W (m, d) that makes a row x @ W of a row x of the residual stream. Which
changes of W a measure does not see decides what it says:

| does it see … | scale | a turn of both heads' bases | of one | any change of one basis |
|---|---|---|---|---|
| `cosine`, `mean_cosine` | no | no | **yes** | yes |
| `linear_cka`, `weights_cka` | no | no | no | **yes** |
| `overlap`, `principal_angles` | no | no | no | no |

A head computes the same if its queries and keys are turned alike, or its values and W_O are: so the
cosine of W_Q and W_K says something about the head, but that of W_V with either is an accident of
bases, unless they are tied. Each measure is to be read against `random_band`: what matrices that
know nothing of each other give.

Pure numpy, in double precision, batched over leading axes; nothing here knows of models. Values
that are not finite give NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

Array = np.ndarray

N_DRAWS = 1000
"""Pairs of random matrices that a band of weights is made of."""

N_PROJECTIONS = 10
"""Random matrices on each side of a band of activations, which is made of all their pairs."""

_NORMAL = 1.959964
"""Standard deviations within which 95% of a normal distribution lie."""

_AT_ONCE = 2**20
"""Random numbers in memory."""

_OUTSIDE = 2.5
"""Percent of random pairs below a band, and as many above it."""


@dataclass(frozen=True, eq=False)
class Band:
    """What chance gives: the mean, and the limits between which 95% of random pairs lie."""

    mean: Float[Array, " *n"]
    low: Float[Array, " *n"]
    high: Float[Array, " *n"]

    @staticmethod
    def of(values: Float[Array, "draws *n"]) -> Band:
        """Of measured random pairs."""
        low, high = np.percentile(values, [_OUTSIDE, 100 - _OUTSIDE], axis=0)
        return Band(values.mean(0), low, high)

    @property
    def stacked(self) -> Float[Array, "*n 3"]:
        """Mean, low, high along a last axis."""
        return np.stack([self.mean, self.low, self.high], -1)


def cosine(a: Float[Array, "*n m d"], b: Float[Array, "*n m d"]) -> Float[Array, " *n"]:
    """⟨A, B⟩ / (‖A‖ ‖B‖) of two matrices of one shape, as vectors of their numbers.

    Returns:
        −1 … 1: 1 where one is a positive multiple of the other. Of independent Gaussian matrices:
        0 ± 1/√(m·d). NaN where one is zero.
    """
    a, b = _double(a), _double(b)
    return _ratio((a * b).sum((-2, -1)), _norm(a) * _norm(b))


def column_space(w: Float[Array, "*n m d"]) -> Float[Array, "*n m d"]:
    """An orthonormal basis of the directions that W reads, as columns; zeros beyond its rank.

    x @ W does not change when x moves at right angles to them. Singular values below float32's
    rounding of the largest count as zero, so that products of thin matrices keep their rank.
    """
    w = _double(w)
    finite = np.isfinite(w).all((-2, -1), keepdims=True)
    basis, sizes, _ = np.linalg.svd(np.where(finite, w, 0.0), full_matrices=False)
    least = np.finfo(np.float32).eps * max(w.shape[-2:]) * sizes[..., :1]
    kept = (sizes > least)[..., None, :] & finite
    return np.where(kept, basis, 0.0)


def subspace_cosines(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, "*n k"]:
    """Cosines of the `principal_angles`, largest first; NaN beyond the smaller rank."""
    return cosines_between(column_space(a), column_space(b))


def cosines_between(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, "*n k"]:
    """`subspace_cosines` of what two bases span that `column_space` has made."""
    cosines = np.linalg.svd(np.swapaxes(a, -2, -1) @ b, compute_uv=False)
    ranks = np.minimum((a != 0).any(-2).sum(-1), (b != 0).any(-2).sum(-1))
    beyond = np.arange(cosines.shape[-1]) >= ranks[..., None]
    return np.where(beyond, np.nan, np.minimum(cosines, 1.0))


def principal_angles(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, "*n k"]:
    """Angles between the subspaces of the residual stream that A and B read, smallest first.

    The first is the smallest between any two directions of the two, the second that among those at
    right angles to the first pair, and so on.

    Returns:
        Radians, 0 … π/2, as many as the smaller rank; NaN in what else there is of the min(d, e)
        places. Angles below 1e-7 are rounding.

    Source:
        Björck & Golub 1973, "Numerical methods for computing angles between linear subspaces".
    """
    angles: Array = np.arccos(subspace_cosines(a, b))
    return angles


def overlap(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, " *n"]:
    """Mean cos² of the principal angles: the share of the smaller subspace that both read.

    Returns:
        0 … 1: 0 at right angles, 1 where one lies within the other, so always where one reads all
        of the residual stream. Of independent Gaussian matrices: max(d, e) / m.
    """
    return mean_square(subspace_cosines(a, b))


def mean_square(cosines: Float[Array, "*n k"]) -> Float[Array, " *n"]:
    """The `overlap` of two subspaces with these `subspace_cosines`."""
    return _ratio(np.nansum(cosines**2, -1), (~np.isnan(cosines)).sum(-1))


def linear_cka(
    x: Float[Array, "*n t d"], y: Float[Array, "*n t e"], *, centred: bool = True
) -> Float[Array, " *n"]:
    """Linear centred kernel alignment, ‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖): do both see the same pairs as alike?

    It is the cosine of XXᵀ and YYᵀ, the inner products among the rows of each.

    Args:
        x, y: rows of the same tokens. Of weights, rows are the directions of the residual stream;
            not centred, this is what activations would give on inputs without a preferred
            direction.
        centred: whether each column's mean is taken off.

    Returns:
        0 … 1; NaN where a side does not vary. Not 0 by chance: for few rows, or inputs that vary in
        few directions, any two projections are alike (see `projected_bands`).

    Source:
        Kornblith et al. 2019, arXiv 1905.00414, equation 4 and section 3.
    """
    x, y = _double(x), _double(y)
    if centred:
        x, y = x - x.mean(-2, keepdims=True), y - y.mean(-2, keepdims=True)
    own = [_norm(np.swapaxes(side, -2, -1) @ side) for side in (x, y)]
    return _ratio(_norm(np.swapaxes(y, -2, -1) @ x) ** 2, own[0] * own[1])


def mean_cosine(x: Float[Array, "*n t d"], y: Float[Array, "*n t d"]) -> Float[Array, " *n"]:
    """Mean over rows of the cosine of the two rows of one token; NaN where one is all zero."""
    x, y = _double(x), _double(y)
    sizes = np.sqrt(np.einsum("...d,...d->...", x, x) * np.einsum("...d,...d->...", y, y))
    cosines: Array = _ratio(np.einsum("...d,...d->...", x, y), sizes).mean(-1)
    return cosines


def weights_cka(a: Float[Array, "*n m d"], b: Float[Array, "*n m e"]) -> Float[Array, " *n"]:
    """`linear_cka` of weights: the cosine of AAᵀ and BBᵀ."""
    return linear_cka(a, b, centred=False)


@lru_cache(256)
def random_band(
    measure: Callable[[Array, Array], Array],
    d_model: int,
    d_a: int,
    d_b: int,
    n_draws: int = N_DRAWS,
) -> Band:
    """What a measure of weights gives on independent Gaussian matrices of these shapes.

    Always the same draws, so always the same band.
    """
    generator = np.random.default_rng([d_model, d_a, d_b])
    values = [
        measure(
            generator.normal(size=(n_drawn, d_model, d_a)),
            generator.normal(size=(n_drawn, d_model, d_b)),
        )
        for n_drawn in _parts(n_draws, d_model * (d_a + d_b))
    ]
    return Band.of(np.concatenate(values))


def _parts(n_draws: int, numbers: int) -> Iterator[int]:
    """So many draws in parts that fit in memory, each of so many numbers."""
    together = max(1, _AT_ONCE // numbers)
    while n_draws > 0:
        yield min(together, n_draws)
        n_draws -= together


def projected_bands(
    x: Float[Array, "*n t m"], y: Float[Array, "*n t m"], d_x: int, d_y: int
) -> tuple[Band, Band]:
    """What `mean_cosine` and `linear_cka` give on random projections of these very inputs.

    Inputs that vary in few directions make any two projections of them alike, so this, and not 0,
    is what trained projections are to be compared with. The cosine's limits are those of a normal
    distribution: of independent Gaussian projections, the mean of cosines has mean 0 and variance
    mean(ρ_tt' ρ'_tt') / d, over pairs of rows whose cosines are ρ in x and ρ' in y, if d is not
    small.

    Args:
        x, y: the rows of the residual stream that the two sides read, of the same tokens.
        d_x, d_y: the widths of the two sides.

    Returns:
        The bands of the two measures; the first is NaN where widths differ.
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
    for place in np.ndindex(shape):
        of_x, of_both, of_y = (covariance[place] for covariance in covariances)
        own_x, own_y = (
            _norm(sides.swapaxes(1, 2) @ of @ sides) for sides, of in ((left, of_x), (right, of_y))
        )
        blocks = (rows @ of_both @ columns).reshape(N_PROJECTIONS, d_x, N_PROJECTIONS, d_y)
        shared = np.einsum("sdue,sdue->su", blocks, blocks)
        alignments[:, *place] = _ratio(shared, own_x[:, None] * own_y).ravel()
    return Band(0 * limits, -limits, limits), Band.of(alignments)


@lru_cache(64)
def _projections(d_model: int, d: int, side: int) -> Float[Array, "s m d"]:
    """Random matrices."""
    generator = np.random.default_rng([d_model, d, side])
    return generator.normal(size=(N_PROJECTIONS, d_model, d)).astype(np.float32)


def _double(values: Array) -> Array:
    return np.asarray(values, np.float64)


def _squares(matrices: Float[Array, "*n i j"]) -> Float[Array, " *n"]:
    squares: Array = np.einsum("...ij,...ij->...", matrices, matrices)
    return squares


def _norm(matrices: Float[Array, "*n i j"]) -> Float[Array, " *n"]:
    sizes: Array = np.sqrt(_squares(matrices))
    return sizes


def _ratio(above: Array, below: Array) -> Array:
    """The quotient, NaN where there is nothing to divide by."""
    shape = np.broadcast_shapes(np.shape(above), np.shape(below))
    with np.errstate(invalid="ignore"):  # of what is not finite
        quotient: Array = np.divide(
            above, below, out=np.full(shape, np.nan), where=np.greater(below, 0)
        )
    return quotient
