"""Learnt and random value matrices in heads that are narrower than their part of the token."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.identity_query import FOLLOWED, TEXT, TEXT_SEEDS
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="narrow_heads_value",
    title=mark("Several narrow heads need a learnt value matrix on text"),
    question=mark("Four heads of 4 numbers read 16 of a token's 32. Must they learn which?"),
    source=mark("attnkit's own, after the thread on the use of the value, Stack Exchange"),
    says=mark(
        "Values can do without a matrix where one head is as wide as the model. Where heads are "
        "several and narrow, W_V chooses what is handed over."
    ),
    prediction=mark(
        "It holds: with a random W_V that is not trained, the loss on text is higher by more than "
        "0.03 nats, though embedding, MLP and W_O adapt to it."
    ),
    expected=Verdict.HELD,
    seen_note=mark(
        "Random value matrices had not been trained when the prediction was committed. The arms "
        "with heads of 8 are shown and not judged."
    ),
    arms=arms(
        ("QKV d_head=4", "learnt, 4 wide"),
        ("QKV d_head=4 fixed_values", "random, 4 wide"),
        ("QKV", "learnt, 8 wide"),
        ("QKV fixed_values", "random, 8 wide"),
        **TEXT,
    ),
    statements=(
        worse(
            "random, 4 wide",
            "learnt, 4 wide",
            0.03,
            measure="loss",
            text=mark(
                "On text, four heads of 4 numbers with random value matrices are worse than with "
                "learnt ones by more than 0.03 nats"
            ),
            opposite=mark(
                "On text, four heads of 4 numbers with random value matrices are at most 0.03 nats "
                "worse than with learnt ones"
            ),
        ),
    ),
    n_seeds=TEXT_SEEDS,
    followed=FOLLOWED,
    family="Our own",
    is_new=True,
)
register_claim(CLAIM)
