"""Rotation of a part of each vector only."""

from typing import Any

from attnkit.claims.base import Claim, arm, register_claim
from attnkit.claims.statements import no_worse

_SETTINGS: dict[str, Any] = {"task": "mqar"}

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
        seen_note="The variant had not been trained when the prediction was committed. "
        "The number of seeds was raised from 20 to 40 after the first 20 had been seen: 20 cannot "
        "show “no worse” when all verdicts are read together, whatever they are.",
        arms=(
            arm("QKV positions=rope rope_width=d/4", "QKV, a quarter", **_SETTINGS),
            arm("QKV positions=rope", "QKV, all", **_SETTINGS),
            arm("K=V positions=rope rope_width=d/4", "K=V, a quarter", **_SETTINGS),
            arm("K=V positions=rope", "K=V, all", **_SETTINGS),
        ),
        statements=(
            no_worse("QKV, a quarter", "QKV, all").worded(
                held="Rotating a quarter of each vector recalls at most 5 points worse than "
                "rotating all of it",
                failed="Rotating a quarter of each vector recalls more than 5 points worse than "
                "rotating all of it",
            ),
            no_worse("K=V, a quarter", "K=V, all"),
        ),
        n_seeds=40,
        family="What papers say",
        is_new=True,
    )
)
