"""Turns of visitors at drawing pages on a hosted copy.

An address draws one page or fragment at a time, so whoever asks for many waits for their own, and
hardly anybody else does; addresses take turns with each other, too. Of the threads of one session
only the newest draws. A thread that waits for the training process leaves its turn meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec
from weakref import WeakValueDictionary

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from attnkit.service.server import server_settings
from attnkit.ui.server.visitor_address import session_address

MOST_WAITING = 4
"""Threads of one address that wait for its turn; further messages wait in the guard."""

P = ParamSpec("P")


class AddressTurn:
    """Turn of one address."""

    def __init__(self) -> None:
        self.lock, self.n_waiting = threading.Lock(), 0


_turns: WeakValueDictionary[str, AddressTurn] = WeakValueDictionary()
"""Turns by address; those that no thread has or waits for are forgotten."""

_lock = threading.Lock()

ALONE_SECONDS = 1.0
"""Seconds for which a page waits for those of other addresses, after which it is drawn beside them.

Python runs one thread at a time, so two pages at once only make both late: with one at a time, 95%
of the pages of twelve visitors came within 0.3 s instead of 0.9 s, and within 0.9 s instead of
1.2 s while another address asked for forty. A page that waits for a disk must not keep all waiting.
"""

_drawing = threading.Lock()


class _Thread(threading.local):
    """State of the present thread: the turn that it has, and whose; whether it draws alone."""

    turn: tuple[AddressTurn, str] | None = None
    is_alone = False


_thread = _Thread()


@contextmanager
def turn() -> Iterator[None]:
    """Draw a page or a fragment within a turn of its visitor's address.

    If its tab was closed or has asked anew while it waited, nothing is drawn. Without effect
    within another turn, and on a copy that is not hosted.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if _thread.turn is not None or context is None or not server_settings().hosted:
        yield
        return
    _begin(session_address(), context)
    try:
        yield
    finally:
        _end()


@contextmanager
def waiting() -> Iterator[None]:
    """Leave the turn to others while this thread waits for another process."""
    context, has_turn = get_script_run_ctx(suppress_warning=True), _thread.turn
    if has_turn is None or context is None:
        yield
        return
    _end()
    try:
        yield
    finally:
        _begin(has_turn[1], context)


def is_crowded(address: str) -> bool:
    """Return whether so many threads of an address wait that it needs no more."""
    turn = _turns.get(address)
    return turn is not None and turn.n_waiting >= MOST_WAITING


def fragment(draw: Callable[P, None], run_every: float | None = None) -> Callable[P, None]:
    """Return a Streamlit fragment that is drawn in turns; this is the only way to define one.

    Args:
        run_every: Seconds between two drawings; None if only its widgets draw it again.
    """

    @wraps(draw)
    def in_turn(*args: P.args, **kwargs: P.kwargs) -> None:
        with turn():
            draw(*args, **kwargs)

    return st.fragment(in_turn, run_every=run_every)


def _begin(address: str, context: ScriptRunContext) -> None:
    """Wait for a turn; stop the script if nobody waits any more for what it draws."""
    with _lock:
        turn = _turns.setdefault(address, AddressTurn())
        turn.n_waiting += 1
    turn.lock.acquire()
    _thread.is_alone = _drawing.acquire(timeout=ALONE_SECONDS)
    with _lock:
        turn.n_waiting -= 1
    _thread.turn = turn, address
    try:
        context.yield_check()  # stops a script whose visitor has asked anew
        if runtime.exists() and not runtime.get_instance().is_active_session(context.session_id):
            st.stop()  # the tab was closed meanwhile
    except BaseException:
        _end()
        raise


def _end() -> None:
    """End the turn if there is one, as after an interrupted wait there is none."""
    if _thread.turn is not None:
        turn, _ = _thread.turn
        _thread.turn = None
        if _thread.is_alone:
            _drawing.release()
        turn.lock.release()
