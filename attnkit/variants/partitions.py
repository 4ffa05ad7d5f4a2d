"""Catalogue entries of the five sharings and of variants without some projections."""

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import ChoiceOption, register_option
from attnkit.variants.wiring import Wiring

FAMILY = "Sharing"
IDENTITIES = "No projection"


@register_option
class OutputOption(ChoiceOption):
    """No output matrix, `O=I`: the outputs of the heads go directly to the residual stream."""

    name = "O"
    help = mark("There is no output matrix.")
    choices = ("I",)
    allowed = "I"
    samples = ("I",)
    place = 1

    def rewire(self, wiring: Wiring) -> None:
        if wiring.n_inner != wiring.sizes.d_model:
            raise ValueError(
                mark(
                    "O=I needs n_heads · d_v = d_model, but {n_heads} · {d_v} is not {d_model}; "
                    "try d_head=m/h",
                    n_heads=wiring.sizes.n_heads,
                    d_v=wiring.sizes.d_v,
                    d_model=wiring.sizes.d_model,
                )
            )
        wiring.has_output = False
        del wiring.weights["W_O"]


register(
    "QKV",
    "QKV",
    mark(
        "The usual attention, with three separate matrices per head. What a token looks for "
        "(query), what it is found by (key) and what it hands over (value) are three learnt views "
        "of it."
    ),
    "Vaswani et al. 2017, arXiv 1706.03762",
    FAMILY,
    aliases=("MHA", "multi-head attention", "standard attention", "vanilla transformer"),
)
register(
    "Q=K",
    "Q=K",
    mark(
        "Queries and keys are the same vectors, so scores are symmetric before the softmax. A "
        "token often has its highest score with itself, hence the self-mask."
    ),
    "Kayyam et al. 2026, arXiv 2606.04032",
    FAMILY,
    aliases=(
        "shared Q=K",
        "shared-QK",
        "shared-QK attention",
        "symmetric attention",
        "tied query and key",
    ),
)
register(
    "K=V",
    "K=V",
    mark(
        "Keys and values are the same vectors, which halves the cache: one vector is both what a "
        "token is found by and what it hands over."
    ),
    "Kayyam et al. 2026, arXiv 2606.04032",
    FAMILY,
    aliases=("shared K=V", "k_eq_v", "shared key-value", "tied key and value"),
)
register(
    "Q=V",
    "Q=V",
    mark(
        "Queries and values are the same vectors: what a token looks for is also what it hands "
        "over. We know no published model with it."
    ),
    "for completeness",
    FAMILY,
    aliases=("shared Q=V", "tied query and value"),
)
register(
    "Q=K=V",
    "Q=K=V",
    mark(
        "Queries, keys and values share one matrix: scores are symmetric, and there is one vector "
        "per token and head."
    ),
    "Borji 2023, arXiv 2305.19129; Kayyam et al. 2026, arXiv 2606.04032",
    FAMILY,
    aliases=("one matrix", "symmetric attention", "fully shared", "tied projections"),
)
_KARBEVSKI = "Karbevski and Mijoski 2025, arXiv 2510.23912"
register(
    "Identity Q",
    "QKV Q=I d_head=m/h",
    mark(
        "Queries are the token itself: with one head, W_K alone can be W_K W_Qᵀ. The source proves "
        "for models without norms that one of the three matrices is redundant, and reports that "
        "models of the size of GPT-3 small do as well without W_Q, with adjusted scaling of the "
        "scores and weight decay."
    ),
    f"reported: {_KARBEVSKI}",
    IDENTITIES,
    aliases=("no query matrix",),
)
register(
    "Identity K",
    "QKV K=I d_head=m/h",
    mark("Keys are the token itself: with one head, W_Q alone can be W_Q W_Kᵀ."),
    f"after {_KARBEVSKI}, which tests queries only",
    IDENTITIES,
    aliases=("no key matrix",),
)
register(
    "Identity V",
    "QKV V=I d_head=m/h",
    mark(
        "Values are the token itself. With one head as wide "
        "as the token, W_V and W_O are one linear map, so nothing can be lost but speed; each of "
        "several heads hands over a fixed part of the token."
    ),
    f"after {_KARBEVSKI}, which tests queries only; He and Hofmann 2023, arXiv 2311.01906, removes "
    "W_O as well",
    IDENTITIES,
    aliases=("no value matrix",),
)
register(
    "Original space",
    "Q=K=I d_head=m/h",
    mark(
        "Queries and keys are the token itself, so tokens are compared in the original embedding "
        "space. Only the value matrix and the output matrix are learnt."
    ),
    "a question asked in online discussions",
    IDENTITIES,
)
register(
    "No projections",
    "Q=K=V=I O=I d_head=m/h",
    mark("Attention has no matrix at all: it averages tokens by their similarity."),
    "a question asked in online discussions",
    IDENTITIES,
    aliases=("no weights", "parameter-free attention"),
)
