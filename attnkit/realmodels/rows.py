"""Layers and projections of the files that name heads themselves: all formats but safetensors.

Shapes are compared with what the file's header says before anything is reshaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from jaxtyping import Float

from attnkit.realmodels.base import (
    Array,
    AttentionLayer,
    Kind,
    Projections,
    Rope,
    Unreadable,
    bias_per_head,
    listing,
    per_head,
)
from attnkit.realmodels.binary_file import BinaryFile, damaged

MAX_LAYERS = 2**12

QKV = tuple[Array, Array, Array]
OptionalQKV = tuple[Array | None, Array | None, Array | None]


def check_n_layers(file: str, n_layers: int) -> None:
    """Raise Unreadable for a file with more attention layers than any model has."""
    if n_layers > MAX_LAYERS:
        raise damaged(file, f"it names {n_layers:,} attention layers; allowed are {MAX_LAYERS:,}")


def attention_layers(
    file: BinaryFile,
    found: Mapping[str, tuple[Kind, int]],
    count_heads: Callable[[str, int], tuple[int, int]],
    read: Callable[[str, int, int, int], Projections],
) -> tuple[AttentionLayer, ...]:
    """Return the layers of a file: encoder first, then causal, then cross-attention.

    Args:
        found: Kind and block of every layer, by the beginning of its tensors' names.
        count_heads: Function of beginning and block that returns the number of query heads, and of
            key and value heads.
        read: Function of beginning, block and both numbers that reads a layer.

    Raises:
        Unreadable: If there is no layer, or if the heads of one contradict each other.
    """
    if not found:
        raise Unreadable(
            f"{file.path.name} has no attention by name; it has {listing(file.entries)}"
        )
    check_n_layers(file.path.name, len(found))
    kinds, indices = list(Kind), {kind: count() for kind in Kind}
    layers = []
    for kind, block, prefix in sorted(
        ((kind, block, prefix) for prefix, (kind, block) in found.items()),
        key=lambda layer: (kinds.index(layer[0]), *layer[1:]),
    ):
        n_heads, n_kv_heads = count_heads(prefix, block)
        if n_heads % n_kv_heads:
            raise damaged(
                file.path.name,
                f"{n_heads} query heads cannot share {n_kv_heads} key and value heads",
            )
        of_layer = partial(read, prefix, block, n_heads, n_kv_heads)
        layers.append(AttentionLayer(kind, next(indices[kind]), n_heads, n_kv_heads, of_layer))
    return tuple(layers)


def split_linear(
    file: str,
    name: str,
    weight: Float[Array, "o m"],
    bias: Float[Array, " o"] | None,
    n_heads: int,
    n_kv_heads: int,
    d_head: int | None = None,
    d_value: int | None = None,
) -> tuple[QKV, OptionalQKV]:
    """Split a fused linear layer into the weights and biases of queries, keys and values.

    Args:
        n_heads: Number of query heads; 0 for a layer that computes keys and values only.
        d_head: Width of a query head and of a key head; computed from the rows if None.
        d_value: Width of a value head; `d_head` if None.

    Raises:
        Unreadable: If the number of rows is not that of these heads.
    """
    d_head = d_head or len(weight) // (n_heads + 2 * n_kv_heads)
    d_value = d_value or d_head
    n_q, n_k, n_v = n_heads * d_head, n_kv_heads * d_head, n_kv_heads * d_value
    for rows in (weight, weight if bias is None else bias):
        if len(rows) != n_q + n_k + n_v:
            raise damaged(
                file,
                f"{name} has {len(rows):,} rows, but {n_heads} query heads of width {d_head}, "
                f"{n_kv_heads} key heads of width {d_head} and {n_kv_heads} value heads of width "
                f"{d_value} need {n_q + n_k + n_v:,}",
            )
    parts = slice(n_q), slice(n_q, n_q + n_k), slice(n_q + n_k, None)
    q, k, v = (weight[part] for part in parts)
    b_q, b_k, b_v = (None if bias is None else bias[part] for part in parts)
    return (q, k, v), (b_q, b_k, b_v)


def build_projections(
    file: str,
    name: str,
    weights: QKV,
    biases: OptionalQKV,
    n_heads: int,
    n_kv_heads: int,
    gains: tuple[Array | None, Array | None] = (None, None),
    rope: Rope | None = None,
) -> Projections:
    """Return the projections of a layer from the rows of its queries, keys and values.

    Args:
        weights: Weights of queries, keys and values; rows are outputs, head by head.
        gains: Gain of the norm before the queries, and of the norm before keys and values.

    Raises:
        Unreadable: If the rows cannot be divided among the heads, or shapes contradict each other.
    """
    shapes = [w.shape for w in weights]
    if any(len(shape) != 2 or 0 in shape for shape in shapes):
        raise damaged(file, f"{name} has weights of shapes {shapes}, which are no matrices")
    (n_q, m_q), (_, m_kv), (n_v, _) = shapes
    d_head, counts = n_q // n_heads, (n_heads, n_kv_heads, n_kv_heads)
    n_rows = n_heads * d_head, n_kv_heads * d_head, n_v // n_kv_heads * n_kv_heads
    expected: list[tuple[int, ...]] = [
        *zip(n_rows, (m_q, m_kv, m_kv), strict=True),
        *((n,) for n in n_rows),
        *((m_q,), (m_kv,)),
    ]
    for array, shape in zip((*weights, *biases, *gains), expected, strict=True):
        if array is not None and array.shape != shape:
            raise damaged(
                file,
                f"{name} has a weight, bias or norm of shape {array.shape} where {n_heads} query "
                f"heads and {n_kv_heads} key and value heads of width {d_head} need {shape}",
            )
    if rope is not None and 2 * len(rope.frequencies) > d_head:
        raise damaged(
            file,
            f"{2 * len(rope.frequencies):,} dimensions of each head of {name} would rotate, but "
            f"a head has {d_head}",
        )
    q, k, v = (per_head(w, n) for w, n in zip(weights, counts, strict=True))
    b_q, b_k, b_v = (
        b if b is None else bias_per_head(b, n) for b, n in zip(biases, counts, strict=True)
    )
    return Projections(q, k, v, b_q, b_k, b_v, *gains, rope)
