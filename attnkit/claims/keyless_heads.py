"""Keys that are computed from values, with one head and with four."""

from attnkit.claims.base import RAISED_WORSE, Claim, Verdict, arms, register_claim
from attnkit.claims.names import joined
from attnkit.claims.statements import no_worse, worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="keyless_heads",
    title=mark("Attention without keys of its own fails with four heads"),
    question=mark(
        "If keys are computed from values, why would four heads fail where one succeeds?"
    ),
    source=mark(
        "attnkit's own, after notes in the repository of Kayyam et al. 2026, arXiv 2606.04032 "
        "(small, unreviewed, on another task: 1.000 with one head, .35 with four)"
    ),
    says=mark("Attention without keys of its own recalls with one head and collapses with four."),
    prediction=mark(
        "It does not hold: we suspect the optimiser, and expect a tuned learning rate to bring "
        "four heads near QKV with four."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "At its best learning rate, keyless attention with four heads learns the task with 76 of "
        "80 seeds. The range of such rates is narrower than that of QKV: at twice its best rate 7 "
        "of 10 seeds learn, where QKV learns with all. The notes used a single rate. Their task "
        "and size were not run here."
    ),
    seen_note=joined(
        mark(
            "The prediction was written before any recorded run of this comparison and not "
            "changed, nor were arms, steps or seeds, but a first pass on other seeds was seen and "
            "how learning rates are chosen was then changed for all claims."
        ),
        RAISED_WORSE,
    ),
    arms=arms(
        ("QKV", "QKV, 1 head"),
        ("QKV keyless", "keyless, 1 head"),
        ("QKV n_heads=4 d_head=8", "QKV, 4 heads"),
        ("QKV keyless n_heads=4 d_head=8", "keyless, 4 heads"),
        task="mqar",
        batch_size=64,
        length=16,
    ),
    statements=(
        worse(
            "keyless, 4 heads",
            "QKV, 4 heads",
            0.2,
            unable=True,
            text=mark(
                "With four heads, keyless attention is worse than QKV by more than 20 points"
            ),
            opposite=mark("With four heads, keyless attention is at most 20 points worse than QKV"),
            more_often=mark("With four heads, keyless attention falls behind QKV more often"),
        ),
        no_worse(
            "keyless, 1 head",
            "QKV, 1 head",
            text=mark("With one head, keyless attention is at most 5 points worse than QKV"),
            opposite=mark(
                "With one head, keyless attention is worse than QKV by more than 5 points"
            ),
            more_often=mark("With one head, keyless attention falls behind QKV more often"),
        ),
    ),
    n_seeds=80,
    family="Our own",
)
register_claim(CLAIM)
