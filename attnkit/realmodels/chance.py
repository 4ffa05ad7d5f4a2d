"""Random levels of the measures: their values for random matrices of a layer's shape.

Two levels are exact: the cosine of independent Gaussian matrices is 0 ± 1/√(number of entries), and
the mean overlap of random subspaces is d/m. All others are measured on random matrices, which
depend on the layer's shape only, so that they are the same in every run.

Folded gains make even random matrices similar, because both read the same directions with a large
gain; therefore random matrices get the gains of the layer, too. W_K and W_V are similar if both are
projected from one latent vector; therefore those of the random matrices are, too, and then no level
is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attnkit.realmodels.base import Array, Projections
from attnkit.realmodels.measures import OF_WEIGHTS, PAIRS, LayerMeasures, measure_layer, prepared

Levels = dict[str, tuple[float, float]]
"""Mean and standard deviation of measures, by their name."""

_N_NUMBERS, _N_NUMBERS_WITH_GAINS = 2**24, 2**22
"""Approximate number of random numbers for the levels of one shape."""

_N_LAYERS = (4, 32)
"""Minimum and maximum number of random layers."""

_N_HEADS = 2**13
"""Maximum number of random heads; two layers are drawn even if they have more."""


class Shape(NamedTuple):
    """Numbers of heads and widths of a layer.

    Attributes:
        n_heads: Number of query heads.
        n_kv_heads: Number of key and value heads.
        d_q: Width of the residual stream that W_Q reads.
        d_kv: Width of the residual stream that W_K and W_V read.
        d_head: Width of a query head and of a key head.
        d_value: Width of a value head.
        latent_q: Width of the latent vector of queries; 0 if there is none.
        latent_kv: Width of the latent vector of keys and values; 0 if there is none.
    """

    n_heads: int
    n_kv_heads: int
    d_q: int
    d_kv: int
    d_head: int
    d_value: int
    latent_q: int = 0
    latent_kv: int = 0

    @staticmethod
    def of(layer: Projections) -> Shape:
        """Return the shape of a layer."""
        n_heads, d_q, d_head = layer.W_Q.shape
        n_kv_heads, d_kv, _ = layer.W_K.shape
        widths = d_q, d_kv, d_head, layer.W_V.shape[2]
        return Shape(n_heads, n_kv_heads, *widths, layer.latent_q, layer.latent_kv)


def chance_levels(layer: Projections, *, fold: bool = False) -> tuple[Levels, Levels]:
    """Compute the measures of independent Gaussian matrices of a layer's shape.

    Norms have no random level. An offset does not change the levels.

    Args:
        layer: Layer that is not yet `prepared`.
        fold: Whether to multiply the layer's gains into the random matrices.

    Returns:
        Levels of heads, and levels of whole layers.
    """
    shape = Shape.of(layer)
    if fold and not (layer.gain_q is None and layer.gain_kv is None):
        return _levels_of_draws(shape, _N_NUMBERS_WITH_GAINS, layer.gain_q, layer.gain_kv)
    return _levels_without_gains(shape)


@lru_cache(64)
def _levels_without_gains(shape: Shape) -> tuple[Levels, Levels]:
    heads, whole = _levels_of_draws(shape, _N_NUMBERS, None, None)
    if shape.latent_q or shape.latent_kv:
        return heads, whole
    for pair in PAIRS:
        mean, sd = heads[f"overlap_{pair}"]
        if np.isfinite(mean):
            width = shape.d_head if pair == "qk" else max(shape.d_head, shape.d_value)
            heads[f"overlap_{pair}"] = min(1.0, width / shape.d_kv), sd
    return (
        heads | _cosine_levels(shape, 1, 1),
        whole | _cosine_levels(shape, shape.n_heads, shape.n_kv_heads),
    )


def _cosine_levels(shape: Shape, n_heads: int, n_kv_heads: int) -> Levels:
    """Return the exact levels of the cosines over this number of heads."""
    levels: Levels = {}
    same_stream = shape.d_q == shape.d_kv
    same_width = shape.d_head == shape.d_value
    if same_stream:
        levels["cos_qk"] = 0.0, 1 / np.sqrt(shape.d_q * shape.d_head * n_heads)
        if same_width:
            levels["cos_qv"] = levels["cos_qk"]
    if same_width:
        levels["cos_kv"] = 0.0, 1 / np.sqrt(shape.d_kv * shape.d_head * n_kv_heads)
    return levels


def _levels_of_draws(
    shape: Shape, n_numbers: int, gain_q: Array | None, gain_kv: Array | None
) -> tuple[Levels, Levels]:
    """Measure random layers with about `n_numbers` entries together."""
    n_q = shape.n_heads * shape.d_q * shape.d_head
    n_kv = shape.n_kv_heads * shape.d_kv * (shape.d_head + shape.d_value)
    n_layers = int(np.clip(n_numbers // (n_q + n_kv), *_N_LAYERS))
    n_layers = min(n_layers, max(2, _N_HEADS // shape.n_heads))
    layers = list(_measure_random_layers(shape, n_layers, _scaled(gain_q), _scaled(gain_kv)))
    heads = {name: np.concatenate([layer.heads[name] for layer in layers]) for name in OF_WEIGHTS}
    whole = {name: np.array([layer.whole[name] for layer in layers]) for name in layers[0].whole}
    return _levels(heads), _levels(whole)


def _scaled(gain: Array | None) -> Array | None:
    """Divide gains by a power of 2, which changes no level, so that no product overflows."""
    return None if gain is None else np.ldexp(gain, -np.frexp(np.abs(gain).max())[1])


def _measure_random_layers(
    shape: Shape, n_layers: int, gain_q: Array | None, gain_kv: Array | None
) -> Iterator[LayerMeasures]:
    generator = np.random.default_rng([n for n in shape if n])

    def draw(*size: int) -> Array:
        return generator.standard_normal(size, np.float32)

    def project(n: int, d: int, first: Array | None, d_input: int) -> Array:
        return draw(n, d_input, d) if first is None else first @ draw(n, first.shape[1], d)

    for _ in range(n_layers):
        first_q = draw(shape.d_q, shape.latent_q) if shape.latent_q else None
        first_kv = draw(shape.d_kv, shape.latent_kv) if shape.latent_kv else None
        q = project(shape.n_heads, shape.d_head, first_q, shape.d_q)
        k = project(shape.n_kv_heads, shape.d_head, first_kv, shape.d_kv)
        v = project(shape.n_kv_heads, shape.d_value, first_kv, shape.d_kv)
        layer = Projections(q, k, v, gain_q=gain_q, gain_kv=gain_kv)
        yield measure_layer(prepared(layer, fold=True))


def _levels(values: dict[str, Array]) -> Levels:
    return {
        name: (float(of_draws.mean()), float(of_draws.std(ddof=1)))
        for name, of_draws in values.items()
        if not name.startswith("norm_")
    }
