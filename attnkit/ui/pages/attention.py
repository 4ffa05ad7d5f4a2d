"""Attention: one lookup of a trained model, in stages, at any moment of training."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from attnkit.analysis.inspection.request import Inspection
from attnkit.ui.example_picker import pick_example
from attnkit.ui.inspection import ATTENTION_TITLE, open_subject, pick_layer_and_head, show_film
from attnkit.ui.routing import require_route
from attnkit.ui.takeaway import take_away


def draw() -> None:
    """Draw the page."""
    require_route()
    subject = open_subject("attention", ATTENTION_TITLE)
    layer, head = pick_layer_and_head(subject)
    example = pick_example(subject)
    if example is not None:
        inspection = replace(with_pressed_query(example), layer=layer, head=head)
        show_film(subject, inspection, "attention")
        take_away(subject, inspection, "attention", ATTENTION_TITLE)


def with_pressed_query(example: Inspection) -> Inspection:
    """Return the inspection of the query that was pressed in a figure of the same example."""
    state = st.session_state
    if state.get("inspected_of") != example:
        state.inspected_of = example
        state.pop("inspected_query_index", None)
    return replace(example, query_index=state.get("inspected_query_index", example.query_index))
