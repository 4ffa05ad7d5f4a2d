"""W_Q = W_K at the start, then free."""

from attnkit.claims.base import Claim, better, register_claim
from attnkit.claims.encoder_symmetry import ARMS

register_claim(
    Claim(
        id="symmetric_start",
        title="A symmetric start is faster",
        question="W_Q and W_K start equal and are then free. Does an encoder train faster?",
        source="Saponati et al., ICML 2025, arXiv 2502.10927 (reported: 35 to 73% of steps saved)",
        says="Symmetric initialisation speeds up the training of encoders.",
        prediction="Contradicted: while the settings were chosen, on other seeds, the symmetric "
        "start was slower.",
        expected="contradicted",
        reason="Seeds differ by far more than the start makes a difference.",
        arms=ARMS,
        statements=(
            better(
                "both sides, symmetric start",
                "both sides",
                0.01,
                measure="loss_all_along",
                text="The mean loss during training is lower by more than 0.01 nats",
            ),
        ),
        n_seeds=10,
        family="What papers say",
    )
)
