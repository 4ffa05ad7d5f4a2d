"""Keys that are computed from values, at half of the KV cache, on text."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT, TEXT_SEEDS
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

ARMS = arms("QKV", ("QKV keyless", "keyless"), "K=V", **TEXT)

CLAIM = Claim(
    id="keyless_text",
    title=mark("Keyless attention does as well as QKV at half of the cache"),
    question=mark(
        "A decoder keeps only values, and a matrix of each head turns them into keys. What is lost?"
    ),
    source=mark(
        "Gao and Xu 2026, arXiv 2606.21848 (five language models of 280 million to 1.5 billion "
        "parameters)"
    ),
    says=mark(
        "Without a key matrix, and with a matrix in the space of values instead, models match or "
        "beat QKV in four of five cases, with half of the cache."
    ),
    prediction=mark(
        "It does not hold: W_Q can absorb the matrix, so keyless attention is K=V in other words, "
        "and on text K=V costs more than 0.03 nats in heads as narrow as 8."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "Keyless attention has about the loss of K=V: 2.03 nats against 2.04, where QKV has 1.96. "
        "Without norms and rotations of keys the two compute the same functions."
    ),
    seen_note=mark(
        "Keyless attention had not been trained on text when the prediction was committed; on "
        "recall it had, see the claim on keyless attention with four heads. What K=V costs was "
        "known of a larger model with one layer: 0.04 nats."
    ),
    arms=ARMS,
    statements=(
        no_worse(
            "keyless",
            "QKV",
            0.03,
            measure="loss",
            text=mark("On text, keyless attention is at most 0.03 nats worse than QKV"),
            opposite=mark("On text, keyless attention is worse than QKV by more than 0.03 nats"),
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="What papers say",
)
register_claim(CLAIM)
