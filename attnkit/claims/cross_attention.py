"""K=V in an encoder–decoder: the translation of the question."""

from attnkit.claims.base import Claim, arm, register_claim, worse

register_claim(
    Claim(
        id="cross_attention",
        title="K and V in translation",
        question="In translation keys and values come from the same encoder. Must they differ?",
        source="eric2323223 asks, Robin and others answer, Stack Exchange 2019, “Why K and V are "
        "not the same in Transformer attention?”",
        says="Asked: “for translation task K should be the same with V”. Answered: it “might still "
        "work, but you'll lose a lot of expressiveness”.",
        prediction="Contradicted for these small tasks: in cross-attention those who ask are other "
        "tokens, and one vector per source token holds its place and its letter.",
        expected="contradicted",
        reason="Whoever asks stands in the decoder and has W_Q; what is asked need only hold its "
        "place and its letter, and one vector does.",
        arms=(
            arm("QKV", "QKV, dictionary", task="dictionary"),
            arm("K=V", "K=V, dictionary", task="dictionary"),
            arm("QKV", "QKV, names", task="translation"),
            arm("K=V", "K=V, names", task="translation"),
        ),
        statements=(
            worse("K=V, dictionary", "QKV, dictionary", unable=True),
            worse(
                "K=V, names",
                "QKV, names",
                0.02,
                text="K=V is worse than QKV by more than 2 points on translated names",
            ),
        ),
    )
)
