"""The life of the server: training starts and ends with it, not with a visitor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Start what the pages need before the first visitor comes, and stop it with the server."""
    from attnkit.ui.startup import start, stop  # caches need Streamlit's runtime

    start()
    yield
    stop()
