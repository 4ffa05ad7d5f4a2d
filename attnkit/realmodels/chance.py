"""What chance gives: the measures of random matrices of a layer's shape, and with its gains.

Exact where that is known: the cosine of independent Gaussian matrices is 0 ± 1/√(number of
entries), the overlap of random subspaces d/m on average. All else is drawn, always the same draws.
Folded gains make even random matrices alike, since both read the same directions loudly; so with
them chance is drawn with the layer's own gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attnkit.realmodels.base import Array, Projections
from attnkit.realmodels.measures import OF_WEIGHTS, PAIRS, LayerMeasures, measure_layer, prepared

Levels = dict[str, tuple[float, float]]
"""Measure → mean and standard deviation."""

_WORK, _WORK_WITH_GAINS = 2**24, 2**22
"""Random numbers drawn for one level, about."""

_DRAWS = (4, 32)
"""Random layers, at least and at most; a layer is as many draws of a head as it has heads."""


class Shape(NamedTuple):
    """Of a layer; d_q and d_kv are the widths of the streams that W_Q, and W_K and W_V, read."""

    n_heads: int
    n_kv_heads: int
    d_q: int
    d_kv: int
    d_head: int
    d_value: int

    @staticmethod
    def of(layer: Projections) -> Shape:
        """As its matrices are."""
        n_heads, d_q, d_head = layer.W_Q.shape
        return Shape(n_heads, len(layer.W_K), d_q, layer.W_K.shape[1], d_head, layer.W_V.shape[2])


def chance_levels(layer: Projections, *, fold: bool = False) -> tuple[Levels, Levels]:
    """What independent Gaussian matrices give in the place of a layer's.

    Norms are left out: there is nothing to compare them with. An offset changes nothing here.

    Args:
        layer: not yet `prepared`.
        fold: with the layer's own gains multiplied in.

    Returns:
        Of heads, and of whole layers.
    """
    shape = Shape.of(layer)
    if fold and not (layer.gain_q is None and layer.gain_kv is None):
        return _drawn(shape, _WORK_WITH_GAINS, layer.gain_q, layer.gain_kv)
    return _without_gains(shape)


@lru_cache(64)
def _without_gains(shape: Shape) -> tuple[Levels, Levels]:
    heads, whole = _drawn(shape, _WORK, None, None)
    for pair in PAIRS:
        mean, spread = heads[f"overlap_{pair}"]
        if np.isfinite(mean):
            widest = shape.d_head if pair == "qk" else max(shape.d_head, shape.d_value)
            heads[f"overlap_{pair}"] = min(1.0, widest / shape.d_kv), spread
    return heads | _cosines(shape, 1, 1), whole | _cosines(shape, *shape[:2])


def _cosines(shape: Shape, n_heads: int, n_kv_heads: int) -> Levels:
    """Of so many heads together."""
    found: Levels = {}
    one_stream = shape.d_q == shape.d_kv
    one_width = shape.d_head == shape.d_value
    n_numbers = shape.d_q * shape.d_head
    if one_stream:
        found["cos_qk"] = 0.0, 1 / np.sqrt(n_numbers * n_heads)
        if one_width:
            found["cos_qv"] = found["cos_qk"]
    if one_width:
        found["cos_kv"] = 0.0, 1 / np.sqrt(shape.d_kv * shape.d_head * n_kv_heads)
    return found


def _drawn(
    shape: Shape, work: int, gain_q: Array | None, gain_kv: Array | None
) -> tuple[Levels, Levels]:
    of_q = shape.n_heads * shape.d_q * shape.d_head
    of_kv = shape.n_kv_heads * shape.d_kv * (shape.d_head + shape.d_value)
    n_drawn = int(np.clip(work // (of_q + of_kv), *_DRAWS))
    drawn = list(_measured(shape, n_drawn, gain_q, gain_kv))
    heads = {name: np.concatenate([one.heads[name] for one in drawn]) for name in OF_WEIGHTS}
    whole = {name: np.array([one.whole[name] for one in drawn]) for name in drawn[0].whole}
    return _levels(heads), _levels(whole)


def _measured(
    shape: Shape, n_drawn: int, gain_q: Array | None, gain_kv: Array | None
) -> Iterator[LayerMeasures]:
    generator = np.random.default_rng(shape)
    shapes = (
        (shape.n_heads, shape.d_q, shape.d_head),
        (shape.n_kv_heads, shape.d_kv, shape.d_head),
        (shape.n_kv_heads, shape.d_kv, shape.d_value),
    )
    for _ in range(n_drawn):
        q, k, v = (generator.standard_normal(each, np.float32) for each in shapes)
        layer = Projections(q, k, v, gain_q=gain_q, gain_kv=gain_kv)
        yield measure_layer(prepared(layer, fold=True))


def _levels(values: dict[str, Array]) -> Levels:
    return {
        name: (float(of.mean()), float(of.std(ddof=1)))
        for name, of in values.items()
        if not name.startswith("norm_")
    }
