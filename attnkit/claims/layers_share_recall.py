"""Layers that share keys and values, at half of the KV cache, on recall."""

from typing import Any

from attnkit.claims.base import Claim, arm, register_claim
from attnkit.claims.statements import no_worse

_SETTINGS: dict[str, Any] = {"task": "mqar", "n_layers": 4, "n_heads": 4, "d_head": 8}

register_claim(
    Claim(
        id="layers_share_recall",
        title="Layers that share keys and values recall as well as layers with their own",
        question="A decoder can halve its KV cache by letting some layers reuse the keys and "
        "values of others. What does this cost in recall?",
        source="FusedKV-Lite, arXiv 2512.03870; cross-layer attention, arXiv 2405.12981 (there in "
        "language models)",
        says="Half of the layers can do without keys and values of their own: half of the cache, "
        "at little or no loss.",
        prediction="It holds: with four layers of four heads, keys and values of every second "
        "layer, and values of the bottom with keys of the middle layer, are at most 5 points worse "
        "than three matrices in every layer.",
        expected="held",
        seen="a prototype",
        seen_note="The prediction is older than any run of these variants. Since then a sweep of "
        "10 other seeds, with one learning rate for all variants, had shown that both learn the "
        "task with all seeds and three matrices with 6.",
        arms=(
            arm("QKV kv_every=2", "every second layer", **_SETTINGS),
            arm("QKV kv_from=bottom_middle", "bottom and middle", **_SETTINGS),
            arm("QKV", "QKV (twice the cache)", **_SETTINGS),
        ),
        statements=(
            no_worse("every second layer", "QKV (twice the cache)").worded(
                held="Keys and values of every second layer recall at most 5 points worse than "
                "those of every layer",
                failed="Keys and values of every second layer recall more than 5 points worse than "
                "those of every layer",
            ),
            no_worse("bottom and middle", "QKV (twice the cache)"),
        ),
        n_seeds=30,
        family="What papers say",
        is_new=True,
    )
)
