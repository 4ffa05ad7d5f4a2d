"""Attention without any matrix, on two small translation tasks."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.cross_attention import CLAIM as CROSS_ATTENTION
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="without_matrices",
    title=mark("Small translations need no matrix in attention"),
    question=mark(
        "Can embeddings learn what the matrices of attention would, in a small translation?"
    ),
    source=mark("attnkit's own, after the claim on K=V in translation"),
    says=mark(
        "With tokens themselves as queries, keys and values, and no output matrix, models "
        "translate as well as with four matrices."
    ),
    prediction=mark(
        "It holds: on translated names the models without any matrix are at most 2 points worse "
        "than QKV, and with all seeds they learn the dictionary. They learn it more slowly."
    ),
    expected=Verdict.HELD,
    seen="an earlier run",
    seen_note=mark(
        "These arms stood in the record of another claim, shown and not judged: 76% of the letters "
        "with and without matrices, and 40 of 40 dictionaries learnt. An audit with other seeds "
        "saw no difference in German, and models without matrices ahead by 3 points in Italian."
    ),
    arms=tuple(arm for arm in CROSS_ATTENTION.arms if arm.name.startswith(("QKV", "no matrix"))),
    statements=(
        no_worse(
            "no matrix, names",
            "QKV, names",
            0.02,
            measure="mean_accuracy",
            at=4,
            text=mark(
                "On translated names, which no run solves, attention without matrices is at most 2 "
                "points worse than QKV"
            ),
            opposite=mark(
                "On translated names, which no run solves, attention without matrices is worse "
                "than QKV by more than 2 points"
            ),
        ),
        no_worse(
            "no matrix, dictionary",
            "QKV, dictionary",
            text=mark(
                "On the dictionary, attention without matrices is at most 5 points worse than QKV"
            ),
            opposite=mark(
                "On the dictionary, attention without matrices is worse than QKV by more than 5 "
                "points"
            ),
            more_often=mark(
                "On the dictionary, attention without matrices falls behind QKV more often"
            ),
        ),
    ),
    family="Our own",
)
register_claim(CLAIM)
