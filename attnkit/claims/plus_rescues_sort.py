"""The two-dimensional position bias (X)⁺ on sorting."""

from attnkit.claims.base import Claim, arm, better, register_claim

_SORT = {"task": "sort", "n_heads": 2, "d_head": 32}

register_claim(
    Claim(
        id="plus_rescues_sort",
        title="(X)⁺ rescues sorting",
        question="Does a bias of positions on the scores make up for symmetric ones?",
        source="Kayyam et al. 2026, arXiv 2606.04032, and the authors' seeded re-run (SORT, two "
        "layers, two heads: Q=K 0.488, (Q=K)⁺ 0.684)",
        says="(Q=K)⁺ sorts better than Q=K, and as well as QKV.",
        prediction="Supported: the cells of this size were reproduced untuned. Note that the bias "
        "of keys is all that is left of (X)⁺ after the softmax.",
        expected="supported",
        arms=(
            arm("QKV", **_SORT),
            arm("Q=K", **_SORT),
            arm("Q=K positions=learned_plus", "(Q=K)⁺", **_SORT),
        ),
        statements=(
            better("(Q=K)⁺", "Q=K"),
            better("(Q=K)⁺", "QKV", -0.05, text="(Q=K)⁺ is at most 5 points worse than QKV"),
        ),
        n_seeds=10,
        family="What papers say",
    )
)
