"""Six ways to halve the KV cache, on recall."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.layers_share_recall import SETTINGS
from attnkit.claims.statements import no_worse

_WHOLE = "every layer"
"""Name of the arm with the whole KV cache."""

_HALVES = {
    "bottom and middle": (
        "QKV kv_from=bottom_middle",
        "values of the bottom layer and keys of the middle one are",
    ),
    "two key heads of four": ("QKV kv_heads=2", "two key and value heads for four are"),
    "K=V": ("K=V", "one matrix for keys and values (K=V) is"),
    "half as wide": ("QKV d_k=d/2 d_v=d/2", "keys and values of half the width are"),
    "half shared": ("K=V kv_heads=4 shared_half", "grouped tied attention is"),
    "low-rank residuals": (
        "QKV kv_residual=2",
        "low-rank residuals over shared keys and values are",
    ),
}
"""Variant, and subject of a sentence with its verb, by the name of the arm."""

CLAIM = Claim(
    id="half_cache_recall",
    title="It does not matter how a KV cache is halved",
    question="There are many ways to halve a KV cache. Do they recall as well as all of it?",
    source="FusedKV-Lite, arXiv 2512.03870; GQA, arXiv 2305.13245; K=V, arXiv 2606.04032; thin "
    "keys, arXiv 2603.04427; GTA, arXiv 2505.21487; LRKV, arXiv 2601.11471 (each of them in "
    "language models)",
    says="Each source reports that its own way costs little or nothing.",
    prediction="It holds: with four layers of four heads, each of the six ways is at most 5 points "
    "worse than three matrices with the whole cache.",
    expected=Verdict.HELD,
    reason="What is shared changes how fast the task is learnt. With 800 steps and these recipes, "
    "models whose layers share keys and values are fastest, the whole cache is next, and ways that "
    "save within every layer are slowest. K=V learns later: of 8 other seeds, 5 have learnt the "
    "task after 1,600 steps and 6 after 2,400, at half of the task’s learning rate.",
    seen="a prototype",
    seen_note="The prediction was committed before any of these variants had been trained on "
    "recall. Before this claim was written, a sweep of 10 other seeds, with one learning rate for "
    "all variants, had shown that values of the bottom layer with keys of the middle one learn the "
    "task with 10 seeds, QKV with 6, two key heads with 5, K=V with 3, keys and values of half the "
    "width and grouped tied attention with 2 each, and residuals with 1. The prediction was left "
    "as it was.",
    arms=arms(
        *((variant, name) for name, (variant, _) in _HALVES.items()),
        ("QKV", _WHOLE),
        **SETTINGS,
    ),
    statements=tuple(
        no_worse(name, _WHOLE, in_words=(f"On recall, {words}", "the whole KV cache"))
        for name, (_, words) in _HALVES.items()
    ),
    n_seeds=20,
    followed=1,
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
