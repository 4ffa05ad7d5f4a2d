"""How alike W_Q, W_K and W_V of a head are, and how symmetric the form W_Q W_Kᵀ they make is.

| measure | of | range | chance |
|---|---|---|---|
| `cos_qk` … | two matrices as they stand | −1 … 1 | 0 |
| `rotated_qk` … | the same, one basis turned to fit best | 0 … 1 | hangs on the shape |
| `overlap_qk` … | the subspaces that two matrices read | 0 … 1 | d_head / d_model |
| `cka_qk` … | which directions weigh much in both | 0 … 1 | hangs on the shape |
| `symmetry` | W_Q W_Kᵀ | −1 skew … 1 symmetric | about 0 |
| `directionality` | its rows against its columns | −1 … 1 | 0 |
| `norm_q` …, `rank_q` …, `rank_qk` | one matrix; W_Q W_Kᵀ | 0 … | – |

What a head computes hangs on W_Q W_Kᵀ and W_V W_O alone. One turn of the bases of W_Q and W_K
together changes neither that nor any number here; a turn of W_V's basis (undone in W_O) changes
nothing but its cosines, which therefore say nothing of the head. Other changes of basis (W_Q A with
W_K A⁻ᵀ) leave only `overlap_qk`, `symmetry`, `directionality` and `rank_qk` as they are; training
does not seem to need them, but that is an assumption of every cosine.

Everything comes from products of thin matrices, head by head in double precision, so that a layer
of any width needs little more memory than itself; the definitions are those of
`attnkit.analysis.similarity` and `attnkit.training.metrics`, to which tests compare these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Array, Projections

PAIRS = {"qk": "W_Q and W_K", "qv": "W_Q and W_V", "kv": "W_K and W_V"}
"""The three comparisons, and what they compare."""


@dataclass(frozen=True)
class Measure:
    """One number per head.

    Attributes:
        name: its column. title, help: on screen.
        signed: whether 0 is its middle, and not its end.
        layers: whether whole layers have it, too.
    """

    name: str
    title: str
    help: str
    signed: bool = False
    layers: bool = False


def _pairwise(prefix: str, title: str, help: str, **rest: bool) -> Iterator[Measure]:
    for pair, names in PAIRS.items():
        letters = f"{pair[0].upper()},{pair[1].upper()}"
        yield Measure(f"{prefix}_{pair}", f"{title} {letters}", help.format(names), **rest)


_ALL = [
    *_pairwise(
        "cos",
        "Cosine",
        "Cosine of {} as lists of numbers: 1 if one is a multiple of the other.",
        signed=True,
        layers=True,
    ),
    *_pairwise(
        "overlap",
        "Overlap",
        "Share of the directions read by one of {} that the other reads, too: mean cos² of the "
        "principal angles.",
    ),
    *_pairwise(
        "rotated",
        "Best-rotation cosine",
        "Cosine of {} after the turn of one of them that fits best.",
    ),
    *_pairwise(
        "cka",
        "CKA of weights",
        "Cosine of W Wᵀ of {}, not centred: do the same directions of the stream weigh much in "
        "both?",
    ),
    *_pairwise(
        "act_cka",
        "CKA of activations",
        "Do {} make the same pairs of tokens look alike? Centred, on running text without its "
        "first token, before rotary positions and norms of queries and keys; high for random "
        "matrices, too.",
    ),
    Measure(
        "symmetry",
        "Symmetry of W_Q W_Kᵀ",
        "(‖S‖² − ‖A‖²) / ‖M‖² of M = W_Q W_Kᵀ = S + A: 1 symmetric, 0 random, −1 skew. For tokens "
        "apart it exchanges what they are, not where: even Q=K is then below 1.",
        signed=True,
        layers=True,
    ),
    Measure(
        "directionality",
        "Directionality of W_Q W_Kᵀ",
        "(r − c) / (r + c) of what stands out among norms of rows (r, the token that asks) and of "
        "columns (c, the one looked at).",
        signed=True,
        layers=True,
    ),
    *(
        Measure(
            f"norm_{role}",
            f"Norm of W_{role.upper()}",
            "Square root of the sum of squares.",
            layers=True,
        )
        for role in "qkv"
    ),
    *(
        Measure(
            f"rank_{role}",
            f"Effective rank of {name}",
            "exp of the entropy of the singular values as shares of their sum: d_head if all "
            "are equal.",
        )
        for role, name in {"q": "W_Q", "k": "W_K", "v": "W_V", "qk": "W_Q W_Kᵀ"}.items()
    ),
]

MEASURES = {measure.name: measure for measure in _ALL}
"""Every measure, by the name of its column."""

OF_ACTIVATIONS = tuple(name for name in MEASURES if name.startswith("act_"))
"""Those that need the model to run; `attnkit.realmodels.activations` fills them in."""

OF_WEIGHTS = tuple(name for name in MEASURES if name not in OF_ACTIVATIONS)

_LEAST = 1e-14
"""Eigenvalues of WᵀW below this share of the largest count as zero."""

_ROUNDING = 1e-5
"""Norms that differ by less, relatively, count as equal."""


def prepared(layer: Projections, *, fold: bool = False, offset: int = 0) -> Projections:
    """The layer as it is to be measured.

    Args:
        fold: multiply the gains of the norm before into the matrices.
        offset: tokens from the key forward to the query; rotary positions turn W_Q by it.
    """
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
    """What was measured on a layer; NaN where shapes do not allow a measure.

    Attributes:
        heads: measure → (h,), per query head.
        whole: measure → number, of all heads together: M is the sum of theirs.
    """

    heads: dict[str, Float[Array, " h"]]
    whole: dict[str, float]


def measure_layer(layer: Projections) -> LayerMeasures:
    """All measures of weights of a layer that was `prepared`."""
    n_heads, n_kv_heads = len(layer.W_Q), len(layer.W_K)
    per_group = n_heads // n_kv_heads
    parts = []
    total = np.zeros((layer.W_Q.shape[1], layer.W_K.shape[1]), np.float32)
    largest = [float(np.abs(w).max()) or 1.0 for w in (layer.W_Q, layer.W_K)]
    for group in range(n_kv_heads):
        heads = slice(group * per_group, (group + 1) * per_group)
        q, k, v = (
            w.astype(np.float64) for w in (layer.W_Q[heads], layer.W_K[group], layer.W_V[group])
        )
        parts.append(_of_group(q, k, v))
        total += ((q.sum(0) / largest[0]) @ (k / largest[1]).T).astype(np.float32)
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    heads_found = {name: found[name] for name in OF_WEIGHTS}
    return LayerMeasures(heads_found, _of_whole(layer, total, found))


def _of_group(
    q: Float[Array, "h m d"], k: Float[Array, "n d"], v: Float[Array, "n e"]
) -> dict[str, Float[Array, " h"]]:
    """All measures of the query heads that share one key and value head.

    Beside them the products `inner_qk` … whose sums make a layer's cosines.
    """
    n_heads = len(q)
    sides = {"q": _side(q), "k": _side(k[None]), "v": _side(v[None])}
    found: dict[str, Array] = {}
    for role, side in sides.items():
        found[f"norm_{role}"] = np.broadcast_to(side.norm, n_heads)
        found[f"rank_{role}"] = np.broadcast_to(side.rank, n_heads)
    weights = {"q": q, "k": k[None], "v": v[None]}
    for pair in PAIRS:
        a, b = weights[pair[0]], weights[pair[1]]
        compared = _pair(a, b, sides[pair[0]], sides[pair[1]])
        found |= {f"{name}_{pair}": np.broadcast_to(x, n_heads) for name, x in compared.items()}
    found |= _of_form(q, k[None], sides["q"], sides["k"])
    return found


@dataclass(frozen=True, eq=False)
class _Side:
    """What is needed of WᵀW alone."""

    gram: Float[Array, "h d d"]
    norm: Float[Array, " h"]
    rank: Float[Array, " h"]
    whiten: Float[Array, "h d d"]  # W @ whiten has orthonormal columns, and zeros beyond the rank
    root: Float[Array, "h d d"]
    n: Float[Array, " h"]  # the rank, counted


def _side(w: Float[Array, "h m d"]) -> _Side:
    gram = w.swapaxes(1, 2) @ w
    values, vectors = np.linalg.eigh(gram)
    values = values.clip(0)
    kept = values > _LEAST * values[:, -1:]
    inverse = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
    return _Side(
        gram,
        np.sqrt(np.trace(gram, axis1=1, axis2=2)),
        effective_rank(np.sqrt(values)),
        vectors * inverse[:, None, :],
        vectors * np.sqrt(values)[:, None, :],
        kept.sum(1),
    )


def bases_of(w: Float[Array, "h m d"]) -> Float[Array, "h m d"]:
    """Orthonormal bases of what each matrix reads, as columns; zeros beyond its rank.

    As `attnkit.analysis.similarity.column_space`, ten times as fast, for matrices that are
    not close to losing a dimension: it squares their condition.
    """
    w = w.astype(np.float64)
    bases: Array = w @ _side(w).whiten
    return bases


def effective_rank(singular: Float[Array, "*n d"]) -> Float[Array, " *n"]:
    """exp of the entropy of singular values as shares of their sum; NaN if all are 0.

    Source:
        Roy & Vetterli 2007, "The effective rank: a measure of effective dimensionality".
    """
    total = singular.sum(-1, keepdims=True)
    shares = np.divide(singular, total, out=np.full_like(singular, np.nan), where=total > 0)
    logs = np.log(np.where(shares > 0, shares, 1))
    rank: Array = np.exp(-(shares * logs).sum(-1))
    return rank


def _pair(
    a: Float[Array, "h m d"], b: Float[Array, "h m e"], of_a: _Side, of_b: _Side
) -> dict[str, Float[Array, " h"]]:
    """Two matrices compared; NaN where they read streams of different width."""
    names = ("cos", "overlap", "rotated", "cka", "inner")
    if a.shape[1] != b.shape[1]:
        return {name: np.full(1, np.nan) for name in names}
    cross = a.swapaxes(1, 2) @ b  # (h, d, e)
    size = of_a.norm * of_b.norm
    square = a.shape[2] == b.shape[2]
    inner = np.trace(cross, axis1=1, axis2=2) if square else np.full(len(cross), np.nan)
    between = of_a.whiten.swapaxes(1, 2) @ cross @ of_b.whiten
    smaller = np.minimum(of_a.n, of_b.n)
    return {
        "cos": _ratio(inner, size),
        "overlap": _ratio(_squares(between), smaller),
        "rotated": _ratio(np.linalg.svd(cross, compute_uv=False).sum(-1), size),
        "cka": _ratio(_squares(cross), np.sqrt(_squares(of_a.gram) * _squares(of_b.gram))),
        "inner": inner,
    }


def _of_form(
    q: Float[Array, "h m d"], k: Float[Array, "1 m d"], of_q: _Side, of_k: _Side
) -> dict[str, Float[Array, " h"]]:
    """What is measured on M = W_Q W_Kᵀ, without forming it."""
    singular = np.linalg.svd(of_q.root.swapaxes(1, 2) @ of_k.root, compute_uv=False)
    found = {"rank_qk": effective_rank(singular)}
    if q.shape[1] != k.shape[1]:
        nothing = np.full(len(q), np.nan)
        return {**found, "symmetry": nothing, "directionality": nothing}
    cross = k.swapaxes(1, 2) @ q
    size = (of_q.gram * of_k.gram).sum((1, 2))
    rows, columns = ((w @ gram * w).sum(-1) for w, gram in ((q, of_k.gram), (k, of_q.gram)))
    return {
        **found,
        "symmetry": _ratio((cross * cross.swapaxes(1, 2)).sum((1, 2)), size),
        "directionality": directionality_of(np.sqrt(rows.clip(0)), np.sqrt(columns.clip(0))),
    }


def directionality_of(
    rows: Float[Array, "*n m"], columns: Float[Array, "*n m"]
) -> Float[Array, " *n"]:
    """(r − c) / (r + c) from the norms of all rows and all columns; 0 where nothing stands out.

    Source:
        Saponati et al. 2025, arXiv 2502.10927; see `attnkit.training.metrics.directionality`.
    """
    standing_out = []
    for norms in (rows, columns):
        limit = (norms.mean(-1) + 2 * norms.std(-1))[..., None]
        excess = norms - limit
        standing_out.append(np.where(excess > _ROUNDING * limit, excess, 0).sum(-1))
    r, c = standing_out
    both = r + c
    found: Array = np.divide(r - c, both, out=np.zeros_like(both), where=both != 0)
    return found


def _of_whole(
    layer: Projections, m: Float[Array, "m n"], heads: dict[str, Float[Array, " h"]]
) -> dict[str, float]:
    """The measures of a whole layer, whose M is the sum over its heads."""
    nan = float("nan")
    found = dict.fromkeys((name for name, measure in MEASURES.items() if measure.layers), nan)
    repeated = len(layer.W_Q) // len(layer.W_K)
    squares = {
        role: float((heads[f"norm_{role}"][:: 1 if role == "q" else repeated] ** 2).sum())
        for role in "qkv"
    }
    for role, square in squares.items():
        found[f"norm_{role}"] = float(np.sqrt(square))
    for pair in PAIRS:
        inner = heads[f"inner_{pair}"]
        sizes = [squares[role] * (repeated if role != "q" else 1) for role in pair]
        if np.isfinite(inner).all() and min(sizes) > 0:
            found[f"cos_{pair}"] = float(inner.sum() / np.sqrt(sizes[0] * sizes[1]))
    if m.shape[0] == m.shape[1]:
        size = float(np.einsum("ij,ij->", m, m, dtype=np.float64))
        if size > 0:
            found["symmetry"] = float(np.einsum("ij,ji->", m, m, dtype=np.float64)) / size
        norms = [
            np.sqrt(np.einsum(form, m, m, dtype=np.float64)) for form in ("ij,ij->i", "ij,ij->j")
        ]
        found["directionality"] = float(directionality_of(*norms))
    return found


def _squares(matrices: Float[Array, "*n i j"]) -> Float[Array, " *n"]:
    squares: Array = np.einsum("...ij,...ij->...", matrices, matrices)
    return squares


def _ratio(above: Array, below: Array) -> Array:
    """The quotient, NaN where there is nothing to divide by."""
    shape = np.broadcast_shapes(np.shape(above), np.shape(below))
    quotient: Array = np.divide(
        above, below, out=np.full(shape, np.nan), where=np.greater(below, 0)
    )
    return quotient
