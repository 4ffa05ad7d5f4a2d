"""K=V combined with multi-query attention."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.reformer_text import ARMS, UP_TO
from attnkit.claims.statements import Statement
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="mqa_stacks",
    title=mark("K=V costs MQA no more than it costs full attention"),
    question=mark("With a single head of keys and values, does K=V cost more than it did before?"),
    source=mark(
        "Kayyam et al. 2026, arXiv 2606.04032 (perplexity: MQA 5.19, K=V + MQA 5.36; QKV 5.11, K=V "
        "5.27)"
    ),
    says=mark(
        "K=V adds 3.3% perplexity to MQA, 3.1% to full attention: the two savings of cache "
        "multiply."
    ),
    prediction=mark("It holds: what K=V costs should hardly depend on how many heads share it."),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "What K=V costs QKV was known from a prototype, what it costs multi-query attention was "
        "not; a first pass on other seeds seems to have been inconclusive, and the prediction was "
        "kept."
    ),
    arms=ARMS,
    statements=(
        Statement(
            mark("K=V costs MQA at most 0.03 nats more than it costs full attention"),
            mark("K=V costs MQA over 0.03 nats more than it costs full attention"),
            "K=V + MQA",
            "MQA",
            "loss",
            high=0.03,
            second_left="K=V",
            second_right="QKV",
            at=UP_TO,
        ),
    ),
    n_seeds=60,
    family="What papers say",
)
register_claim(CLAIM)
