"""Keyless attention: every head computes its keys from its values."""

from __future__ import annotations

from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, register_option
from attnkit.variants.wiring import Vector, Weight, Wiring


@register_option
class KeylessOption(Option):
    """Keys computed from the values of the same head, k = v W_VK.

    With one head and an invertible W_V this can represent QKV: W_VK = W_V⁻¹ W_K.
    """

    name = "keyless"
    help = "Keys are computed from the values of the same head."
    place = 22
    refuses = {
        "Q=K K=V Q=K=V K=I": "keys are made from values",
    }

    def rewire(self, wiring: Wiring) -> None:
        """Replace the key projection by a matrix per head that reads the values."""
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
    "There is no key matrix: each head computes keys from its values, so the cache contains only "
    "values. With one head and an invertible W_V nothing is lost; with more heads, each key "
    "depends only on the values of its head.",
    "notes in the repository of Kayyam et al. 2026, arXiv 2606.04032",
    "Low rank",
    aliases=("no key matrix", "keys from values"),
)
