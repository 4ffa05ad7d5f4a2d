"""Where this copy keeps finished results: the server's one store."""

from __future__ import annotations

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from streamlit.errors import StreamlitAPIException, StreamlitSecretNotFoundError

from attnkit.experiment import Experiment
from attnkit.service.logs import log
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.ui.singletons import Singleton

CONNECTION = "attnkit"
"""The connection of Streamlit's secrets that comes before the server's settings."""

_NAMED = f"[connections.{CONNECTION}] in the secrets"


@Singleton
def result_store() -> ResultStore | Unavailable:
    """Return the store, or the reason why the settings describe none, in words for people.

    A database that is gone does not show here: each use of the store may raise `Unavailable`.
    """
    own = server_settings()
    try:
        return ResultStore(
            _connection() or own.store,
            megabytes=own.store_megabytes,
            result_megabytes=own.result_megabytes,
            moved=lambda why, n_kept: log("database moved aside", reason=why, results=n_kept),
        )
    except Unavailable as error:
        return error


def stored_experiment(hash: str) -> Experiment | str | None:
    """What a stored result was trained on; None if there is none, or why nobody can tell."""
    store = result_store()
    if isinstance(store, Unavailable):
        return str(store)
    try:
        return store.experiment(hash)
    except Unavailable as error:
        return str(error)


def _connection() -> Engine | None:
    """The database of `[connections.attnkit]`, if secrets tell of one."""
    try:
        if CONNECTION not in st.secrets.get("connections", {}):
            return None
    except StreamlitSecretNotFoundError:
        return None
    try:
        engine: Engine = st.connection(CONNECTION, type="sql").engine
    except ImportError as error:  # without +psycopg, SQLAlchemy takes another driver
        raise Unavailable(f"{_NAMED}: {error}; PostgreSQL is postgresql+psycopg://…") from error
    except (StreamlitAPIException, SQLAlchemyError, ValueError) as error:  # it may hold a password
        raise Unavailable(f"{_NAMED} is no address of a database") from error
    return engine
