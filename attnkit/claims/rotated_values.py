"""Values that are rotated like keys (RoVE), in recall."""

from typing import Any

from attnkit.claims.base import RAISED, Claim, arm, register_claim
from attnkit.claims.statements import better

_SETTINGS: dict[str, Any] = {
    "task": "mqar",
    "batch_size": 64,
    "d_model": 16,
    "d_head": 16,
    "up_to": 4,
}

register_claim(
    Claim(
        id="rotated_values",
        title="Rotated values help recall",
        question="RoPE rotates queries and keys by their position. Should values be rotated, too?",
        source="RoVE, arXiv 2606.11275 (there in language models of 124M and 354M parameters)",
        says="Rotating values, and outputs back, tells a head where a value comes from, and helps.",
        prediction="It does not hold: on recall, where a value means the same wherever it stands, "
        "rotated values are neither better nor worse by more than 5 points. The model is 16 wide, "
        "because wider ones solve the task.",
        expected="did not hold",
        seen="nothing",
        seen_note="The variant had not been trained when the prediction was committed. A sweep of "
        "MQAR with learned positions had shown that models 16 wide do not solve longer texts. "
        + RAISED,
        arms=(
            arm("QKV positions=rope rotate_values", "rotated values", **_SETTINGS),
            arm("QKV positions=rope", "RoPE", **_SETTINGS),
        ),
        statements=(better("rotated values", "RoPE"),),
        n_seeds=40,
        family="What papers say",
        is_new=True,
    )
)
