"""Keys and values of every second layer, at half of the KV cache, on recall."""

from typing import Any

from attnkit.claims.base import Claim, arm, register_claim
from attnkit.claims.statements import no_worse

_SETTINGS: dict[str, Any] = {"task": "mqar", "n_layers": 4, "n_heads": 4, "d_head": 8}

register_claim(
    Claim(
        id="layers_share_recall",
        title="Layers in pairs that share keys and values recall as well as layers with their own",
        question="A decoder can halve its KV cache by letting every second layer reuse the keys "
        "and values of the layer below. What does this cost in recall?",
        source="cross-layer attention, arXiv 2405.12981 (there in language models)",
        says="Neighbouring layers can share keys and values: half of the cache, at little loss.",
        prediction="It holds: with four layers of four heads, keys and values of every second "
        "layer are at most 5 points worse than three matrices in every layer.",
        expected="held",
        seen="a prototype",
        seen_note="The prediction is older than any run of this variant on recall. Since then a "
        "sweep of 10 other seeds, with one learning rate for all variants, had shown that it "
        "learns the task with all seeds, and three matrices with 6.",
        arms=(
            arm("QKV kv_every=2", "every second layer", **_SETTINGS),
            arm("QKV", "every layer", **_SETTINGS),
        ),
        statements=(
            no_worse("every second layer", "every layer").worded(
                held="Keys and values of every second layer recall at most 5 points worse than "
                "those of every layer",
                failed="Keys and values of every second layer recall more than 5 points worse than "
                "those of every layer",
            ),
        ),
        n_seeds=30,
        family="What papers say",
        is_new=True,
    )
)
