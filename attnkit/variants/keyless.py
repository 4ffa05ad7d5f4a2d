"""Keyless attention: keys are computed from values, head by head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, register_option
from attnkit.variants.sharing import Sharing
from attnkit.variants.wiring import Vector, Weight, Wiring

if TYPE_CHECKING:
    from attnkit.variants.text import Variant


@register_option
class KeylessOption(Option):
    """k = v W_VK in every head.

    With one head and an invertible W_V it can represent QKV: W_VK = W_V⁻¹ W_K.
    """

    name = "keyless"
    help = "Keys are computed from the values of the same head."
    place = 22

    def check(self, variant: Variant) -> None:
        """Keys have no matrix on the token, so they cannot share one."""
        if variant.sharing not in (Sharing.QKV, Sharing.Q_V):
            raise ValueError(
                f"keyless does not go with {variant.sharing}: keys are made from values"
            )
        if "K" in variant.identity:
            raise ValueError("keyless does not go with K=I: keys are made from values")

    def rewire(self, wiring: Wiring) -> None:
        """Let keys read values through a matrix per head."""
        wiring.drop("K")
        sizes, value = wiring.sizes, wiring.vectors[wiring.roles["V"]]
        shape = (value.n_heads, value.width, sizes.d_k)
        wiring.vectors["K"] = Vector(
            wiring.roles["V"], "W_VK", value.n_heads, sizes.d_k, per_head=True
        )
        wiring.weights["W_VK"] = Weight(shape, value.width**-0.5)


register(
    "Keyless",
    "QKV keyless",
    "No key matrix: each head computes keys from its values, so only values are kept. With one "
    "head and an invertible W_V it loses nothing; with more heads each key sees its head only.",
    "notes in the repository of Kayyam et al. 2026, arXiv 2606.04032",
    "Low rank",
    aliases=("no key matrix", "keys from values"),
)
