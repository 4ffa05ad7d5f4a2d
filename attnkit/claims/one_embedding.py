"""Attention with and without projections on a new task for a frozen embedding."""

from attnkit.claims.base import Claim, Verdict, arm, arms, register_claim
from attnkit.claims.statements import worse
from attnkit.foundation.language import mark

_NO_MATRIX = "Q=K=V=I O=I d_head=m/h"

ARMS = arms("QKV", ("QKV V=I d_head=m/h", "V=I"), (_NO_MATRIX, "no matrix"), task="transfer")

CLAIM = Claim(
    id="one_embedding",
    title=mark("With a frozen embedding, attention without matrices fails"),
    question=mark(
        "An embedding has learnt one task and is frozen. Can it serve a new one without "
        "projections?"
    ),
    source=mark(
        "attnkit's own, after the second answer in a thread on the use of the value, Stack Exchange"
    ),
    says=mark(
        "The answer speaks of W_V alone, which is a claim of its own. Here all matrices are left "
        "out: then a frozen embedding does not serve a new task."
    ),
    prediction=mark(
        "It holds: without any matrix scores are what the frozen embedding happens to give, and it "
        "was made for another question."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "Without any matrix questions give nearly all of their attention to questions, a third of "
        "it to themselves. After 22,400 steps 21% of the answers are right, and this share still "
        "rises. With the self-mask, in both tasks, all of 20 runs learn the new one in 1,400 "
        "steps."
    ),
    seen="a prototype",
    seen_note=mark(
        "Untuned runs of a close relative, Q=K=V, had failed on this task; after a first pass on "
        "other seeds the number of seeds was raised from 12 to 20, and the prediction was left as "
        "it was. After the record the title was made narrower and the arm with the self-mask "
        "added, which is shown and not judged: a second reader had found that it solves the task."
    ),
    arms=(
        *ARMS,
        arm(f"{_NO_MATRIX} self_mask", "no matrix, self-mask", task="transfer", up_to=4),
    ),
    statements=(
        worse(
            "no matrix",
            "QKV",
            unable=True,
            text=mark(
                "With a frozen embedding, attention without matrices is worse than QKV by more "
                "than 5 points"
            ),
            opposite=mark(
                "With a frozen embedding, attention without matrices is at most 5 points worse "
                "than QKV"
            ),
            more_often=mark(
                "With a frozen embedding, attention without matrices falls behind QKV more often"
            ),
        ),
    ),
    n_seeds=80,
    family="Our own",
)
register_claim(CLAIM)
