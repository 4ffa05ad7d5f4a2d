"""The address that a visitor connects from, and the turns of addresses at drawing pages.

Limits apply to addresses. On a hosted copy, an address draws one page or fragment at a time, so
whoever asks for many waits for their own, and hardly anybody else does; addresses take turns with
each other, too. Of the threads of one session only the newest draws. A thread that waits for the
training process leaves its turn meanwhile.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from ipaddress import IPv6Address, ip_address
from typing import ParamSpec
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import streamlit as st
import uvicorn.config
from starlette.types import ASGIApp
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from attnkit.service.server import server_settings

_ADDRESS = re.compile(r'\s*("?)(?:\[(?P<v6>[^]"]*)\](?::\d+)?|(?P<v4>[\d.]+)(?::\d+)?)\1\s*')
"""An address as proxies write it: in quotes or not, with a port or not, IPv6 in brackets."""

PROXY_HEADERS = (
    *("forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip", "fastly-client-ip"),
    *(f"x-forwarded-{what}" for what in ("for", "host", "port", "proto", "server", "prefix")),
)
"""Headers that proxies add to what a visitor sends."""


def trust_only_our_setting() -> None:
    """Let the setting `address_header` alone decide whose headers are believed.

    Without this, the server takes the address of a connection from this machine out of
    `X-Forwarded-For`, which a proxy on it may hand on as a visitor has sent it. Its setting for
    that is read before our code is, so the server gets an application that is not wrapped.
    """

    def unwrapped(app: ASGIApp, **_: object) -> ASGIApp:
        return app

    uvicorn.config.ProxyHeadersMiddleware = unwrapped  # type: ignore[assignment,attr-defined]


def visitor_address(values_of: Callable[[str], Sequence[str]], peer: str | None) -> str:
    """Return the address of the visitor behind a connection.

    The setting `address_header` names the header in which a trusted proxy writes it. Proxies append
    to what the visitor sent, so only the last address in that header was written by a proxy. An
    IPv6 address is replaced by its network, because one visitor has a whole /64 of addresses.
    Proxies write an address alone, with a port, as `1.2.3.4:5678` or `[2001:db8::1]:443`, or as
    `for=` in the header `Forwarded`.

    Args:
        values_of: Returns all values of a header by its name, such as `Headers.getlist`.
        peer: Address at the other end of the socket; None if it is unknown or loopback.

    Returns:
        The address in its canonical form. Without the setting, or if the header contains no
        address at its end, as with `unknown`, it is `peer`.
    """
    header = server_settings().address_header
    from_proxy = ",".join(values_of(header)).rpartition(",")[2].strip() if header else ""
    return _address_in(from_proxy) or _canonical(peer or "") or "127.0.0.1"


def session_address() -> str:
    """Return the address of the visitor whose page is being drawn."""
    return visitor_address(st.context.headers.get_all, st.context.ip_address)


def is_on_this_machine() -> bool:
    """Return whether the browser whose page is being drawn runs on the server's machine."""
    return is_local(st.context.headers.get_all, st.context.ip_address)


def is_local(values_of: Callable[[str], Sequence[str]], peer: str | None) -> bool:
    """Return whether a connection comes from a browser on this machine, through no proxy.

    A proxy on this machine connects from it, too. So the address that the browser shows, in
    `Origin`, must be one of this machine, and there may be no header that proxies add. A program
    that is no browser can forge the first through a proxy that adds no header: a copy behind one
    must have the setting `hosted`.

    Args:
        values_of: Returns all values of a header by its name, such as `Headers.getlist`.
        peer: Address at the other end of the socket; None if it is loopback.
    """
    if peer is not None or any(values_of(header) for header in PROXY_HEADERS):
        return False
    try:
        hosts = [urlsplit(origin).hostname for origin in values_of("origin")]
    except ValueError:  # no address
        return False
    return bool(hosts) and all(host in ("localhost", "127.0.0.1", "::1") for host in hosts)


def _address_in(text: str) -> str:
    """Return the address in what a proxy writes in one of its forms; empty if there is none."""
    if len(text) > 200:
        return ""
    if "=" in text:
        pairs = text.split(";")
        is_quoted = any(pair.count('"') % 2 for pair in pairs)  # a semicolon, by a visitor
        split = (pair.partition("=") for pair in pairs)
        named = [value for name, _, value in split if name.strip().lower() == "for"]
        text = named[0] if len(named) == 1 and not is_quoted else ""
    match = _ADDRESS.fullmatch(text)
    return _canonical(text if match is None else match["v6"] or match["v4"] or "")


def _canonical(text: str) -> str:
    """Return an address in its canonical form, an IPv6 address as its network; empty if invalid."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


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
