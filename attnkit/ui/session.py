"""The Lab of the present session: opened by a page, kept between reruns, named by links."""

from __future__ import annotations

import time

import streamlit as st

from attnkit.experiment.experiment import DEFAULT_TASK
from attnkit.service.server import server_settings
from attnkit.tasks import hash_in_link
from attnkit.tasks.own_data import is_hash
from attnkit.ui.address import is_quiet, open_choice
from attnkit.ui.lab.lab import Lab, setting_key
from attnkit.ui.lab.task_examples import default_experiment
from attnkit.ui.language import page_link
from attnkit.ui.server.service import training_service, watcher

OPENING_SECONDS = 30.0
"""Seconds after a page was opened in which every run sends all widgets' values to the browser.

Streamlit drops unsent values when a page is drawn anew, and a browser that never received a value
draws an empty box."""


def open_lab(page: str = "lab") -> Lab:
    """Return the Lab of this visitor, made from the link if it is new or the link has changed."""
    comes_from_elsewhere = st.session_state.get("page") != page
    lab = open_choice(
        page,
        "lab",
        lambda: Lab(default_experiment(DEFAULT_TASK), watcher=watcher(), quiet=is_quiet()),
    )
    if comes_from_elsewhere:
        lab.opened_at = time.monotonic()
    opening = time.monotonic() - lab.opened_at < OPENING_SECONDS
    for name, value in lab.experiment.settings().items():
        key = setting_key(name)  # Streamlit may keep a left page's old values
        if comes_from_elsewhere:
            st.session_state[key] = value
        elif opening or key not in st.session_state:
            st.session_state[key] = st.session_state.get(key, value)
    return lab


def lab_link(label: str, params: dict[str, str] | None = None) -> None:
    """Draw a link that opens the Lab."""
    link = None if params is None else with_hidden(params)
    page_link("lab", label, icon=":material/science:", query_params=link)


def stay() -> None:
    """Keep the jobs of this visitor alive, whatever page they are on.

    A tab that was cut off comes back as another tab, so the watcher is read anew.
    """
    lab: Lab | None = st.session_state.get("lab")
    if lab is not None:
        lab.watcher = watcher()
        for job_id in lab.watched:
            training_service().job(job_id, lab.watcher)


def with_hidden(params: dict[str, str]) -> dict[str, str]:
    """Return query parameters of the Lab that hide the controls that this visitor's link hides.

    On a hosted copy, only the hash of own data stands in them: the session has the data.
    """
    data = params.get("data", "")
    if data and not is_hash(data) and server_settings().hosted:
        params = {**params, "data": hash_in_link(data)}
    lab: Lab | None = st.session_state.get("lab")
    return {**params, "hide": ",".join(lab.hidden)} if lab is not None and lab.hidden else params
