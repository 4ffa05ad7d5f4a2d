"""Turns of visitors at drawing pages, and the processor time that is charged to their addresses.

On a hosted copy every page and every fragment is drawn in a turn of its visitor's address. Its
processor time is measured, with that of callbacks before it. So whoever asks for much waits, and
others do not. A thread that waits for the training process leaves its turn to others meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnkit.service.server import server_settings
from attnkit.service.turns import Turns
from attnkit.ui.server.visitor_address import session_address

DRAWN_AT_ONCE, OF_ADDRESS = 6, 2
"""Pages and fragments that are drawn at the same time, and those of one address among them."""

P = ParamSpec("P")

_turns = Turns(DRAWN_AT_ONCE, OF_ADDRESS)


class _Thread(threading.local):
    """State of the present thread.

    Attributes:
        key: Address and session whose turn it has; None if it has none.
        charged: Processor seconds of the thread that have been charged.
    """

    key: tuple[str, str] | None = None
    charged = 0.0


_thread = _Thread()


@contextmanager
def turn() -> Iterator[None]:
    """Draw a page or a fragment within a turn of its visitor's address.

    If its tab was closed while it waited, nothing is drawn. Without effect within another turn, and
    on a copy that is not hosted.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if _thread.key is not None or context is None or not server_settings().hosted:
        yield
        return
    _begin((session_address(), context.session_id))
    try:
        if runtime.exists() and not runtime.get_instance().is_active_session(context.session_id):
            st.stop()  # its tab was closed meanwhile
        yield
    finally:
        _end()


@contextmanager
def waiting() -> Iterator[None]:
    """Leave the turn to others while this thread waits for another process."""
    key = _thread.key
    if key is None:
        yield
        return
    _end()
    try:
        yield
    finally:
        _begin(key)


def fragment(draw: Callable[P, None], run_every: float | None = None) -> Callable[P, None]:
    """Return a Streamlit fragment that is drawn in turns; all fragments are made by this.

    Args:
        draw: Draws the fragment.
        run_every: Seconds between two drawings; None if only its widgets draw it again.
    """

    @wraps(draw)
    def in_turn(*args: P.args, **kwargs: P.kwargs) -> None:
        with turn():
            draw(*args, **kwargs)

    return st.fragment(in_turn, run_every=run_every)


def _begin(key: tuple[str, str]) -> None:
    _turns.begin(*key)
    _thread.key = key


def _end() -> None:
    key, seconds = _thread.key, time.thread_time()
    assert key is not None
    _thread.key = None
    _turns.end(*key, seconds - _thread.charged)
    _thread.charged = seconds
