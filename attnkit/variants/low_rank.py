"""Keys and values of low rank, or computed from each other: latent vectors and residuals."""

from __future__ import annotations

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, WidthOption, register_option
from attnkit.variants.wiring import TOKEN, Vector, Weight, Wiring

FAMILY = "Low rank"


@register_option
class KeylessOption(Option):
    """Keys computed from the values of the same head, k = v W_VK.

    With one head and an invertible W_V this can represent QKV: W_VK = W_V⁻¹ W_K. A score is
    (x W_Q W_VKᵀ) · v, so with W_Q W_VKᵀ for W_Q it is that of K=V, unless keys are normalised or
    rotated.

    Source:
        Gao and Xu 2026, arXiv 2606.21848, where W_VKᵀ multiplies queries.
    """

    name = "keyless"
    help = mark("Keys are computed from the values of the same head.")
    place = 22
    refuses = {
        "Q=K K=V Q=K=V K=I": mark("keys are made from values"),
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
    mark(
        "There is no key matrix: each head computes keys from its values, so the cache contains "
        "only values. With one head and an invertible W_V nothing is lost; with more heads, each "
        "key depends only on the values of its head. W_Q can absorb the matrix: without norms and "
        "rotations of keys, such a model can do what K=V can, and only learns in another way."
    ),
    "reported: Gao and Xu 2026, arXiv 2606.21848 (abstract); notes in the repository of Kayyam et "
    "al. 2026, arXiv 2606.04032",
    FAMILY,
    aliases=("no key matrix", "keys from values", "value-space routing", "value-only cache"),
)


