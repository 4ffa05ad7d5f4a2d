"""The pages of the dashboard, their sections and their addresses.

A newcomer sees the first pages in the navigation; a switch below it shows all of them. A page that
is not in the navigation can still be opened by its address and by links in other pages.

Until `st.navigation` has been called once in the server, Streamlit finds the folder `pages` by
itself. The very first visitor would then get an inner page without the navigation, so every page
begins with `require_route`, which calls it.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from attnkit.foundation.language import mark, reading, tr
from attnkit.ui import components, words
from attnkit.ui.address import browser_address
from attnkit.ui.language import chosen_language, language_switch, page_label
from attnkit.ui.server.service import has_page, is_signed_in
from attnkit.ui.standalone import asset

ALL_PAGES = "all_pages"
"""Key of the switch that shows all pages in the navigation."""


class _Page(NamedTuple):
    """A page: its name in the address, its title, its icon, and whether newcomers see it."""

    name: str
    title: str
    icon: str
    for_newcomers: bool = False


SECTIONS = {
    mark("Train"): (
        _Page("lab", mark("Lab"), "science", True),
        _Page("questions", mark("Questions"), "help", True),
        _Page("capacity", mark("Capacity"), "grid_view", True),
    ),
    mark("Look inside"): (
        _Page("attention", mark("Attention"), "grid_on", True),
        _Page("asymmetry", mark("Asymmetry"), "compare_arrows", True),
        _Page("surgery", mark("Surgery"), "content_cut"),
        _Page("similarity", mark("Similarity"), "join_inner"),
    ),
    mark("Real models"): (_Page("atlas", mark("Atlas"), "map"),),
    mark("Reference"): (
        _Page("guide", mark("Guide"), "menu_book", True),
        _Page("variants", mark("Variants"), "category"),
        _Page("runs", mark("Runs"), "history"),
    ),
}
"""Pages of the navigation by the title of their section."""


def route() -> StreamlitPage:
    """Return the page that the address names. Only dashboard.py calls this."""
    st.session_state["routed"] = True
    opened = urlsplit(browser_address()).path.rpartition("/")[2]
    shows_all = st.session_state.get(ALL_PAGES, False)
    with reading(chosen_language()):
        sections = {
            tr(section): [
                _page(page, is_shown=shows_all or page.for_newcomers or page.name == opened)
                for page in pages
            ]
            for section, pages in SECTIONS.items()
        }
        if has_page():  # not in the navigation until the owner has signed in at /owner
            owner = _Page("owner", mark("Owner"), "admin_panel_settings")
            sections[tr("Reference")].append(_page(owner, is_shown=is_signed_in()))
    return st.navigation(sections)


def _page(page: _Page, *, is_shown: bool) -> StreamlitPage:
    return st.Page(
        f"pages/{page.name}.py",
        title=page_label(page.name, tr(page.title)),
        icon=f":material/{page.icon}:",
        default=page.name == "lab",
        visibility="visible" if is_shown else "hidden",
    )


def require_route() -> None:
    """Start again with dashboard.py if the page was not reached through it."""
    if "routed" not in st.session_state:
        route()
        st.rerun()


PROJECTOR = "projector"
"""Key of the switch for larger type and fewer things."""


def page_tools(page: StreamlitPage) -> None:
    """Draw the switches below the navigation, and explain terms on the page that follows."""
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
        style = asset("print.css")
        if st.session_state[PROJECTOR]:
            style += asset("projector.css")
        if not page.url_path:  # the Lab is at the root
            style += asset("lab_page.css")
        components.markup(f"<style>{style}</style>", key="page_style")
        data = components.packed({"hints": words.hints()})
        components.component("page", "lab")(key="page_script", data=data)
