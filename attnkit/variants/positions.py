"""Options of positions: the scheme, rotated values, and rotation of a part of each vector."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import attnkit.variants.scores  # noqa: F401  names below contain its norms
from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import (
    ChoiceOption,
    EvenWidthOption,
    Option,
    Parts,
    refuse,
    register_option,
)
from attnkit.variants.position_rules import POSITIONS, rotated
from attnkit.variants.wiring import Code, Layer, Wiring

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = "Positions"

_KAYYAM = "Kayyam et al. 2026, arXiv 2606.04032"


@register_option
class PositionsOption(ChoiceOption):
    """Position scheme of the variant."""

    name = "positions"
    help = mark("The variant has its own position scheme.")
    choices = tuple(POSITIONS)
    allowed = "one of " + ", ".join(choices)
    samples = choices
    place = 35
    plain = True  # the rule of the position scheme says whether attention is plain


register(
    "Learned positions",
    "QKV positions=learned",
    mark("A learned vector per position is added to every token, as in the first transformers."),
    "Vaswani et al. 2017, arXiv 1706.03762",
    FAMILY,
    aliases=("absolute position embedding", "learned position embedding", "BERT", "GPT-2"),
)
register(
    "RoPE",
    "QKV positions=rope",
    mark(
        "Queries and keys are rotated by their position, so scores depend on the signed distance. "
        "With Q=K they stay exactly symmetric."
    ),
    "Su et al. 2021, arXiv 2104.09864",
    FAMILY,
    aliases=("rotary position embedding", "RoFormer", "Llama", "GPT-NeoX"),
)
register(
    "RoPE with Q=K",
    "Q=K positions=rope",
    mark(
        "Queries and keys are rotated by their own positions, and scores stay symmetric: before "
        "the softmax, position i attends to j as strongly as j to i."
    ),
    "derived here, tested; after Su et al. 2021, arXiv 2104.09864",
    FAMILY,
    aliases=("rotary position embedding with shared query and key",),
)
register(
    "ALiBi",
    "QKV n_heads=4 positions=alibi",
    mark("Scores fall with the distance, at a different rate in every head."),
    "Press et al. 2021, arXiv 2108.12409",
    FAMILY,
    aliases=("attention with linear biases", "BLOOM", "MPT"),
)
register(
    "Relative bias with Q=K",
    "Q=K positions=relative",
    mark(
        "A learned bias per offset gives symmetric scores a direction: forward and backward differ."
    ),
    "after Raffel et al. 2020, arXiv 1910.10683",
    FAMILY,
    aliases=("relative position bias", "T5 bias"),
)
register(
    "Key bias with Q=K",
    "Q=K positions=key_bias",
    mark(
        "A learned bias per key position is added to the scores. In the softmax this is equivalent "
        "to (X)⁺ without its temperature."
    ),
    "derived here, tested",
    FAMILY,
)
register(
    "(Q=K)⁺",
    "Q=K positions=plus",
    mark(
        "A fixed 2-D sinusoid is mixed into symmetric scores. In the softmax it is equivalent to a "
        "temperature and a bias of key positions. Its weights start small, so scores start near "
        "zero."
    ),
    _KAYYAM,
    FAMILY,
    aliases=("Q=K plus", "positions plus"),
)
register(
    "(Q=K=V)⁺",
    "Q=K=V positions=plus",
    mark("All roles share one matrix, and the sinusoid makes the scores asymmetric."),
    _KAYYAM,
    FAMILY,
    aliases=("Q=K=V plus", "positions plus"),
)


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
    help = mark("RoPE rotates only this many components of each vector, the first ones.")
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
    help = mark(
        "RoPE rotates values, too, and outputs are rotated back by the position of the query; "
        "with `only` they are not rotated back."
    )
    allowed = mark("`only`, or no value")
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
            because = mark(
                "with {sharing} and rotated values, values are the keys",
                sharing=parts.sharing.value,
            )
            refuse(parts, self.name, "scaled", "v_norm", because=because)

    def rewire(self, wiring: Wiring) -> None:
        _require_rotation(self, wiring)
        wiring.rotation = replace(wiring.rotation, values=True)


class _RotateValuesAndBack(RotateValuesOption):
    """The bare word `rotate_values`: outputs are rotated back."""

    def rewire(self, wiring: Wiring) -> None:
        super().rewire(wiring)
        wiring.rotation = replace(wiring.rotation, back=True)

    def finish(
        self, z: Tensor, own_values: Tensor | None, positions: Tensor, layer: Layer
    ) -> Tensor:
        """Rotate the output of the heads back by the position of the query."""
        return rotated(z, -positions, layer.wiring.rotation.width)

    def code(self, wiring: Wiring) -> Code:
        return Code(finish=("z = rotate(z, -1)",))


def _require_rotation(option: Option, wiring: Wiring) -> None:
    """Raise ValueError if the positions of the variant do not rotate vectors."""
    if not POSITIONS[wiring.sizes.positions].rotates:
        raise ValueError(
            mark(
                "{name} needs positions=rope; positions are {scheme} here",
                name=option.name,
                scheme=wiring.sizes.positions,
            )
        )


register(
    "K=V before rotation (Gemma 4)",
    "K=V qk_norm v_norm positions=rope",
    mark(
        "Keys and values share a matrix, and values are taken before the norm and the rotation of "
        "keys. A decoder that keeps what it uses keeps two vectors per token, unless it computes "
        "the keys again at every step. Other choices of Gemma 4, such as scores without √d and the "
        "rotation of only a part, are left out here."
    ),
    f"Gemma 4's code (global layers); K=V: {_KAYYAM}",
    FAMILY,
    aliases=("attention_k_eq_v", "shared key-value with RoPE"),
)
register(
    "K=V after rotation (DeepSeek V4)",
    "K=V qk_norm positions=rope rotate_values",
    mark(
        "The key, after its norm and its rotation, is also the value. The output is rotated back "
        "by the position of the query, so it depends on distances only, and a decoder keeps one "
        "vector per token. Other choices of DeepSeek V4, such as one key for all heads and the "
        "rotation of only a part, are left out here."
    ),
    f"DeepSeek V4's code; K=V: {_KAYYAM}",
    FAMILY,
    aliases=("shared key-value with RoPE", "inverse RoPE"),
)
register(
    "Rotated values (RoVE)",
    "QKV positions=rope rotate_values",
    mark(
        "Values are rotated by their position as keys are, and outputs are rotated back. Both "
        "the weight of a token and the vector that is read from it then depend on the distance."
    ),
    "García-Castellanos et al. 2026, arXiv 2606.11275",
    FAMILY,
    aliases=("rotary value embeddings", "attentive convolution"),
)
register(
    "Partial RoPE",
    "QKV positions=rope rope_width=4",
    mark(
        "Only the first four numbers of each query and key are rotated by position, so the others "
        "compare contents at any distance."
    ),
    "Black et al. 2022, arXiv 2204.06745 (GPT-NeoX)",
    FAMILY,
    aliases=("partial rotary", "rotary_pct", "Phi"),
)
