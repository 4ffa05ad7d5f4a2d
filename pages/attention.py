"""Attention: one lookup of a trained model, in stages, at any moment of training."""

from dataclasses import replace

import streamlit as st

from attnkit.analysis.inspection.request import Inspection
from attnkit.ui.example_picker import pick_example
from attnkit.ui.inspection import open_subject, pick_layer_and_head, show_film
from attnkit.ui.routing import require_route
from attnkit.ui.takeaway import take_away


def followed(looked: Inspection) -> Inspection:
    """Of the token that was pressed in a figure, as long as the example stays the same."""
    state = st.session_state
    if state.get("inspected_of") != looked:
        state.inspected_of = looked
        state.pop("inspected_asking", None)
    return replace(looked, asking=state.get("inspected_asking", looked.asking))


require_route()
TITLE = "What does one lookup do?"
subject = open_subject("attention", TITLE)
with st.container(horizontal=True, vertical_alignment="bottom", key="pickers"):
    layer, head = pick_layer_and_head(subject)
    looked = pick_example(subject)
if looked is not None:
    inspection = replace(followed(looked), layer=layer, head=head)
    show_film(subject, inspection, "attention")
    take_away(subject, inspection, "attention", TITLE)
