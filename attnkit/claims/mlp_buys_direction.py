"""An MLP after attention whose scores are symmetric."""

from typing import Any

from attnkit.claims.base import Claim, arm, better, register_claim

_LONG: dict[str, Any] = {"task": "directed", "steps": 4500}

ARMS = (
    arm("Q=K", "Q=K", **_LONG),
    arm("Q=K d_mlp=128", "Q=K, MLP 128", **_LONG),
    arm("Q=K", "Q=K, 2 layers", **_LONG, n_layers=2),
)

register_claim(
    Claim(
        id="mlp_buys_direction",
        title="Does an MLP buy direction back?",
        question="Q=K finds successor and predecessor alike. Can an MLP then tell them apart?",
        source="attnkit's own, after a prototype",
        says="With an MLP after attention, Q=K leaves the half where it stays without one.",
        prediction="Supported after 4500 steps: a prototype reached 0.83 with a wider model and "
        "3000 to 4000 steps. In a first pass on other seeds 1500 steps were not enough.",
        expected="supported",
        reason="Not at a width of 32 within 4500 steps. With twice the width and 8000 steps it "
        "did, with some seeds; see README.",
        arms=ARMS,
        statements=(better("Q=K, MLP 128", "Q=K", 0.1),),
        n_seeds=10,
        family="Our own",
    )
)
