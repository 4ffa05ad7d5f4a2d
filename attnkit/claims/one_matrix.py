"""One matrix for all three, on relations without and with a direction."""

from attnkit.claims.base import Claim, arm, no_worse, register_claim

register_claim(
    Claim(
        id="one_matrix",
        title="One matrix for all",
        question="Why should W_Q, W_K and W_V not be one and the same matrix?",
        source="Hans-Peter Stricker, in a thread on W = W_Q = W_K = W_V, Stack Exchange",
        says="Scores could be “similarities between two projected words … I wonder why this would "
        "not work, and why we need three different matrices.”",
        prediction="Contradicted, by direction alone: one matrix looks names up and finds spouses "
        "as well as three, and cannot tell who reports to whom.",
        expected="contradicted",
        reason="Equal queries and keys make the score of Ada for Cem that of Cem for Ada, so whom "
        "she reports to and who reports to her get the same attention.",
        arms=(
            arm("QKV", "QKV, reports to", task="directed"),
            arm("Q=K=V", "Q=K=V, reports to", task="directed"),
            arm("QKV", "QKV, phone book", task="phonebook"),
            arm("Q=K=V", "Q=K=V, phone book", task="phonebook"),
            arm("QKV", "QKV, married", task="mutual"),
            arm("Q=K=V", "Q=K=V, married", task="mutual"),
        ),
        statements=(
            no_worse("Q=K=V, reports to", "QKV, reports to"),
            no_worse("Q=K=V, phone book", "QKV, phone book"),
            no_worse("Q=K=V, married", "QKV, married"),
        ),
    )
)
