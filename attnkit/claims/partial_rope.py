"""Rotation of a part of each vector only."""

from attnkit.claims.base import RAISED_WORSE, Claim, Verdict, arms, register_claim
from attnkit.claims.names import joined
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="partial_rope",
    title=mark("A quarter of each vector is enough for RoPE, with and without K=V"),
    question=mark("How much of queries and keys must RoPE rotate?"),
    source=mark(
        "practice: GPT-NeoX (arXiv 2204.06745) rotates a quarter, Gemma 4 and DeepSeek V4 a part "
        "of each vector"
    ),
    says=mark("Large models rotate only a part of queries and keys."),
    prediction=mark(
        "It holds: on recall, rotating a quarter of each vector is at most 5 points worse than "
        "rotating all of it, with three matrices and with K=V."
    ),
    expected=Verdict.HELD,
    seen_note=joined(
        mark("The variant had not been trained when the prediction was committed."), RAISED_WORSE
    ),
    arms=arms(
        ("QKV positions=rope rope_width=d/4", "QKV, a quarter"),
        ("QKV positions=rope", "QKV, all"),
        ("K=V positions=rope rope_width=d/4", "K=V, a quarter"),
        ("K=V positions=rope", "K=V, all"),
        task="mqar",
        batch_size=64,
    ),
    statements=(
        no_worse(
            "QKV, a quarter",
            "QKV, all",
            text=mark(
                "On recall, RoPE on a quarter of each vector is at most 5 points worse than RoPE "
                "on all of it"
            ),
            opposite=mark(
                "On recall, RoPE on a quarter of each vector is worse than RoPE on all of it by "
                "more than 5 points"
            ),
            more_often=mark(
                "On recall, RoPE on a quarter of each vector falls behind RoPE on all of it more "
                "often"
            ),
        ),
        no_worse(
            "K=V, a quarter",
            "K=V, all",
            text=mark(
                "On recall with K=V, RoPE on a quarter of each vector is at most 5 points worse "
                "than RoPE on all of it"
            ),
            opposite=mark(
                "On recall with K=V, RoPE on a quarter of each vector is worse than RoPE on all of "
                "it by more than 5 points"
            ),
            more_often=mark(
                "On recall with K=V, RoPE on a quarter of each vector falls behind RoPE on all of "
                "it more often"
            ),
        ),
    ),
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
