"""K=V in a narrow head: no room for address and content."""

from attnkit.claims.base import Claim, arm, register_claim, worse

ARMS = tuple(
    arm(f"{sharing} d_head={width}", f"{sharing}, {width} wide", task="phonebook")
    for sharing in ("QKV", "K=V")
    for width in (2, 3, 4, 6, 8)
)

register_claim(
    Claim(
        id="narrow_head",
        title="K=V in a narrow head",
        question="With three numbers per head, can one vector be both address and content?",
        source="Robin, Stack Exchange 2019, “Why K and V are not the same in Transformer "
        "attention?”",
        says="“By forcing K and V to play the same role, you lose the capacity of the model to "
        "distinguish between key interaction and value composition.”",
        prediction="Supported: a name and a number do not fit side by side into three numbers.",
        expected="supported",
        arms=ARMS,
        statements=(
            worse(
                "K=V, 3 wide",
                "QKV, 3 wide",
                unable=True,
                text="K=V is worse than QKV, both 3 wide, by more than 5 points",
            ),
        ),
    )
)
