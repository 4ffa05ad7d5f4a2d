"""Q=K on a relation with a direction: who reports to whom."""

from attnkit.claims.base import Claim, arm, no_worse, register_claim, worse

register_claim(
    Claim(
        id="direction",
        title="Direction needs W_Q ≠ W_K",
        question="Ada reports to Cem, but Cem does not report to Ada. Can Q=K tell?",
        source="the second answer on Stack Exchange 2023, “How important are the different spaces "
        "of Q and K?”",
        says="“One reason to have different Query and Key vectors is to allow asymmetry.”",
        prediction="Supported: with one head, one layer and no MLP symmetric scores stay at one of "
        "two picked at random, about 0.52, also when trained longer and tuned finer. K=V is as "
        "good as QKV.",
        expected="supported",
        arms=(
            arm("QKV", task="directed"),
            arm("Q=K", task="directed"),
            arm("K=V", task="directed"),
        ),
        statements=(worse("Q=K", "QKV", unable=True), no_worse("K=V", "QKV")),
    )
)
