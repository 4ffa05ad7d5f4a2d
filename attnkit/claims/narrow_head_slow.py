"""Steps that K=V and QKV need in a narrow head."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse, worse
from attnkit.foundation.language import mark

_UP_TO = 8

CLAIM = Claim(
    id="narrow_head_slow",
    title=mark("K=V learns slowly in a narrow head"),
    question=mark("In a head 3 numbers wide, how many more steps does K=V need than QKV?"),
    source=mark("attnkit's own, after the claim on narrow heads"),
    says=mark(
        "K=V needs more than four times the steps of QKV where the head is 3 wide, and not where "
        "it is 8 wide."
    ),
    prediction=mark(
        "It holds: in an audit K=V took 1,800 to 6,000 steps where QKV took some 300. In heads 8 "
        "wide both solve the phone book within 600 steps."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark("An audit had trained both for longer, with three seeds."),
    arms=arms(
        *(
            (f"{sharing} d_head={width}", f"{sharing}, {width} wide")
            for sharing in ("QKV", "K=V")
            for width in (3, 8)
        ),
        task="phonebook",
        up_to=_UP_TO,
    ),
    statements=(
        worse(
            "K=V, 3 wide",
            "QKV, 3 wide",
            2.0,
            measure="steps_to_solve",
            at=_UP_TO,
            text=mark("In heads 3 wide K=V needs more than four times the steps of QKV"),
            opposite=mark("In heads 3 wide K=V needs at most four times the steps of QKV"),
            more_often=mark(
                "In heads 3 wide K=V falls behind QKV more often in steps to solve the task"
            ),
        ),
        no_worse(
            "K=V, 8 wide",
            "QKV, 8 wide",
            2.0,
            measure="steps_to_solve",
            at=_UP_TO,
            text=mark("In heads 8 wide K=V needs at most four times the steps of QKV"),
            opposite=mark("In heads 8 wide K=V needs more than four times the steps of QKV"),
            more_often=mark(
                "In heads 8 wide K=V falls behind QKV more often in steps to solve the task"
            ),
        ),
    ),
    family="Our own",
)
register_claim(CLAIM)
