"""The word `positions` of a variant, and the named variants that have it."""

from __future__ import annotations

from attnkit.variants.catalogue import register
from attnkit.variants.options import ChoiceOption, register_option
from attnkit.variants.position_rules import POSITIONS

FAMILY = "Positions"


@register_option
class PositionsOption(ChoiceOption):
    """The variant's own way to tell positions apart."""

    name = "positions"
    help = "It has its own way to tell positions apart."
    choices = tuple(POSITIONS)
    allowed = "one of " + ", ".join(choices)
    samples = choices
    place = 35
    plain = True  # what it does is up to the positions


_KAYYAM = "Kayyam et al. 2026, arXiv 2606.04032"
register(
    "Learned positions",
    "QKV positions=learned",
    "A learned vector per position is added to the token, as in the first transformers.",
    "Vaswani et al. 2017, arXiv 1706.03762",
    FAMILY,
    aliases=("absolute position embedding", "learned position embedding"),
)
register(
    "RoPE",
    "QKV positions=rope",
    "Queries and keys are turned by their position: scores depend on the signed distance. With Q=K "
    "they stay exactly symmetric.",
    "Su et al. 2021, arXiv 2104.09864",
    FAMILY,
    aliases=("rotary position embedding", "RoFormer"),
)
register(
    "RoPE with Q=K",
    "Q=K positions=rope",
    "Both are turned by their own positions, and the scores stay symmetric: i looks at j as "
    "strongly as j at i, before the softmax.",
    "derived here, tested; after Su et al. 2021, arXiv 2104.09864",
    FAMILY,
    aliases=("rotary position embedding with shared query and key",),
)
register(
    "ALiBi",
    "QKV n_heads=4 positions=alibi",
    "Scores fall with the distance, at another rate in every head.",
    "Press et al. 2021, arXiv 2108.12409",
    FAMILY,
    aliases=("attention with linear biases",),
)
register(
    "Relative bias with Q=K",
    "Q=K positions=relative",
    "A learned number per offset gives symmetric scores a direction: forward and back differ.",
    "after Raffel et al. 2020, arXiv 1910.10683",
    FAMILY,
    aliases=("relative position bias", "T5 bias"),
)
register(
    "Key bias with Q=K",
    "Q=K positions=key_bias",
    "A learned number per key position: what (X)⁺ comes to after the softmax, without its "
    "temperature.",
    "derived here, tested",
    FAMILY,
)
register(
    "(Q=K)⁺",
    "Q=K positions=plus",
    "A fixed 2-D sinusoid is mixed into symmetric scores. In the softmax it comes to a temperature "
    "and a bias of key positions; its weights start small, so scores start near zero.",
    _KAYYAM,
    FAMILY,
    aliases=("Q=K plus", "positions plus"),
)
register(
    "(Q=K=V)⁺",
    "Q=K=V positions=plus",
    "One matrix for all roles, and the sinusoid that makes its scores asymmetric. Where its "
    "weights start with the wrong sign it can stay there: on the phone book three of five seeds do "
    "at the usual learning rate, none at 0.02.",
    _KAYYAM,
    FAMILY,
    aliases=("Q=K=V plus", "positions plus"),
)
