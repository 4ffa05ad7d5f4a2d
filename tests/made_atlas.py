"""A small atlas of random numbers: an encoder, and a decoder that also looks across.

Sizes are primes where they can be, so that axes that are swapped fail.
"""

from functools import cache

import numpy as np

from attnkit.realmodels.atlas import Setting, measure_model
from attnkit.realmodels.base import AttentionLayer, Kind, Projections, RealModel, Rope, pairs
from attnkit.realmodels.sentence import SentenceReading, Token
from attnkit.realmodels.shipped import SETTINGS

READER, WRITER, TOYS = "Made/reader", "Made writer", ("toy reverse, QKV", "toy sort, Q=K")
"""Models: one whose name has a stroke, one with shared key and value heads, our own."""

_SIZES = {  # kind → layers, heads, key and value heads, d_model, d_head
    READER: {Kind.ENCODER: (2, 5, 5, 13, 3)},
    WRITER: {Kind.CAUSAL: (3, 6, 2, 17, 4), Kind.CROSS: (1, 3, 3, 17, 4)},
    TOYS[0]: {Kind.ENCODER: (1, 2, 2, 7, 3)},
    TOYS[1]: {Kind.ENCODER: (1, 2, 2, 11, 3)},
}


def made_model(name):
    """One of them."""
    layers = [
        AttentionLayer(kind, index, sizes[1], sizes[2], lambda k=kind, i=index: _made(name, k, i))
        for kind, sizes in _SIZES[name].items()
        for index in range(sizes[0])
    ]
    family = "toy" if name in TOYS else "made"
    return RealModel(name, family, "safetensors", tuple(layers))


def _made(name, kind, index):
    _, n_heads, n_kv_heads, d_model, d_head = _SIZES[name][kind]
    rng = np.random.default_rng([index, list(Kind).index(kind), d_model])
    draw = lambda n: rng.standard_normal((n, d_model, d_head)).astype(np.float32)  # noqa: E731
    W_Q, W_K, W_V = draw(n_heads), draw(n_kv_heads), draw(n_kv_heads)
    if name == TOYS[1]:
        W_K = W_Q
    gain = np.linspace(0.5, 2, d_model, dtype=np.float32) if name == WRITER else None
    turns = Rope(np.array([1.0, 0.1]), *pairs(2, interleaved=False))
    rope = turns if kind == Kind.CAUSAL else None
    return Projections(W_Q, W_K, W_V, gain_q=gain, gain_kv=gain, rope=rope)


@cache
def made_atlas():
    """The two, in every setting, with portraits."""
    reader = measure_model(made_model(READER), (Setting(), Setting(fold=True)), portraits=True)
    return reader.joined(measure_model(made_model(WRITER), SETTINGS, portraits=True))


@cache
def made_toys():
    """The table of our own."""
    first, second = (measure_model(made_model(name)) for name in TOYS)
    known = {"accuracy": 0.9, "accuracy_qk": 0.3, "accuracy_kv": 0.7, "chance": 0.1}
    return first.joined(second).table.assign(**known)


def heads_of(table, **wanted):
    """Rows of heads as they stand, with some columns as wanted."""
    rows = table[table["head"].notna() & ~table["folded"] & (table["offset"] == 0)]
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    return rows


def made_reading(pattern, scores, texts):
    """A reading of one layer with these heads."""
    tokens = tuple(Token(text, text.startswith("[")) for text in texts)
    hidden = np.zeros((1, *scores.shape[-2:]), bool)
    arrays = (scores[None].astype(np.float32), hidden, pattern[None].astype(np.float32))
    return SentenceReading("m", " ".join(texts), tokens, len(tokens), *arrays)
