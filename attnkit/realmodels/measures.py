"""Measures of how similar W_Q, W_K and W_V of a head are, and of how symmetric W_Q W_Kᵀ is.

`MEASURES` is the table of all: what each is called, its limits, what random matrices give, and what
a higher value means. Figures, pages, tables and notebooks read it.

A head's computation depends on W_Q W_Kᵀ and W_V W_O only. The same rotation of the bases of W_Q and
W_K changes neither the head nor any measure. A rotation of W_V's basis, undone in W_O, does not
change the head, but it does change the cosines with W_V, so these say nothing about the head. Other
changes of basis (W_Q A with W_K A⁻ᵀ) keep only `overlap_qk`, `symmetry`, `directionality`,
`rank_qk` and `rank_skew`; every cosine assumes that training does not use them.

The measures are computed from products of thin matrices, head by head in double precision, so that
they need little more memory than the layer itself. The definitions are those of
`attnkit.analysis.similarity` and `attnkit.training.metrics`, with which tests compare them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Array, Projections
from attnkit.realmodels.form import directionality_of, measure_form, shared_error
from attnkit.realmodels.gram import Gram, ratio, sum_of_squares

PAIRS = {"qk": "W_Q and W_K", "qv": "W_Q and W_V", "kv": "W_K and W_V"}
"""Compared matrices, by the suffix of a measure's name."""


@dataclass(frozen=True)
class Measure:
    """Description of a measure that gives one number per head.

    Attributes:
        name: Name of its column.
        title: Title on screen.
        help: Explanation on screen.
        limits: Least and greatest value; infinity if there is none.
        chance: Value for random matrices; "" if it depends on their shape.
        higher: What a higher value means.
        layers: Whether the measure is defined for whole layers, too.
    """

    name: str
    title: str
    help: str
    limits: tuple[float, float] = (0, 1)
    chance: str = ""
    higher: str = "more alike"
    layers: bool = False

    @property
    def signed(self) -> bool:
        """Whether values can be negative."""
        return self.limits[0] < 0

    @property
    def in_words(self) -> str:
        """Return its limits, chance, and direction as a sentence."""
        low, high = (f"{x:g}".replace("-", "−") for x in self.limits)
        span = f"From {low} on" if math.isinf(self.limits[1]) else f"From {low} to {high}"
        chance = f"random matrices {self.chance}; " if self.chance else ""
        return f"{span}; {chance}higher is {self.higher}."


def _pairwise(prefix: str, title: str, help: str, **rest: Any) -> Iterator[Measure]:
    for pair, names in PAIRS.items():
        letters = f"{pair[0].upper()},{pair[1].upper()}"
        yield Measure(f"{prefix}_{pair}", f"{title} {letters}", help.format(names), **rest)


