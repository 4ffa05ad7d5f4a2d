"""Exclusive self-attention: the output of a head without the direction of the token's own value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, register_option
from attnkit.variants.rules import Code, Layer
from attnkit.variants.wiring import Wiring

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = "Scores"


@register_option
class ExclusiveOption(Option):
    """Output of every head, made orthogonal to the token's own value: z − (z·v / ‖v‖²) v.

    Source:
        Zhai 2026, arXiv 2603.09078.
    """

    name = "exclusive"
    help = "What a head reads out is made orthogonal to the token's own value."
    place = 40

    def rewire(self, wiring: Wiring) -> None:
        """Refuse cross-attention and values of one number."""
        if wiring.sizes.two_sided:
            raise ValueError(
                "exclusive does not go with an encoder and a decoder: in cross-attention a token "
                "has no value of its own among those that it sees"
            )
        if wiring.sizes.d_v < 2:
            raise ValueError(
                "exclusive needs d_v of at least 2, but it is 1: no direction would be left"
            )

    def finish(self, z: Tensor, own: Tensor | None, positions: Tensor, layer: Layer) -> Tensor:
        """Subtract the projection of the output onto the own value."""
        assert own is not None
        unit = own * (own.square().sum(-1, keepdim=True) + 1e-12).rsqrt()
        return z - (z * unit).sum(-1, keepdim=True) * unit

    def code(self, wiring: Wiring) -> Code:
        return Code(
            finish=(
                "unit = v * (v.square().sum(-1, keepdim=True) + 1e-12).rsqrt()",
                "z = z - (z * unit).sum(-1, keepdim=True) * unit  # orthogonal to the own value",
            )
        )


_SOURCE = "Zhai 2026, arXiv 2603.09078"
register(
    "Exclusive",
    "QKV exclusive",
    "Exclusive self-attention: what a head reads out is made orthogonal to the token's own value. "
    "The idea of the source: the residual stream carries the token already.",
    _SOURCE,
    FAMILY,
    aliases=("exclusive self-attention", "XSA"),
)
register(
    "Exclusive Q=K",
    "Q=K exclusive",
    "With Q=K a token tends to attend to itself. A self-mask changes the pattern; exclusive "
    "self-attention changes the output and removes the direction of the token's own value.",
    f"after {_SOURCE}",
    FAMILY,
    aliases=("exclusive self-attention with shared query and key", "XSA"),
)
