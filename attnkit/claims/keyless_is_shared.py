"""Keyless attention and K=V, which compute the same functions, on text."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT_SEEDS
from attnkit.claims.keyless_text import ARMS
from attnkit.claims.statements import Statement
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="keyless_is_shared",
    title=mark("Keyless attention does what K=V does"),
    question=mark(
        "Keys made of values by a matrix of each head, or keys that are the values: does the "
        "matrix help?"
    ),
    source=mark("attnkit's own, about Gao and Xu 2026, arXiv 2606.21848"),
    says=mark(
        "The source counts three matrices in a score, one more than usual. But (x W_Q M) · v is (x "
        "W) · v with W = W_Q M: without norms and rotations of keys, K=V computes the same "
        "functions."
    ),
    prediction=mark("It holds: on text the losses of the two differ by less than 0.03 nats."),
    expected=Verdict.HELD,
    seen_note=mark(
        "Keyless attention had not been trained on text when the prediction was committed."
    ),
    arms=ARMS,
    statements=(
        Statement(
            mark("On text, the losses of keyless attention and K=V differ by less than 0.03 nats"),
            mark("On text, the losses of keyless attention and K=V differ by more than 0.03 nats"),
            "keyless",
            "K=V",
            "loss",
            low=-0.03,
            high=0.03,
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="Our own",
    is_new=True,
)
register_claim(CLAIM)
