"""Whether a trained dot product is a similarity hangs on the relation."""

from attnkit.claims.base import Claim, Statement, arm, register_claim

register_claim(
    Claim(
        id="symmetry_follows",
        title="Is the dot product a similarity?",
        question="A dot product of vectors from two different spaces: is it still a similarity?",
        source="Hans-Peter Stricker, in a thread on W = W_Q = W_K = W_V, Stack Exchange",
        says="“The dot product doesn't give scores to be interpreted as similarities but just of "
        "some (hard to interpret and only sometimes symmetric) relation.”",
        prediction="Supported: two free matrices end nearly symmetric if the relation is, and not "
        "if it has a direction. Untrained scores have about ½: the fall is what training does.",
        expected="supported",
        arms=(
            arm("QKV", "QKV, reports to", task="directed"),
            arm("QKV", "QKV, married", task="mutual"),
        ),
        statements=(
            Statement(
                "Scores are more asymmetric, by more than 0.2, where the relation has a direction",
                "QKV, reports to",
                "QKV, married",
                "asymmetry",
                low=0.2,
            ),
            Statement(
                "Where the relation is mutual their asymmetry falls below 0.1",
                "QKV, married",
                measure="asymmetry",
                high=0.1,
            ),
        ),
    )
)
