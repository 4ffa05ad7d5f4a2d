"""Asymmetry: whether a score tells i → j from j → i."""

from dataclasses import replace

import streamlit as st

from attnkit.ui.example_picker import pick_example
from attnkit.ui.inspection import open_subject, pick_layer_and_head, show_film
from attnkit.ui.rescue import what_rescues_it
from attnkit.ui.routing import require_route
from attnkit.ui.takeaway import take_away

require_route()
TITLE = "Does a score have a direction?"
subject = open_subject("asymmetry", TITLE)
with st.container(horizontal=True, vertical_alignment="bottom", key="pickers"):
    layer, head = pick_layer_and_head(subject)
    looked = pick_example(subject)
if looked is not None:
    inspection = replace(looked, view="symmetry", layer=layer, head=head, asking=0)
    show_film(subject, inspection, "asymmetry")
what_rescues_it(subject.lab)
if looked is not None:
    take_away(subject, inspection, "asymmetry", TITLE)
