"""Values that are keys before or after norm and rotation."""

from typing import Any

from attnkit.claims.base import RAISED, Claim, arm, register_claim
from attnkit.claims.statements import no_worse, worse

_SETTINGS: dict[str, Any] = {"task": "mqar", "batch_size": 64}

BEFORE = "K=V qk_norm v_norm positions=rope"
AFTER = "K=V qk_norm positions=rope rotate_values"

register_claim(
    Claim(
        id="kv_after_rotation",
        title="K=V works before and after norm and rotation, if outputs are rotated back",
        question="Keys are normalised and rotated by their position. Which of them may serve as "
        "values: those before, or those after?",
        source="the codes of Gemma 4 (global layers: before) and of DeepSeek V4 (after, with the "
        "output rotated back); no ablation is published",
        says="Gemma 4 takes values before norm and rotation; DeepSeek V4 takes the very vectors "
        "that serve as keys, and rotates the output back.",
        prediction="It holds: on recall both are at most 5 points worse than QKV. Without rotating "
        "back, values taken after rotation are worse by more than 5 points at first, and catch up "
        "within 8 times the steps.",
        expected="held",
        seen="nothing",
        seen_note="None of the arms with K=V had been trained when the prediction was committed. "
        + RAISED,
        arms=(
            arm("QKV qk_norm positions=rope", "QKV", **_SETTINGS),
            arm(BEFORE, "K=V before", **_SETTINGS),
            arm(AFTER, "K=V after, rotated back", **_SETTINGS),
            arm(f"{AFTER}=only", "K=V after, not rotated back", up_to=8, **_SETTINGS),
        ),
        statements=(
            no_worse("K=V after, rotated back", "QKV").worded(
                held="On recall, K=V with rotated keys as values, and the output rotated back, "
                "is at most 5 points worse than QKV",
                failed="On recall, K=V with rotated keys as values, and the output rotated back, "
                "is worse than QKV by more than 5 points",
            ),
            no_worse("K=V before", "QKV"),
            worse("K=V after, not rotated back", "K=V after, rotated back").worded(
                held="On recall, K=V with rotated keys as values is worse by more than 5 points "
                "if the output is not rotated back",
                failed="On recall, K=V with rotated keys as values is at most 5 points worse if "
                "the output is not rotated back",
            ),
        ),
        n_seeds=40,
        reason="Both kinds of K=V recall as well as QKV, as predicted. But nothing is lost if the "
        "output is not rotated back. The texts have 24 tokens, within which 20 of the 32 numbers "
        "of a head turn by less than one radian; whether the models keep values there was not "
        "tested.",
        family="What papers say",
        is_new=True,
    )
)
