"""The Guide: the question, the five answers on paper, what to try, what the words mean."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment.experiment import SCHEMA, Experiment
from attnkit.tasks import TASKS
from attnkit.ui import components, task_examples, words
from attnkit.ui.presets import PRESETS
from attnkit.ui.routing import require_route
from attnkit.ui.session import with_hidden

AWAIT_SECONDS = 0.5
"""Seconds between two checks whether missing thumbnails have been drawn."""

PRESETS_IN_A_ROW = 3


def draw() -> None:
    """Draw the Guide, or open the Lab with the task whose card was pressed."""
    require_route()
    requested_task = st.session_state.pop("wanted", None)
    if requested_task in TASKS:
        params = task_examples.default_experiment(requested_task).to_params() or {"v": str(SCHEMA)}
        st.switch_page("pages/lab.py", query_params=with_hidden(params))
    st.session_state.page = "guide"
    st.title("Guide", anchor=False)
    st.markdown(
        "In attention every token makes three vectors out of its embedding $x$: a **query** "
        "$q = xW_Q$ (what it looks for), a **key** $k = xW_K$ (what it is found by) and a "
        "**value** $v = xW_V$ (what it hands over). It then collects the values of the tokens "
        "whose keys fit its query: $\\mathrm{softmax}(q k^\\top/\\sqrt{d})\\,v$. "
        "Why three matrices, and not two, or one? There are five ways to share. The Lab trains "
        "them side by side, from the same initial numbers and on the same data."
    )
    show_sharings()
    show_presets()
    st.subheader("The tasks", anchor=False)
    st.caption(
        "Each picture is an example: dashed tokens are questions, and the arc leads to the token "
        "that holds the answer, which stands below. Press one to open it in the Lab."
    )
    # Before the thumbnails are drawn: some may come meanwhile, and would be missing on the page.
    some_missing = task_examples.thumbnails_missing()
    examples = task_examples.thumbnail_examples()
    components.task_gallery("", examples, request_task, key="tasks", is_open=True)

    st.subheader("How to read the Lab", anchor=False)
    words.glossary()
    if some_missing:
        st.fragment(await_thumbnails, run_every=AWAIT_SECONDS)()


def show_sharings() -> None:
    """Draw a card for each of the five sharings, and the way to all variants."""
    st.subheader("Five ways to share", anchor=False)
    components.glossary(Experiment(), key="glossary")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            "Practice knows some forty more ways: fewer key heads than query heads, keys out of a "
            "narrow vector, no matrix at all, keys of length 1, tied only for a time. The Lab "
            "trains them beside these five.",
            width="content",
        )
        st.page_link("pages/variants.py", label="All variants", icon=":material/category:")


def show_presets() -> None:
    """Draw a card for each experiment worth trying."""
    st.subheader("Predict, then press Train", anchor=False)
    for first in range(0, len(PRESETS), PRESETS_IN_A_ROW):
        row = PRESETS[first : first + PRESETS_IN_A_ROW]
        for column, preset in zip(st.columns(PRESETS_IN_A_ROW), row, strict=False):
            with column, st.container(border=True, height="stretch"):
                st.markdown(f"**{preset.title}**  \n{preset.guess}")
                with st.expander("What to look at"):
                    st.markdown(preset.look)
                st.page_link(
                    "pages/lab.py",
                    label="Set it up in the Lab",
                    icon=":material/science:",
                    query_params=with_hidden(preset.params),
                )


def request_task() -> None:
    """Remember the task whose card was pressed: a callback cannot switch to another page."""
    st.session_state.wanted = st.session_state.tasks.chosen


def await_thumbnails() -> None:
    """Draw the page again as soon as all thumbnails have been drawn."""
    if not task_examples.thumbnails_missing():
        st.rerun()
