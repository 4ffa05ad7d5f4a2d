"""Parameters that K=V needs in a narrow head to do as well as QKV."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse, worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="parameters",
    title=mark("Within 600 steps a narrow head of K=V falls behind QKV at equal parameters"),
    question=mark("How much wider must a narrow head be for K=V to do as well?"),
    source=mark(
        "Robin, Stack Exchange 2019, “Why K and V are not the same in Transformer attention?”"
    ),
    says=mark(
        "With one matrix for keys and values “you'll lose a lot of expressiveness and might need "
        "much more parameters to achieve similar performances”."
    ),
    prediction=mark(
        "It holds: at equal parameters (4 wide) about half of the runs fall behind, as an earlier "
        "record showed, and with half as many again (6 wide) none does."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "We first expected “held”; a first pass on other seeds had left it open, and the "
        "prediction was then changed to “undecided”. After the record the arms 5 wide were added, "
        "which are shown and not judged, and the title was made narrower."
    ),
    arms=arms(
        *(
            (f"{sharing} d_head={width}", f"{sharing}, {width} wide")
            for sharing in ("QKV", "K=V")
            for width in (2, 3, 4, 5, 6, 8)
        ),
        task="phonebook",
    ),
    statements=(
        worse(
            "K=V, 4 wide",
            "QKV, 3 wide",
            text=mark(
                "With as many attention parameters, K=V in heads 4 wide is worse than QKV in heads "
                "3 wide by more than 5 points"
            ),
            opposite=mark(
                "With as many attention parameters, K=V in heads 4 wide is at most 5 points worse "
                "than QKV in heads 3 wide"
            ),
            more_often=mark(
                "With as many attention parameters, K=V in heads 4 wide falls behind QKV in heads "
                "3 wide more often"
            ),
        ),
        no_worse(
            "K=V, 6 wide",
            "QKV, 3 wide",
            text=mark(
                "With 1.5 times the attention parameters, K=V in heads 6 wide is at most 5 points "
                "worse than QKV in heads 3 wide"
            ),
            opposite=mark(
                "With 1.5 times the attention parameters, K=V in heads 6 wide is worse than QKV in "
                "heads 3 wide by more than 5 points"
            ),
            more_often=mark(
                "With 1.5 times the attention parameters, K=V in heads 6 wide falls behind QKV in "
                "heads 3 wide more often"
            ),
        ),
    ),
    n_seeds=80,
)
register_claim(CLAIM)
