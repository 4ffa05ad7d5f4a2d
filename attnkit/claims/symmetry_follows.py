"""Asymmetry of trained scores on a mutual relation and on one with a direction."""

from attnkit.claims.base import FIRST_PASS, Claim, Verdict, arm, register_claim
from attnkit.claims.statements import Statement

CLAIM = Claim(
    id="symmetry_follows",
    title="Scores become symmetric where the relation is mutual",
    question="A dot product of vectors from two different spaces: is it still a similarity?",
    source="Hans-Peter Stricker, in a thread on W = W_Q = W_K = W_V, Stack Exchange",
    says="“The dot product doesn't give scores to be interpreted as similarities but just of some "
    "(hard to interpret and only sometimes symmetric) relation.”",
    prediction="It holds: two free matrices end nearly symmetric if the relation is, and not if it "
    "has a direction. Untrained scores have about ½: the fall is what training does.",
    expected=Verdict.HELD,
    reason="Symmetric is not the same as similar: trained on a mutual relation, hardly any token "
    "(3 of 1,000) scores highest with itself. The score is a learnt relation, and it is as "
    "symmetric as what it has learnt.",
    seen="a prototype",
    seen_note="A prototype had shown asymmetry near a half on the directed relation and near 0.01 "
    f"on the mutual one; {FIRST_PASS}.",
    arms=(
        arm("QKV", "QKV, reports to", task="directed"),
        arm("QKV", "QKV, married", task="mutual"),
    ),
    statements=(
        Statement(
            "Scores are more asymmetric, by more than 0.2, where the relation has a direction",
            "Scores are more asymmetric by at most 0.2 where the relation has a direction",
            "QKV, reports to",
            "QKV, married",
            "asymmetry",
            low=0.2,
        ),
        Statement(
            "Where the relation is mutual their asymmetry falls below 0.1",
            "Where the relation is mutual their asymmetry stays above 0.1",
            "QKV, married",
            measure="asymmetry",
            high=0.1,
        ),
    ),
)
register_claim(CLAIM)
