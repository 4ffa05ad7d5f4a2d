"""Options for the number and the widths of heads: MHA, GQA, MQA, thin keys, tied groups."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import CountOption, Option, Parts, WidthOption, register_option
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import Sharing
from attnkit.variants.wiring import TOKEN, Sizes, Vector, Wiring

FAMILY = "Heads and widths"


@register_option
class HeadsOption(CountOption):
    """Number of query heads of the variant."""

    name = "n_heads"
    help = mark("The variant has its own number of heads.")
    high = 8
    allowed = "a whole number from 1 to 8"
    samples = ("1", "2", "4")
    place = 10
    plain = True

    def resize(self, sizes: Sizes) -> None:
        sizes.n_heads = self.value


@register_option
class HeadWidthOption(WidthOption):
    """Width of the heads of the variant."""

    name = "d_head"
    help = mark("The variant has heads of its own width.")
    samples = ("5", "16", "m/h", "2d")
    place = 11
    plain = True

    def resize(self, sizes: Sizes) -> None:
        sizes.d_head = self.value.resolve(self.name, sizes)


class _OneWidthOption(WidthOption):
    """Base class of the width of keys and of the width of values."""

    other: ClassVar[str]
    samples = ("3", "d/2", "2d")

    def check(self, parts: Parts) -> None:
        """Refuse values that are tied to queries or keys of another width."""
        tied = parts.sharing not in (Sharing.QKV, Sharing.Q_K)
        if tied and self.other not in parts.given:
            raise ValueError(
                mark(
                    "{name} does not go with {sharing}: values that are tied to queries or keys "
                    "have the same width; set d_head",
                    name=self.name,
                    sharing=parts.sharing.value,
                )
            )


@register_option
class KeyWidthOption(_OneWidthOption):
    """Width of queries and keys."""

    name = "d_k"
    other = "d_v"
    help = mark("Queries and keys have their own width.")
    place = 12

    def resize(self, sizes: Sizes) -> None:
        sizes.d_k = self.value.resolve(self.name, sizes)


@register_option
class ValueWidthOption(_OneWidthOption):
    """Width of values."""

    name = "d_v"
    other = "d_k"
    help = mark("Values have their own width.")
    place = 13

    def resize(self, sizes: Sizes) -> None:
        sizes.d_v = self.value.resolve(self.name, sizes)


@register_option
class KeyValueHeadsOption(CountOption):
    """Number of key and value heads, each shared by a group of query heads."""

    name = "kv_heads"
    help = mark("Several heads of queries share one head of keys and values.")
    high = 8
    allowed = "a whole number that divides n_heads"
    samples = ("1", "2", "4")
    place = 14
    refuses = {
        "Q=K Q=V Q=K=V": mark("tied queries have as many heads as keys or values; set n_heads"),
    }

    def resize(self, sizes: Sizes) -> None:
        if sizes.n_heads % self.value:
            raise ValueError(
                mark(
                    "kv_heads={kv_heads} does not divide n_heads={n_heads}: all groups of query "
                    "heads must have the same size",
                    kv_heads=self.value,
                    n_heads=sizes.n_heads,
                )
            )
        sizes.kv_heads = self.value


@register_option
class MlpOption(CountOption):
    """Width of the MLP of the variant."""

    name = "d_mlp"
    help = mark("The variant has an MLP of its own width; 0: no MLP.")
    low, high = 0, 512
    allowed = "a whole number from 0 to 512"
    samples = ("0", "7", "64")
    place = 15
    plain = True

    def resize(self, sizes: Sizes) -> None:
        sizes.d_mlp = self.value


_MQA = "Shazeer 2019, arXiv 1911.02150"
_GQA = "Ainslie et al. 2023, arXiv 2305.13245"
_BOTH = "Kayyam et al. 2026, arXiv 2606.04032"
register(
    "MHA-4",
    "QKV n_heads=4",
    mark(
        "Multi-head attention with four full heads: the baseline for GQA and MQA with four query "
        "heads."
    ),
    "Vaswani et al. 2017, arXiv 1706.03762",
    FAMILY,
    aliases=("multi-head attention with four heads",),
)
register(
    "GQA",
    "QKV n_heads=4 kv_heads=2",
    mark(
        "Grouped-query attention: two query heads share one head of keys and values, which halves "
        "the cache."
    ),
    _GQA,
    FAMILY,
    aliases=("GQA-2", "grouped-query attention", "Llama", "Mistral"),
)
register(
    "MQA",
    "QKV n_heads=4 kv_heads=1",
    mark("Multi-query attention: all query heads share one head of keys and values."),
    _MQA,
    FAMILY,
    aliases=("multi-query attention", "PaLM", "Falcon"),
)
register(
    "K=V + GQA",
    "K=V n_heads=4 kv_heads=2",
    mark("Grouped-query attention in which keys are also the values: a quarter of the cache."),
    _BOTH,
    FAMILY,
    aliases=("grouped-query attention with shared key-value",),
)
register(
    "K=V + MQA",
    "K=V n_heads=4 kv_heads=1",
    mark(
        "All heads share one vector per token, which is key and value at once, as in DeepSeek V4."
    ),
    f"{_BOTH}; DeepSeek V4's code",
    FAMILY,
    aliases=("multi-query attention with shared key-value", "DeepSeek V4"),
)
register(
    "Thin keys",
    "QKV d_k=d/2",
    mark(
        "Queries and keys have half the width of values. The source observed that about "
        "log₂ N dimensions select one of N tokens."
    ),
    "reported: Thin Keys, arXiv 2603.04427 (abstract)",
    FAMILY,
    aliases=("narrow keys", "low-dimensional keys"),
)
register(
    "Wide values",
    "QKV d_v=2d",
    mark(
        "Values have twice the width of keys. The widths can differ: only the numbers of keys and "
        "of values must agree."
    ),
    "a question asked in online discussions",
    FAMILY,
)


@register_option
class SharedHalfOption(Option):
    """Keys of two halves: one vector r for all heads, and the first half of the head's value.

    The vector r is half as wide as a key. RoPE rotates only r and the same half of each query,
    so values are not rotated. A decoder caches r and the values.

    Source:
        Zadouri et al. 2025, arXiv 2505.21487 (grouped tied attention), with r first and not last.
    """

    name = "shared_half"
    help = mark(
        "Half of each key is half of the value; the other half is one vector for all heads."
    )
    place = 24
    refuses = {
        "QKV Q=K Q=V Q=K=V": mark("keys must be tied to values only, K=V"),
        "kv_residual": mark("both define how keys are computed"),
        "rope_width rotate_values": mark("RoPE rotates the shared half of keys"),
    }

    def rewire(self, wiring: Wiring) -> None:
        d_k, rotates = wiring.sizes.d_k, POSITIONS[wiring.sizes.positions].rotates
        if rotates and d_k % 4:
            raise ValueError(
                mark(
                    "shared_half with positions=rope needs a d_k divisible by 4, not {d_k}", d_k=d_k
                )
            )
        if d_k % 2:
            raise ValueError(mark("shared_half needs a d_k divisible by 2, not {d_k}", d_k=d_k))
        values = wiring.roles["V"]
        wiring.project("R", TOKEN, 1, d_k // 2)
        wiring.vectors["RT"] = Vector(values, None, wiring.sizes.kv_heads, d_k, shared_prefix="R")
        wiring.roles["K"] = "RT"
        if rotates:
            wiring.rotation = replace(wiring.rotation, width=d_k // 2)


register(
    "Grouped tied",
    "K=V n_heads=4 kv_heads=2 shared_half",
    mark(
        "Grouped tied attention: half of a key is half of the value of its group, and the other "
        "half is one vector for all heads. With RoPE only this half is rotated, so values are not, "
        "and a decoder keeps one value per group and one half."
    ),
    "Zadouri et al. 2025, arXiv 2505.21487 (openreview 8ixiZ1b8rr)",
    FAMILY,
    aliases=("GTA", "grouped-tied attention"),
)
