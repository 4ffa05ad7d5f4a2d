"""Translator in NumPy that computes what Bergamot's small Marian models compute.

The encoder is post-norm with self-attention. A layer of the decoder is a simpler simple recurrent
unit (SSRU), cross-attention and a feed-forward layer. Nothing is rounded to 8 bits.

Source: src/models/transformer.h and src/rnn/cells.h of marian-nmt/marian-dev.
"""

from collections.abc import Mapping, Sequence
from itertools import count, takewhile

import numpy as np

from attnkit.realmodels.base import Projections

END = 0
"""Token that ends a sentence."""


class Translator:
    """Greedy translator that searches the full vocabulary, without a shortlist.

    Args:
        tensors: Tensors by name; a weight has the shape (inputs, outputs).
        attention: Projections of each attention layer, by the beginning of its tensors' names;
            `W_Q`, `W_K`, `W_V` and biases of attention are taken from here only.
    """

    def __init__(
        self, tensors: Mapping[str, np.ndarray], attention: Mapping[str, Projections]
    ) -> None:
        self.tensors, self.attention = tensors, attention
        self.d_model = tensors["Wemb"].shape[1]

    def translate(self, tokens: Sequence[int], most: int = 24) -> list[int]:
        """Return at most `most` tokens of the translation, without the end of the sentence."""
        memory = self.embed(self.tensors["Wemb"][list(tokens)], 0)
        for block in self.blocks("encoder"):
            memory = self.feed_forward(self.attend(memory, memory, f"{block}_self"), block)
        cells = dict.fromkeys(self.blocks("decoder"), np.float32(0))
        output: list[int] = []
        row = np.zeros((1, self.d_model), np.float32)  # no word precedes the first one
        while len(output) < most:
            x = self.embed(row, len(output))
            for block in cells:
                x, cells[block] = self.recur(x, cells[block], block)
                x = self.feed_forward(self.attend(x, memory, f"{block}_context"), block)
            logits = x @ self.tensors["Wemb"].T + self.tensors["decoder_ff_logit_out_b"]
            if (token := int(logits.argmax())) == END:
                break
            output.append(token)
            row = self.tensors["Wemb"][[token]]
        return output

    def blocks(self, stack: str) -> list[str]:
        """Return the beginning of the tensors' names of each block of a stack."""
        names = (f"{stack}_l{i}" for i in count(1))
        return list(takewhile(lambda name: f"{name}_ffn_W1" in self.tensors, names))

    def embed(self, rows: np.ndarray, start: int) -> np.ndarray:
        """Scale embeddings and add positions: first all sines, then all cosines."""
        n_waves = self.d_model // 2
        rates = np.exp(-np.log(10_000) * np.arange(n_waves) / (n_waves - 1))
        angles = np.arange(start, start + len(rows))[:, None] * rates
        positions = np.hstack([np.sin(angles), np.cos(angles)]).astype(np.float32)
        return rows * np.float32(self.d_model**0.5) + positions

    def attend(self, x: np.ndarray, memory: np.ndarray, scope: str) -> np.ndarray:
        """Return the output of an attention layer; rows of `memory` give keys and values."""
        layer = self.attention[scope]
        q = x @ layer.W_Q + layer.b_Q[:, None]  # (h, i, d)
        k = memory @ layer.W_K + layer.b_K[:, None]  # (h, j, d)
        v = memory @ layer.W_V + layer.b_V[:, None]  # (h, j, d)
        scores = q @ k.swapaxes(1, 2) / np.float32(q.shape[-1] ** 0.5)  # (h, i, j)
        pattern = np.exp(scores - scores.max(-1, keepdims=True))
        pattern /= pattern.sum(-1, keepdims=True)
        heads = np.hstack(list(pattern @ v))  # (i, h·d)
        return self.norm(x + self.linear(heads, f"{scope}_Wo", f"{scope}_bo"), f"{scope}_Wo_ln")

    def feed_forward(self, x: np.ndarray, block: str) -> np.ndarray:
        """Return the output of a feed-forward layer with rectified units."""
        hidden = np.maximum(self.linear(x, f"{block}_ffn_W1", f"{block}_ffn_b1"), 0)
        out = self.linear(hidden, f"{block}_ffn_W2", f"{block}_ffn_b2")
        return self.norm(x + out, f"{block}_ffn_ffn_ln")

    def recur(self, x: np.ndarray, cell: np.ndarray, block: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the output of a recurrent unit for one position, and its next state."""
        forget = 1 / (1 + np.exp(-self.linear(x, f"{block}_rnn_Wf", f"{block}_rnn_bf")))
        cell = forget * cell + (1 - forget) * (x @ self.tensors[f"{block}_rnn_W"])
        return self.norm(x + np.maximum(cell, 0), f"{block}_rnn_ffn_ln"), cell

    def linear(self, x: np.ndarray, weight: str, bias: str) -> np.ndarray:
        """Apply a linear layer."""
        return x @ self.tensors[weight] + self.tensors[bias]

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """Apply a layer norm."""
        centred = x - x.mean(-1, keepdims=True)
        size = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-9)
        return centred / size * self.tensors[f"{name}_scale"] + self.tensors[f"{name}_bias"]
