"""Keys and values of other layers, at half of the KV cache, on text."""

from attnkit.claims.base import Claim, Verdict, arms, register_claim
from attnkit.claims.statements import better
from attnkit.foundation.language import mark

UP_TO = 2
"""Arms are read after 1,200 steps; they are tuned after 600."""

ARMS = arms(
    ("QKV kv_from=bottom_middle", "bottom and middle"),
    ("QKV kv_every=2", "every second layer"),
    ("QKV kv_residual=4", "low-rank residuals"),
    "K=V",
    ("QKV kv_heads=2", "two key heads of four"),
    ("QKV", "QKV (twice the cache)"),
    task="language",
    length=64,
    d_model=64,
    n_heads=4,
    n_layers=4,
    d_mlp=128,
    steps=600,
    up_to=UP_TO,
    evaluate_every=60,
)

SEEN_NOTE = mark(
    "None of the variants that were new had been trained when the prediction was committed; K=V "
    "and QKV are known from other claims on text, with fewer layers."
)

CLAIM = Claim(
    id="values_from_bottom",
    title=mark("Values of the bottom layer and keys of the middle beat sharing every second layer"),
    question=mark(
        "At half of the KV cache, should upper layers use the values of the bottom layer and the "
        "keys of the middle one, or those of the layer below?"
    ),
    source=mark("FusedKV-Lite, arXiv 2512.03870"),
    says=mark(
        "Top layers want values from the bottom layer and keys from the middle: half of the cache, "
        "and a lower loss."
    ),
    prediction=mark(
        "It does not hold: on text with four layers, its loss is not lower than that of keys and "
        "values of every second layer."
    ),
    expected=Verdict.FAILED,
    reason=mark(
        "After 1,200 steps the loss is 1.52 nats with values of the bottom layer and keys of the "
        "middle one, 1.54 with those of every second layer, and 1.58 with keys and values in every "
        "layer: models that share between layers are ahead of models that share nothing. More "
        "steps were not tested."
    ),
    seen_note=SEEN_NOTE,
    arms=ARMS,
    statements=(
        better(
            "bottom and middle",
            "every second layer",
            0,
            measure="loss",
            at=UP_TO,
            text=mark(
                "On text, values of the bottom layer and keys of the middle have a lower loss than "
                "keys and values of every second layer"
            ),
            opposite=mark(
                "On text, values of the bottom layer and keys of the middle have a higher loss "
                "than keys and values of every second layer"
            ),
        ),
    ),
    n_seeds=20,
    followed=2,
    family="What papers say",
    is_new=True,
)
register_claim(CLAIM)
