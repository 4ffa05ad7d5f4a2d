"""Lifespan of the server: the training process starts and ends with it, not with a visitor."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st
from streamlit.web.server.server_util import get_url

LISTENING_SECONDS = 1.0
"""Seconds until the server accepts connections; a browser opened earlier shows an error."""


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Start the services of the pages before the first visitor comes, and stop them at the end.

    On a machine with a screen the dashboard opens in a browser. Streamlit does that by itself for
    plain scripts only, not for an `st.App`.
    """
    from attnkit.ui.startup import start, stop  # their caches need Streamlit's runtime

    start()
    if not st.get_option("server.headless"):
        loop = asyncio.get_running_loop()
        loop.call_later(LISTENING_SECONDS, webbrowser.open, get_url("localhost"))
    yield
    stop()
