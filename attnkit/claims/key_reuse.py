"""One key for all heads, which is also the value or makes it, on text."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT, TEXT_SEEDS
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="key_reuse",
    title=mark("One cached key for all heads costs little if a matrix makes the value of it"),
    question=mark(
        "All heads share one key, and the value is computed from it. What is lost against a shared "
        "key and a shared value?"
    ),
    source=mark(
        "MFA-Key-Reuse, Hu et al. 2024, arXiv 2412.19255 (with wide heads and factorised queries, "
        "which are left out here)"
    ),
    says=mark(
        "The key cache serves as values, after one more matrix: 94% less cache than with full "
        "heads, with “minor performance trade-off”."
    ),
    prediction=mark(
        "It holds: on text the loss is at most 0.05 nats higher than that of multi-query "
        "attention. W_O can absorb the matrix, so this is K=V with one head of keys, and K=V had "
        "cost multi-query attention about 0.04 nats in a larger model."
    ),
    expected=Verdict.HELD,
    seen_note=mark(
        "The variant had not been trained when the prediction was committed; K=V with one head of "
        "keys had, in a larger model with one layer."
    ),
    arms=arms(
        ("QKV kv_heads=1", "MQA"),
        ("QKV kv_heads=1 valueless", "MFA-Key-Reuse"),
        ("K=V kv_heads=1", "K=V + MQA"),
        **TEXT,
    ),
    statements=(
        no_worse(
            "MFA-Key-Reuse",
            "MQA",
            0.05,
            measure="loss",
            text=mark(
                "On text, one key that also makes the value is at most 0.05 nats worse than one "
                "key and one value"
            ),
            opposite=mark(
                "On text, one key that also makes the value is worse than one key and one value by "
                "more than 0.05 nats"
            ),
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="What papers say",
)
register_claim(CLAIM)