_ALL = [
    *_pairwise(
        "cos",
        "Cosine",
        "Cosine of {} as lists of numbers: 1 if one is a multiple of the other.",
        limits=(-1, 1),
        chance="0",
        layers=True,
    ),
    *_pairwise(
        "overlap",
        "Overlap",
        "Of the directions that one of {} reads, the share that the other reads, too: mean cos² "
        "of the principal angles.",
        chance="d_head / d_model",
    ),
    *_pairwise(
        "rotated",
        "Best-rotation cosine",
        "Cosine of {} after one of them is rotated to fit the other best.",
    ),
    *_pairwise(
        "cka",
        "CKA of weights",
        "Cosine of W Wᵀ of {}, not centred: do the same directions of the residual stream have "
        "much weight in both?",
    ),
    *_pairwise(
        "act_cka",
        "CKA of activations",
        "Do {} make the same pairs of tokens similar? Centred, on running text without its first "
        "token, before rotary positions and norms of queries and keys; high for random matrices, "
        "too.",
    ),
    Measure(
        "symmetry",
        "Symmetry of W_Q W_Kᵀ",
        "(‖S‖² − ‖A‖²) / ‖M‖² of M = W_Q W_Kᵀ = S + A: 1 symmetric, 0 random, −1 skew. If tokens "
        "are some positions apart, it exchanges the tokens but not their positions, so that even "
        "Q=K is below 1.",
        limits=(-1, 1),
        chance="about 0",
        higher="more symmetric",
        layers=True,
    ),
    Measure(
        "directionality",
        "Directionality of W_Q W_Kᵀ",
        "(r − c) / (r + c): r is the total excess of outlying norms of rows (query side), c that "
        "of columns (key side). 0 if neither side has outliers.",
        limits=(-1, 1),
        chance="0",
        higher="more outliers on the query side",
        layers=True,
    ),
    Measure(
        "tie_symmetric",
        "Error of symmetric scores",
        "‖M − S‖ / ‖M‖ of M = W_Q W_Kᵀ and the nearest symmetric matrix S: the relative size of "
        "what is lost if scores must be the same in both directions. 0 symmetric, 0.71 random.",
        chance="√½",
        higher="more lost",
    ),
    Measure(
        "tie_qk",
        "Error of Q=K",
        "‖M − W Wᵀ‖ / ‖M‖ of M = W_Q W_Kᵀ and the best W in both roles, as wide as the head. W Wᵀ "
        "is symmetric and no token has a negative score with itself, so more is lost than by "
        "symmetry alone: 0.87 if random. Each query head gets a W of its own, also where several "
        "share one W_K. Not defined between positions that differ if they are rotary.",
        chance="√¾",
        higher="more lost",
    ),
    Measure(
        "tie_kv",
        "Error of K=V",
        "Relative error that the best shared matrix leaves in W_K and in W_V, after both are "
        "scaled to the same norm and the basis of W_V is rotated to fit best, which W_O can undo.",
        higher="more lost",
    ),
    *(
        Measure(
            f"norm_{role}",
            f"Norm of W_{role.upper()}",
            "Square root of the sum of squares.",
            limits=(0, math.inf),
            higher="larger",
            layers=True,
        )
        for role in "qkv"
    ),
    *(
        Measure(
            f"rank_{role}",
            f"Effective rank of {name}",
            "exp of the entropy of the singular values, as shares of their sum: d_head if all "
            "are equal.",
            limits=(0, math.inf),
            higher="more evenly spread",
        )
        for role, name in {"q": "W_Q", "k": "W_K", "v": "W_V", "qk": "W_Q W_Kᵀ"}.items()
    ),
    Measure(
        "rank_skew",
        "Effective rank of the skew part of W_Q W_Kᵀ",
        "exp of the entropy of the singular values of A = (M − Mᵀ) / 2, M = W_Q W_Kᵀ. They come in "
        "pairs, so it lies between 2 and 2 d_head. The skew part makes the score of a for b differ "
        "from that of b for a.",
        limits=(0, math.inf),
        higher="more evenly spread",
    ),
]

MEASURES = {measure.name: measure for measure in _ALL}
"""Measures by the name of their column."""

OF_ACTIVATIONS = tuple(name for name in MEASURES if name.startswith("act_"))
"""Measures that need the model to run; `attnkit.realmodels.activations` fills them in."""

OF_WEIGHTS = tuple(name for name in MEASURES if name not in OF_ACTIVATIONS)
"""Measures that need the weights only."""

TIES = ("tie_symmetric", "tie_qk", "tie_kv")
"""Measures of what the best tied matrices would lose."""

WITH_VALUES = tuple(name for name in MEASURES if name.endswith(("_qv", "_kv")))
"""Comparisons with W_V; where W_K serves as W_V, they are 1, or those with W_K once more."""


