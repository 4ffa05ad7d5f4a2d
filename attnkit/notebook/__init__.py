"""What notebooks show: cards of experiments and results without a server, and their figures.

`attnkit.foundation.display` leads here, so that types of other rooms show themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_CARDS = {
    "Atlas": "models.atlas_card",
    "Claim": "claims.claim_card",
    "Evidence": "claims.evidence_card",
    "Experiment": "experiments.experiment_card",
    "Film": "films.film_card",
    "MeasuredHead": "models.measured_head_card",
    "Question": "claims.question_card",
    "Result": "results.result_card",
    "SentenceReading": "models.sentence_card",
    "Snapshot": "results.snapshot_card",
    "Variant": "experiments.variant_card",
}
"""Function that draws the card of each type, by the name of the type."""


def html_of(value: object) -> str:
    """Return the card of a value: a self-contained piece of HTML.

    Cards load nothing, and they are the same for equal values. Only those of films and of
    sentences have a script, in a frame of its own.

    Args:
        value: An instance of a type whose base is `attnkit.foundation.display.Displayed`.

    Raises:
        TypeError: If there is no card for values of this type.
    """
    for base in type(value).__mro__:
        if base.__name__ in _CARDS:
            module, function = _CARDS[base.__name__].split(".")
            card: str = getattr(import_module(f"{__name__}.{module}"), function)(value)
            return card
    raise TypeError(f"value: got {type(value).__name__}, allowed {', '.join(_CARDS)}")


def plot(value: Any, kind: str = "", **options: Any) -> Figure:
    """Return a figure of a value, see `attnkit.notebook.plots`."""
    figure: Figure = import_module(f"{__name__}.plots").plot(value, kind, **options)
    return figure
