"""Values that are rotated like keys (RoVE), in recall."""

from attnkit.claims.base import RAISED_WORSE, Claim, Verdict, arms, register_claim
from attnkit.claims.names import joined
from attnkit.claims.statements import better
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="rotated_values",
    title=mark("Rotated values help recall"),
    question=mark(
        "RoPE rotates queries and keys by their position. Should values be rotated, too?"
    ),
    source=mark("RoVE, arXiv 2606.11275 (there in language models of 124M and 354M parameters)"),
    says=mark(
        "Rotating values, and outputs back, tells a head where a value comes from, and helps."
    ),
    prediction=mark(
        "It does not hold: on recall, where a value means the same wherever it stands, rotated "
        "values are neither better nor worse by more than 5 points. The model is 16 wide, because "
        "wider ones solve the task."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "A model 16 wide recalls these texts either way: 120 of 120 seeds with rotated values have "
        "at least 99% right, and 104 of 120 without. The other 16 are close: only 5 differ by more "
        "than 5 points."
    ),
    seen_note=joined(
        mark(
            "The variant had not been trained when the prediction was committed. A sweep of MQAR "
            "with learned positions had shown that models 16 wide do not solve longer texts."
        ),
        RAISED_WORSE,
    ),
    arms=arms(
        ("QKV positions=rope rotate_values", "rotated values"),
        ("QKV positions=rope", "RoPE"),
        task="mqar",
        batch_size=64,
        d_model=16,
        d_head=16,
    ),
    statements=(
        better(
            "rotated values",
            "RoPE",
            text=mark("RoPE with rotated values is better than RoPE by more than 5 points"),
            opposite=mark("RoPE with rotated values is at most 5 points better than RoPE"),
            more_often=mark("RoPE with rotated values gets ahead of RoPE more often"),
        ),
    ),
    n_seeds=120,
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
