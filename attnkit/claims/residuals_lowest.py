"""Low-rank residuals over shared keys and values, beside others with half of the KV cache."""

from attnkit.claims.base import Claim, Verdict, register_claim
from attnkit.claims.statements import better
from attnkit.claims.values_from_bottom import ARMS, SEEN_NOTE, UP_TO
from attnkit.foundation.language import mark

_RIVALS = {
    "K=V": (
        mark("On text, at half of the KV cache, low-rank residuals have a lower loss than K=V"),
        mark("On text, at half of the KV cache, low-rank residuals have a higher loss than K=V"),
    ),
    "two key heads of four": (
        mark(
            "On text, at half of the KV cache, low-rank residuals have a lower loss than two key "
            "and value heads for four"
        ),
        mark(
            "On text, at half of the KV cache, low-rank residuals have a higher loss than two key "
            "and value heads for four"
        ),
    ),
    "every second layer": (
        mark(
            "On text, at half of the KV cache, low-rank residuals have a lower loss than keys and "
            "values of every second layer"
        ),
        mark(
            "On text, at half of the KV cache, low-rank residuals have a higher loss than keys and "
            "values of every second layer"
        ),
    ),
    "bottom and middle": (
        mark(
            "On text, at half of the KV cache, low-rank residuals have a lower loss than values of "
            "the bottom layer and keys of the middle"
        ),
        mark(
            "On text, at half of the KV cache, low-rank residuals have a higher loss than values "
            "of the bottom layer and keys of the middle"
        ),
    ),
}
"""Statement and its opposite, by the arm that low-rank residuals are compared with."""

CLAIM = Claim(
    id="residuals_lowest",
    title=mark("At half of the cache, low-rank residuals have the lowest loss on text"),
    question=mark(
        "Keys and values may take half of the cache. What is the best way to halve them?"
    ),
    source=mark("LRKV, arXiv 2601.11471 (45 to 53% of the cache, and the lowest loss)"),
    says=mark(
        "Heads that share keys and values, each with a low-rank residual of its own, need about "
        "half of the cache and have the lowest loss."
    ),
    prediction=mark(
        "It holds: with four layers and four heads, residuals of rank 4 have a lower loss than "
        "K=V, than two key heads for four, than keys and values of every second layer, and than "
        "values of the bottom and keys of the middle layer."
    ),
    expected=Verdict.HELD,
    reason=mark(
        "All four heads share one key and one value of 16 numbers, and each has only 4 numbers of "
        "its own for either. Their loss, 1.64 nats, is above that of K=V (1.60) and far above that "
        "of two whole key and value heads (1.55). The source's models are larger; whether wider "
        "heads change the order was not tested."
    ),
    seen_note=SEEN_NOTE,
    arms=ARMS,
    statements=tuple(
        better(
            "low-rank residuals",
            rival,
            0,
            measure="loss",
            at=UP_TO,
            text=text,
            opposite=opposite,
        )
        for rival, (text, opposite) in _RIVALS.items()
    ),
    n_seeds=20,
    followed=2,
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
