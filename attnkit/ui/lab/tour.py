"""A tour of six steps on the live Lab; it can be left at any time."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from attnkit.experiment.experiment import SCHEMA
from attnkit.foundation.language import mark, tr
from attnkit.ui import components
from attnkit.ui.session import with_hidden

_REQUESTS = "tour_requests"
"""Key of the number of times that the Guide has asked the Lab to begin the tour."""


class Stop(NamedTuple):
    """One step of the tour.

    Attributes:
        targets: CSS selector of the elements that it points at.
        title: Its title.
        text: What to look at, in one to three sentences; no result of a run, which may differ.
    """

    targets: str
    title: str
    text: str


STOPS = (
    Stop(
        ".st-key-gallery",
        mark("The task"),
        mark(
            "A model reads a sequence and must answer questions about it. In the first task it "
            "reads who is whose boss, such as “Ada’s boss is Cem”, and must find one number. "
            "“Change task” shows all tasks."
        ),
    ),
    Stop(
        ".st-key-set_sharing",
        mark("Who shares a matrix"),
        mark(
            "Attention makes queries Q, keys K and values V. QKV has a matrix for each; Q=K has "
            "one for queries and keys, and so on. Press a name to add or remove its column."
        ),
    ),
    Stop(
        ".st-key-actions",
        mark("Train"),
        mark(
            "Train begins with the same random numbers and the same data in every column. It takes "
            "seconds. Press it now if you like: the tour goes on."
        ),
    ),
    Stop(
        ".ak-board-column:not(.ak-below) .ak-board-chart[style*='grid-row: 4']",
        mark("Does it learn?"),
        mark(
            "The share of right answers, or the loss, while the models train. Which columns get "
            "far, and which stay behind?"
        ),
    ),
    Stop(
        ".ak-board-column:not(.ak-below) .ak-board-map",
        mark("Where does it look?"),
        mark(
            "A row is one question; the model looks at the bright columns. The white frame marks "
            "the right one. The circle marks the entry that points the opposite way."
        ),
    ),
    Stop(
        ".ak-board-column:not(.ak-below) .ak-board-pair",
        mark("Why?"),
        mark(
            "Two scores: from one token to another, and back. Which columns give both directions "
            "the same number, and what can they then not tell? “Questions” has the answers, "
            "“Attention” follows one lookup."
        ),
    ),
)


def tour_area() -> None:
    """Draw the button of the tour in the Lab, and the tour itself if the Guide began it."""
    stops = [
        {"targets": stop.targets, "title": tr(stop.title), "text": tr(stop.text)} for stop in STOPS
    ]
    components.tour(stops, n_requests=st.session_state.get(_REQUESTS, 0), key="tour")


def begin_in_lab() -> None:
    """Open the Lab with its first experiment, and begin the tour there."""
    st.session_state[_REQUESTS] = st.session_state.get(_REQUESTS, 0) + 1
    st.switch_page("pages/lab.py", query_params=with_hidden({"v": str(SCHEMA)}))
