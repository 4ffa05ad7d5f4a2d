"""The Guide: what Q, K and V are, a tour of the Lab, experiments to try, what the words mean."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.ui import components, words
from attnkit.ui.lab import tour
from attnkit.ui.lab.guess import awaits_first_run
from attnkit.ui.lab.presets import PRESETS, Preset
from attnkit.ui.routing import require_route
from attnkit.ui.session import lab_link


def draw() -> None:
    """Draw the Guide."""
    require_route()
    st.session_state.page = "guide"
    st.title("Guide", anchor=False)
    with st.container(key="conclusion"):
        st.markdown("Attention looks tokens up by likeness. Why does it need three matrices?")
    st.markdown(
        "Every token makes three vectors out of its embedding $x$: a **query** $q = xW_Q$ (what "
        "it looks for), a **key** $k = xW_K$ (what it is found by) and a **value** $v = xW_V$ "
        "(what it hands over). It receives the values of the tokens whose keys fit its query: "
        "$\\mathrm{softmax}(q k^\\top/\\sqrt{d})\\,v$. The Lab trains five ways to share these "
        "matrices side by side, from the same first numbers and on the same data."
    )
    if st.button("Take the tour: six steps in the Lab", type="primary", icon=":material/tour:"):
        tour.begin_in_lab()
    components.glossary(Experiment(), key="glossary")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link("pages/questions.py", label="The answers", icon=":material/help:")
        st.page_link("pages/variants.py", label="All variants", icon=":material/category:")
    show_presets()
    with st.expander("What the words mean"):
        words.glossary()


def show_presets() -> None:
    """Draw a list of experiments worth trying, and the chosen one."""
    st.subheader("Predict, then train", anchor=False)
    titles = [preset.title for preset in PRESETS]
    chosen = st.pills(
        "Experiments",
        titles,
        default=titles[0],
        required=True,
        key="preset",
        wrap=True,
        label_visibility="collapsed",
        persist_state="session",  # Back from the Lab shows it again
    )
    show_preset(PRESETS[titles.index(chosen)] if chosen in titles else PRESETS[0])


def show_preset(preset: Preset) -> None:
    """Draw one experiment: its question, the way into the Lab, and where to look afterwards."""
    with st.container(border=True, key="preset_card"):
        st.markdown(f"**{preset.title}**  \n{preset.guess}")
        lab_link("Set it up in the Lab", preset.params)
        if not awaits_first_run():  # it tells what comes out
            with st.expander("What to look at", key=f"look_{preset.title}"):
                st.markdown(preset.look)
