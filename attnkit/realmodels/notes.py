"""Notes on what limits a model's numbers: complete sentences, the same for every file format."""

from __future__ import annotations

from collections.abc import Iterable

NORMED = "Queries and keys are normalised after the projection, which is not shown."
BIASED = "Self-attention's scores also get a learned bias per distance, which is not shown."
SLOPED = "Scores also get terms of the distance between tokens, which are not shown."
NORMED_VALUES = "Values are normalised after the projection, which is not shown."
CLIPPED = "Queries, keys and values are clipped at a bound, which is not shown."
CAPPED = "Scores are capped by a tanh before the softmax."
WINDOWED = "Some or all layers attend only to tokens within a window."
K_IS_V = (
    "In some or all layers, one matrix serves as W_K and as W_V; comparisons with W_V are left out "
    "there."
)
KV_REUSED = (
    "The last layers reuse the keys and values of an earlier layer, and are shown with its W_K and "
    "W_V."
)
LATENT = (
    "Keys and values, and in most models queries, come from latent vectors: their matrices are "
    "products of two projections and the gain of the norm between them. Keys and values share the "
    "first projection, which makes W_K and W_V alike, and so do the random matrices beside them. "
    "Only the part of queries and keys without rotary positions is shown."
)
LATENT_QUERIES = (
    "Queries come from latent vectors: their matrices are products of two projections and the gain "
    "of the norm between them. Rotary positions and keys that stand for many tokens are not shown."
)
REPEATED = "All layers of a group share their weights, which are shown once."
TEXT_ONLY = "Only the part that reads text is shown."


def scaled(rule: str = "") -> str:
    """Return the note on rotary positions that are scaled by a rule that is not computed."""
    named_rule = f" ({rule})" if rule else ""
    return (
        f"Rotary positions are scaled by a rule that is not computed here{named_rule}, so scores "
        "are shown at distance 0 only."
    )


def quantised(types: Iterable[str]) -> str:
    """Return the note on weights that are stored in quantised number types."""
    return f"The weights are quantised ({', '.join(sorted(types))}), so their numbers are rounded."


def others(paths: str) -> str:
    """Return the note on the other models in a package."""
    return f"The package holds other models. Open one of them by its name: {paths}."


def large(share: str, example: str) -> str:
    """Return the note on heads whose weights are too large, such as "3 of 8", and one of them."""
    return (
        f"In {share} heads, such as {example}, weights or their products with other numbers of the "
        "file do not fit in single precision, so that numbers are missing."
    )


def zero(share: str, example: str) -> str:
    """Return the note on heads of zeros, such as "3 of 8", and one of them."""
    return (
        f"In {share} heads, such as {example}, W_Q, W_K, W_V or W_Q W_Kᵀ is zero, so that "
        "comparisons are missing."
    )
