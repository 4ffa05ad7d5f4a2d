"""The life of the server: training starts and ends with it, not with a visitor."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st
from streamlit.web.server.server_util import get_url

LISTENING_SECONDS = 1.0
"""After so long the server answers; a browser that comes earlier shows an error."""


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Start what the pages need before the first visitor comes, and stop it with the server.

    On a machine with a screen the dashboard opens in a browser. Streamlit does that by itself for
    plain scripts only, not for an `st.App`.
    """
    from attnkit.ui.startup import start, stop  # caches need Streamlit's runtime

    start()
    if not st.get_option("server.headless"):
        loop = asyncio.get_running_loop()
        loop.call_later(LISTENING_SECONDS, webbrowser.open, get_url("localhost"))
    yield
    stop()
