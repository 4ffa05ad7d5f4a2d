"""Turns of visitors at drawing pages, and the processor time that is charged to their addresses.

On a hosted copy every page and every fragment is drawn in a turn of its visitor's address. The
processor time of the turn and of the callbacks before it is measured and charged to the address, so
that whoever asks for much waits longer than others. A thread that waits for the training process
leaves its turn to others meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import ParamSpec

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import RerunException, get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from attnkit.service.server import server_settings
from attnkit.service.thread_turns import ThreadTurns
from attnkit.ui.server.visitor_address import session_address

DRAWN_AT_ONCE = 2
"""Most pages and fragments drawn at the same time; Python runs one thread at a time, so that more
of them would only make whoever comes next wait for all."""

MOST_WAITING = 4
"""Threads of one address that start or wait for a turn; further messages wait in the guard.

Streamlit starts a thread for each message and does work that has no turn before it draws."""

START_SECONDS = 0.2
"""Time after which a thread that was expected counts no more: not every message starts one."""

P = ParamSpec("P")

_turns = ThreadTurns(DRAWN_AT_ONCE)

_starting: dict[str, deque[float]] = {}
"""Times until which threads of an address are expected to ask for their turns."""

_rests_until: dict[str, float] = {}
"""Times until which an address has rested for as long as its turns have taken."""


class _Thread(threading.local):
    """State of the present thread.

    Attributes:
        key: Address and session whose turn it has; None if it has none.
        draws: Whether it is within `turn`.
        charged: Processor seconds of the thread that have been charged.
    """

    key: tuple[str, str] | None = None
    draws = False
    charged = 0.0


_thread = _Thread()


@contextmanager
def turn() -> Iterator[None]:
    """Draw a page or a fragment within a turn of its visitor's address.

    If its tab was closed or has asked anew while it waited, nothing is drawn. Without effect
    within another turn, and on a copy that is not hosted. A page that is interrupted to be drawn
    anew keeps its turn until then, so that what Streamlit does in between is part of the turn, too.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if _thread.draws or context is None or not server_settings().hosted:
        yield
        return
    _end()
    _begin((session_address(), context.session_id), context)
    _thread.draws, is_drawn_anew = True, False
    try:
        yield
    except RerunException:
        is_drawn_anew = True
        raise
    finally:
        _thread.draws = False
        if not is_drawn_anew:
            _end()


def is_crowded(address: str) -> bool:
    """Return whether so many threads of an address start or wait that it needs no more."""
    now = time.monotonic()
    starting = [until for until in tuple(_starting.get(address, ())) if until > now]
    return len(starting) + _turns.n_waiting(address) >= MOST_WAITING


def expect(address: str) -> None:
    """Note that a message of an address has passed, which may start a thread."""
    now = time.monotonic()
    for name in [name for name, times in _starting.items() if not times or max(times) < now]:
        del _starting[name]
    _starting.setdefault(address, deque(maxlen=MOST_WAITING)).append(now + START_SECONDS)


def rest(address: str) -> float:
    """Return for how many seconds an address must rest, so that it uses half a core at most."""
    return _rests_until.get(address, 0.0) - time.monotonic()


@contextmanager
def waiting() -> Iterator[None]:
    """Leave the turn to others while this thread waits for another process."""
    context = get_script_run_ctx(suppress_warning=True)
    key = _end()
    try:
        yield
    finally:
        if key is not None and context is not None:
            _begin(key, context)


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


def _begin(key: tuple[str, str], context: ScriptRunContext) -> None:
    """Wait for a turn; stop the script if nobody waits any more for what it draws."""
    with suppress(IndexError):
        _starting.get(key[0], deque()).popleft()
    context.yield_check()  # a thread that has been replaced must not take the newer one's place
    if not _turns.begin(*key):
        st.stop()  # the visitor has asked anew, and another thread draws
    _thread.key = key
    if runtime.exists() and not runtime.get_instance().is_active_session(context.session_id):
        _end()
        st.stop()  # the tab was closed meanwhile


def _end() -> tuple[str, str] | None:
    """End the turn, charge it, and return its address and session; None if there is none."""
    key, _thread.key = _thread.key, None
    if key is not None:
        seconds, now = time.thread_time(), time.monotonic()
        used, _thread.charged = seconds - _thread.charged, seconds
        _turns.end(*key, used)
        for name in [name for name, until in tuple(_rests_until.items()) if until < now]:
            _rests_until.pop(name, None)
        _rests_until[key[0]] = max(now, _rests_until.get(key[0], now)) + used
    return key
