"""Low-rank keys and values, computed from a narrow vector that a decoder caches."""

from __future__ import annotations

from attnkit.variants.catalogue import register
from attnkit.variants.options import WidthOption, register_option
from attnkit.variants.wiring import TOKEN, Wiring

FAMILY = "Low rank"


@register_option
class LatentOption(WidthOption):
    """Keys and values computed from one narrow vector c = x W_C, as in MLA without its RoPE part.

    The value of the option is the width of c.
    """

    name = "kv_rank"
    adjustable = True
    help = "Keys and values are computed from one narrow vector, and only that vector is cached."
    samples = ("3", "m/4", "d")
    place = 20
    refuses = {
        "Q=K Q=V Q=K=V": "queries come from the token, keys and values from the narrow vector",
        "K=I V=I": "it would not be narrow",
        "k_rank keyless": "both define how keys are computed",
    }

    def rewire(self, wiring: Wiring) -> None:
        """Put the narrow vector between the token and its keys and values."""
        rank = self.value.resolve(self.name, wiring.sizes)
        wiring.project("C", TOKEN, 1, rank)
        for name in dict.fromkeys((wiring.roles["K"], wiring.roles["V"])):
            vector = wiring.vectors[name]
            wiring.drop(name)
            wiring.project(name, "C", vector.n_heads, vector.width)


@register_option
class KeyRankOption(WidthOption):
    """Keys of low rank: W_K = W_B W_K'. The value of the option is the width of x W_B."""

    name = "k_rank"
    adjustable = True
    help = "Keys are computed from a narrow vector of their own."
    samples = ("3", "m/4", "d")
    place = 21
    refuses = {
        "Q=K K=V Q=K=V K=I": "keys must have a matrix of their own",
        "keyless": "both define how keys are computed",
    }

    def rewire(self, wiring: Wiring) -> None:
        """Put the narrow vector between the token and its key."""
        rank = self.value.resolve(self.name, wiring.sizes)
        vector = wiring.vectors["K"]
        wiring.drop("K")
        wiring.project("B", TOKEN, 1, rank)
        wiring.project("K", "B", vector.n_heads, vector.width)


register(
    "MLA",
    "QKV kv_rank=m/4",
    "Multi-head latent attention: keys and values of all heads are computed from one narrow "
    "vector, and only that vector is cached. The separate RoPE key is left out here.",
    "reported: DeepSeek-AI 2024, arXiv 2405.04434 (abstract)",
    FAMILY,
    aliases=("multi-head latent attention", "DeepSeek V2", "DeepSeek V3", "KV compression"),
)
register(
    "MLA with K=V",
    "K=V kv_rank=m/4",
    "Keys are also the values, and both are computed from one narrow vector. It learns slowly: on "
    "the phone book, one of five seeds does not solve the task within 600 steps.",
    "composition of arXiv 2405.04434 and 2606.04032",
    FAMILY,
    aliases=("multi-head latent attention with shared key-value", "DeepSeek"),
)
register(
    "Low-rank key",
    "QKV k_rank=d/2",
    "Only keys are computed from a narrow vector; values are not.",
    "reported: Thin Keys, arXiv 2603.04427 (abstract)",
    FAMILY,
    aliases=("factorised key", "compressed keys"),
)
