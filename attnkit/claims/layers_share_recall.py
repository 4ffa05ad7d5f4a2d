"""Keys and values of every second layer, at half of the KV cache, on recall."""

from typing import Any

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

SETTINGS: dict[str, Any] = {
    "task": "mqar",
    "batch_size": 64,
    "n_layers": 4,
    "n_heads": 4,
    "d_head": 8,
}

CLAIM = Claim(
    id="layers_share_recall",
    title=mark(
        "Layers that share keys and values in pairs recall as well as layers that share none"
    ),
    question=mark(
        "A decoder can halve its KV cache by letting every second layer reuse the keys and values "
        "of the layer below. What does this cost in recall?"
    ),
    source=mark("cross-layer attention, arXiv 2405.12981 (there in language models)"),
    says=mark("Neighbouring layers can share keys and values: half of the cache, at little loss."),
    prediction=mark(
        "It holds: with four layers of four heads, keys and values of every second layer are at "
        "most 5 points worse than three matrices in every layer."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "After 800 steps all 30 runs whose layers share keys and values in pairs have learnt the "
        "task, and so have 21 of 30 with keys and values in every layer. So models with half of "
        "the cache are easier to train here; whether all of them would learn in time was not "
        "tested."
    ),
    seen="a prototype",
    seen_note=mark(
        "The prediction was committed before any run of this variant on recall. Before this claim "
        "was written, a sweep of 10 other seeds, with one learning rate for all variants, had "
        "shown that the variant learns the task with 10 seeds and QKV with 6. A second variant, "
        "with values of the bottom layer and keys of the middle one, was removed from this claim "
        "for lack of time, before any of its tuned runs."
    ),
    arms=arms(("QKV kv_every=2", "every second layer"), ("QKV", "every layer"), **SETTINGS),
    statements=(
        no_worse(
            "every second layer",
            "every layer",
            text=mark(
                "On recall, keys and values of every second layer only are at most 5 points worse "
                "than keys and values of every layer"
            ),
            opposite=mark(
                "On recall, keys and values of every second layer only are worse than keys and "
                "values of every layer by more than 5 points"
            ),
            more_often=mark(
                "On recall, keys and values of every second layer only fall behind keys and values "
                "of every layer more often"
            ),
        ),
    ),
    n_seeds=30,
    followed=4,
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
