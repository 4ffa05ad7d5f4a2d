"""Rotated keys as values over 96 tokens, with outputs that are rotated back or not."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

_AFTER = "K=V qk_norm positions=rope rotate_values"

CLAIM = Claim(
    id="rotation_long",
    title=mark(
        "Over 96 tokens, rotated keys as values lose at first if outputs are not rotated back"
    ),
    question=mark(
        "Keys are rotated by their position and serve as values. In a longer text, must the output "
        "be rotated back?"
    ),
    source=mark("DeepSeek V4's code, which rotates back; an audit of attnkit"),
    says=mark(
        "Over 24 tokens nothing is lost without rotating back. Over 96 tokens an audit found 58% "
        "against 99% after 300 steps, and 78% against 100% after 400."
    ),
    prediction=mark(
        "It holds after 400 steps: without rotating back, recall over 96 tokens is worse by more "
        "than 5 points. With twice the steps most seeds have caught up, because the model can keep "
        "values in the numbers that turn slowly."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "At its own best learning rate each of them has learnt the task after 400 steps. At a "
        "quarter of that rate both are still learning, and the one that is not rotated back is "
        "behind: 48% against 70% (four seeds each). The audit had used one rate for both."
    ),
    seen="an earlier run",
    seen_note=mark("The audit's figures were known; we had trained texts of 24 tokens only."),
    arms=arms(
        (_AFTER, "rotated back"),
        (f"{_AFTER}=only", "not rotated back"),
        task="mqar",
        length=96,
        steps=400,
    ),
    statements=(
        worse(
            "not rotated back",
            "rotated back",
            text=mark(
                "On recall over 96 tokens, K=V with rotated keys as values, and the output not "
                "rotated back, is worse than with it rotated back by more than 5 points"
            ),
            opposite=mark(
                "On recall over 96 tokens, K=V with rotated keys as values, and the output not "
                "rotated back, is at most 5 points worse than with it rotated back"
            ),
            more_often=mark(
                "On recall over 96 tokens, K=V with rotated keys as values falls behind more often "
                "if the output is not rotated back"
            ),
        ),
    ),
    n_seeds=20,
    followed=2,
    family="What papers say",
)
register_claim(CLAIM)
