"""Projections of one layer from the rows of its linear layers, for files other than safetensors.

Shapes are compared with what the file's header says before anything is reshaped.
"""

from __future__ import annotations

from jaxtyping import Float

from attnkit.realmodels.base import Array, Projections, Rope, bias_per_head, per_head
from attnkit.realmodels.binary_file import damaged

MAX_LAYERS = 2**12

QKV = tuple[Array, Array, Array]
OptionalQKV = tuple[Array | None, Array | None, Array | None]


def check_n_layers(file: str, n_layers: int) -> None:
    """Raise Unreadable for a file with more attention layers than any model has."""
    if n_layers > MAX_LAYERS:
        raise damaged(file, f"it names {n_layers:,} attention layers; allowed are {MAX_LAYERS:,}")


def split_rows(
    file: str,
    name: str,
    rows: Float[Array, " o *m"],
    n_heads: int,
    n_kv_heads: int,
    d_head: int | None = None,
    d_value: int | None = None,
) -> QKV:
    """Split the rows of a fused linear layer into those of queries, keys and values.

    Args:
        file: Name of the file in messages.
        name: Name of the layer in messages.
        rows: The layer's weight or bias.
        n_heads: Number of query heads; 0 for a layer that computes keys and values only.
        n_kv_heads: Number of key and value heads.
        d_head: Width of a query head and of a key head; computed from the rows if None.
        d_value: Width of a value head; `d_head` if None.

    Raises:
        Unreadable: If the number of rows is not that of these heads.
    """
    d_head = d_head or len(rows) // (n_heads + 2 * n_kv_heads)
    d_value = d_value or d_head
    n_q, n_k, n_v = n_heads * d_head, n_kv_heads * d_head, n_kv_heads * d_value
    if len(rows) != n_q + n_k + n_v:
        raise damaged(
            file,
            f"{name} has {len(rows):,} rows, but {n_heads} query heads of width {d_head}, "
            f"{n_kv_heads} key heads of width {d_head} and {n_kv_heads} value heads of width "
            f"{d_value} need {n_q + n_k + n_v:,}",
        )
    return rows[:n_q], rows[n_q : n_q + n_k], rows[n_q + n_k :]


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
        file: Name of the file in messages.
        name: Name of the layer in messages.
        weights: Weights of queries, keys and values; rows are outputs, head by head.
        biases: Biases of queries, keys and values.
        n_heads: Number of query heads.
        n_kv_heads: Number of key and value heads.
        gains: Gain of the norm before the queries, and of the norm before keys and values.
        rope: Rotary positions, or None.

    Raises:
        Unreadable: If the rows cannot be divided among the heads, or shapes contradict each other.
    """
    counts = (n_heads, n_kv_heads, n_kv_heads)
    shapes = [w.shape for w in weights]
    for n, w, b in zip(counts, weights, biases, strict=True):
        if w.ndim != 2 or len(w) == 0 or len(w) % n:
            raise damaged(
                file, f"{name} has weights of shapes {shapes}, which {n} heads cannot share equally"
            )
        if b is not None and b.shape != w.shape[:1]:
            raise damaged(file, f"{name} has a bias of shape {b.shape} for {len(w):,} rows")
    d_head = len(weights[0]) // n_heads
    if len(weights[1]) != n_kv_heads * d_head:
        raise damaged(
            file,
            f"{name} has {len(weights[1]):,} rows for keys, but {n_kv_heads} key heads of the "
            f"query heads' width {d_head} need {n_kv_heads * d_head:,}",
        )
    q, k, v = (per_head(w, n) for w, n in zip(weights, counts, strict=True))
    if k.shape[1] != v.shape[1]:
        raise damaged(
            file, f"{name} has weights of shapes {shapes}: keys and values read different widths"
        )
    _check_gains_and_rope(file, name, (q, k), gains, rope)
    b_q, b_k, b_v = (
        b if b is None else bias_per_head(b, n) for b, n in zip(biases, counts, strict=True)
    )
    return Projections(q, k, v, b_q, b_k, b_v, *gains, rope)


def _check_gains_and_rope(
    file: str,
    name: str,
    weights: tuple[Array, Array],
    gains: tuple[Array | None, Array | None],
    rope: Rope | None,
) -> None:
    """Raise Unreadable unless gains and rotary positions fit the weights of queries and keys."""
    for gain, w in zip(gains, weights, strict=True):
        if gain is not None and gain.shape != w.shape[1:2]:
            raise damaged(
                file, f"{name} reads {w.shape[1]:,} inputs from a norm of shape {gain.shape}"
            )
    d_head = weights[0].shape[2]
    if rope is not None and 2 * len(rope.frequencies) > d_head:
        raise damaged(
            file,
            f"{2 * len(rope.frequencies):,} dimensions of each head of {name} would rotate, but "
            f"a head has {d_head}",
        )
