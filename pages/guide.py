"""The Guide: the question, the five answers on paper, what to try, what the words mean."""

import streamlit as st

from attnkit.experiment import SCHEMA, Experiment
from attnkit.tasks import TASKS
from attnkit.ui import components
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
WORDS = {
    "accuracy": "Share of right answers on held-out examples: no model ever trains on them.",
    "on training examples": "The same on examples that are trained on, where a task has a fixed "
    "stock of them: what is learnt by heart shows in the difference.",
    "loss": "Mean of −ln of the probability given to the right answer, in nats; lower is better.",
    "solved": "Every seed has reached an accuracy of 0.99 three evaluations in a row.",
    "95% interval": "Student's t interval of the mean over seeds. It speaks of new seeds, not of "
    "new tasks.",
    "seed": "Decides the initial numbers and the data; the same for every variant.",
    "chance": "Accuracy of a simple guess, such as the number of some entry picked at random.",
    "untrained": "Accuracy at step 0.",
    "one of two picked at random": "½ + 1/(2·numbers): with symmetric scores, successor and "
    "predecessor get the same score. With one head, one layer, no MLP and the self-mask, Q=K and "
    "Q=K=V were seen to stay at or a little below it; that they must is not proved.",
    "self-mask": "A token does not look at itself unless it sees no other (−1e5 on that score).",
    "asymmetry": "a = (1 − s)/2, with s = (‖S_s‖² − ‖S_a‖²)/‖S‖² of the scores S before mask and "
    "softmax: 0 symmetric, ½ unrelated, 1 antisymmetric. Untrained models have about ½ already, "
    "so judge direction by the attention curves.",
    "attention on the right token": "Mean attention weight on the token that holds the answer.",
    "attention on the reversed entry": "The same for the entry that asks for the asker: whoever "
    "reports to Ada, when Ada asks.",
    "encoder, decoder": "The encoder reads a whole sequence; the decoder writes another one token "
    "by token, and sees only what it has written so far.",
    "cross-attention": "Tokens of the decoder ask, tokens of the encoder are looked at. Those who "
    "ask are not those who are looked at, so scores have no symmetry.",
    "layer": "One round of attention. A second layer can ask about what the first one found.",
    "accuracy by group": "Answers of a task in groups, such as how far off the answer stands.",
    "rest": "In attention maps: the weight on all tokens that have no column.",
    "cached floats per token": "Numbers a decoder must keep per token: keys and values, once if "
    "they are the same; or the narrow vector they are made of.",
    "multiply-adds per token": "Multiplications in the matrix products of one token's way through "
    "the model, among as many tokens as the task has.",
    "equal cost": "Head widths, then MLP widths, are changed until every variant costs as much as "
    "the dearest, within 2% where whole numbers allow it.",
    "model-steps per second": "Optimiser steps of single models per second, over all models.",
}
st.markdown(
    "| word | what it means here |\n|---|---|\n"
    + "\n".join(f"| {word} | {meaning} |" for word, meaning in WORDS.items())
)
if some_lack:
    st.fragment(await_thumbnails, run_every=AWAIT_SECONDS)()
