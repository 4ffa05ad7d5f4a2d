"""Values that are keys before or after norm and rotation."""

from attnkit.claims.base import Claim, Verdict, arms, raised, register_claim
from attnkit.claims.statements import no_worse, worse

_BEFORE = "K=V qk_norm v_norm positions=rope"
_AFTER = "K=V qk_norm positions=rope rotate_values"
_SUBJECT = "On recall, K=V with rotated keys as values"

CLAIM = Claim(
    id="kv_after_rotation",
    title="K=V works before and after norm and rotation, if outputs are rotated back",
    question="Keys are normalised and rotated by their position. Which of them may serve as "
    "values: those before, or those after?",
    source="the codes of Gemma 4 (global layers: before) and of DeepSeek V4 (after, with the "
    "output rotated back); no ablation is published",
    says="Gemma 4 takes values before norm and rotation; DeepSeek V4 takes the very vectors that "
    "serve as keys, and rotates the output back.",
    prediction="It holds: on recall both are at most 5 points worse than QKV. Without rotating "
    "back, values taken after rotation are worse by more than 5 points at first, and catch up "
    "within 8 times the steps.",
    expected=Verdict.HELD,
    reason="Both kinds of K=V recall as well as QKV, as predicted. Over the 24 tokens of these "
    "texts 20 of the 32 numbers of a head turn by less than one radian, and recall is as good if "
    "the output is not rotated back. An audit saw another result at 96 tokens, with one learning "
    "rate for all; a claim of its own repeats it with the best rate of each.",
    seen_note="None of the arms with K=V had been trained when the prediction was committed. "
    + raised(),
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
            in_words=(f"{_SUBJECT}, and the output rotated back, is", "QKV"),
        ),
        no_worse("K=V before", "QKV"),
        worse(
            "K=V after, not rotated back",
            "K=V after, rotated back",
            in_words=(f"{_SUBJECT}, and the output not rotated back, is", "with it rotated back"),
        ),
    ),
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
