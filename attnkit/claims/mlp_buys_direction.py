"""An MLP after attention whose scores are symmetric."""

from attnkit.claims.base import Claim, better, register_claim
from attnkit.claims.heads_buy_direction import ARMS

register_claim(
    Claim(
        id="mlp_buys_direction",
        title="Does an MLP buy direction back?",
        question="Q=K finds successor and predecessor alike. Can an MLP then tell them apart?",
        source="attnkit's own, after a prototype",
        says="With an MLP after attention, Q=K leaves the half where it stays without one.",
        prediction="Supported: a prototype reached 0.83 with a wider model and more steps; 600 "
        "untuned steps were not enough.",
        expected="supported",
        arms=ARMS,
        statements=(better("Q=K, MLP 128", "Q=K", 0.1),),
        n_seeds=10,
        family="Our own",
    )
)
