"""Exclusive self-attention as a rescue of Q=K without a self-mask."""

from attnkit.claims.base import RAISED_WORSE, Claim, Verdict, arms, register_claim
from attnkit.claims.names import joined
from attnkit.claims.statements import better, no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="exclusive_rescues",
    title=mark("Exclusive self-attention replaces the self-mask of Q=K"),
    question=mark(
        "With Q=K a token attends to itself. Does it help to take its own value out of what it "
        "reads?"
    ),
    source=mark("after arXiv 2603.09078 (exclusive self-attention; there with three matrices)"),
    says=mark(
        "Attention should not read what the token knows already: with outputs orthogonal to the "
        "token's own value, language models improve."
    ),
    prediction=mark(
        "It does not hold. On induction without a self-mask, Q=K becomes better by more than 5 "
        "points, but stays behind Q=K with the self-mask at the default number of steps, because "
        "the pattern still spends its mass on the token itself."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "With Q=K a token attends mostly to itself. Exclusive self-attention does not prevent "
        "that, but removes from the output what points along the token’s own value. Here this "
        "helps as much as the self-mask, with all 60 seeds."
    ),
    seen_note=joined(
        mark(
            "The variant had not been trained when the prediction was committed; Q=K with and "
            "without the self-mask is known from another claim."
        ),
        RAISED_WORSE,
    ),
    arms=arms(
        ("Q=K exclusive", "Q=K, exclusive"),
        "Q=K",
        ("Q=K self_mask", "Q=K, self-mask"),
        ("QKV exclusive", "QKV, exclusive"),
        "QKV",
        task="induction",
    ),
    statements=(
        no_worse(
            "Q=K, exclusive",
            "Q=K, self-mask",
            text=mark(
                "On induction, Q=K with exclusive self-attention is at most 5 points worse than "
                "Q=K with the self-mask"
            ),
            opposite=mark(
                "On induction, Q=K with exclusive self-attention is worse than Q=K with the "
                "self-mask by more than 5 points"
            ),
            more_often=mark(
                "On induction, Q=K with exclusive self-attention falls behind Q=K with the "
                "self-mask more often"
            ),
        ),
        better(
            "Q=K, exclusive",
            "Q=K",
            text=mark(
                "On induction, Q=K with exclusive self-attention is better than Q=K without it by "
                "more than 5 points"
            ),
            opposite=mark(
                "On induction, Q=K with exclusive self-attention is at most 5 points better than "
                "Q=K without it"
            ),
            more_often=mark(
                "On induction, Q=K with exclusive self-attention gets ahead of Q=K without it more "
                "often"
            ),
        ),
    ),
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
