"""One matrix for Q, K and V on the phone book, with the self-mask."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="one_matrix_self_mask",
    title=mark("With the self-mask, one matrix looks up a phone book as well as three"),
    question=mark(
        "One matrix for queries, keys and values misses in the phone book with some seeds. Do its "
        "tokens find themselves?"
    ),
    source=mark("attnkit's own, after Kitaev et al. 2020, arXiv 2001.04451, section 2"),
    says=mark(
        "The dot product of a vector with itself is almost always larger than with others. If no "
        "token may attend to itself, one matrix is enough here."
    ),
    prediction=mark(
        "It holds: with the self-mask every seed learns the phone book, or all but one."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "The record of another claim had shown 35 of 40 seeds without the self-mask, and an audit "
        "20 of 20 other seeds with it, at two learning rates."
    ),
    arms=arms(
        ("Q=K=V self_mask", "Q=K=V, self-mask"),
        "Q=K=V",
        "QKV",
        task="phonebook",
    ),
    statements=(
        no_worse(
            "Q=K=V, self-mask",
            "QKV",
            text=mark(
                "On the phone book, Q=K=V with the self-mask is at most 5 points worse than QKV"
            ),
            opposite=mark(
                "On the phone book, Q=K=V with the self-mask is worse than QKV by more than 5 "
                "points"
            ),
            more_often=mark(
                "On the phone book, Q=K=V with the self-mask falls behind QKV more often"
            ),
        ),
    ),
    family="Our own",
)
register_claim(CLAIM)
