"""Similarity: how alike queries, keys and values are."""

from __future__ import annotations

from dataclasses import replace

from attnkit.ui.example_picker import pick_example
from attnkit.ui.inspection import open_subject, pick_layer_and_head, show_film
from attnkit.ui.routing import require_route
from attnkit.ui.takeaway import take_away

TITLE = "How alike are queries, keys and values?"


def draw() -> None:
    """Draw the page."""
    require_route()
    subject = open_subject("similarity", TITLE)
    layer, head = pick_layer_and_head(subject)
    example = pick_example(subject)
    if example is not None:
        inspection = replace(example, view="similarity", layer=layer, head=head, query_index=0)
        show_film(subject, inspection, "similarity")
        take_away(subject, inspection, "similarity", TITLE)
