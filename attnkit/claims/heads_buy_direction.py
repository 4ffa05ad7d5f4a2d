"""Several heads whose scores are each symmetric."""

from typing import Any

from attnkit.claims.base import Claim, arm, better, register_claim

_SETTINGS: dict[str, Any] = {"task": "directed", "steps": 1500}

ARMS = (
    arm("Q=K", "Q=K", **_SETTINGS),
    arm("Q=K n_heads=4", "Q=K, 4 heads", **_SETTINGS),
    arm("Q=K d_head=64", "Q=K, 1 head of 64", **_SETTINGS),
    arm("QKV", "QKV", **_SETTINGS),
)

register_claim(
    Claim(
        id="heads_buy_direction",
        title="Do heads buy direction back?",
        question="Each head of Q=K has symmetric scores. Can four of them tell direction?",
        source="attnkit's own, after a prototype",
        says="With four heads instead of one, Q=K leaves the half where it stays with one.",
        prediction="Supported: heads see different parts of a name, and together they can tell "
        "successor from predecessor. One head as wide as the four together will not do it.",
        expected="supported",
        arms=ARMS,
        statements=(better("Q=K, 4 heads", "Q=K", 0.1),),
        family="Our own",
    )
)
