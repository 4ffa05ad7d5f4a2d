"""Six ways to halve the KV cache, on recall."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.layers_share_recall import SETTINGS
from attnkit.claims.statements import no_worse
from attnkit.foundation.language import mark

_WHOLE = "every layer"
"""Name of the arm with the whole KV cache."""

_HALVES = {
    "bottom and middle": (
        "QKV kv_from=bottom_middle",
        mark(
            "On recall, values of the bottom layer and keys of the middle one are at most 5 points "
            "worse than the whole KV cache"
        ),
        mark(
            "On recall, values of the bottom layer and keys of the middle one are worse than the "
            "whole KV cache by more than 5 points"
        ),
        mark(
            "On recall, values of the bottom layer and keys of the middle one fall behind the "
            "whole KV cache more often"
        ),
    ),
    "two key heads of four": (
        "QKV kv_heads=2",
        mark(
            "On recall, two key and value heads for four are at most 5 points worse than the whole "
            "KV cache"
        ),
        mark(
            "On recall, two key and value heads for four are worse than the whole KV cache by more "
            "than 5 points"
        ),
        mark(
            "On recall, two key and value heads for four fall behind the whole KV cache more often"
        ),
    ),
    "K=V": (
        "K=V",
        mark(
            "On recall, one matrix for keys and values (K=V) is at most 5 points worse than the "
            "whole KV cache"
        ),
        mark(
            "On recall, one matrix for keys and values (K=V) is worse than the whole KV cache by "
            "more than 5 points"
        ),
        mark(
            "On recall, one matrix for keys and values (K=V) falls behind the whole KV cache more "
            "often"
        ),
    ),
    "half as wide": (
        "QKV d_k=d/2 d_v=d/2",
        mark(
            "On recall, keys and values of half the width are at most 5 points worse than the "
            "whole KV cache"
        ),
        mark(
            "On recall, keys and values of half the width are worse than the whole KV cache by "
            "more than 5 points"
        ),
        mark(
            "On recall, keys and values of half the width fall behind the whole KV cache more often"
        ),
    ),
    "half shared": (
        "K=V kv_heads=4 shared_half",
        mark("On recall, grouped tied attention is at most 5 points worse than the whole KV cache"),
        mark(
            "On recall, grouped tied attention is worse than the whole KV cache by more than 5 "
            "points"
        ),
        mark("On recall, grouped tied attention falls behind the whole KV cache more often"),
    ),
    "low-rank residuals": (
        "QKV kv_residual=2",
        mark(
            "On recall, low-rank residuals over shared keys and values are at most 5 points worse "
            "than the whole KV cache"
        ),
        mark(
            "On recall, low-rank residuals over shared keys and values are worse than the whole KV "
            "cache by more than 5 points"
        ),
        mark(
            "On recall, low-rank residuals over shared keys and values fall behind the whole KV "
            "cache more often"
        ),
    ),
}
"""Variant, statement, its opposite, and what is found more often, by the name of the arm."""

CLAIM = Claim(
    id="half_cache_recall",
    title=mark("It does not matter how a KV cache is halved"),
    question=mark("There are many ways to halve a KV cache. Do they recall as well as all of it?"),
    source=mark(
        "FusedKV-Lite, arXiv 2512.03870; GQA, arXiv 2305.13245; K=V, arXiv 2606.04032; thin keys, "
        "arXiv 2603.04427; GTA, arXiv 2505.21487; LRKV, arXiv 2601.11471 (each of them in language "
        "models)"
    ),
    says=mark("Each source reports that its own way costs little or nothing."),
    prediction=mark(
        "It holds: with four layers of four heads, each of the six ways is at most 5 points worse "
        "than three matrices with the whole cache."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "What is shared changes how fast the task is learnt. After 800 steps all 20 seeds have "
        "learnt it with values of the bottom layer and keys of the middle one, 15 with the whole "
        "cache, and at most 12 with a way that saves within every layer. These models were not "
        "followed for longer. K=V learns later: of the first 8 of these seeds, 5 have learnt the "
        "task after 1,600 steps and 6 after 2,400, at half of the task’s learning rate."
    ),
    seen="a prototype",
    seen_note=mark(
        "The prediction was committed before any of these variants had been trained on recall. "
        "Before this claim was written, a sweep of 10 other seeds, with one learning rate for all "
        "variants, had shown that values of the bottom layer with keys of the middle one learn the "
        "task with 10 seeds, QKV with 6, two key heads with 5, K=V with 3, keys and values of half "
        "the width and grouped tied attention with 2 each, and residuals with 1. The prediction "
        "was left as it was. A first record of 30 other seeds, with learning rates tuned on two "
        "seeds, had also been seen; there are 20 seeds now, and no variant that loses is followed "
        "for longer, because twice the steps would take three hours of two cores."
    ),
    arms=arms(
        *((variant, name) for name, (variant, *_) in _HALVES.items()),
        ("QKV", _WHOLE),
        **SETTINGS,
    ),
    statements=tuple(
        no_worse(name, _WHOLE, text=text, opposite=opposite, more_often=more_often)
        for name, (_, text, opposite, more_often) in _HALVES.items()
    ),
    n_seeds=20,
    followed=1,
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
