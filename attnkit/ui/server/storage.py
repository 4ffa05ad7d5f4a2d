"""The store of finished results, of which a server has one."""

from __future__ import annotations

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from streamlit.errors import StreamlitAPIException, StreamlitSecretNotFoundError

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark
from attnkit.service.logs import log
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.ui.server.singletons import Singleton

CONNECTION = "attnkit"
"""Name of the connection in Streamlit's secrets; it overrides the server's settings."""


def _open_store() -> ResultStore | Unavailable:
    settings = server_settings()
    try:
        return ResultStore(
            _connection() or settings.store,
            megabytes=settings.store_megabytes,
            result_megabytes=settings.result_megabytes,
            moved=lambda why: log("database moved aside", reason=why),
        )
    except Unavailable as error:
        return error


def _close_store(store: ResultStore | Unavailable) -> None:
    if not isinstance(store, Unavailable):
        store.close()


result_store = Singleton(_open_store, release=_close_store)
"""Return the store, or the error that says why the settings describe none.

A database that is away is noticed at its use only: every method may raise `Unavailable`."""


def stored_experiment(hash: str) -> Experiment | str | None:
    """Return the experiment of a stored result; None if absent, a text if the store fails."""
    store = result_store()
    if isinstance(store, Unavailable):
        return str(store)
    try:
        return store.experiment(hash)
    except Unavailable as error:
        return str(error)


def _connection() -> Engine | None:
    """Return the database of `[connections.attnkit]` in the secrets; None if they have none."""
    try:
        if CONNECTION not in st.secrets.get("connections", {}):
            return None
    except StreamlitSecretNotFoundError:
        return None
    try:
        engine: Engine = st.connection(CONNECTION, type="sql").engine
    except (ImportError, StreamlitAPIException, SQLAlchemyError, ValueError):
        # Their texts may hold a password. Without +psycopg, SQLAlchemy takes another driver.
        text = mark(
            "[connections.attnkit] in the secrets is not the address of a database whose driver is "
            "installed; that of PostgreSQL begins with postgresql+psycopg://"
        )
        raise Unavailable(text) from None
    return engine
