"""What to know of a model beside its matrices: whole sentences, the same for every format."""

from __future__ import annotations

from collections.abc import Iterable

NORMED = "Queries and keys are normalised after the projection, which is not shown."
BIASED = "Self-attention's scores also get a learned bias per distance, which is not shown."
SLOPED = "Scores also get terms of the distance between tokens, which are not shown."
CAPPED = "Scores are capped by a tanh before the softmax."
UNDIVIDED = "Scores are not divided by the root of the width of a head."
WINDOWED = "Some or all layers look only at tokens within a window."
REPEATED = "All layers of a group share their weights, which are shown once."
UNTURNED = "Some layers have no rotary positions."
STRETCHED = "Rotary positions change beyond the trained length; shown is within it."
NO_ENCODER = "There is no encoder in the file, so cross-attention may be untrained."
TEXT_ONLY = "Only the part that reads text is shown."


def scaled(rule: str = "") -> str:
    """Of rotary positions whose rule, if it is known, is not computed."""
    named = f" ({rule})" if rule else ""
    return (
        f"Rotary positions are scaled by a rule that is not computed here{named}, so scores are "
        "shown at distance 0 only."
    )


def quantised(types: Iterable[str]) -> str:
    """Of a model whose numbers are written so."""
    return f"The weights are quantised ({', '.join(sorted(types))}), so their numbers are rounded."


def others(places: str) -> str:
    """Of a package with several models."""
    return f"The package holds other models, each to be opened by its own path: {places}."
