"""Blocks without value and output matrices on text, with shaped attention and without."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT, TEXT_SEEDS
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="no_value_no_output",
    title=mark("Blocks need neither a value matrix nor an output matrix"),
    question=mark(
        "Can a head hand over a part of the token as it is, without W_V and without W_O?"
    ),
    source=mark("He and Hofmann 2023, arXiv 2311.01906 (15% fewer parameters in deep models)"),
    says=mark(
        "Value and projection parameters can be removed without loss of training speed, if "
        "attention is shaped: a part of the token itself is added, and the mean is subtracted."
    ),
    prediction=mark(
        "It does not hold in models as small as ours: each of four heads can only copy 8 of 32 "
        "numbers to the same 8 places, and one MLP per layer must do all the rest. On text the "
        "loss is higher by more than 0.03 nats, with shaped attention and without."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "Both lose about as much, 0.13 nats, so shaping makes no difference in models of two "
        "layers. Each head hands over 8 of 32 numbers as they are, to the same 8 places. The "
        "source trains deep models; these were not run here."
    ),
    seen_note=mark("Neither variant had been trained on text when the prediction was committed."),
    arms=arms(
        "QKV",
        ("QKV V=I O=I shaped", "V=I, O=I and shaped"),
        ("QKV V=I O=I", "V=I and O=I"),
        **TEXT,
    ),
    statements=(
        no_worse(
            "V=I, O=I and shaped",
            "QKV",
            0.03,
            measure="loss",
            text=mark(
                "On text, shaped attention without W_V and W_O is at most 0.03 nats worse than QKV"
            ),
            opposite=mark(
                "On text, shaped attention without W_V and W_O is worse than QKV by more than 0.03 "
                "nats"
            ),
        ),
        no_worse(
            "V=I and O=I",
            "QKV",
            0.03,
            measure="loss",
            text=mark("On text, attention without W_V and W_O is at most 0.03 nats worse than QKV"),
            opposite=mark(
                "On text, attention without W_V and W_O is worse than QKV by more than 0.03 nats"
            ),
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="What papers say",
)
register_claim(CLAIM)
