"""Whether queries and keys of log₂ N numbers are wide enough to select one of N entries."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

UP_TO = 4

ARMS = (
    *arms(
        ("QKV", "8 entries, 16"),
        ("QKV d_k=3", "8 entries, 3"),
        ("QKV d_k=2", "8 entries, 2"),
        ("QKV d_k=1", "8 entries, 1"),
        task="phonebook",
        d_head=16,
        up_to=UP_TO,
    ),
    *arms(
        ("QKV", "32 entries, 16"),
        ("QKV d_k=5", "32 entries, 5"),
        ("QKV d_k=3", "32 entries, 3"),
        task="phonebook",
        d_head=16,
        n_entries=32,
        n_names=64,
        up_to=UP_TO,
    ),
)

CLAIM = Claim(
    id="thin_keys",
    title=mark("3 numbers select one of 8 entries, 5 one of 32"),
    question=mark("How many numbers must a query and a key have to select one of 8 or 32 entries?"),
    source=mark("reported: Thin Keys, arXiv 2603.04427 (abstract)"),
    says=mark("Selecting among N needs about log₂ N dimensions: far fewer than values need."),
    prediction=mark("It holds: 3 are enough for 8 entries and 5 for 32, with values 16 wide."),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "Untuned runs had shown heads 3 wide solving a phone book of 8 entries; after a first pass "
        "on other seeds the number of seeds was raised from 10 to 20 and one statement made "
        "stricter. After the record the title was made narrower: it had spoken of log₂ N numbers, "
        "but with 2 entries of 64 names 1 number is not quite enough."
    ),
    arms=ARMS,
    statements=(
        no_worse(
            "8 entries, 3",
            "8 entries, 16",
            at=UP_TO,
            text=mark(
                "On a phone book of 8 entries, queries and keys of 3 numbers are at most 5 points "
                "worse than those of 16"
            ),
            opposite=mark(
                "On a phone book of 8 entries, queries and keys of 3 numbers are worse than those "
                "of 16 by more than 5 points"
            ),
            more_often=mark(
                "On a phone book of 8 entries, queries and keys of 3 numbers fall behind those of "
                "16 more often"
            ),
        ),
        no_worse(
            "32 entries, 5",
            "32 entries, 16",
            at=UP_TO,
            text=mark(
                "On a phone book of 32 entries, queries and keys of 5 numbers are at most 5 points "
                "worse than those of 16"
            ),
            opposite=mark(
                "On a phone book of 32 entries, queries and keys of 5 numbers are worse than those "
                "of 16 by more than 5 points"
            ),
            more_often=mark(
                "On a phone book of 32 entries, queries and keys of 5 numbers fall behind those of "
                "16 more often"
            ),
        ),
    ),
    n_seeds=40,
    family="What papers say",
)
register_claim(CLAIM)
