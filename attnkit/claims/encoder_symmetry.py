"""Symmetry of W_Q W_Kᵀ after bidirectional and after causal training on the same text."""

from typing import Any

from attnkit.claims.base import Claim, Verdict, arm, register_claim
from attnkit.claims.statements import Statement
from attnkit.foundation.language import mark

_TEXT: dict[str, Any] = {
    "task": "language",
    "length": 32,
    "d_model": 32,
    "n_heads": 2,
    "d_mlp": 64,
    "batch_size": 32,
    "steps": 1500,
}
"""Small models: within these steps masked ones learn far more than character frequencies."""

_BOTH_SIDES = {**_TEXT, "objective": "masked", "causal": False}

ARMS = (
    arm("QKV", "both sides", **_BOTH_SIDES),
    arm("QKV start=Q=K", "both sides, symmetric start", **_BOTH_SIDES),
    arm("QKV start=Q=K", "symmetric start, same rate", recipe_of="both sides", **_BOTH_SIDES),
    arm("QKV", "causal", **_TEXT),
)

CLAIM = Claim(
    id="encoder_symmetry",
    title=mark("Encoders become more symmetric than causal models"),
    question=mark(
        "On the same text, do models that see both sides end with more symmetric W_Q W_Kᵀ than "
        "causal ones?"
    ),
    source=mark(
        "Saponati et al., ICML 2025, arXiv 2502.10927 (median over layers: BERT .51, GPT-2 .15)"
    ),
    says=mark(
        "Bidirectional training makes query–key matrices symmetric, autoregressive training makes "
        "them directional."
    ),
    prediction=mark(
        "It holds, but small after 1500 steps: by more than 0.05. In a first pass, on larger "
        "models that had learnt nothing yet, it was the other way round."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "A first pass on larger models had come out the other way; the models were then made "
        "smaller and trained for 1,500 steps in place of 250, and the expected verdict was kept."
    ),
    arms=ARMS,
    statements=(
        Statement(
            mark("Symmetry is higher by more than 0.05 if the model sees both sides"),
            mark("Symmetry is higher by at most 0.05 if the model sees both sides"),
            "both sides",
            "causal",
            "weight_symmetry",
            low=0.05,
        ),
    ),
    n_seeds=40,
    family="What papers say",
)
register_claim(CLAIM)
