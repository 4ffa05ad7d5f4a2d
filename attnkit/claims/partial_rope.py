"""Rotation of a part of each vector only."""

from typing import Any

from attnkit.claims.base import RAISED, Claim, arm, register_claim
from attnkit.claims.statements import no_worse

_SETTINGS: dict[str, Any] = {"task": "mqar", "batch_size": 64}

register_claim(
    Claim(
        id="partial_rope",
        title="A quarter of each vector is enough for RoPE, with and without K=V",
        question="How much of queries and keys must RoPE rotate?",
        source="practice: GPT-NeoX (arXiv 2204.06745) rotates a quarter, Gemma 4 and DeepSeek V4 "
        "a part of each vector",
        says="Large models rotate only a part of queries and keys.",
        prediction="It holds: on recall, rotating a quarter of each vector is at most 5 points "
        "worse than rotating all of it, with three matrices and with K=V.",
        expected="held",
        seen="nothing",
        seen_note="The variant had not been trained when the prediction was committed. " + RAISED,
        arms=(
            arm("QKV positions=rope rope_width=d/4", "QKV, a quarter", **_SETTINGS),
            arm("QKV positions=rope", "QKV, all", **_SETTINGS),
            arm("K=V positions=rope rope_width=d/4", "K=V, a quarter", **_SETTINGS),
            arm("K=V positions=rope", "K=V, all", **_SETTINGS),
        ),
        statements=(
            no_worse("QKV, a quarter", "QKV, all").worded(
                held="On recall, RoPE on a quarter of each vector is at most 5 points worse than "
                "RoPE on all of it",
                failed="On recall, RoPE on a quarter of each vector is worse than RoPE on all of "
                "it by more than 5 points",
            ),
            no_worse("K=V, a quarter", "K=V, all"),
        ),
        n_seeds=40,
        family="What papers say",
        is_new=True,
    )
)
