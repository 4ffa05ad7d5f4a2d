"""Attention without a value matrix, and without any matrix."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

_QKV, _NO_VALUE = ("QKV d_head=m/h", "QKV"), ("QKV V=I d_head=m/h", "V=I")
_NO_MATRIX = ("Q=K=V=I O=I d_head=m/h", "no matrix")

CLAIM = Claim(
    id="no_value",
    title=mark("Attention works without a value matrix"),
    question=mark("Why multiply by a value matrix at all? Could a token pass on its own vector?"),
    source=mark(
        "a thread on the use of the value, Stack Exchange (Karbevski and Mijoski 2025, arXiv "
        "2510.23912, prove that one of the three can be the identity, and train models without W_Q "
        "only: a claim of its own)"
    ),
    says=mark(
        "“Why should we learn how to change the embedding of the words? Why can't we use the "
        "original embedding space?”"
    ),
    prediction=mark(
        "It holds: the output matrix reads what it needs out of the token, and the embedding is "
        "learnt along. On the phone book even no matrix at all suffices."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "Untuned runs had shown the phone book solved without a value matrix; after a first pass "
        "on other seeds the number of seeds was raised from 12 to 20 and a third statement, about "
        "no matrix at all, was dropped."
    ),
    arms=(
        *arms(_QKV, _NO_VALUE, _NO_MATRIX, on="phone book", task="phonebook"),
        *arms(_QKV, _NO_VALUE, on="reports to", task="directed"),
    ),
    statements=(
        no_worse(
            "V=I, phone book",
            "QKV, phone book",
            text=mark("On the phone book, V=I is at most 5 points worse than QKV"),
            opposite=mark("On the phone book, V=I is worse than QKV by more than 5 points"),
            more_often=mark("On the phone book, V=I falls behind QKV more often"),
        ),
        no_worse(
            "V=I, reports to",
            "QKV, reports to",
            text=mark("On who reports to whom, V=I is at most 5 points worse than QKV"),
            opposite=mark("On who reports to whom, V=I is worse than QKV by more than 5 points"),
            more_often=mark("On who reports to whom, V=I falls behind QKV more often"),
        ),
    ),
)
register_claim(CLAIM)
