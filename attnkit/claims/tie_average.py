"""Tying K and V of a trained model to their average or to one of the two."""

from attnkit.claims.base import Claim, Verdict, arm, arms, register_claim
from attnkit.claims.statements import better, no_worse
from attnkit.foundation.language import mark

CLAIM = Claim(
    id="tie_average",
    title=mark("After tying K and V, their average keeps more than either"),
    question=mark(
        "Three matrices are trained, then K and V are tied. Which matrix should be kept?"
    ),
    source=mark(
        "attnkit's own, after notes in the repository of Kayyam et al. 2026, arXiv 2606.04032 (on "
        "another task, REVERSE: keep K .100, keep V .123, average .861; after distillation 1.000)"
    ),
    says=mark(
        "The average of the two keeps most, either alone next to nothing; distillation, here "
        "training on, brings all of it back."
    ),
    prediction=mark("It holds, though the average will keep less here: a third, against a tenth."),
    expected=Verdict.HELD,
    seen="a prototype",
    seen_note=mark(
        "The prediction gives figures, a third against a tenth, that must come from an earlier "
        "look of which no record is kept; after a first pass on other seeds the number of seeds "
        "was raised from 12 to 20 and all arms were given one learning rate."
    ),
    arms=(
        arm("QKV", "never tied", task="phonebook", evaluate_every=10),
        *arms(
            ("QKV tie=K=V", "average"),
            ("QKV tie=K=V tie_by=keep_K", "keep K"),
            ("QKV tie=K=V tie_by=keep_V", "keep V"),
            recipe_of="never tied",
            task="phonebook",
            evaluate_every=10,
        ),
    ),
    statements=(
        *(
            better(
                "average",
                f"keep {role}",
                0.1,
                measure="accuracy_at_tie",
                text=mark(
                    "Right after tying, the average keeps over 10 points more than {role} alone",
                    role=role,
                ),
                opposite=mark(
                    "Right after tying, the average keeps at most 10 points more than {role} alone",
                    role=role,
                ),
                more_often=mark(
                    "Right after tying, the average gets ahead of {role} alone more often",
                    role=role,
                ),
            )
            for role in "VK"
        ),
        no_worse(
            "average",
            "never tied",
            text=mark(
                "After more training, the average is at most 5 points worse than K and V that were "
                "never tied"
            ),
            opposite=mark(
                "After more training, the average is more than 5 points worse than K and V that "
                "were never tied"
            ),
            more_often=mark(
                "After more training, the average more often falls behind K and V that were never "
                "tied"
            ),
        ),
    ),
    family="Our own",
)
register_claim(CLAIM)
