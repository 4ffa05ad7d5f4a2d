"""Whether queries and keys narrower than log₂ N numbers can select one of N entries."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.statements import worse
from attnkit.claims.thin_keys import ARMS, UP_TO
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="thin_keys_needed",
    title=mark("Fewer than log₂ N numbers are not enough"),
    question=mark("Do queries and keys need log₂ N numbers to select one of N entries?"),
    source=mark("reported: Thin Keys, arXiv 2603.04427 (abstract)"),
    says=mark("Selecting among N needs about log₂ N dimensions."),
    prediction=mark(
        "It does not hold: an audit found 3 numbers enough for 32 entries, and 2 nearly enough for "
        "8. A circle of unit vectors in two dimensions has room for any number of directions; the "
        "price is precision."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "Unit vectors in a plane or in space have room for many directions: 3 numbers tell 32 "
        "entries apart, 2 numbers 8. With 1 number, models have 77% right after 2,400 steps."
    ),
    seen="an earlier run",
    seen_note=mark("An audit had trained these widths with three or four seeds."),
    arms=ARMS,
    statements=(
        worse(
            "32 entries, 3",
            "32 entries, 16",
            at=UP_TO,
            text=mark(
                "On a phone book of 32 entries, queries and keys of 3 numbers are worse than those "
                "of 16 by more than 5 points"
            ),
            opposite=mark(
                "On a phone book of 32 entries, queries and keys of 3 numbers are at most 5 points "
                "worse than those of 16"
            ),
            more_often=mark(
                "On a phone book of 32 entries, queries and keys of 3 numbers fall behind those of "
                "16 more often"
            ),
        ),
        worse(
            "8 entries, 2",
            "8 entries, 16",
            at=UP_TO,
            text=mark(
                "On a phone book of 8 entries, queries and keys of 2 numbers are worse than those "
                "of 16 by more than 5 points"
            ),
            opposite=mark(
                "On a phone book of 8 entries, queries and keys of 2 numbers are at most 5 points "
                "worse than those of 16"
            ),
            more_often=mark(
                "On a phone book of 8 entries, queries and keys of 2 numbers fall behind those of "
                "16 more often"
            ),
        ),
    ),
    n_seeds=40,
    family="What papers say",
)
register_claim(CLAIM)
