"""Q=K where the same word is a query in one role and a key in another."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="two_roles",
    title=mark("With one head in one layer, one word in two roles needs W_Q ≠ W_K"),
    question=mark(
        "“Can you smell the smell of failure?” A word asks in one way and is found in another. "
        "Does that need W_Q ≠ W_K?"
    ),
    source=mark("the second answer in a thread on W_Q and W_K, Stack Exchange 2023"),
    says=mark("Different matrices allow “the same word to be used differently as Query and Key”."),
    prediction=mark(
        "It holds: in a circle of three names each asks for the next; with symmetric scores the "
        "next and the one before look the same, so half is wrong."
    ),
    expected=Verdict.HELD,
    seen="a prototype",
    seen_note=mark(
        "Untuned runs had shown Q=K at 0.52 on this task; after a first pass on other seeds the "
        "number of seeds was raised from 12 to 20, and the prediction was left as it was."
    ),
    arms=arms("QKV", "Q=K", task="dual_role"),
    statements=(worse("Q=K", "QKV", unable=True),),
)
register_claim(CLAIM)
