"""Values that are keys before or after norm and rotation."""

from attnkit.claims.base import RAISED_WORSE, Claim, Verdict, arms, register_claim
from attnkit.claims.names import joined
from attnkit.claims.statements import no_worse, worse
from attnkit.foundation.language import mark

_BEFORE = "K=V qk_norm v_norm positions=rope"
_AFTER = "K=V qk_norm positions=rope rotate_values"
CLAIM = Claim(
    id="kv_after_rotation",
    title=mark("K=V works before and after norm and rotation, if outputs are rotated back"),
    question=mark(
        "Keys are normalised and rotated by their position. Which of them may serve as values: "
        "those before, or those after?"
    ),
    source=mark(
        "the codes of Gemma 4 (global layers: before) and of DeepSeek V4 (after, with the output "
        "rotated back); no ablation is published"
    ),
    says=mark(
        "Gemma 4 takes values before norm and rotation; DeepSeek V4 takes the very vectors that "
        "serve as keys, and rotates the output back."
    ),
    prediction=mark(
        "It holds: on recall both are at most 5 points worse than QKV. Without rotating back, "
        "values taken after rotation are worse by more than 5 points at first, and catch up within "
        "8 times the steps."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "Both kinds of K=V recall as well as QKV, as predicted. Over the 24 tokens of these texts "
        "20 of the 32 numbers of a head turn by less than one radian, and recall is as good if the "
        "output is not rotated back. An audit saw another result at 96 tokens, with one learning "
        "rate for all; a claim of its own repeats it with the best rate of each."
    ),
    seen_note=joined(
        mark("None of the arms with K=V had been trained when the prediction was committed."),
        RAISED_WORSE,
    ),
    arms=arms(
        ("QKV qk_norm positions=rope", "QKV"),
        (_BEFORE, "K=V before"),
        (_AFTER, "K=V after, rotated back"),
        (f"{_AFTER}=only", "K=V after, not rotated back"),
        task="mqar",
        batch_size=64,
    ),
    statements=(
        no_worse(
            "K=V after, rotated back",
            "QKV",
            text=mark(
                "On recall, K=V with rotated keys as values, and the output rotated back, is at "
                "most 5 points worse than QKV"
            ),
            opposite=mark(
                "On recall, K=V with rotated keys as values, and the output rotated back, is worse "
                "than QKV by more than 5 points"
            ),
            more_often=mark(
                "On recall, K=V with rotated keys as values, and the output rotated back, falls "
                "behind QKV more often"
            ),
        ),
        no_worse(
            "K=V before",
            "QKV",
            text=mark(
                "On recall, K=V with keys before norm and rotation as values is at most 5 points "
                "worse than QKV"
            ),
            opposite=mark(
                "On recall, K=V with keys before norm and rotation as values is worse than QKV by "
                "more than 5 points"
            ),
            more_often=mark(
                "On recall, K=V with keys before norm and rotation as values falls behind QKV more "
                "often"
            ),
        ),
        worse(
            "K=V after, not rotated back",
            "K=V after, rotated back",
            text=mark(
                "On recall, K=V with rotated keys as values, and the output not rotated back, is "
                "worse than with it rotated back by more than 5 points"
            ),
            opposite=mark(
                "On recall, K=V with rotated keys as values, and the output not rotated back, is "
                "at most 5 points worse than with it rotated back"
            ),
            more_often=mark(
                "On recall, K=V with rotated keys as values falls behind more often if the output "
                "is not rotated back"
            ),
        ),
    ),
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
