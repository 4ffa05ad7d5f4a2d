"""Attention layers of a trained model, in the form that the readers of all file formats return.

Matrices act on row vectors: q = x @ W_Q[h] + b_Q[h], and a head's scores are q @ kᵀ. A reader opens
a file, reads one layer and closes the file, so that the whole model is never in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float, Int

Array = np.ndarray

TRAINED_HERE = "attnkit"
"""Format of models that attnkit has trained itself, whose sharing is known."""


class Kind(StrEnum):
    """Positions that a layer's queries attend to: all, earlier ones, or another sequence's."""

    ENCODER = "encoder"
    CAUSAL = "causal"
    CROSS = "cross"


@dataclass(frozen=True, eq=False)
class Rope:
    """Rotary positions: pairs of a head's dimensions rotate by an angle per position.

    Attributes:
        frequencies: Radians per position of each of the n pairs.
        first: Index of the first dimension of each pair.
        second: Index of its second dimension. Dimensions in neither do not rotate.
    """

    frequencies: Float[Array, " n"]
    first: Int[Array, " n"]
    second: Int[Array, " n"]

    def rotate(self, w: Float[Array, "*h m d"], offset: float) -> Float[Array, "*h m d"]:
        """Return the projection `w` as it acts on a token `offset` positions later."""
        cos, sin = np.cos(offset * self.frequencies), np.sin(offset * self.frequencies)
        first, second = w[..., self.first], w[..., self.second]
        rotated = np.array(w)
        rotated[..., self.first] = first * cos - second * sin
        rotated[..., self.second] = second * cos + first * sin
        return rotated


def pairs(n: int, *, interleaved: bool) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
    """Return the dimensions of n pairs: (0, 1), (2, 3) … if interleaved, else (0, n), (1, n+1)."""
    i = np.arange(n)
    return (2 * i, 2 * i + 1) if interleaved else (i, i + n)


@dataclass(frozen=True, eq=False)
class Projections:
    """Query, key and value weights of one attention layer, in single precision.

    The layer has h query heads and g key and value heads. Query head i uses key and value head
    i // (h / g).

    Attributes:
        W_Q: Query weights; m is the width of the residual stream.
        W_K: Key weights; in cross-attention, m is the width of the encoder's residual stream.
        W_V: Value weights, with the same m as `W_K`.
        gain_q: Gain of the norm right before `W_Q`. None in a post-norm model, or if the norm has
            no gain.
        gain_kv: Gain of the norm right before `W_K` and `W_V`, or None.
        rope: Rotary positions of queries and keys, or None.
        latent_q: Width of the latent vector from which `W_Q` of all heads is projected; 0 if none.
        latent_kv: Width of the latent vector from which `W_K` and `W_V` of all heads are projected,
            which makes the two alike; 0 if none.
    """

    W_Q: Float[Array, "h m d"]
    W_K: Float[Array, "g m d"]
    W_V: Float[Array, "g m e"]
    gain_q: Float[Array, " m"] | None = None
    gain_kv: Float[Array, " m"] | None = None
    rope: Rope | None = None
    latent_q: int = 0
    latent_kv: int = 0

    @property
    def k_is_v(self) -> bool:
        """Whether one matrix serves as W_K and as W_V."""
        return np.array_equal(self.W_K, self.W_V)

    @property
    def tied(self) -> str:
        """Sharing of its matrices: "K=V" or "Q=K" where one matrix serves as both, else ""."""
        if self.k_is_v:
            return "K=V"
        return "Q=K" if np.array_equal(self.W_Q, self.W_K) else ""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention layer of a model, whose weights stay in the file until `read` is called.

    Attributes:
        kind: Positions that its queries attend to.
        index: Index among the model's layers of this kind, from 0.
        n_heads: Number of query heads.
        n_kv_heads: Number of key and value heads.
        read: Function that reads the weights; it raises Unreadable.
        kv_index: Index of the layer whose keys and values it reuses; None if it has its own.
    """

    kind: Kind
    index: int
    n_heads: int
    n_kv_heads: int
    read: Callable[[], Projections]
    kv_index: int | None = None


@dataclass(frozen=True, eq=False)
class RealModel:
    """Attention layers of a trained model.

    Attributes:
        name: Name in tables, such as "SmolLM2-135M-Instruct".
        family: Architecture as the model's configuration names it, such as "llama".
        format: Format of the file: "safetensors", "GGUF", "CTranslate2" or "Marian"; `TRAINED_HERE`
            for models without a file.
        layers: Encoder layers first, then causal layers, then cross-attention.
        notes: Complete sentences on what limits the numbers, such as quantisation.
    """

    name: str
    family: str
    format: str
    layers: tuple[AttentionLayer, ...]
    notes: tuple[str, ...] = ()


def per_head(w: Float[Array, "o m"], n_heads: int) -> Float[Array, "h m d"]:
    """Return a linear layer's weight, whose rows are outputs head by head, as a matrix per head."""
    return np.ascontiguousarray(w.reshape(n_heads, -1, w.shape[-1]).swapaxes(1, 2))
