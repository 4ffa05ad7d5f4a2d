"""Bidirectional against causal training on the same text."""

from typing import Any

from attnkit.claims.base import Claim, Statement, arm, register_claim

_TEXT: dict[str, Any] = {"task": "language", "steps": 250}
_BOTH_SIDES = {**_TEXT, "objective": "masked", "causal": False}

ARMS = (
    arm("QKV", "both sides", **_BOTH_SIDES),
    arm("QKV start=Q=K", "both sides, symmetric start", **_BOTH_SIDES),
    arm("QKV", "causal", **_TEXT),
)

register_claim(
    Claim(
        id="encoder_symmetry",
        title="Encoders grow symmetric",
        question="On the same text, do models that see both sides end with more symmetric W_Q W_Kᵀ "
        "than causal ones?",
        source="Saponati et al., ICML 2025, arXiv 2502.10927 (median over layers: BERT .51, GPT-2 "
        ".15)",
        says="Bidirectional training makes query–key matrices symmetric, autoregressive training "
        "makes them directional.",
        prediction="Supported, but small after 250 steps: by more than 0.05.",
        expected="supported",
        reason="Unknown. After 250 steps both are near 0, far from BERT's 0.51: it may take much "
        "longer training, or words in place of characters.",
        arms=ARMS,
        statements=(
            Statement(
                "Symmetry is higher by more than 0.05 if the model sees both sides",
                "both sides",
                "causal",
                "weight_symmetry",
                low=0.05,
            ),
        ),
        n_seeds=10,
        family="What papers say",
    )
)
