"""Tools that every page has: choice of pages, projector mode, rules for paper, one script."""

from __future__ import annotations

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from attnkit.foundation.language import reading, tr
from attnkit.ui import components, words
from attnkit.ui.bundle import asset
from attnkit.ui.language import chosen_language, language_switch
from attnkit.ui.routing import ALL_PAGES

PROJECTOR = "projector"
"""Key of the switch for larger type and fewer things."""


def page_tools(page: StreamlitPage) -> None:
    """Draw the switches below the navigation, and explain terms on the page that follows.

    Args:
        page: The page that follows.
    """
    with reading(chosen_language()), st.sidebar, st.container(horizontal=True, key="page_switches"):
        st.toggle(
            tr("All pages"),
            key=ALL_PAGES,
            help=tr(
                "Newcomers need the first pages only. This adds surgery on trained models, "
                "similarity, the atlas of real models, all variants, and past runs."
            ),
        )
        st.toggle(
            tr("Projector"),
            key=PROJECTOR,
            help=tr("Larger type and fewer things, to show in a room."),
        )
        language_switch()
    with st.container(key="page_tools"):
        styles = ["print.css"]
        if st.session_state[PROJECTOR]:
            styles.append("projector.css")
        if not page.url_path:  # the Lab is at the root
            styles.append("lab_page.css")
        style = "".join(map(asset, styles))
        components.markup(f"<style>{style}</style>", key="page_style")
        components.page(words.hints(), key="page_script")
