"""The server's life: what it starts and ends, and the browser that it opens."""

import asyncio
import webbrowser
from concurrent.futures import ThreadPoolExecutor

import pytest
import streamlit as st

from attnkit.ui import lifespan as module
from attnkit.ui import startup


@pytest.mark.parametrize(("headless", "opened"), [(False, ["http://localhost:8501"]), (True, [])])
def test_a_browser_opens_where_there_is_a_screen(monkeypatch, headless, opened):
    """Between the start of the training process and its end."""
    events = []
    monkeypatch.setattr(startup, "start", lambda: events.append("start"))
    monkeypatch.setattr(startup, "stop", lambda: events.append("stop"))
    monkeypatch.setattr(webbrowser, "open", events.append)
    monkeypatch.setattr(st, "get_option", {"server.headless": headless}.get)
    monkeypatch.setattr(module, "LISTENING_SECONDS", 0.0)

    async def live():
        async with module.lifespan(None):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    with ThreadPoolExecutor(1) as pool:  # the shared browser has its loop in this thread
        pool.submit(asyncio.run, live()).result()
    assert events == ["start", *opened, "stop"]
