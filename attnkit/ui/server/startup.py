"""Start and end of a server: steps that run once, before its first page and after its last."""

from __future__ import annotations

import gc

import streamlit as st
from streamlit import config, net_util

from attnkit.foundation.process import n_cores, prepare_for_serving
from attnkit.service.logs import log, log_foreign_errors, versions
from attnkit.service.server import server_settings
from attnkit.ui.server import guard
from attnkit.ui.server.browser_messages import decide_what_browsers_keep
from attnkit.ui.server.service import Singleton, classes, result_store, sweep, training_service


@Singleton
def start() -> None:
    """Log what runs here, and start the training process so that it is warm for the first visitor.

    Raises:
        InvalidSettings: If an environment variable has a value that is not allowed.
    """
    settings = server_settings()
    if settings.hosted:  # details of an error are for the log, not for visitors
        st.set_option("client.showErrorDetails", "none")
        config.set_option("logger.enableRich", False)  # it would print whole tracebacks
        config.set_option("server.maxUploadSize", 1)  # megabyte; a hosted copy takes no uploads
        # A page of another site would make Streamlit ask the network for its own addresses.
        net_util._internal_ip = net_util._external_ip = "127.0.0.1"
        guard.limit_sockets()
    log("server started", versions=versions(), settings=settings.shown(), cores=n_cores())
    if settings.hosted and not guard.in_front.is_set():
        log("not guarded")
    prepare_for_serving()
    decide_what_browsers_keep()
    training_service()
    sweep()
    if settings.hosted:  # until here, whoever starts the server reads why it does not start
        log_foreign_errors()


@Singleton
def start_and_freeze() -> None:
    """Start the server unless it is started, and exempt imported objects from garbage collection.

    Streamlit's full collection after every script run is switched off in .streamlit/config.toml;
    the interpreter's incremental one goes on.
    """
    start()
    gc.collect()
    gc.freeze()


def stop() -> None:
    """End the training process, store its finished results, and close the store."""
    training_service.clear()
    classes.clear()
    result_store.clear()
    log("server stopped")
