"""One matrix for Q, K and V, on relations with and without a direction."""

from attnkit.claims.base import Claim, arm, register_claim
from attnkit.claims.statements import no_worse

register_claim(
    Claim(
        id="one_matrix",
        title="One matrix can do the work of three",
        question="Why should W_Q, W_K and W_V not be one and the same matrix?",
        source="Hans-Peter Stricker, in a thread on W = W_Q = W_K = W_V, Stack Exchange",
        says="Scores could be “similarities between two projected words … I wonder why this would "
        "not work, and why we need three different matrices.”",
        prediction="It does not hold, by direction alone: one matrix looks names up and finds "
        "spouses as well as three, and cannot tell who reports to whom.",
        expected="did not hold",
        reason="Equal queries and keys make the score of Ada for Cem that of Cem for Ada, so whom "
        "she reports to and who reports to her get the same attention.",
        seen="a prototype",
        seen_note="A prototype and untuned runs had shown the same on all three tasks; after a "
        "first pass on other seeds the number of seeds was raised from 12 to 20, and "
        "the prediction was left as it was.",
        arms=(
            arm("QKV", "QKV, reports to", task="directed", up_to=8),
            arm("Q=K=V", "Q=K=V, reports to", task="directed", up_to=8),
            arm("QKV", "QKV, phone book", task="phonebook"),
            arm("Q=K=V", "Q=K=V, phone book", task="phonebook"),
            arm("QKV", "QKV, married", task="mutual"),
            arm("Q=K=V", "Q=K=V, married", task="mutual"),
        ),
        statements=(
            no_worse(
                "Q=K=V, reports to",
                "QKV, reports to",
                at=8,
                text="Q=K=V is at most 5 points worse on who reports to whom, after 8 times the "
                "steps",
            ),
            no_worse("Q=K=V, phone book", "QKV, phone book"),
            no_worse("Q=K=V, married", "QKV, married"),
        ),
    )
)
