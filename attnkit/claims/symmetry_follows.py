"""Asymmetry of trained scores on a mutual relation and on one with a direction."""

from attnkit.claims.base import Claim, Verdict, arm, register_claim
from attnkit.claims.statements import Statement
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="symmetry_follows",
    title=mark("Scores become symmetric where the relation is mutual"),
    question=mark("A dot product of vectors from two different spaces: is it still a similarity?"),
    source=mark("Hans-Peter Stricker, in a thread on W = W_Q = W_K = W_V, Stack Exchange"),
    says=mark(
        "“The dot product doesn't give scores to be interpreted as similarities but just of some "
        "(hard to interpret and only sometimes symmetric) relation.”"
    ),
    prediction=mark(
        "It holds: two free matrices end nearly symmetric if the relation is, and not if it has a "
        "direction. Untrained scores have about ½: the fall is what training does."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "Symmetric is not the same as similar: trained on a mutual relation, hardly any token (3 "
        "of 1,000) scores highest with itself. The score is a learnt relation, and it is as "
        "symmetric as what it has learnt."
    ),
    seen="a prototype",
    seen_note=mark(
        "A prototype had shown asymmetry near a half on the directed relation and near 0.01 on the "
        "mutual one; after a first pass on other seeds the number of seeds was raised from 12 to "
        "20."
    ),
    arms=(
        arm("QKV", "QKV, reports to", task="directed"),
        arm("QKV", "QKV, married", task="mutual"),
    ),
    statements=(
        Statement(
            mark(
                "Scores are more asymmetric, by more than 0.2, where the relation has a direction"
            ),
            mark("Scores are more asymmetric by at most 0.2 where the relation has a direction"),
            "QKV, reports to",
            "QKV, married",
            "asymmetry",
            low=0.2,
        ),
        Statement(
            mark("Where the relation is mutual, the asymmetry of scores falls below 0.1"),
            mark("Where the relation is mutual, the asymmetry of scores stays above 0.1"),
            "QKV, married",
            measure="asymmetry",
            high=0.1,
        ),
    ),
)
register_claim(CLAIM)
