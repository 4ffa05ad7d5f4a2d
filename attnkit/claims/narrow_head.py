"""K=V in a narrow head: unable to learn, or only slow."""

from attnkit.claims.base import Claim, Verdict, arm, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="narrow_head",
    title=mark("K=V cannot work in a head 3 numbers wide"),
    question=mark("With three numbers per head, can one vector be both address and content?"),
    source=mark(
        "Robin, Stack Exchange 2019, “Why K and V are not the same in Transformer attention?”"
    ),
    says=mark(
        "“By forcing K and V to play the same role, you lose the capacity of the model to "
        "distinguish between key interaction and value composition.”"
    ),
    prediction=mark(
        "It does not hold: long runs of an audit reached 95 to 100% between 6,000 and 18,000 "
        "steps. K=V learns slowly there; it is not unable."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "K=V needs far more steps in so narrow a head. After 19,200 steps 117 of 120 seeds have at "
        "least 99% right. Of QKV 110 have, at the learning rate that is best after a quarter of "
        "these steps."
    ),
    seen="an earlier run",
    seen_note=mark(
        "The first prediction was that it holds; this claim was split off from another one after a "
        "first pass. An audit with three seeds then trained K=V for 18,000 steps, and the "
        "prediction was written anew. After the record the arm QKV, 2 wide was added, which is "
        "shown and not judged."
    ),
    arms=(
        *arms(
            ("QKV d_head=3", "QKV, 3 wide"),
            ("K=V d_head=3", "K=V, 3 wide"),
            ("K=V d_head=2", "K=V, 2 wide"),
            task="phonebook",
            up_to=32,
            tuned_at=8,
        ),
        arm("QKV d_head=2", "QKV, 2 wide", task="phonebook", up_to=8),
    ),
    statements=(
        worse(
            "K=V, 3 wide",
            "QKV, 3 wide",
            at=32,
            text=mark(
                "After 32 times the steps, in heads 3 wide, K=V is worse than QKV by more than 5 "
                "points"
            ),
            opposite=mark(
                "After 32 times the steps, in heads 3 wide, K=V is at most 5 points worse than QKV"
            ),
            more_often=mark(
                "After 32 times the steps, in heads 3 wide, K=V falls behind QKV more often"
            ),
        ),
    ),
    n_seeds=120,
)
register_claim(CLAIM)
