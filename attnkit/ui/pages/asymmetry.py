"""Asymmetry: whether a score distinguishes i → j from j → i."""

from __future__ import annotations

from dataclasses import replace

from attnkit.ui.example_picker import pick_example
from attnkit.ui.inspection import open_subject, pick_layer_and_head, show_film
from attnkit.ui.rescue import what_rescues_it
from attnkit.ui.routing import require_route
from attnkit.ui.takeaway import take_away

TITLE = "Does a score have a direction?"


def draw() -> None:
    """Draw the page."""
    require_route()
    subject = open_subject("asymmetry", TITLE)
    layer, head = pick_layer_and_head(subject)
    example = pick_example(subject)
    if example is None:
        what_rescues_it(subject.lab)
        return
    inspection = replace(example, view="symmetry", layer=layer, head=head, query_index=0)
    show_film(subject, inspection, "asymmetry")
    what_rescues_it(subject.lab)
    take_away(subject, inspection, "asymmetry", TITLE)