def prepared(layer: Projections, *, fold: bool = False, offset: int = 0) -> Projections:
    """Return the layer as it is to be measured.

    Args:
        layer: Layer as it was read.
        fold: Whether to multiply the gains of the norm before attention into the matrices.
        offset: Number of tokens from the key position forward to the query position. W_Q is
            rotated by it if positions are rotary.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # heads with infinite weights are left out
        if fold and layer.gain_q is not None:
            layer = replace(layer, W_Q=layer.W_Q * layer.gain_q[:, None])
        if fold and layer.gain_kv is not None:
            gain = layer.gain_kv[:, None]
            layer = replace(layer, W_K=layer.W_K * gain, W_V=layer.W_V * gain)
        if offset and layer.rope is not None:
            layer = replace(layer, W_Q=layer.rope.rotate(layer.W_Q, offset))
    return layer


@dataclass(frozen=True, eq=False)
class LayerMeasures:
    """Measures of one layer by name; NaN where shapes or weights do not allow a measure.

    Of a matrix of zeros only the norm is measured, and of one with infinite weights nothing. If a
    head has such weights, nothing is measured of the whole layer.

    Attributes:
        heads: Values of every query head.
        whole: Value of the whole layer, whose W_Q W_Kᵀ is the sum over its heads.
    """

    heads: dict[str, Float[Array, " h"]]
    whole: dict[str, float]


def measure_layer(layer: Projections) -> LayerMeasures:
    """Compute the measures in `OF_WEIGHTS` of a layer that was `prepared`."""
    n_heads, n_kv_heads = len(layer.W_Q), len(layer.W_K)
    per_group = n_heads // n_kv_heads
    groups = []
    is_measurable = all(map(is_finite, (layer.W_Q, layer.W_K, layer.W_V)))
    for group in range(n_kv_heads):
        heads = slice(group * per_group, (group + 1) * per_group)
        k, v = (w[group].astype(np.float64) for w in (layer.W_K, layer.W_V))
        n_at_once = max(1, _MOST_NUMBERS // layer.W_Q[0].size)
        for start in range(heads.start, heads.stop, n_at_once):
            q = layer.W_Q[start : min(start + n_at_once, heads.stop)].astype(np.float64)
            groups.append(_measure_group(q, k, v))
    values = {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}
    heads_values = {name: values[name] for name in OF_WEIGHTS}
    whole = {name: float("nan") for name, measure in MEASURES.items() if measure.layers}
    if is_measurable:
        whole |= _measure_whole_layer(layer, *_summed(layer, per_group), values)
    return LayerMeasures(heads_values, whole)


def _summed(layer: Projections, per_group: int) -> tuple[Float[Array, "m d"], Float[Array, "n d"]]:
    """Return two matrices whose product is a multiple of M summed over heads, without overflow."""
    sides = []
    for w, n in ((layer.W_Q, per_group), (layer.W_K, 1)):
        largest = float(max(w.max(), -w.min())) or 1.0
        n_groups, d = len(w) // n, w.shape[2]
        side = np.empty((w.shape[1], n_groups * d), np.float32)
        for group in range(n_groups):
            total = w[group * n : (group + 1) * n].sum(0, dtype=np.float64)
            side[:, group * d : (group + 1) * d] = total / largest
        sides.append(side)
    return sides[0], sides[1]


def _measure_group(
    q: Float[Array, "h m d"], k: Float[Array, "n d"], v: Float[Array, "n e"]
) -> dict[str, Float[Array, " h"]]:
    """Compute the measures of the query heads that share one key and value head.

    Also returns the inner products `inner_qk` …, whose sums give the cosines of a whole layer.
    """
    n_heads = len(q)
    scaled = {role: _scaled(w) for role, w in {"q": q, "k": k[None], "v": v[None]}.items()}
    weights = {role: w for role, (w, _) in scaled.items()}
    sizes = {role: size for role, (_, size) in scaled.items()}
    grams = {role: Gram.of(w) for role, w in weights.items()}
    values: dict[str, Array] = {}
    for role, gram in grams.items():
        values[f"norm_{role}"] = np.broadcast_to(gram.norm * sizes[role], n_heads)
        values[f"rank_{role}"] = np.broadcast_to(gram.effective_rank, n_heads)
    for pair in PAIRS:
        a, b = pair[0], pair[1]
        compared = _compare(weights[a], weights[b], grams[a], grams[b])
        compared["inner"] = compared["inner"] * sizes[a] * sizes[b]
        values |= {f"{name}_{pair}": np.broadcast_to(x, n_heads) for name, x in compared.items()}
    of_kv = values["rotated_kv"] if k.shape == v.shape else np.full(n_heads, np.nan)
    values["tie_kv"] = shared_error(of_kv)
    values |= measure_form(weights["q"], weights["k"], grams["q"], grams["k"])
    return values


def is_finite(w: Array) -> bool:
    """Return whether no value is infinite or NaN; this needs no mask in memory."""
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(w.sum(dtype=np.float64)))


def _scaled(w: Float[Array, "h m d"]) -> tuple[Float[Array, "h m d"], Float[Array, " h"]]:
    """Return matrices divided by a power of 2, so that no product overflows, and this power.

    The largest weight of a matrix lies between ½ and 1 then, which changes no bit of any measure.
    A matrix with infinite weights becomes one of zeros, and its power NaN.
    """
    largest = np.maximum(w.max((1, 2)), -w.min((1, 2)))
    finite = np.isfinite(largest)
    size = np.ldexp(1.0, np.frexp(np.where(finite, largest, 1))[1])
    scaled: Array = np.where(finite[:, None, None], w, 0) / size[:, None, None]
    return scaled, np.where(finite, size, np.nan)


def _compare(
    a: Float[Array, "h m d"], b: Float[Array, "h m e"], gram_a: Gram, gram_b: Gram
) -> dict[str, Float[Array, " h"]]:
    """Compute the pairwise measures of two matrices; NaN if they read streams of two widths."""
    names = ("cos", "overlap", "rotated", "cka", "inner")
    if a.shape[1] != b.shape[1]:
        return {name: np.full(1, np.nan) for name in names}
    cross = a.swapaxes(1, 2) @ b  # (h, d, e)
    norms = gram_a.norm * gram_b.norm
    same_width = a.shape[2] == b.shape[2]
    inner = np.trace(cross, axis1=1, axis2=2) if same_width else np.full(len(cross), np.nan)
    whitened = gram_a.whiten.swapaxes(1, 2) @ cross @ gram_b.whiten
    gram_norms = np.sqrt(sum_of_squares(gram_a.matrix) * sum_of_squares(gram_b.matrix))
    return {
        "cos": ratio(inner, norms),
        "overlap": ratio(sum_of_squares(whitened), np.minimum(gram_a.rank, gram_b.rank)),
        "rotated": ratio(np.linalg.svd(cross, compute_uv=False).sum(-1), norms),
        "cka": ratio(sum_of_squares(cross), gram_norms),
        "inner": inner,
    }


def _measure_whole_layer(
    layer: Projections,
    queries: Float[Array, "m d"],
    keys: Float[Array, "n d"],
    heads: dict[str, Float[Array, " h"]],
) -> dict[str, float]:
    """Compute the measures of a whole layer, whose M summed over heads is `queries` @ `keys`ᵀ.

    Those that shapes or matrices of zeros do not allow are left out.
    """
    values: dict[str, float] = {}
    per_group = len(layer.W_Q) // len(layer.W_K)
    squares = {
        role: float((heads[f"norm_{role}"][:: 1 if role == "q" else per_group] ** 2).sum())
        for role in "qkv"
    }
    for role, square in squares.items():
        values[f"norm_{role}"] = float(np.sqrt(square))
    for pair in PAIRS:
        inner = heads[f"inner_{pair}"]
        sizes = [squares[role] * (per_group if role != "q" else 1) for role in pair]
        if np.isfinite(inner).all() and min(sizes) > 0:
            values[f"cos_{pair}"] = float(inner.sum() / np.sqrt(sizes[0] * sizes[1]))
    if len(queries) == len(keys):
        size, there_and_back, rows, columns = _sums_of_squares(queries, keys)
        if size > 0:
            values["symmetry"] = there_and_back / size
        values["directionality"] = float(directionality_of(np.sqrt(rows), np.sqrt(columns)))
    return values


def _sums_of_squares(
    a: Float[Array, "m d"], b: Float[Array, "m d"]
) -> tuple[float, float, Float[Array, " m"], Float[Array, " m"]]:
    """Return ‖M‖², ⟨M, Mᵀ⟩ and the squared norms of rows and columns of M = a bᵀ, by blocks."""
    there_and_back, rows, columns = 0.0, np.zeros(len(a)), np.zeros(len(a))
    blocks = [slice(i, i + _BLOCK) for i in range(0, len(a), _BLOCK)]
    for i in blocks:
        for j in blocks:
            block = a[i] @ b[j].T
            rows[i] += np.einsum("ij,ij->i", block, block, dtype=np.float64)
            columns[j] += np.einsum("ij,ij->j", block, block, dtype=np.float64)
            back = block if i == j else a[j] @ b[i].T
            there_and_back += float(np.einsum("ij,ji->", block, back, dtype=np.float64))
    return float(rows.sum()), there_and_back, rows, columns


_MOST_NUMBERS = 2**20
"""Numbers of W_Q that are measured at a time, in double precision."""

_BLOCK = 1024
"""Rows and columns of M that are in memory at a time."""
