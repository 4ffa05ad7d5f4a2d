"""The pages of the dashboard and their addresses.

Until `st.navigation` has been called once in the server, Streamlit finds the folder `pages` by
itself. The very first visitor would then get an inner page without the navigation, so every page
begins with `require_route`, which calls it.
"""

from __future__ import annotations

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from attnkit.ui.owner import has_page, is_signed_in


def route() -> StreamlitPage:
    """Return the page that the address names. Only dashboard.py calls this."""
    st.session_state["routed"] = True
    pages = [
        st.Page("pages/lab.py", title="Lab", icon=":material/science:", default=True),
        st.Page("pages/questions.py", title="Questions", icon=":material/help:"),
        st.Page("pages/attention.py", title="Attention", icon=":material/grid_on:"),
        st.Page("pages/asymmetry.py", title="Asymmetry", icon=":material/compare_arrows:"),
        st.Page("pages/similarity.py", title="Similarity", icon=":material/join_inner:"),
        st.Page("pages/surgery.py", title="Surgery", icon=":material/content_cut:"),
        st.Page("pages/atlas.py", title="Atlas", icon=":material/map:"),
        st.Page("pages/variants.py", title="Variants", icon=":material/category:"),
        st.Page("pages/runs.py", title="Runs", icon=":material/history:"),
        st.Page("pages/guide.py", title="Guide", icon=":material/menu_book:"),
    ]
    if has_page():  # not in the navigation until the owner has signed in at /owner
        pages.append(
            st.Page(
                "pages/owner.py",
                title="Owner",
                icon=":material/admin_panel_settings:",
                visibility="visible" if is_signed_in() else "hidden",
            )
        )
    return st.navigation(pages)


def require_route() -> None:
    """Start again with dashboard.py if the page was not reached through it."""
    if "routed" not in st.session_state:
        route()
        st.rerun()
