"""The owner's page: who may see it, and the state of the server."""

from __future__ import annotations

import hmac
import threading
import time

import streamlit as st
from streamlit import runtime

from attnkit.service.logs import log
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.ui.server.service import Singleton, result_store
from attnkit.ui.server.visitor_address import session_address

SIGNED_IN = "owner"
"""Key of the session state that is true once the owner has signed in."""

LONGEST_DELAY, LONGEST_WAIT, MOST_ADDRESSES = 10.0, 600.0, 10_000
"""Limits of a gate: seconds before an attempt and after a wrong one, and remembered addresses."""


class Gate:
    """Gate that opens for one secret, with at most one attempt a second. Safe in many threads.

    After a wrong secret its address must wait for 2 seconds, then twice as long each time. If the
    secret is empty, the gate never opens.
    """

    def __init__(self, secret: str) -> None:
        self._secret, self._lock, self._free_at = secret.encode(), threading.Lock(), 0.0
        self._guessers: dict[str, tuple[int, float]] = {}  # wrong secrets, end of the wait

    def opens(self, secret: str, address: str = "") -> bool:
        """Return whether a secret is right, after earlier attempts; while shut, none is."""
        with self._lock:
            if not self._secret or self.shut_seconds(address) > 0:
                return False
            now = time.monotonic()
            begins = max(now, self._free_at)
            self._free_at = begins + 1.0
            right = hmac.compare_digest(secret.encode("utf-8", "replace"), self._secret)
            n_wrong = self._guessers.pop(address, (0, 0.0))[0] + 1
            if not right:
                wait = min(LONGEST_WAIT, 2.0 ** min(n_wrong, 10))
                self._guessers[address] = n_wrong, begins + wait
            if len(self._guessers) > MOST_ADDRESSES:
                del self._guessers[next(iter(self._guessers))]
        time.sleep(begins - now)
        return right

    def shut_seconds(self, address: str = "") -> float:
        """Return for how many seconds every secret of an address is refused."""
        _, until = self._guessers.get(address, (0, 0.0))
        return max(0.0, self._free_at - LONGEST_DELAY - time.monotonic(), until - time.monotonic())


def has_page() -> bool:
    """Return whether this copy has a page for its owner: if a secret is set."""
    return bool(server_settings().owner_secret.get_secret_value())


def is_signed_in() -> bool:
    """Return whether this session is the owner's."""
    return has_page() and st.session_state.get(SIGNED_IN) is True


@Singleton
def gate() -> Gate:
    """Return the gate of the server, which slows down visitors who guess the secret."""
    return Gate(server_settings().owner_secret.get_secret_value())


def sign_in(secret: str) -> bool:
    """Make this session the owner's if the secret is right, and return whether it is."""
    if shut_seconds():
        return False
    right = gate().opens(secret, session_address())
    if right:
        st.session_state[SIGNED_IN] = True
    log("owner signed in" if right else "owner refused", seconds=shut_seconds())
    return right


def shut_seconds() -> float:
    """Return the seconds for which this visitor's address may not try a secret."""
    return gate().shut_seconds(session_address())


def sign_out() -> None:
    """End the owner's session."""
    st.session_state.pop(SIGNED_IN, None)


def n_sessions() -> int:
    """Return the number of connected tabs, as Streamlit counts them."""
    tabs = "active_sessions"
    stats = runtime.get_instance().stats_mgr.get_stats([tabs])[tabs]
    return sum(int(stat.to_metric_str().rpartition(" ")[2]) for stat in stats)


@st.cache_data(ttl=30, show_spinner=False)
def store_megabytes() -> float | str:
    """Return the size of the store, at most half a minute old; a text if it is not known."""
    store = result_store()
    try:
        return store.n_bytes() / 2**20 if isinstance(store, ResultStore) else str(store)
    except Unavailable as error:
        return str(error)


def store_notes() -> list[str]:
    """Return notes on unreadable files of the store that were replaced since the server started."""
    store = result_store()
    return list(store.notes) if isinstance(store, ResultStore) else []
