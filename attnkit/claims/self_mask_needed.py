"""Q=K without the self-mask finds itself."""

from attnkit.claims.base import Claim, arm, register_claim, worse

register_claim(
    Claim(
        id="self_mask_needed",
        title="Q=K needs the self-mask",
        question="With Q=K a token resembles itself most. Must it be kept from looking at itself?",
        source="Kitaev et al. 2020, arXiv 2001.04451, section 2",
        says="Tokens are not allowed to attend to themselves, since the dot product of a vector "
        "with itself is almost always larger than with others.",
        prediction="Supported on induction, where the token's own earlier copy is what is looked "
        "for.",
        expected="supported",
        reason="Without it about half of the runs fail and half do as well: whether a run escapes "
        "hangs on its first numbers.",
        arms=(
            arm("QKV", task="induction"),
            arm("Q=K", task="induction"),
            arm("Q=K self_mask", "Q=K, self-mask", task="induction"),
        ),
        statements=(worse("Q=K", "Q=K, self-mask", unable=True),),
        family="What papers say",
    )
)
