"""A second layer of symmetric scores."""

from attnkit.claims.base import Claim, better, register_claim
from attnkit.claims.heads_buy_direction import ARMS

register_claim(
    Claim(
        id="layer_buys_direction",
        title="Does a second layer buy direction back?",
        question="Q=K finds successor and predecessor alike. Can a second layer of Q=K tell them "
        "apart?",
        source="attnkit's own, after a prototype",
        says="With two layers, Q=K leaves the half where it stays with one.",
        prediction="Supported: a prototype reached 0.93 with a wider model and more steps; 600 "
        "untuned steps were not enough.",
        expected="supported",
        arms=ARMS,
        statements=(better("Q=K, 2 layers", "Q=K", 0.1),),
        n_seeds=10,
        family="Our own",
    )
)
