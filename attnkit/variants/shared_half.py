"""Grouped tied attention: half of a key is half of the value, the other half is shared by heads."""

from __future__ import annotations

from dataclasses import replace

from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, register_option
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.wiring import TOKEN, Vector, Wiring


@register_option
class SharedHalfOption(Option):
    """Keys of two halves: one vector r for all heads, and the first half of the head's value.

    The vector r is half as wide as a key. RoPE rotates only r and the same half of each query,
    so values are not rotated. A decoder caches r and the values.

    Source:
        Zadouri et al. 2025, arXiv 2505.21487 (grouped tied attention), with r first and not last.
    """

    name = "shared_half"
    help = "Half of each key is half of the value; the other half is one vector for all heads."
    place = 24
    refuses = {
        "QKV Q=K Q=V Q=K=V": "keys must be tied to values only, K=V",
        "kv_residual": "both define how keys are computed",
        "rope_width rotate_values": "RoPE rotates the shared half of keys",
    }

    def rewire(self, wiring: Wiring) -> None:
        d_k, rotates = wiring.sizes.d_k, POSITIONS[wiring.sizes.positions].rotates
        divisor = 4 if rotates else 2
        if d_k % divisor:
            scheme = " with positions=rope" if rotates else ""
            raise ValueError(f"shared_half{scheme} needs a d_k divisible by {divisor}, not {d_k}")
        values = wiring.roles["V"]
        wiring.project("R", TOKEN, 1, d_k // 2)
        wiring.vectors["RT"] = Vector(values, None, wiring.sizes.kv_heads, d_k, joins="R")
        wiring.roles["K"] = "RT"
        if rotates:
            wiring.rotation = replace(wiring.rotation, width=d_k // 2)


register(
    "Grouped tied",
    "K=V n_heads=4 kv_heads=2 shared_half",
    "Grouped tied attention: half of a key is half of the value of its group, and the other half "
    "is one vector for all heads. With RoPE only this half is rotated, so values are not, and a "
    "decoder keeps one value per group and one half.",
    "Zadouri et al. 2025, arXiv 2505.21487 (openreview 8ixiZ1b8rr)",
    "Heads and widths",
    aliases=("GTA", "grouped-tied attention"),
)
