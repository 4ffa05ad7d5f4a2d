"""Q=K where the same word is a query in one role and a key in another."""

from attnkit.claims.base import FIRST_PASS, Claim, Verdict, arms, register_claim
from attnkit.claims.statements import worse

CLAIM = Claim(
    id="two_roles",
    title="One word in two roles needs W_Q ≠ W_K",
    question="“Can you smell the smell of failure?” A word asks in one way and is found in "
    "another. Does that need W_Q ≠ W_K?",
    source="the second answer in a thread on W_Q and W_K, Stack Exchange 2023",
    says="Different matrices allow “the same word to be used differently as Query and Key”.",
    prediction="It holds: in a circle of three names each asks for the next; with symmetric scores "
    "the next and the one before look the same, so half is wrong.",
    expected=Verdict.HELD,
    seen="a prototype",
    seen_note=f"Untuned runs had shown Q=K at 0.52 on this task; {FIRST_PASS}, and the prediction "
    "was left as it was.",
    arms=arms("QKV", "Q=K", task="dual_role"),
    statements=(worse("Q=K", "QKV", unable=True),),
)
register_claim(CLAIM)
