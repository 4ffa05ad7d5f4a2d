"""The dashboard for many people: training starts and ends with the server, not with a visitor.

`streamlit run attnkit/ui/hosted.py`, as in the Dockerfile. A setting that is not allowed stops it
at once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """From the server's start to its end."""
    from attnkit.ui.startup import start, stop  # not before Streamlit's runtime is there

    start()
    yield
    stop()


app = st.App(Path(__file__).parents[2] / "dashboard.py", lifespan=lifespan)
