"""How many parameters buy back what K=V loses in a narrow head."""

from attnkit.claims.base import Claim, arm, no_worse, register_claim, worse

WIDTHS = (2, 3, 4, 6, 8)

register_claim(
    Claim(
        id="parameters",
        title="What K=V costs in parameters",
        question="How much wider must the head be for K=V to do as well?",
        source="Robin, Stack Exchange 2019, “Why K and V are not the same in Transformer "
        "attention?”",
        says="With one matrix for keys and values “you'll lose a lot of expressiveness and might "
        "need much more parameters to achieve similar performances”.",
        prediction="Supported in a narrow head: one vector must hold address and content. K=V 4 "
        "wide has as many parameters as QKV 3 wide and is still worse; 6 wide, half as many again, "
        "it is not.",
        expected="supported",
        reason="At one width K=V is far worse, with half as many parameters again it is not. With "
        "as many it is as good in most seeds and fails in a few, which settles nothing.",
        arms=tuple(
            arm(f"{sharing} d_head={width}", f"{sharing}, {width} wide", task="phonebook")
            for sharing in ("QKV", "K=V")
            for width in WIDTHS
        ),
        statements=(
            worse(
                "K=V, 4 wide",
                "QKV, 3 wide",
                text="K=V is worse than QKV with as many parameters (heads 4 and 3 wide)",
            ),
            worse("K=V, 3 wide", "QKV, 3 wide", text="K=V is worse than QKV at the same width (3)"),
            no_worse(
                "K=V, 6 wide",
                "QKV, 3 wide",
                text="With half as many parameters again (6 wide) K=V does as well",
            ),
        ),
    )
)
