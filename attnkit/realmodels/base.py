"""What a reader finds in a trained model: its attention layers, read one at a time.

Row vectors, as everywhere: q = x @ W_Q[h] + b_Q[h], and a head's scores are q @ kᵀ. Numpy only; a
reader opens a file, takes one layer, and closes it, so that a model of any size is never in memory.
Whatever it refuses is told in the same words, from here.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Float

Array = np.ndarray

CONVERT = (
    "pickles, PyTorch's files among them, run whatever they say, so they are never opened: where "
    "you trust one, write safetensors with transformers, "
    "AutoModel.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
)
"""What would do instead of a pickle."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80

_FEW = 6
"""Names that a message lists."""


class Unreadable(ValueError):
    """A file or model that cannot be read; the message is one line and says what would do."""


def shown(value: object) -> str:
    """A value of a file for an error message: short, on one line."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # a number of thousands of digits
        return "a huge number"


def listed(names: Iterable[str]) -> str:
    """Names for one line of a message: the first few, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _FEW:,} more" if len(every) > _FEW else ""
    return (", ".join(shown(name) for name in every[:_FEW]) or "nothing") + more


def called(folder: Path) -> str:
    """A folder's name, also of one that is given as "." or "/"."""
    return folder.resolve().name or str(folder)


class Kind(StrEnum):
    """What a layer's tokens look at: each other, those before, or another sequence."""

    ENCODER = "encoder"
    CAUSAL = "causal"
    CROSS = "cross"


@dataclass(frozen=True, eq=False)
class Rope:
    """Rotary positions: pairs of a head's dimensions turn by an angle per position.

    Attributes:
        frequencies: radians per position, of each pair; the other dimensions stay.
        interleaved: whether pairs are (0, 1), (2, 3) …; otherwise (0, n), (1, n+1) … of the first
            2n dimensions.
    """

    frequencies: Float[Array, " n"]
    interleaved: bool = False

    def turned(self, w: Float[Array, "*h m d"], offset: float) -> Float[Array, "*h m d"]:
        """The projection of a token that stands `offset` positions further on."""
        n = len(self.frequencies)
        first, second = (
            (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
            if self.interleaved
            else (slice(0, n), slice(n, 2 * n))
        )
        cos, sin = np.cos(offset * self.frequencies), np.sin(offset * self.frequencies)
        out = np.array(w)
        out[..., first] = w[..., first] * cos - w[..., second] * sin
        out[..., second] = w[..., second] * cos + w[..., first] * sin
        return out


@dataclass(frozen=True, eq=False)
class Projections:
    """The three matrices of one attention layer, in single precision.

    Attributes:
        W_Q: of the n_heads heads; query head h looks by key and value head
            h // (n_heads / n_kv_heads).
        W_K, W_V: of the key and value heads; m is the width of what is looked at.
        b_Q, b_K, b_V: biases, or None.
        gain_q: gain of the norm right before W_Q, or None where there is none: a post-norm model,
            or a norm without a gain.
        gain_kv: the same of W_K and W_V.
        rope: what turns queries and keys by position, or None.
    """

    W_Q: Float[Array, "h m d"]
    W_K: Float[Array, "g m d"]
    W_V: Float[Array, "g m e"]
    b_Q: Float[Array, "h d"] | None = None
    b_K: Float[Array, "g d"] | None = None
    b_V: Float[Array, "g e"] | None = None
    gain_q: Float[Array, " m"] | None = None
    gain_kv: Float[Array, " m"] | None = None
    rope: Rope | None = None


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention layer of a model, not yet read.

    Attributes:
        index: the place among its kind in the model, from 0.
        read: takes its matrices out of the file; raises Unreadable.
    """

    kind: Kind
    index: int
    n_heads: int
    n_kv_heads: int
    read: Callable[[], Projections]


@dataclass(frozen=True, eq=False)
class RealModel:
    """A trained model's attention.

    Attributes:
        name: how it is called in tables, say "SmolLM2-135M-Instruct".
        family: the architecture, as its configuration calls it, say "llama".
        format: "safetensors", "GGUF" or "CTranslate2".
        layers: encoder first, then causal, then cross.
        notes: what to know of its numbers, in whole sentences, say of quantisation.
    """

    name: str
    family: str
    format: str
    layers: tuple[AttentionLayer, ...]
    notes: tuple[str, ...] = ()


class TensorFile(Protocol):
    """Named tensors in a file, or several; none is read before it is asked for."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of every tensor, without reading one; a linear layer's is (outputs, inputs)."""

    def read(self, name: str) -> Float[Array, "..."]:
        """One tensor in single precision; the file is open only meanwhile.

        Raises:
            Unreadable: if it is not there, damaged, of a type that is not read, or not finite.
        """


def per_head(w: Float[Array, "o m"], n_heads: int) -> Float[Array, "h m d"]:
    """A linear layer's weight, whose rows are outputs, head after head, as row-vector matrices."""
    return np.ascontiguousarray(w.reshape(n_heads, -1, w.shape[-1]).swapaxes(1, 2))


def bias_per_head(b: Float[Array, " o"], n_heads: int) -> Float[Array, "h d"]:
    """A linear layer's bias, head by head."""
    return b.reshape(n_heads, -1)
