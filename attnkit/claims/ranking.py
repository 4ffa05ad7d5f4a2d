"""The order of the sharings in a language model, at toy scale."""

from attnkit.claims.base import Claim, register_claim, worse
from attnkit.claims.reformer_text import ARMS

register_claim(
    Claim(
        id="ranking",
        title="The order on text",
        question="In language models of 300 million parameters QKV is best, then K=V, Q=K, Q=K=V. "
        "Here, too?",
        source="Kayyam et al. 2026, arXiv 2606.04032 (validation perplexity 5.11, 5.27, 5.36 "
        "and 6.41)",
        says="K=V costs 3.1% perplexity, Q=K 4.9%, Q=K=V 25.4%.",
        prediction="Undecided: QKV first and Q=K=V last for sure, but K=V and Q=K were too "
        "close in a prototype.",
        expected="undecided",
        reason="Our prototype had given Q=K the self-mask, and the paper did not: without it, Q=K "
        "falls behind K=V.",
        seen="an earlier run",
        seen_note="Untuned runs on text had shown this very order, a prototype K=V and Q=K nearly "
        "alike; a first pass on other seeds was seen, and the prediction was left as it "
        "was.",
        arms=ARMS,
        statements=(
            worse("K=V", "QKV", 0, measure="loss", text="K=V has a higher loss than QKV"),
            worse("Q=K", "K=V", 0, measure="loss", text="Q=K has a higher loss than K=V"),
            worse("Q=K=V", "Q=K", 0, measure="loss", text="Q=K=V has a higher loss than Q=K"),
        ),
        n_seeds=10,
        family="What papers say",
    )
)
