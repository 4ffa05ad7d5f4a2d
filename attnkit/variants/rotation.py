"""Options of rotary positions: rotated values, and rotation of a part of each vector."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnkit.variants.catalogue import register
from attnkit.variants.options import EvenWidthOption, Option, Parts, refuse, register_option
from attnkit.variants.position_rules import POSITIONS, rotated
from attnkit.variants.rules import Code, Layer
from attnkit.variants.wiring import Wiring

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = "Positions"


@register_option
class RopeWidthOption(EvenWidthOption):
    """Number of components of each vector that RoPE rotates, which are the first ones.

    They are rotated as a vector of this width would be. The other components do not depend on the
    position.

    Source:
        Black et al. 2022, arXiv 2204.06745 (GPT-NeoX), which rotates the first quarter. DeepSeek
        rotates the last components, which is the same up to the order of the columns of matrices.
    """

    name = "rope_width"
    help = "RoPE rotates only this many components of each vector, the first ones."
    samples = ("2", "4", "d")
    place = 36

    def rewire(self, wiring: Wiring) -> None:
        _require_rotation(self, wiring)
        wiring.rotation = replace(wiring.rotation, width=self.width(wiring))


@register_option
class RotateValuesOption(Option):
    """Values rotated by the position of their token as keys are, and outputs rotated back.

    A head then reads out the sum over j of p_ij R(j − i) v_j, where R is the rotation of RoPE. With
    K=V or Q=K=V, the vector that serves as key, after all rules, serves as value.

    With the value `only`, outputs are not rotated back, so that they depend on absolute positions.

    Source:
        García-Castellanos et al. 2026, arXiv 2606.11275 (RoVE); DeepSeek V4's code for K=V.
    """

    name = "rotate_values"
    help = (
        "RoPE rotates values, too, and outputs are rotated back by the position of the query; "
        "with `only` they are not rotated back."
    )
    allowed = "`only`, or no value"
    samples = (None, "only")
    place = 41

    @classmethod
    def read(cls, text: str | None) -> RotateValuesOption:
        if text is None:
            return _RotateValuesAndBack()
        if text.lower() != "only":
            raise ValueError(cls.allowed)
        return cls("only")

    def check(self, parts: Parts) -> None:
        """Refuse rules of values if the values are the keys."""
        if parts.sharing.owner("V") == parts.sharing.owner("K"):
            because = f"with {parts.sharing} and rotated values, values are the keys"
            refuse(parts, self.name, "scaled", "v_norm", because=because)

    def rewire(self, wiring: Wiring) -> None:
        _require_rotation(self, wiring)
        wiring.rotation = replace(wiring.rotation, values=True)


class _RotateValuesAndBack(RotateValuesOption):
    """The bare word `rotate_values`: outputs are rotated back."""

    def rewire(self, wiring: Wiring) -> None:
        super().rewire(wiring)
        wiring.rotation = replace(wiring.rotation, back=True)

    def finish(self, z: Tensor, own: Tensor | None, positions: Tensor, layer: Layer) -> Tensor:
        """Rotate the output of the heads back by the position of the query."""
        return rotated(z, -positions, layer.wiring.rotation.width)

    def code(self, wiring: Wiring) -> Code:
        return Code(finish=("z = rotate(z, -1)",))


def _require_rotation(option: Option, wiring: Wiring) -> None:
    """Raise ValueError if the positions of the variant do not rotate vectors."""
    if not POSITIONS[wiring.sizes.positions].rotates:
        raise ValueError(
            f"{option.name} needs positions=rope; positions are {wiring.sizes.positions} here"
        )


_KAYYAM = "Kayyam et al. 2026, arXiv 2606.04032"
register(
    "K=V before rotation (Gemma 4)",
    "K=V qk_norm v_norm positions=rope",
    "Keys and values share a matrix, and values are taken before the norm and the rotation of "
    "keys. A decoder that keeps what it uses keeps two vectors per token, unless it computes the "
    "keys again at every step. Other choices of Gemma 4, such as scores without √d and the "
    "rotation of only a part, are left out here.",
    f"Gemma 4's code (global layers); K=V: {_KAYYAM}",
    FAMILY,
    aliases=("attention_k_eq_v", "shared key-value with RoPE"),
)
register(
    "K=V after rotation (DeepSeek V4)",
    "K=V qk_norm positions=rope rotate_values",
    "The key, after its norm and its rotation, is also the value. The "
    "output is rotated back by the position of the query, so it depends on distances only, and a "
    "decoder keeps one vector per token. Other choices of DeepSeek V4, such as one key for all "
    "heads and the rotation of only a part, are left out here.",
    f"DeepSeek V4's code; K=V: {_KAYYAM}",
    FAMILY,
    aliases=("shared key-value with RoPE", "inverse RoPE"),
)
register(
    "Rotated values (RoVE)",
    "QKV positions=rope rotate_values",
    "Values are rotated by their position as keys are, and outputs are rotated back. Both "
    "the weight of a token and the vector that is read from it then depend on the distance.",
    "García-Castellanos et al. 2026, arXiv 2606.11275",
    FAMILY,
    aliases=("rotary value embeddings", "attentive convolution"),
)
register(
    "Partial RoPE",
    "QKV positions=rope rope_width=4",
    "Only the first four numbers of each query and key are rotated by position, so the others "
    "compare contents at any distance.",
    "Black et al. 2022, arXiv 2204.06745 (GPT-NeoX)",
    FAMILY,
    aliases=("partial rotary", "rotary_pct", "Phi"),
)
