"""Queries without a matrix, on text and on a relation with a direction."""

from typing import Any

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

TEXT: dict[str, Any] = {
    "task": "language",
    "d_model": 32,
    "n_heads": 4,
    "d_head": 8,
    "n_layers": 2,
    "d_mlp": 64,
    "steps": 1000,
}
"""Settings of small models of text: four heads, which together are as wide as the model."""

TEXT_SEEDS = 12

FOLLOWED = 2
"""Multiple of the steps for which arms on text are followed; most of them train on torch."""

CLAIM = Claim(
    id="identity_query",
    title=mark("Attention works without a query matrix"),
    question=mark("Must queries have a matrix, or can the query be the token itself?"),
    source=mark(
        "Karbevski and Mijoski 2025, arXiv 2510.23912, which trains GPT models of 117 million "
        "parameters without W_Q"
    ),
    says=mark("One of the three matrices is redundant; models without W_Q match those with it."),
    prediction=mark(
        "It holds: with one head W_K alone is any bilinear form of two tokens, so who reports to "
        "whom is learnt as well. On text, four heads whose queries are fixed parts of the token "
        "lose at most 0.03 nats, because the layers below can move what is asked into the part."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "On text, models without W_Q lose 0.034 nats, within 0.026 to 0.041, which is about the "
        "limit of 0.03. On “who reports to whom” nothing is lost."
    ),
    seen_note=mark(
        "Neither comparison had been trained when the prediction was committed. The untuned table "
        "of variants had shown the phone book solved without W_Q."
    ),
    arms=(
        *arms("QKV", ("QKV Q=I", "Q=I"), on="text", **TEXT),
        *arms(
            ("QKV d_head=m/h", "QKV"),
            ("QKV Q=I d_head=m/h", "Q=I"),
            on="reports to",
            task="directed",
        ),
    ),
    statements=(
        no_worse(
            "Q=I, text",
            "QKV, text",
            0.03,
            measure="loss",
            text=mark("On text, Q=I is at most 0.03 nats worse than QKV"),
            opposite=mark("On text, Q=I is worse than QKV by more than 0.03 nats"),
        ),
        no_worse(
            "Q=I, reports to",
            "QKV, reports to",
            text=mark("On who reports to whom, Q=I is at most 5 points worse than QKV"),
            opposite=mark("On who reports to whom, Q=I is worse than QKV by more than 5 points"),
            more_often=mark("On who reports to whom, Q=I falls behind QKV more often"),
        ),
    ),
    followed=FOLLOWED,
    family="What papers say",
)
register_claim(CLAIM)
