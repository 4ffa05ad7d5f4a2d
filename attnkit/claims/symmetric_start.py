"""W_Q and W_K that are equal at the start of training and free afterwards."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.encoder_symmetry import ARMS
from attnkit.claims.statements import better
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="symmetric_start",
    title=mark("A symmetric start makes encoders learn faster"),
    question=mark("W_Q and W_K start equal and are then free. Does an encoder train faster?"),
    source=mark(
        "Saponati et al., ICML 2025, arXiv 2502.10927 (reported: 35 to 73% of steps saved)"
    ),
    says=mark("Symmetric initialisation speeds up the training of encoders."),
    prediction=mark(
        "It does not hold: while the settings were chosen, on other seeds, the symmetric start was "
        "slower."
    ),
    expected=Verdict.FAILED,
    seen="an earlier run",
    seen_note=mark(
        "We first expected “undecided”; runs on other seeds, made while the settings were chosen, "
        "showed the symmetric start slower, and the prediction was then changed to “did not hold” "
        "and the steps from 250 to 1,500."
    ),
    arms=ARMS,
    statements=(
        better(
            "both sides, symmetric start",
            "both sides",
            0.01,
            measure="loss_all_along",
            text=mark(
                "With a symmetric start, the mean loss during training is lower by more than 0.01 "
                "nats, at the best learning rate for each start"
            ),
            opposite=mark(
                "With a symmetric start, the mean loss during training is lower by at most 0.01 "
                "nats, at the best learning rate for each start"
            ),
        ),
        better(
            "symmetric start, same rate",
            "both sides",
            0.01,
            measure="loss_all_along",
            text=mark(
                "With a symmetric start and the same learning rate, the mean loss during training "
                "is lower by more than 0.01 nats"
            ),
            opposite=mark(
                "With a symmetric start and the same learning rate, the mean loss during training "
                "is lower by at most 0.01 nats"
            ),
        ),
    ),
    n_seeds=40,
    family="What papers say",
)
register_claim(CLAIM)
