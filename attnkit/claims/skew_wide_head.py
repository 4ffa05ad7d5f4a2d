"""A skew part of 12 in a head 24 wide, with fewer parameters than QKV."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

UP_TO = 8

CLAIM = Claim(
    id="skew_wide_head",
    title=mark("With a skew part, Q=K tells direction with fewer parameters than QKV"),
    question=mark(
        "Shared queries and keys, half of whose numbers make a skew part: do they find who reports "
        "to whom as well as QKV, if the head is wider?"
    ),
    source=mark("an audit of attnkit, on the question of arXiv 2605.18826"),
    says=mark(
        "Q=K with d_k=24 and a skew part of 12 has 99.3% right, with 1,792 parameters in attention "
        "against 2,048."
    ),
    prediction=mark(
        "It holds, as in the audit: at 8 times the steps it is at most 5 points worse than QKV. 12 "
        "numbers compare as a symmetric score does, and 12 give the direction."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "An audit with seeds of its own had shown an accuracy of .993 [.991, .996]; we had not "
        "trained this width."
    ),
    arms=arms(
        ("Q=K d_k=24 skew=12", "skew part of 12 in a head of 24"),
        "QKV",
        task="directed",
        up_to=UP_TO,
    ),
    statements=(
        no_worse(
            "skew part of 12 in a head of 24",
            "QKV",
            at=UP_TO,
            text=mark(
                "On who reports to whom, Q=K with a skew part of 12 in a head of 24 is at most 5 "
                "points worse than QKV with more parameters"
            ),
            opposite=mark(
                "On who reports to whom, Q=K with a skew part of 12 in a head of 24 is worse than "
                "QKV with more parameters by more than 5 points"
            ),
            more_often=mark(
                "On who reports to whom, Q=K with a skew part of 12 in a head of 24 falls behind "
                "QKV with more parameters more often"
            ),
        ),
    ),
    family="Our own",
)
register_claim(CLAIM)
