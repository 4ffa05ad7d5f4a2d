"""Short answers to the questions: what is asked with "yes" or "no", and a sentence per answer."""

from __future__ import annotations

from dataclasses import replace

from attnkit.evidence.question import Reply, Topic
from attnkit.foundation.language import mark

TRANSLATION = Topic(
    yes=mark("Yes, even a small translation is worse with one matrix for keys and values."),
    probably_yes=mark(
        "Probably yes: even a small translation is worse with one matrix for keys and values."
    ),
    no=mark("No, a small translation does nearly as well with one matrix for keys and values."),
    probably_no=mark(
        "Probably not: a small translation does nearly as well with one matrix for keys and values."
    ),
    undecided=mark("Not decided: our small translations do not tell."),
)

VALUE = Topic(
    yes=mark("Yes, without a value matrix some tasks are solved worse."),
    probably_yes=mark("Probably yes: without a value matrix some tasks are solved worse."),
    no=mark("No, with one head as wide as the model the output matrix can take its place."),
    probably_no=mark(
        "Probably not: with one head as wide as the model the output matrix can take its place."
    ),
    undecided=mark("Not decided: our tasks do not tell."),
)

DIRECTION = Topic(
    yes=mark("Yes for a relation with a direction."),
    probably_yes=mark("Probably yes for a relation with a direction."),
    no=mark("No for a relation with a direction."),
    probably_no=mark("Probably not for a relation with a direction."),
    undecided=mark("Not decided for a relation with a direction."),
)

DIRECTION_ALONE = replace(
    DIRECTION,
    yes=mark("Yes for a relation with a direction (one head, one layer, no MLP)."),
    probably_yes=mark(
        "Probably yes for a relation with a direction (one head, one layer, no MLP)."
    ),
)
"""What one head in one layer cannot do without an MLP."""

MUTUAL = Topic(
    yes=mark("Yes for a mutual relation."),
    probably_yes=mark("Probably yes for a mutual relation."),
    no=mark("No for a mutual relation."),
    probably_no=mark("Probably not for a mutual relation."),
    undecided=mark("Not decided for a mutual relation."),
)

SPEED = Topic(
    yes=mark("Yes for how fast a narrow head learns."),
    probably_yes=mark("Probably yes for how fast a narrow head learns."),
    no=mark("No for how fast a narrow head learns."),
    probably_no=mark("Probably not for how fast a narrow head learns."),
    undecided=mark("Not decided for how fast a narrow head learns."),
)

IN_THE_END = Topic(
    yes=mark("Yes for what heads three wide learn in the end."),
    probably_yes=mark("Probably yes for what heads three wide learn in the end."),
    no=mark("No for what heads three wide learn in the end."),
    probably_no=mark("Probably not for what heads three wide learn in the end."),
    undecided=mark("Not decided for what heads three wide learn in the end."),
)
"""What heads three wide learn in the end."""

WHY = (
    Reply(
        "direction",
        held=mark(
            "With one matrix for queries and keys, one head in one layer without an MLP does not "
            "tell a relation from its reverse."
        ),
        probably_held=mark(
            "With one matrix for queries and keys, one head in one layer without an MLP probably "
            "does not tell a relation from its reverse."
        ),
        failed=mark(
            "One matrix for queries and keys is enough, even to tell a relation from its reverse."
        ),
        probably_failed=mark(
            "One matrix for queries and keys is probably enough, even to tell a relation from its "
            "reverse."
        ),
        undecided=mark("Whether one matrix is enough for queries and keys is not decided."),
    ),
    Reply(
        "narrow_head_slow",
        held=mark("With one matrix for keys and values, a narrow head learns slowly."),
        probably_held=mark(
            "With one matrix for keys and values, a narrow head probably learns slowly."
        ),
        failed=mark("One matrix for keys and values is enough, even in a narrow head."),
        probably_failed=mark(
            "One matrix for keys and values is probably enough, even in a narrow head."
        ),
        undecided=mark("Whether one matrix is enough for keys and values is not decided."),
        statement=0,
    ),
)
"""Why there are three matrices, which is no question of yes or no."""
