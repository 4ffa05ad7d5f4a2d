"""Which pages there are, and the way to them.

Streamlit finds a folder called `pages` by itself until `st.navigation` has been called once in the
server. So the very first visitor, if they come by a link to an inner page, would get that page
without its surroundings: every page begins with `require_route`, which mends that.
"""

from __future__ import annotations

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from attnkit.ui.owner import has_page, is_signed_in


def route() -> StreamlitPage:
    """The page that the address asks for; call once, in dashboard.py."""
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
    if has_page():  # its address, /owner, is for those who know it
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
    """Start over through dashboard.py if this page was not reached by way of it."""
    if "routed" not in st.session_state:
        route()
        st.rerun()
