"""Lifespan of the server: the training process starts and ends with it, not with a visitor."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import streamlit as st
from streamlit import config
from streamlit.web.server.server_util import get_url

from attnkit.ui.server.hubs import hub_address

LISTENING_SECONDS = 1.0
"""Seconds until the server answers; a browser opened earlier shows an empty page for a moment."""

_ALL_ADDRESSES = (None, "0.0.0.0", "::")
"""Hosts of a server that listens at every address of this computer."""


@asynccontextmanager
async def lifespan(
    _: st.App, link: str = "", announce: Callable[[str], None] | None = None
) -> AsyncIterator[None]:
    """Start the services of the pages before the first visitor comes, and stop them at the end.

    On a machine with a screen the dashboard opens in a browser. Streamlit does that by itself for
    plain scripts only, not for an `st.App`.

    Args:
        link: Query string of the page that opens, with its "?".
        announce: Receives the address of that page; on a hub, the one for browsers elsewhere.
    """
    from attnkit.ui.server.startup import start, stop  # their caches need Streamlit's runtime

    start()
    manual = config.is_manually_set("browser.serverAddress")
    host = st.get_option("browser.serverAddress" if manual else "server.address")
    reached = "localhost" if host in _ALL_ADDRESSES else host
    reached = f"[{reached}]" if ":" in reached else reached
    address = get_url(reached) + (f"/{link}" if link else "")
    if announce is not None:
        port, base = (st.get_option(f"server.{name}") for name in ("port", "baseUrlPath"))
        through_hub = hub_address(port, base)
        announce(f"{through_hub}{link}" if through_hub else address)
    if not st.get_option("server.headless"):
        loop = asyncio.get_running_loop()
        loop.call_later(LISTENING_SECONDS, webbrowser.open, address)
    yield
    stop()
