"""Multi-query recall of four and of eight pairs."""

from attnkit.claims.base import RAISED_WORSE, Claim, Verdict, arms, register_claim
from attnkit.claims.names import joined
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="recall_pairs",
    title=mark("Eight pairs are recalled as well as four"),
    question=mark("Does attention recall eight pairs as well as four, with the same width?"),
    source=mark("Arora et al. 2023 (Zoology), arXiv 2312.04927"),
    says=mark(
        "Attention solves multi-query recall whatever the number of pairs, at every width that was "
        "tried."
    ),
    prediction=mark(
        "It holds, at a width of 32. K=V stands beside it: it needs room for keys and values, and "
        "32 numbers should be enough."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=joined(
        mark(
            "A prototype and untuned runs had shown QKV and K=V solving this recall; after a first "
            "pass on other seeds the statement about K=V was dropped, so the verdict is about QKV "
            "only."
        ),
        RAISED_WORSE,
    ),
    arms=(
        *arms("QKV", "K=V", on="4 pairs", task="mqar", batch_size=64, n_pairs=4, length=16),
        *arms("QKV", "K=V", on="8 pairs", task="mqar", batch_size=64, n_pairs=8, length=32),
    ),
    statements=(
        no_worse(
            "QKV, 8 pairs",
            "QKV, 4 pairs",
            text=mark("On recall, QKV with 8 pairs is at most 5 points worse than QKV with 4"),
            opposite=mark(
                "On recall, QKV with 8 pairs is worse than QKV with 4 by more than 5 points"
            ),
            more_often=mark("On recall, QKV with 8 pairs falls behind QKV with 4 more often"),
        ),
    ),
    family="What papers say",
)
register_claim(CLAIM)
