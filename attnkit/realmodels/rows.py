"""From a linear layer's rows to heads, with the checks that a file's claims fit its matrices."""

from __future__ import annotations

from jaxtyping import Float

from attnkit.realmodels.base import Array, Projections, Rope, bias_per_head, per_head
from attnkit.realmodels.cursor import damaged

MOST_LAYERS = 2**12


def few(file: str, n_layers: int) -> None:
    """Refuses a file with more layers than any model."""
    if n_layers > MOST_LAYERS:
        raise damaged(file, f"it names {n_layers:,} layers of attention; {MOST_LAYERS:,} are read")


Three = tuple[Array, Array, Array]
ThreeOrNone = tuple[Array | None, Array | None, Array | None]


def cut(
    file: str,
    name: str,
    rows: Float[Array, "o *m"],
    n_heads: int,
    n_kv_heads: int,
    d_head: int | None = None,
    d_value: int | None = None,
) -> Three:
    """The parts of a layer that makes q, k and v, one after the other.

    Args:
        rows: the layer's weight, or its bias.
        n_heads: 0 for a layer that makes k and v only.
        d_head, d_value: widths of a key's and a value's head; as wide as each other if None.

    Raises:
        Unreadable: if it has not as many rows.
    """
    d_head = d_head or len(rows) // (n_heads + 2 * n_kv_heads)
    d_value = d_value or d_head
    of_q, of_k, of_v = n_heads * d_head, n_kv_heads * d_head, n_kv_heads * d_value
    if len(rows) != of_q + of_k + of_v:
        raise damaged(
            file,
            f"{name} has {len(rows):,} rows, and {n_heads} query heads and {n_kv_heads} key heads "
            f"of {d_head} and as many value heads of {d_value} would make other ones",
        )
    return rows[:of_q], rows[of_q : of_q + of_k], rows[of_q + of_k :]


def in_heads(
    file: str,
    name: str,
    weights: Three,
    biases: ThreeOrNone,
    n_heads: int,
    n_kv_heads: int,
    gains: tuple[Array | None, Array | None] = (None, None),
    rope: Rope | None = None,
) -> Projections:
    """A layer's rows for q, k and v as the matrices of its heads.

    Args:
        file, name: what they are from, in messages.
        weights: rows are outputs, head after head.
        gains: of the norms before q, and before k and v.

    Raises:
        Unreadable: if the rows are not those of so many heads, or the parts do not fit together.
    """
    counts = (n_heads, n_kv_heads, n_kv_heads)
    shapes = [w.shape for w in weights]
    for n, w, b in zip(counts, weights, biases, strict=True):
        if w.ndim != 2 or len(w) == 0 or len(w) % n:
            raise damaged(file, f"{name} has the shapes {shapes}, which are not of {n} heads")
        if b is not None and b.shape != w.shape[:1]:
            raise damaged(file, f"{name} has a bias of shape {b.shape} for {len(w):,} rows")
    d_head = len(weights[0]) // n_heads
    if len(weights[1]) != n_kv_heads * d_head:
        raise damaged(
            file,
            f"{name} has {len(weights[1]):,} rows for keys, and {n_kv_heads} heads as wide as the "
            f"queries' {d_head} would have {n_kv_heads * d_head:,}",
        )
    q, k, v = (per_head(w, n) for w, n in zip(weights, counts, strict=True))
    if k.shape[1] != v.shape[1]:
        raise damaged(file, f"{name} has the shapes {shapes}: keys and values see different widths")
    for gain, seen in zip(gains, (q, k), strict=True):
        if gain is not None and gain.shape != seen.shape[1:2]:
            raise damaged(
                file, f"{name} follows a norm of shape {gain.shape}, and sees {seen.shape[1]:,}"
            )
    if rope is not None and 2 * len(rope.frequencies) > d_head:
        raise damaged(
            file,
            f"{2 * len(rope.frequencies):,} dimensions of {name}'s heads turn, of {d_head}",
        )
    b_q, b_k, b_v = (
        b if b is None else bias_per_head(b, n) for b, n in zip(biases, counts, strict=True)
    )
    return Projections(q, k, v, b_q, b_k, b_v, *gains, rope)
