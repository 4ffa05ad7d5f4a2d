"""Four heads that hand over a fixed part of the token each, on text."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT, TEXT_SEEDS
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="several_heads_no_value",
    title=mark("Four heads lose nothing on text without a value matrix"),
    question=mark(
        "With several heads, each can hand over only a fixed part of the token if there is no W_V. "
        "Is that enough?"
    ),
    source=mark("attnkit's own, after the thread on the use of the value, Stack Exchange"),
    says=mark(
        "With one head as wide as the model, W_V and W_O are one linear map, so nothing can be "
        "lost but speed. With several heads, something can."
    ),
    prediction=mark(
        "It holds: together the four parts are the whole token, and embedding, MLP and W_O can put "
        "into each part what its head must hand over. On text the loss is at most 0.03 nats higher "
        "than that of QKV."
    ),
    expected=Verdict.HELD,
    seen_note=mark(
        "V=I had not been trained with several heads when the prediction was committed."
    ),
    arms=arms("QKV", ("QKV V=I", "V=I"), **TEXT),
    statements=(
        no_worse(
            "V=I",
            "QKV",
            0.03,
            measure="loss",
            text=mark("On text, four heads without W_V are at most 0.03 nats worse than QKV"),
            opposite=mark(
                "On text, four heads without W_V are worse than QKV by more than 0.03 nats"
            ),
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="Our own",
    is_new=True,
)
register_claim(CLAIM)
