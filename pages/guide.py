"""The Guide: the question, the five answers on paper, what to try, what the words mean."""

import streamlit as st

from attnkit.experiment.experiment import SCHEMA, Experiment
from attnkit.tasks import TASKS
from attnkit.ui import components, words
from attnkit.ui.presets import PRESETS
from attnkit.ui.routing import require_route
from attnkit.ui.session import (
    default_experiment,
    thumbnail_examples,
    thumbnails_missing,
    with_hidden,
)

require_route()
AWAIT_SECONDS = 0.5


def open_task() -> None:
    """Remember the card that was pressed: a page cannot be left within a callback."""
    st.session_state.wanted = st.session_state.tasks.chosen


def await_thumbnails() -> None:
    """Draw the page again when all have come."""
    if not thumbnails_missing():
        st.rerun()


wanted = st.session_state.pop("wanted", None)
if wanted in TASKS:
    params = default_experiment(wanted).to_params() or {"v": str(SCHEMA)}
    st.switch_page("pages/lab.py", query_params=with_hidden(params))
st.session_state.page = "guide"
st.title("Guide", anchor=False)
st.markdown(
    "In attention every token makes three vectors out of its embedding $x$: a **query** "
    "$q = xW_Q$ (what it looks for), a **key** $k = xW_K$ (what it is found by) and a **value** "
    "$v = xW_V$ (what it hands over). It then collects the values of the tokens whose keys fit "
    "its query: $\\mathrm{softmax}(q k^\\top/\\sqrt{d})\\,v$. "
    "Why three matrices, and not two, or one? There are five ways to share. The Lab trains them "
    "side by side, from the same initial numbers and on the same data."
)

st.subheader("Five ways to share", anchor=False)
components.glossary(Experiment(), key="glossary")
with st.container(horizontal=True, vertical_alignment="center"):
    st.markdown(
        "Practice knows some forty more ways: fewer key heads than query heads, keys out of a "
        "narrow vector, no matrix at all, keys of length 1, tied only for a time. The Lab trains "
        "them beside these five.",
        width="content",
    )
    st.page_link("pages/variants.py", label="All variants", icon=":material/category:")

st.subheader("Predict, then press Train", anchor=False)
for first in range(0, len(PRESETS), 3):
    for column, preset in zip(st.columns(3), PRESETS[first : first + 3], strict=False):
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

st.subheader("The tasks", anchor=False)
st.caption(
    "Each picture is an example: dashed tokens are asked, the arc leads to the one that holds "
    "the answer, which stands below. Press one to open it in the Lab."
)
some_lack = thumbnails_missing()  # asked before they are drawn: more may come meanwhile
components.task_gallery("", thumbnail_examples(), open_task, key="tasks", is_open=True)

st.subheader("How to read the Lab", anchor=False)
words.glossary()
if some_lack:
    st.fragment(await_thumbnails, run_every=AWAIT_SECONDS)()
