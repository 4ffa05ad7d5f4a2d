"""Data of the owner's page: who may see it, and the state of the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st
from streamlit import runtime

from attnkit.service.gate import Gate
from attnkit.service.logs import log
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.ui.server.singletons import Singleton
from attnkit.ui.server.storage import result_store
from attnkit.ui.server.visitor_address import session_address

SIGNED_IN = "owner"
"""Key of the session state that is true once the owner has signed in."""

_STORE_SECONDS = 30.0
"""Seconds for which the size of the store is cached."""

_TABS = "active_sessions"
"""Streamlit's name for the number of connected tabs."""


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
    stats = runtime.get_instance().stats_mgr.get_stats([_TABS])[_TABS]
    return sum(int(stat.to_metric_str().rpartition(" ")[2]) for stat in stats)


@st.cache_data(ttl=_STORE_SECONDS, show_spinner=False)
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


def queue_table(jobs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a table of jobs; only those that wait have a place."""
    table = pd.DataFrame(jobs, columns=_COLUMNS)
    table.insert(_COLUMNS.index("step"), "done", 100 * table["step"] / table["steps"])
    return table.drop(columns="step").assign(place=table["place"].where(table["place"] > 0))


_COLUMNS = [
    *("state", "place", "task", "hash", "runs", "step", "steps", "seconds", "waited"),
    *("megabytes", "watchers", "restarts", "stored", "address"),
]
