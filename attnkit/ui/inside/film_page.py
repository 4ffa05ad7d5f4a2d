"""Page that shows one inspection of a run as a film: pickers, figures and downloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from attnkit.analysis.inspection.request import Inspection, View
from attnkit.ui.inside.example_picker import pick_example
from attnkit.ui.inside.inspected_run import (
    InspectedRun,
    open_inspected_run,
    pick_layer_and_head,
    show_film,
)
from attnkit.ui.inside.takeaway import take_away
from attnkit.ui.lab.lab import Lab
from attnkit.ui.routing import require_route


def film_page(
    page: str, title: str, view: View, below: Callable[[Lab], None] = lambda lab: None
) -> None:
    """Draw a page of a view; `below` draws between its figures and the downloads."""
    require_route()
    subject = open_inspected_run(page, title)
    layer, head = pick_layer_and_head(subject)
    example = pick_example(subject)
    if example is None:
        below(subject.lab)
        return
    query, key = _pressed(subject, example, layer) if view == "attention" else (0, None)
    inspection = replace(
        example, view=view, layer=layer, head=head, query_index=query, key_position=key
    )
    show_film(subject, inspection, page)
    below(subject.lab)
    take_away(subject, inspection, page, title)


def _pressed(
    subject: InspectedRun, example: Inspection, layer: int
) -> tuple[int | None, int | None]:
    """Return the query and the key that were pressed in figures of the same example and layer.

    They are the index of the query and the position of the key; None if none was pressed.
    """
    memory = st.session_state.setdefault("remembered", {})
    if memory.get("example of the query") != example:
        memory["example of the query"] = example
        memory.pop("query_index", None)
        memory.pop("key_position", None)
    pressed: int | None = memory.get("query_index", example.query_index)
    key: int | None = memory.get("key_position")
    positions = range(*subject.experiment.layer_specs[layer].key_positions)
    if example.tokens:  # a custom book has a size of its own
        positions = range(len(example.tokens))
    return pressed, key if key in positions else None
