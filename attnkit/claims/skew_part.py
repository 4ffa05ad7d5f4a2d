"""How large the skew part of symmetric scores must be to find who reports to whom."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import better, no_worse, worse
from attnkit.foundation.language import mark

UP_TO = 4
"""Arms are read after 2,400 steps, and those that lose after 4,800."""

CLAIM = Claim(
    id="skew_part",
    title=mark("A skew part of rank 2 is not enough to tell direction, one of rank 8 is"),
    question=mark("How asymmetric must scores be to find who reports to whom?"),
    source=mark(
        "the question: arXiv 2605.18826 (the skew part of trained models has a low rank); the "
        "construction is attnkit's own"
    ),
    says=mark(
        "The skew part of W_Q W_Kᵀ, which makes the score of a for b differ from that of b for a, "
        "has a low rank: 2 in the first layer."
    ),
    prediction=mark(
        "It holds. In one head 16 wide, a part of rank 2 raises Q=K from 50% to more than 60%, but "
        "not to 99%. Accuracy rises step by step, and rank 8 is the smallest of 2, 4, 6, 8, 12, 16 "
        "with which every seed reaches 99%. Purely skew scores (rank 16) solve the task, too."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "A larger skew part leaves less room for the symmetric part. In a head of 16 the best "
        "share has 95% after 2,400 steps. Wider heads have room for both: in one of 32, which has "
        "as many numbers as W_Q and W_K of QKV together, a skew part of rank 16 has 99.9%. A head "
        "of 24 is the subject of another claim."
    ),
    seen_note=mark(
        "The variant had not been trained when the prediction was committed. Two arms with heads "
        "32 wide, which have as many numbers in W_Q and W_K as QKV, were added after the first "
        "results; they are shown and not judged."
    ),
    arms=arms(
        "Q=K",
        *((f"Q=K skew={rank}", f"skew part of rank {rank}") for rank in (2, 4, 6, 8, 12, 16)),
        *((f"Q=K d_head=32 skew={rank}", f"rank {rank} in a head of 32") for rank in (4, 16)),
        "QKV",
        task="directed",
        up_to=UP_TO,
    ),
    statements=(
        no_worse(
            "skew part of rank 8",
            "QKV",
            at=UP_TO,
            text=mark(
                "On who reports to whom, Q=K with a skew part of rank 8 is at most 5 points worse "
                "than QKV"
            ),
            opposite=mark(
                "On who reports to whom, Q=K with a skew part of rank 8 is worse than QKV by more "
                "than 5 points"
            ),
            more_often=mark(
                "On who reports to whom, Q=K with a skew part of rank 8 falls behind QKV more often"
            ),
        ),
        better(
            "skew part of rank 2",
            "Q=K",
            0.1,
            at=UP_TO,
            text=mark(
                "On who reports to whom, Q=K with a skew part of rank 2 is better than Q=K without "
                "one by more than 10 points"
            ),
            opposite=mark(
                "On who reports to whom, Q=K with a skew part of rank 2 is at most 10 points "
                "better than Q=K without one"
            ),
            more_often=mark(
                "On who reports to whom, Q=K with a skew part of rank 2 gets ahead of Q=K without "
                "one more often"
            ),
        ),
        worse(
            "skew part of rank 2",
            "QKV",
            at=UP_TO,
            text=mark(
                "On who reports to whom, Q=K with a skew part of rank 2 is worse than QKV by more "
                "than 5 points"
            ),
            opposite=mark(
                "On who reports to whom, Q=K with a skew part of rank 2 is at most 5 points worse "
                "than QKV"
            ),
            more_often=mark(
                "On who reports to whom, Q=K with a skew part of rank 2 falls behind QKV more often"
            ),
        ),
    ),
    n_seeds=20,
    followed=8,
    family="Our own",
    is_new=True,
)
register_claim(CLAIM)
