"""Values that a matrix makes of the keys of all heads, on text."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT, TEXT_SEEDS
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="values_from_keys",
    title=mark("A decoder can keep keys only, if all of them together make the values"),
    question=mark(
        "Values are computed from the keys of all heads, so that only keys are cached. Is anything "
        "lost?"
    ),
    source=mark("Graef and Wasielewski 2025, arXiv 2503.05840 (of trained models, by algebra)"),
    says=mark(
        "With a square W_K, W_K⁻¹ W_V gives the values exactly: half of the cache without loss."
    ),
    prediction=mark(
        "It holds also if the matrix is trained: on text the loss is at most 0.03 nats higher than "
        "that of QKV, because every QKV model with an invertible W_K is such a model."
    ),
    expected=Verdict.HELD,
    seen_note=mark("The variant had not been trained when the prediction was committed."),
    arms=arms("QKV", ("QKV valueless", "values from keys"), "K=V", **TEXT),
    statements=(
        no_worse(
            "values from keys",
            "QKV",
            0.03,
            measure="loss",
            text=mark(
                "On text, values that are made from the keys of all heads are at most 0.03 nats "
                "worse than QKV"
            ),
            opposite=mark(
                "On text, values that are made from the keys of all heads are worse than QKV by "
                "more than 0.03 nats"
            ),
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="What papers say",
)
register_claim(CLAIM)
