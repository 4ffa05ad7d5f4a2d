"""Q=K without the self-mask finds itself."""

from attnkit.claims.base import Claim, arm, register_claim, worse

register_claim(
    Claim(
        id="self_mask_needed",
        title="Q=K needs the self-mask on induction",
        question="With Q=K a token resembles itself most. Must it be kept from looking at itself?",
        source="Kitaev et al. 2020, arXiv 2001.04451, section 2",
        says="Tokens are not allowed to attend to themselves, since the dot product of a vector "
        "with itself is almost always larger than with others.",
        prediction="It holds on induction, where the token's own earlier copy is what is looked "
        "for.",
        expected="held",
        reason="Without it about half of the runs fail and half do as well. Which of them a run "
        "does depends on its initial weights and data.",
        seen="a prototype",
        seen_note="Untuned runs had shown Q=K at 0.52 without the self-mask and at 1.00 with it; "
        "after a first pass on other seeds the number of seeds was raised from 10 to "
        "20, and the prediction was left as it was.",
        arms=(
            arm("QKV", task="induction"),
            arm("Q=K", task="induction"),
            arm("Q=K self_mask", "Q=K, self-mask", task="induction"),
        ),
        statements=(worse("Q=K", "Q=K, self-mask", unable=True),),
        family="What papers say",
    )
)
