"""What a server does once: before its first page, and at its end."""

from __future__ import annotations

import os

import streamlit as st
from streamlit import config

from attnkit.logs import log, versions
from attnkit.process import prepare_for_serving
from attnkit.server import server_settings
from attnkit.store import ResultStore
from attnkit.ui.presence import sweep
from attnkit.ui.service import training_service
from attnkit.ui.storage import result_store


@st.cache_resource(show_spinner=False)
def start() -> None:
    """Tell what runs here and start the training process, so that it is warm for whoever comes.

    Raises:
        InvalidSettings: if an environment variable has a value that is not allowed.
    """
    settings = server_settings()
    if settings.hosted:  # visitors are told that something went wrong, the log what
        st.set_option("client.showErrorDetails", "none")
        config.set_option("server.maxUploadSize", 1)  # megabyte; nothing is uploaded there
    log("server started", versions=versions(), settings=settings.shown(), cores=os.cpu_count())
    prepare_for_serving()
    training_service()
    sweep()


def stop() -> None:
    """End the training process, put away what it has finished, and close the store."""
    training_service().close()
    store = result_store()
    if isinstance(store, ResultStore):
        store.close()
    log("server stopped")
