"""Several heads whose scores are each symmetric."""

from typing import Any

from attnkit.claims.base import Claim, arm, better, register_claim

SETTINGS: dict[str, Any] = {"task": "directed", "steps": 1500}

ARMS = (
    arm("Q=K", "Q=K", **SETTINGS),
    arm("Q=K n_heads=4", "Q=K, 4 heads", **SETTINGS),
    arm("QKV", "QKV", **SETTINGS),
)

register_claim(
    Claim(
        id="heads_buy_direction",
        title="Do heads buy direction back?",
        question="Each head of Q=K has symmetric scores. Can four of them tell direction?",
        source="attnkit's own, after a prototype",
        says="With four heads instead of one, Q=K leaves the half where it stays with one.",
        prediction="Supported: heads see different halves of a name, and together they can tell "
        "successor from predecessor.",
        expected="supported",
        arms=ARMS,
        statements=(better("Q=K, 4 heads", "Q=K", 0.1),),
        family="Our own",
    )
)
