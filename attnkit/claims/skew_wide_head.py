"""A skew part of 12 in a head 24 wide, with fewer parameters than QKV."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse

UP_TO = 8

CLAIM = Claim(
    id="skew_wide_head",
    title="With a skew part, Q=K tells direction with fewer parameters than QKV",
    question="Shared queries and keys, half of whose numbers make a skew part: do they find who "
    "reports to whom as well as QKV, if the head is wider?",
    source="an audit of attnkit, on the question of arXiv 2605.18826",
    says="Q=K with d_k=24 and a skew part of 12 has 99.3% right, with 1,792 parameters in "
    "attention against 2,048.",
    prediction="It holds, as in the audit: at 8 times the steps it is at most 5 points worse than "
    "QKV. 12 numbers compare as a symmetric score does, and 12 give the direction.",
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note="An audit with seeds of its own had shown an accuracy of .993 [.991, .996]; we had "
    "not trained this width.",
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
            in_words=(
                "On who reports to whom, Q=K with a skew part of 12 in a head of 24 is",
                "QKV with more parameters",
            ),
        ),
    ),
    family="Our own",
)
register_claim(CLAIM)
