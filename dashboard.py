"""The dashboard: routes to the pages. Start it with `streamlit run dashboard.py`."""

import gc

import streamlit as st

from attnkit.ui.routing import route
from attnkit.ui.session import stay
from attnkit.ui.startup import start

st.set_page_config(
    page_title="attnkit: why do Q, K and V need different matrices?",
    page_icon=":material/hub:",
    layout="wide",
    initial_sidebar_state=270,
)


@st.cache_resource(show_spinner=False)
def settle() -> None:
    """Once per server: start it, and keep what is imported out of the collector.

    Streamlit's own collection after every script run is switched off in .streamlit/config.toml;
    the ordinary, incremental one goes on.
    """
    start()
    gc.collect()
    gc.freeze()


page = route()
settle()
stay()
page.run()
