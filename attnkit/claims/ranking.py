"""Ranking of QKV, K=V, Q=K and Q=K=V in a small language model."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.reformer_text import ARMS, UP_TO
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="ranking",
    title=mark("On text without the self-mask the order is QKV, K=V, Q=K, Q=K=V"),
    question=mark(
        "In language models of 300 million parameters QKV is best, then K=V, Q=K, Q=K=V. Here, too?"
    ),
    source=mark(
        "Kayyam et al. 2026, arXiv 2606.04032 (validation perplexity 5.11, 5.27, 5.36 and 6.41)"
    ),
    says=mark("K=V costs 3.1% perplexity, Q=K 4.9%, Q=K=V 25.4%."),
    prediction=mark(
        "It holds: in an audit of 600 steps the losses were 1.956, 2.053 and 2.371 for QKV, K=V "
        "and Q=K. The paper used no self-mask, nor do these arms."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "An earlier record stopped after 250 steps, before models knew more than letter pairs, and "
        "was undecided; an audit with four seeds and 600 steps showed this order."
    ),
    arms=ARMS,
    statements=tuple(
        worse(left, right, 0, measure="loss", at=UP_TO)
        for left, right in (("K=V", "QKV"), ("Q=K", "K=V"), ("Q=K=V", "Q=K"))
    ),
    n_seeds=20,
    family="What papers say",
)
register_claim(CLAIM)
