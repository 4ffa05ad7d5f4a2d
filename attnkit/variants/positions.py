"""Option `positions` of a variant, and the catalogue entries that use it."""

from __future__ import annotations

from attnkit.variants.catalogue import register
from attnkit.variants.options import ChoiceOption, register_option
from attnkit.variants.position_rules import POSITIONS

FAMILY = "Positions"


@register_option
class PositionsOption(ChoiceOption):
    """Position scheme of the variant."""

    name = "positions"
    help = "The variant has its own position scheme."
    choices = tuple(POSITIONS)
    allowed = "one of " + ", ".join(choices)
    samples = choices
    place = 35
    plain = True  # the rule of the position scheme says whether attention is plain


_KAYYAM = "Kayyam et al. 2026, arXiv 2606.04032"
register(
    "Learned positions",
    "QKV positions=learned",
    "A learned vector per position is added to every token, as in the first transformers.",
    "Vaswani et al. 2017, arXiv 1706.03762",
    FAMILY,
    aliases=("absolute position embedding", "learned position embedding", "BERT", "GPT-2"),
)
register(
    "RoPE",
    "QKV positions=rope",
    "Queries and keys are rotated by their position, so scores depend on the signed distance. With "
    "Q=K they stay exactly symmetric.",
    "Su et al. 2021, arXiv 2104.09864",
    FAMILY,
    aliases=("rotary position embedding", "RoFormer", "Llama", "GPT-NeoX"),
)
register(
    "RoPE with Q=K",
    "Q=K positions=rope",
    "Queries and keys are rotated by their own positions, and scores stay symmetric: before the "
    "softmax, position i attends to j as strongly as j to i.",
    "derived here, tested; after Su et al. 2021, arXiv 2104.09864",
    FAMILY,
    aliases=("rotary position embedding with shared query and key",),
)
register(
    "ALiBi",
    "QKV n_heads=4 positions=alibi",
    "Scores fall with the distance, at a different rate in every head.",
    "Press et al. 2021, arXiv 2108.12409",
    FAMILY,
    aliases=("attention with linear biases", "BLOOM", "MPT"),
)
register(
    "Relative bias with Q=K",
    "Q=K positions=relative",
    "A learned bias per offset gives symmetric scores a direction: forward and backward differ.",
    "after Raffel et al. 2020, arXiv 1910.10683",
    FAMILY,
    aliases=("relative position bias", "T5 bias"),
)
register(
    "Key bias with Q=K",
    "Q=K positions=key_bias",
    "A learned bias per key position is added to the scores. In the softmax this is equivalent to "
    "(X)⁺ without its temperature.",
    "derived here, tested",
    FAMILY,
)
register(
    "(Q=K)⁺",
    "Q=K positions=plus",
    "A fixed 2-D sinusoid is mixed into symmetric scores. In the softmax it is equivalent to a "
    "temperature and a bias of key positions. Its weights start small, so scores start near zero.",
    _KAYYAM,
    FAMILY,
    aliases=("Q=K plus", "positions plus"),
)
register(
    "(Q=K=V)⁺",
    "Q=K=V positions=plus",
    "All roles share one matrix, and the sinusoid makes the scores asymmetric. If the weights of "
    "the sinusoid start with the wrong sign, they can keep it: on the phone book, they do so for "
    "three of five seeds at the usual learning rate and for none at 0.02.",
    _KAYYAM,
    FAMILY,
    aliases=("Q=K=V plus", "positions plus"),
)
