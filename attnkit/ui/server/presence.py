"""The watcher of a session: its tab, which ends, and the browser and address that limits count."""

from __future__ import annotations

import gc
import hashlib
import threading
import time
import uuid
from functools import cache

import streamlit as st

from attnkit.foundation.process import give_memory_back
from attnkit.service.jobs import Watcher
from attnkit.service.server import server_settings
from attnkit.ui.server.service import training_service
from attnkit.ui.server.visitor_address import session_address

SWEEP_SECONDS = 5.0
"""Seconds between two collections, at least; each holds the server for about 50 ms."""

_somebody_left = threading.Event()


def watcher() -> Watcher:
    """Return the tab and visitor of this session; on a hosted copy with the network address."""
    if "visitor" not in st.session_state:
        st.session_state.visitor = _browser() or uuid.uuid4().hex
    address = session_address() if server_settings().hosted else ""
    return Watcher(_tab(), st.session_state.visitor, address)


@cache
def sweep() -> None:
    """Start the thread that collects the garbage of closed tabs, once per server.

    Each tab leaves event loops, with open files, in reference cycles. Streamlit's own collection
    after every script run is switched off, and the interpreter collects too rarely for three files
    per visit.
    """
    threading.Thread(target=_sweep, name="attnkit-sweeper", daemon=True).start()


def _sweep() -> None:
    while _somebody_left.wait():
        time.sleep(SWEEP_SECONDS)  # other tabs may be closed meanwhile
        _somebody_left.clear()
        gc.collect()
        give_memory_back()


def _gone(tab: str) -> None:
    """Report that the tab has lost its connection; a session that goes on arrives anew."""
    training_service().leave(tab)
    _somebody_left.set()


@st.cache_resource(scope="session", show_spinner=False, on_release=_gone)
def _tab() -> str:
    tab = uuid.uuid4().hex
    training_service().arrive(tab)
    return tab


def _browser() -> str:
    """Return an id that all tabs of a browser share, from Streamlit's XSRF cookie; or "".

    The cookie is `2|mask|masked token|time`, with a new mask every time.
    """
    try:
        _, mask, masked, _ = st.context.cookies["_streamlit_xsrf"].split("|")
        key = bytes.fromhex(mask)
        token = bytes(byte ^ key[i % len(key)] for i, byte in enumerate(bytes.fromhex(masked)))
    except (KeyError, ValueError, ZeroDivisionError):
        return ""
    return hashlib.blake2b(token, digest_size=8).hexdigest()
