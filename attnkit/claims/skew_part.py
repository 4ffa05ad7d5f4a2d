"""How large the skew part of symmetric scores must be to find who reports to whom."""

from typing import Any

from attnkit.claims.base import Claim, arm, register_claim
from attnkit.claims.statements import better, no_worse, worse

_SETTINGS: dict[str, Any] = {"task": "directed", "up_to": 8}

RANKS = (2, 4, 6, 8, 12, 16)

ARMS = (
    arm("Q=K", **_SETTINGS),
    *(arm(f"Q=K skew={rank}", f"skew part of rank {rank}", **_SETTINGS) for rank in RANKS),
    *(
        arm(f"Q=K d_head=32 skew={rank}", f"rank {rank} in a head of 32", **_SETTINGS)
        for rank in (4, 16)
    ),
    arm("QKV", **_SETTINGS),
)

register_claim(
    Claim(
        id="skew_part",
        title="A skew part of rank 2 is not enough to tell direction, one of rank 8 is",
        question="How asymmetric must scores be to find who reports to whom?",
        source="the question: arXiv 2605.18826 (the skew part of trained models has a low rank); "
        "the construction is attnkit's own",
        says="The skew part of W_Q W_Kᵀ, which makes the score of a for b differ from that of b "
        "for a, has a low rank: 2 in the first layer.",
        prediction="It holds. In one head 16 wide, a part of rank 2 raises Q=K from 50% to more "
        "than 60%, but not to 99%. Accuracy rises step by step, and rank 8 is the smallest of 2, "
        "4, 6, 8, 12, 16 with which every seed reaches 99%. Purely skew scores (rank 16) solve "
        "the task, too.",
        expected="held",
        reason="A larger skew part leaves less room for the symmetric part. In a head of 16 the "
        "best share has 94%. In a head of 32, which has as many numbers as W_Q and W_K of QKV "
        "together, a skew part of rank 16 has 99.8%.",
        seen="nothing",
        seen_note="The variant had not been trained when the prediction was committed. Two arms "
        "with heads 32 wide, which have as many numbers in W_Q and W_K as QKV, were added after "
        "the first results; they are shown and not judged.",
        arms=ARMS,
        statements=(
            no_worse("skew part of rank 8", "QKV").worded(
                held="On “who reports to whom”, Q=K with a skew part of rank 8 is at most 5 "
                "points worse than QKV",
                failed="On “who reports to whom”, Q=K with a skew part of rank 8 is worse than "
                "QKV by more than 5 points",
            ),
            better("skew part of rank 2", "Q=K", 0.1),
            worse("skew part of rank 2", "QKV"),
        ),
        n_seeds=20,
        family="Our own",
        is_new=True,
    )
)
