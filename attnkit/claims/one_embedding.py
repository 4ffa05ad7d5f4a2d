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
        "It takes a large constant learning rate: at 0.08, 16 times the default, about half of the "
        "runs learn the new task within 1,400 steps, at 0.32 a tenth, at 0.04 and 0.16 none. With "
        "a cosine schedule hardly any does. With the self-mask, in both tasks, all of 20 runs "
        "learn it."
    ),
    seen="an earlier run",
    seen_note=mark(
        "A prototype of a close relative, Q=K=V, had failed. A first record had 6 of 40 runs that "
        "learn the new task; later ones, whose constant learning rates ended at 0.02, had none "
        "within 1,400 steps, and 21% right after 22,400. Then a reader found a rate at which runs "
        "learn it, and tuning was made to try such rates; the seeds are those of the record "
        "before. The title was made narrower after a record, and the prediction was left as it "
        "was. The arm with the self-mask was added after a record, and is not judged."
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
