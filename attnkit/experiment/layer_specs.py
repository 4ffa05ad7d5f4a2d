"""Which attention layers a model has: one stack, or an encoder and a decoder.

An encoder and a decoder stand in one residual stream: its first positions are the encoder's, the
others the decoder's, and a layer says who asks and who is looked at. No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from attnkit.tasks import Task
    from attnkit.variants.size import Size

Kind = Literal["layer", "encoder", "decoder", "cross"]


@dataclass(frozen=True)
class LayerSpec:
    """One attention layer.

    Attributes:
        kind: "cross" where the decoder asks the encoder. number: among its kind, from 1.
        asks, looks: the positions that ask and those that are looked at, from … up to.
        causal: whether later positions are hidden.
        has_mlp: whether an MLP follows, if there are any.
    """

    kind: Kind
    number: int
    query_positions: tuple[int, int]
    key_positions: tuple[int, int]
    causal: bool
    has_mlp: bool

    @property
    def title(self) -> str:
        """As shown."""
        return f"{self.kind.capitalize()} {self.number}"

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
        """Whether those who ask are those who are looked at."""
        return self.query_positions == self.key_positions


def layer_specs_of(size: Size, task: Task) -> tuple[LayerSpec, ...]:
    """The attention layers in the order in which they are computed.

    A task with `n_source` positions has `n_layers` layers of an encoder, then as many of a decoder,
    each of which asks the decoder's earlier positions, then the encoder's.
    """
    numbers = range(1, size.n_layers + 1)
    everyone = (0, task.n_ctx)
    if not task.n_source:
        return tuple(LayerSpec("layer", n, everyone, everyone, size.causal, True) for n in numbers)
    source, rest = (0, task.n_source), (task.n_source, task.n_ctx)
    places = [LayerSpec("encoder", n, source, source, False, True) for n in numbers]
    for n in numbers:
        places.append(LayerSpec("decoder", n, rest, rest, True, False))
        places.append(LayerSpec("cross", n, rest, source, False, True))
    return tuple(places)
