"""Specifications of a model's attention layers, in one stack or in an encoder and a decoder.

An encoder and a decoder share one residual stream: its first positions belong to the encoder, the
others to the decoder. Each layer has a range of query positions and one of key positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnkit.foundation.language import mark, tr

if TYPE_CHECKING:
    from attnkit.tasks import Task
    from attnkit.variants.size import Size

Kind = Literal["layer", "encoder", "decoder", "cross"]

_TITLES = {
    "layer": mark("Layer {number}"),
    "encoder": mark("Encoder {number}"),
    "decoder": mark("Decoder {number}"),
    # Translators: a layer of cross-attention.
    "cross": mark("Cross {number}"),
}

_NAMES = {
    "layer": mark("layer {number}"),
    "encoder": mark("encoder {number}"),
    "decoder": mark("decoder {number}"),
    # Translators: a layer of cross-attention.
    "cross": mark("cross {number}"),
}


@dataclass(frozen=True)
class LayerSpec:
    """Specification of one attention layer.

    Attributes:
        kind: "layer" in one stack; else "encoder", "decoder", or "cross" for the decoder's
            attention to the encoder.
        number: Number among the layers of its kind, from 1.
        query_positions: Half-open range of the positions that have queries.
        key_positions: Half-open range of the positions that are attended to.
        causal: Whether later positions are hidden.
        has_mlp: Whether an MLP follows, if the model has MLPs.
    """

    kind: Kind
    number: int
    query_positions: tuple[int, int]
    key_positions: tuple[int, int]
    causal: bool
    has_mlp: bool

    @property
    def title(self) -> str:
        """Name of the layer on screen, such as "Layer 1"."""
        return tr(_TITLES[self.kind], number=self.number)

    @property
    def name(self) -> str:
        """Name of the layer within a sentence or a list, such as "layer 1"."""
        return tr(_NAMES[self.kind], number=self.number)

    @property
    def n_queries(self) -> int:
        """Number of query positions."""
        return self.query_positions[1] - self.query_positions[0]

    @property
    def n_keys(self) -> int:
        """Number of key positions."""
        return self.key_positions[1] - self.key_positions[0]

    @property
    def square(self) -> bool:
        """True if the query positions are the key positions."""
        return self.query_positions == self.key_positions


def layer_specs_of(size: Size, task: Task) -> tuple[LayerSpec, ...]:
    """Return the specifications of all attention layers, in the order of computation.

    Where a task has `n_source` source positions, there are `n_layers` encoder layers, then
    `n_layers` pairs of decoder self-attention and cross-attention to the encoder.
    """
    numbers = range(1, size.n_layers + 1)
    every = (0, task.n_ctx)
    if not task.n_source:
        return tuple(LayerSpec("layer", n, every, every, size.causal, True) for n in numbers)
    encoder, decoder = (0, task.n_source), (task.n_source, task.n_ctx)
    specs = [LayerSpec("encoder", n, encoder, encoder, False, True) for n in numbers]
    for n in numbers:
        specs.append(LayerSpec("decoder", n, decoder, decoder, True, False))
        specs.append(LayerSpec("cross", n, decoder, encoder, False, True))
    return tuple(specs)
