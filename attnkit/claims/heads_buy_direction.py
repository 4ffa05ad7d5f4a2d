"""Q=K with several heads on a relation with a direction."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import better
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="heads_buy_direction",
    title=mark("With four heads of the same width, Q=K tells direction better than with one"),
    question=mark("Each head of Q=K has symmetric scores. Can four of them tell direction?"),
    source=mark("attnkit's own, after a prototype"),
    says=mark("With four heads, Q=K gets beyond an accuracy of one half, where it stays with one."),
    prediction=mark(
        "It holds: heads see different parts of a name, and together they can tell successor from "
        "predecessor. One head as wide as the four together will not do it."
    ),
    expected=Verdict.HELD,
    seen="a prototype",
    seen_note=mark(
        "A prototype and tuned runs of a wider model had shown four heads helping; after a first "
        "pass on other seeds the number of seeds was raised from 10 to 20 and an arm was added. "
        "Before the record a second reader showed that two heads do no worse and four narrow ones "
        "hardly help; both arms are shown and not judged."
    ),
    arms=arms(
        "Q=K",
        ("Q=K n_heads=2", "Q=K, 2 heads"),
        ("Q=K n_heads=4", "Q=K, 4 heads"),
        ("Q=K n_heads=4 d_head=4", "Q=K, 4 heads of 4"),
        ("Q=K d_head=64", "Q=K, 1 head of 64"),
        "QKV",
        task="directed",
        steps=1500,
    ),
    statements=(
        better(
            "Q=K, 4 heads",
            "Q=K",
            0.1,
            text=mark(
                "On who reports to whom, four heads of Q=K are better than one head by more than "
                "10 points"
            ),
            opposite=mark(
                "On who reports to whom, four heads of Q=K are at most 10 points better than one "
                "head"
            ),
            more_often=mark(
                "On who reports to whom, four heads of Q=K get ahead of one head more often"
            ),
        ),
    ),
    n_seeds=20,
    family="Our own",
)
register_claim(CLAIM)
