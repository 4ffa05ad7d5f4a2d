"""Q=K on relations that are symmetric by nature."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="shared_qk",
    title=mark("In heads 8 wide, Q=K finds mutual connections as well as QKV"),
    question=mark("With W_Q = W_K, would we still find useful connections?"),
    source=mark(
        "the first answer in a thread on W_Q and W_K, Stack Exchange 2023, after Kitaev et al. "
        "2020, arXiv 2001.04451"
    ),
    says=mark(
        "“Yes: you'd find useful connections still. … A shared query-key space does not perform "
        "worse than regular attention; … it appears to train slightly faster.”"
    ),
    prediction=mark(
        "It holds where the relation is symmetric: looking up a name needs likeness. Q=K was "
        "faster on the phone book."
    ),
    expected=Verdict.HELD,
    seen="a prototype",
    seen_note=mark(
        "A prototype and untuned runs had shown Q=K doing as well and learning the phone book "
        "faster; after a first pass on other seeds the number of seeds was raised from 12 to 20, "
        "and the prediction was left as it was. After the record the arms 2 wide were added, which "
        "are shown and not judged, and the title was made narrower."
    ),
    arms=(
        *arms("QKV", "Q=K", on="phone book", task="phonebook"),
        *arms(
            ("QKV d_head=2", "QKV"),
            ("Q=K d_head=2", "Q=K"),
            on="2 wide",
            task="phonebook",
            up_to=8,
        ),
        *arms("QKV", "Q=K", on="married", task="mutual"),
    ),
    statements=(
        no_worse(
            "Q=K, phone book",
            "QKV, phone book",
            text=mark("On the phone book, Q=K is at most 5 points worse than QKV"),
            opposite=mark("On the phone book, Q=K is worse than QKV by more than 5 points"),
            more_often=mark("On the phone book, Q=K falls behind QKV more often"),
        ),
        no_worse(
            "Q=K, married",
            "QKV, married",
            text=mark("On who is married to whom, Q=K is at most 5 points worse than QKV"),
            opposite=mark("On who is married to whom, Q=K is worse than QKV by more than 5 points"),
            more_often=mark("On who is married to whom, Q=K falls behind QKV more often"),
        ),
        no_worse(
            "Q=K, phone book",
            "QKV, phone book",
            0.02,
            measure="accuracy_all_along",
            text=mark(
                "On the phone book, Q=K is at most 2 points worse than QKV in mean accuracy during "
                "training"
            ),
            opposite=mark(
                "On the phone book, Q=K is worse than QKV by more than 2 points in mean accuracy "
                "during training"
            ),
            more_often=mark(
                "On the phone book, Q=K falls behind QKV more often in mean accuracy during "
                "training"
            ),
        ),
    ),
    n_seeds=120,
)
register_claim(CLAIM)
