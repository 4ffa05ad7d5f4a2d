"""A second layer of symmetric scores."""

from attnkit.claims.base import Claim, better, register_claim
from attnkit.claims.mlp_buys_direction import ARMS

register_claim(
    Claim(
        id="layer_buys_direction",
        title="Does a second layer buy direction back?",
        question="Q=K finds successor and predecessor alike. Can a second layer of Q=K tell them "
        "apart?",
        source="attnkit's own, after a prototype",
        says="With two layers, Q=K leaves the half where it stays with one.",
        prediction="Supported after 4500 steps: a prototype reached 0.93 with a wider model and "
        "3000 to 4000 steps. In a first pass on other seeds 1500 steps were not enough.",
        expected="supported",
        reason="Not at a width of 32 within 4500 steps. With twice the width and 8000 steps it "
        "did, with some seeds; see README.",
        arms=ARMS,
        statements=(better("Q=K, 2 layers", "Q=K", 0.1),),
        n_seeds=10,
        family="Our own",
    )
)
