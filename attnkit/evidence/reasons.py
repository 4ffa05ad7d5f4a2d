"""Reasons for the answers to the questions: sentences without numbers, with a text per verdict."""

from __future__ import annotations

from attnkit.claims.names import joined
from attnkit.evidence.question import Sentence
from attnkit.foundation.language import mark

_ROLES = mark(
    "The key decides how much attention a token gets; the value is what the token then passes on."
)

_ONE_MAP = mark(
    "With one head as wide as the model, W_V and W_O multiply to one matrix, so nothing can be "
    "lost but speed."
)

_LEARNT_ANYWAY = mark(
    "With one matrix for queries and keys, Ada’s score for Cem equals Cem’s score for Ada, but the "
    "models learnt who reports to whom in spite of it."
)

_LEARNING_OPEN = mark(
    "With one matrix for queries and keys, Ada’s score for Cem equals Cem’s score for Ada; whether "
    "one head can still learn who reports to whom is open."
)

_ADDRESS = mark("With K=V, one vector is both the address and the content of a token.")

TRANSLATION = (
    Sentence(
        "cross_attention",
        held=joined(_ROLES, mark("One matrix did not serve both here.")),
        failed=mark("Here one vector per token can be key and value at once."),
        undecided=joined(_ROLES, mark("Whether one matrix can serve both here is open.")),
    ),
    Sentence(
        "without_matrices",
        held=mark(
            "Attention without any matrix does as well, so these tasks do not show what real "
            "translation would lose."
        ),
        failed=mark("Attention without any matrix does worse on these tasks."),
        undecided=mark(
            "Whether these tasks need any matrix in attention is open, so they do not show what "
            "real translation would lose."
        ),
    ),
)

VALUE = (
    Sentence(
        "no_value",
        held=joined(_ROLES, _ONE_MAP),
        failed=joined(_ROLES, _ONE_MAP, mark("Within these steps speed was lost.")),
        undecided=joined(_ROLES, _ONE_MAP, mark("Whether it is lost within these steps is open.")),
    ),
    Sentence(
        "several_heads_no_value",
        held=mark("On text, four heads lose nothing without it at the best rate."),
        failed=mark("On text, four heads lose without it."),
        undecided=mark("Whether four heads lose without it on text is open."),
    ),
)

TWO_SPACES = (
    Sentence(
        "direction",
        held=mark(
            "With one matrix for queries and keys, Ada’s score for Cem equals Cem’s score for Ada, "
            "so one head in one layer without an MLP mixes up whom Ada reports to and who reports "
            "to her. In a mutual relation, such as marriage, both directions are right."
        ),
        failed=_LEARNT_ANYWAY,
        undecided=_LEARNING_OPEN,
    ),
)

EXPRESSIVENESS = (
    Sentence(
        "narrow_head_slow",
        held=joined(_ADDRESS, mark("In a narrow head, learning to hold both takes more steps.")),
        failed=joined(_ADDRESS, mark("Learning to hold both did not take many more steps.")),
        undecided=joined(_ADDRESS, mark("Whether learning to hold both takes more steps is open.")),
        statement=0,
    ),
    Sentence(
        "parameters",
        held=mark("A head twice as wide makes up for it."),
        failed=mark("Half as many parameters again do not make up for it."),
        undecided=mark("Whether it takes more parameters, too, is not decided."),
        statement=1,
    ),
)

ONE_MATRIX = (
    Sentence(
        "one_matrix",
        held=_LEARNT_ANYWAY,
        failed=mark(
            "With one matrix for queries and keys, Ada’s score for Cem equals Cem’s score for Ada, "
            "so one head without an MLP did not learn who reports to whom. In a mutual relation, "
            "such as marriage, both directions are right."
        ),
        undecided=_LEARNING_OPEN,
        statement=0,
    ),
    Sentence(
        "one_matrix_self_mask",
        held=mark(
            "In a phone book one matrix is enough if no token may attend to itself (self-mask)."
        ),
        failed=mark(
            "In a phone book one matrix does worse, even if no token may attend to itself "
            "(self-mask)."
        ),
        undecided=mark(
            "Whether one matrix is enough for a phone book if no token may attend to itself "
            "(self-mask) is open."
        ),
    ),
)
