"""The two-dimensional position bias (X)⁺ on sorting."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import better
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="plus_rescues_sort",
    title=mark("A bias of positions helps sorting, with and without Q=K"),
    question=mark("Does a bias of positions on the scores help where they must be symmetric?"),
    source=mark(
        "Kayyam et al. 2026, arXiv 2606.04032, and the authors' seeded re-run (SORT, two layers, "
        "two heads: Q=K 0.488, (Q=K)⁺ 0.684)"
    ),
    says=mark("(Q=K)⁺ sorts better than Q=K, and (X)⁺ better than X in most cells."),
    prediction=mark(
        "It holds: with and without Q=K the bias of positions gave a few points, and the authors' "
        "own cells say the same. All that is left of (X)⁺ after the softmax is a bias of keys and "
        "a temperature."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "The self-mask alone brings Q=K from 83% to 91%, about what QKV has (90%). The bias of "
        "positions brings Q=K to 93% and QKV to 95%."
    ),
    seen="an earlier run",
    seen_note=mark(
        "An earlier record and an audit had shown Q=K .74, (Q=K)⁺ .88, QKV .85 and QKV⁺ .88, with "
        "a set-up that lacked the last LayerNorm of the source."
    ),
    arms=arms(
        "Q=K",
        ("Q=K self_mask", "Q=K, self-mask"),
        ("Q=K positions=learned_plus", "(Q=K)⁺"),
        "QKV",
        ("QKV positions=learned_plus", "QKV⁺"),
        task="sort",
        length=16,
        d_mlp=256,
        batch_size=128,
        n_heads=2,
        d_head=32,
    ),
    statements=(
        better("(Q=K)⁺", "Q=K", 0.02, measure="mean_accuracy"),
        better("QKV⁺", "QKV", 0.02, measure="mean_accuracy"),
    ),
    n_seeds=12,
    family="What papers say",
)
register_claim(CLAIM)