@register_option
class ValuelessOption(Option):
    """Values computed from the keys of all heads, v = [k_1 … k_h] W_V; a decoder caches only keys.

    The keys are those before norms and rotations. If the key numbers of all heads are as many as
    those of the token and W_K is invertible, this can represent QKV: W_V becomes W_K⁻¹ W_V.

    Source:
        Graef and Wasielewski 2025, arXiv 2503.05840, which computes the matrix from a trained QKV.
    """

    name = "valueless"
    help = mark("Values are computed from the keys of all heads.")
    place = 22
    refuses = {
        "K=V Q=V Q=K=V V=I K=I": mark("values are made from keys that have a matrix"),
        "keyless": mark("either keys or values are made from the other"),
        "kv_rank": mark("both define how values are computed"),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Let the value matrix read the keys of all heads instead of the token."""
        value = wiring.vectors["V"]
        wiring.project("V", wiring.roles["K"], value.n_heads, value.width)


register(
    "Slim attention",
    "QKV valueless d_head=m/h",
    mark(
        "Values are computed from the keys of all heads, so a decoder keeps only keys. With as "
        "many key numbers as the token has, any QKV model with an invertible W_K is such a model: "
        "the source computes the matrix W_K⁻¹ W_V of a trained one, and nothing changes but "
        "rounding. Here the matrix is trained."
    ),
    "reported: Graef and Wasielewski 2025, arXiv 2503.05840 (abstract)",
    FAMILY,
    aliases=("K-cache", "values from keys", "no value matrix", "key-only cache"),
)
register(
    "MFA-Key-Reuse",
    "QKV n_heads=4 kv_heads=1 valueless",
    mark(
        "All heads share one key, and one matrix makes the value of it, so the cache has one "
        "vector per token. W_O can absorb this matrix: such a model can do what K=V + MQA can, and "
        "only learns in another way. The source's wide heads and factorised queries are left out "
        "here."
    ),
    "reported: Hu et al. 2024, arXiv 2412.19255 (abstract)",
    FAMILY,
    aliases=("MFA-KR", "multi-matrix factorization attention", "key reuse"),
)


@register_option
class LatentOption(WidthOption):
    """Keys and values computed from one narrow vector c = x W_C, as in MLA without its RoPE part.

    The value of the option is the width of c.
    """

    name = "kv_rank"
    adjustable = True
    help = mark(
        "Keys and values are computed from one narrow vector, and only that vector is cached."
    )
    samples = ("3", "m/4", "d")
    place = 20
    refuses = {
        "Q=K Q=V Q=K=V": mark(
            "queries come from the token, keys and values from the narrow vector"
        ),
        # Translators: "it" is the narrow vector from which keys and values are computed.
        "K=I V=I": mark("it would not be narrow"),
        "k_rank keyless": mark("both define how keys are computed"),
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
    help = mark("Keys are computed from a narrow vector of their own.")
    samples = ("3", "m/4", "d")
    place = 21
    refuses = {
        "Q=K K=V Q=K=V K=I": mark("keys must have a matrix of their own"),
        "keyless": mark("both define how keys are computed"),
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
    mark(
        "Multi-head latent attention: keys and values of all heads are computed from one narrow "
        "vector, and only that vector is cached. The separate RoPE key is left out here."
    ),
    "reported: DeepSeek-AI 2024, arXiv 2405.04434 (abstract)",
    FAMILY,
    aliases=("multi-head latent attention", "DeepSeek V2", "DeepSeek V3", "KV compression"),
)
register(
    "MLA with K=V",
    "K=V kv_rank=m/4",
    mark("Keys are also the values, and both are computed from one narrow vector."),
    "composition of arXiv 2405.04434 and 2606.04032",
    FAMILY,
    aliases=("multi-head latent attention with shared key-value", "DeepSeek"),
)
register(
    "Low-rank key",
    "QKV k_rank=d/2",
    mark("Only keys are computed from a narrow vector; values are not."),
    "reported: Thin Keys, arXiv 2603.04427 (abstract)",
    FAMILY,
    aliases=("factorised key", "compressed keys"),
)


@register_option
class ResidualOption(WidthOption):
    """Keys k_h = x (W_S + W_A,h W_B,h), and values likewise; the value of the option is the rank.

    All heads share x W_S, as in MQA. The residual of a head is computed from the narrow vector
    x W_A,h. A decoder caches the shared vector and the narrow vectors.

    Source:
        O'Neill et al. 2026, arXiv 2601.11471. Initial values are those of other matrices here.
    """

    name = "kv_residual"
    adjustable = True
    help = mark(
        "All heads share keys and values, and each head adds a low-rank residual of its own."
    )
    samples = ("2", "3", "m/4")
    place = 23
    refuses = {
        "Q=K Q=V Q=K=V": mark(
            "queries must not be tied, because all heads share one key and one value"
        ),
        "K=I V=I": mark("keys and values must have matrices"),
        "kv_rank k_rank keyless sum diff": mark("both define how keys are computed"),
        "valueless fixed_values": mark("values have several matrices each"),
        "tie": mark("keys and values have several matrices each"),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Replace keys and values by the sum of a shared vector and of residuals."""
        rank = self.value.resolve(self.name, wiring.sizes)
        for name in dict.fromkeys((wiring.roles["K"], wiring.roles["V"])):
            vector = wiring.vectors[name]
            wiring.drop(name)
            wiring.project(f"S_{name}", TOKEN, 1, vector.width)
            wiring.project(f"A_{name}", TOKEN, vector.n_heads, rank)
            wiring.vectors[name] = Vector(
                f"A_{name}",
                f"W_B_{name}",
                vector.n_heads,
                vector.width,
                per_head=True,
                shared_offset=f"S_{name}",
            )
            shape = (vector.n_heads, rank, vector.width)
            wiring.weights[f"W_B_{name}"] = Weight(shape, rank**-0.5)


register(
    "LRKV",
    "QKV n_heads=4 kv_residual=4",
    mark(
        "Low-rank key-value attention: all heads share one key and one value, and each head adds a "
        "residual of rank 4 to both. It stands between MQA and full heads, and a decoder keeps the "
        "shared vectors and the narrow ones."
    ),
    "O'Neill et al. 2026, arXiv 2601.11471",
    FAMILY,
    aliases=("low-rank key-value attention", "low-rank residuals"),
)
