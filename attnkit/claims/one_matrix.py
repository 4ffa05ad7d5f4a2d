"""One matrix for Q, K and V, on relations with and without a direction."""

from attnkit.claims.base import Claim, Verdict, arm, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="one_matrix",
    title=mark("One matrix can do the work of three"),
    question=mark("Why should W_Q, W_K and W_V not be one and the same matrix?"),
    source=mark("Hans-Peter Stricker, in a thread on W = W_Q = W_K = W_V, Stack Exchange"),
    says=mark(
        "Scores could be “similarities between two projected words … I wonder why this would not "
        "work, and why we need three different matrices.”"
    ),
    prediction=mark(
        "It does not hold, by direction alone: one matrix looks names up and finds spouses as well "
        "as three, and cannot tell who reports to whom."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "Equal queries and keys make the score of Ada for Cem that of Cem for Ada, so whom she "
        "reports to and who reports to her get the same attention."
    ),
    seen="a prototype",
    seen_note=mark(
        "A prototype and untuned runs had shown the same on all three tasks; after a first pass on "
        "other seeds the number of seeds was raised from 12 to 20, and the prediction was left as "
        "it was."
    ),
    arms=(
        arm("QKV", "QKV, reports to", task="directed"),
        arm("Q=K=V", "Q=K=V, reports to", task="directed", up_to=8),
        *arms("QKV", "Q=K=V", on="phone book", task="phonebook"),
        *arms("QKV", "Q=K=V", on="married", task="mutual"),
    ),
    statements=(
        no_worse(
            "Q=K=V, reports to",
            "QKV, reports to",
            at=8,
            text=mark(
                "On who reports to whom, Q=K=V after 8 times the steps is at most 5 points worse "
                "than QKV"
            ),
            opposite=mark(
                "On who reports to whom, Q=K=V after 8 times the steps is worse than QKV by more "
                "than 5 points"
            ),
            more_often=mark(
                "On who reports to whom, Q=K=V after 8 times the steps falls behind QKV more often"
            ),
        ),
        no_worse(
            "Q=K=V, phone book",
            "QKV, phone book",
            text=mark("On the phone book, Q=K=V is at most 5 points worse than QKV"),
            opposite=mark("On the phone book, Q=K=V is worse than QKV by more than 5 points"),
            more_often=mark("On the phone book, Q=K=V falls behind QKV more often"),
        ),
        no_worse(
            "Q=K=V, married",
            "QKV, married",
            text=mark("On who is married to whom, Q=K=V is at most 5 points worse than QKV"),
            opposite=mark(
                "On who is married to whom, Q=K=V is worse than QKV by more than 5 points"
            ),
            more_often=mark("On who is married to whom, Q=K=V falls behind QKV more often"),
        ),
    ),
)
register_claim(CLAIM)
