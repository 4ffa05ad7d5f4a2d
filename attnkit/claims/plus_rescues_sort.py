"""The two-dimensional position bias (X)⁺ on sorting."""

from typing import Any

from attnkit.claims.base import Claim, arm, better, register_claim

_SORT: dict[str, Any] = {"task": "sort", "n_heads": 2, "d_head": 32}

register_claim(
    Claim(
        id="plus_rescues_sort",
        title="(X)⁺ rescues sorting",
        question="Does a bias of positions on the scores help where they must be symmetric?",
        source="Kayyam et al. 2026, arXiv 2606.04032, and the authors' seeded re-run (SORT, two "
        "layers, two heads: Q=K 0.488, (Q=K)⁺ 0.684)",
        says="(Q=K)⁺ sorts better than Q=K.",
        prediction="It holds: the cells of this size were reproduced untuned. All that is left of "
        "(X)⁺ after the softmax is a bias of keys and a temperature.",
        expected="held",
        seen="a prototype",
        seen_note="Untuned runs had reproduced the paper's numbers; the statement that (Q=K)⁺ "
        "does as well as QKV was dropped before the first pass on other seeds, and "
        "nothing of the claim was changed after it.",
        arms=(
            arm("Q=K", **_SORT),
            arm("Q=K positions=learned_plus", "(Q=K)⁺", **_SORT),
        ),
        statements=(better("(Q=K)⁺", "Q=K"),),
        n_seeds=10,
        family="What papers say",
    )
)
