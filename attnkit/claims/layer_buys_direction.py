"""Q=K with a second layer on a relation with a direction."""

from attnkit.claims.base import RAISED_BETTER, Claim, Verdict, register_claim
from attnkit.claims.mlp_buys_direction import ARMS, UP_TO
from attnkit.claims.names import joined
from attnkit.claims.statements import better
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="layer_buys_direction",
    title=mark("At width 32, a second layer gives Q=K direction back"),
    question=mark(
        "Q=K finds successor and predecessor alike. Can a second layer of Q=K tell them apart?"
    ),
    source=mark("attnkit's own, after a prototype"),
    says=mark("With two layers, Q=K gets beyond an accuracy of one half, where it stays with one."),
    prediction=mark(
        "It holds after 4500 steps: a prototype reached 0.93 with a wider model and 3000 to 4000 "
        "steps. In a first pass on other seeds 1500 steps were not enough."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "At width 32 all of 20 seeds but one stay at one half within 12,000 steps; the best has "
        "60%. With a model 64 wide, two layers of Q=K got beyond one half: 91 to 96% after 8,000 "
        "steps, with five of six seeds."
    ),
    seen="an earlier run",
    seen_note=joined(
        mark(
            "A prototype with a wider model had reached 0.93 with a second layer; a first pass on "
            "other seeds had not come out as expected, and the number of steps was then raised "
            "from 1,500 to 4,500. The record reads both arms after 12,000."
        ),
        RAISED_BETTER,
    ),
    arms=ARMS,
    statements=(
        better(
            "Q=K, 2 layers",
            "Q=K",
            0.1,
            at=UP_TO,
            text=mark(
                "On who reports to whom, two layers of Q=K are better than one layer by more than "
                "10 points"
            ),
            opposite=mark(
                "On who reports to whom, two layers of Q=K are at most 10 points better than one "
                "layer"
            ),
            more_often=mark(
                "On who reports to whom, two layers of Q=K get ahead of one layer more often"
            ),
        ),
    ),
    n_seeds=20,
    family="Our own",
)
register_claim(CLAIM)
