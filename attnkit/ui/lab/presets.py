"""Ways into the Lab for newcomers: a tour of it, and experiments that begin with a question."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from attnkit.experiment.experiment import SCHEMA, Experiment, full_size
from attnkit.foundation.language import mark, tr
from attnkit.ui import components
from attnkit.ui.lab.lab import with_hidden

_REQUESTS = "tour_requests"
"""Key of the number of times that the Guide has asked the Lab to begin the tour."""


STOPS = (
    (
        ".st-key-gallery",
        mark("The task"),
        mark(
            "A model reads a sequence and must answer questions about it. In the first task it "
            "reads who is whose boss, such as “Ada’s boss is Cem”, and must find one number. "
            "“Change task” shows all tasks."
        ),
    ),
    (
        ".st-key-set_sharing",
        mark("Who shares a matrix"),
        mark(
            "Attention makes queries Q, keys K and values V. QKV has a matrix for each; Q=K has "
            "one for queries and keys, and so on. Press a name to add or remove its column."
        ),
    ),
    (
        ".st-key-actions",
        mark("Train"),
        mark(
            "Train begins with the same random numbers and the same data in every column. It takes "
            "seconds. Press it now if you like: the tour goes on."
        ),
    ),
    (
        ".ak-board-column:not(.ak-below) .ak-board-chart[style*='grid-row: 4']",
        mark("Does it learn?"),
        mark(
            "The share of right answers, or the loss, while the models train. Which columns get "
            "far, and which stay behind?"
        ),
    ),
    (
        ".ak-board-column:not(.ak-below) .ak-board-map",
        mark("Where does it look?"),
        mark(
            "A row is one question; the model looks at the bright columns. The white frame marks "
            "the right one. The circle marks the entry that points the opposite way."
        ),
    ),
    (
        ".ak-board-column:not(.ak-below) .ak-board-pair",
        mark("Why?"),
        mark(
            "Two scores: from one token to another, and back. Which columns give both directions "
            "the same number, and what can they then not tell? “Questions” has the answers, "
            "“Attention” follows one lookup."
        ),
    ),
)
"""Steps of the tour: CSS selector of what they point at, title, and what to look at.

The texts have no result of a run, which may differ."""


def tour_area() -> None:
    """Draw the button of the tour in the Lab, and the tour itself if the Guide began it."""
    stops = [
        {"targets": targets, "title": tr(title), "text": tr(text)} for targets, title, text in STOPS
    ]
    # The tour begins without a press of its button whenever the number of requests grows.
    data = {"stops": stops, "requests": st.session_state.get(_REQUESTS, 0)}
    components.component("tour", "lab")(key="tour", data=components.packed(data))


def begin_in_lab() -> None:
    """Open the Lab with its first experiment, and begin the tour there."""
    st.session_state[_REQUESTS] = st.session_state.get(_REQUESTS, 0) + 1
    st.switch_page("pages/lab.py", query_params=with_hidden({"v": str(SCHEMA)}))


class Preset(NamedTuple):
    """An experiment, with a question to answer before training and where the answer is seen.

    The texts are in English, for `tr` where they are shown.
    """

    title: str
    guess: str
    look: str
    experiment: Experiment

    @property
    def params(self) -> dict[str, str]:
        """Query parameters of the link; never empty, so that it also restores the defaults."""
        return self.experiment.to_params() or {"v": str(SCHEMA)}


PRESETS: tuple[Preset, ...] = (
    Preset(
        mark("Who reports to whom"),
        mark("Ada reports to Cem, but Cem does not report to Ada. Which sharings learn that?"),
        mark("Compare Q=K with the line of picking one of two, and its two attention curves."),
        Experiment(task="directed"),
    ),
    Preset(
        mark("Married couples"),
        mark("The same book, but every relation is mutual. Does sharing still cost anything?"),
        mark("The asymmetry of QKV falls towards 0: it learns symmetric scores by itself."),
        Experiment(task="mutual"),
    ),
    Preset(
        mark("Look a name up"),
        mark("A name is found by comparing names, so no direction is involved. Who is fastest?"),
        mark("Q=K is as fast as QKV here; K=V and Q=K=V take more steps."),
        Experiment(task="phonebook"),
    ),
    Preset(
        mark("A narrow head"),
        mark("With three numbers per head, can one vector be both the address and the content?"),
        mark(
            "Within these 600 steps QKV solves it, K=V and Q=K=V are far from it. Train four times "
            "as long, then widen the head to 4, 6, 8: how much of the gap is speed?"
        ),
        Experiment(task="phonebook", d_head=3),
    ),
    Preset(
        mark("Heads rescue Q=K"),
        mark("With one head Q=K is right in about half of the answers. What if there are four?"),
        mark("Q=K gets far above one half. Takes a minute: wider models, more steps."),
        Experiment(
            task="directed",
            sharing=["QKV", "Q=K", "Q=K=V"],
            n_seeds=2,
            d_model=64,
            n_heads=4,
            steps=3000,
        ),
    ),
    Preset(
        mark("No self-mask"),
        mark("With Q=K a token scores itself high. What if it may look at itself?"),
        mark(
            "After 600 steps Q=K and Q=K=V have less than the half that they have with the "
            "self-mask."
        ),
        Experiment(task="directed", self_mask=False),
    ),
    Preset(
        mark("Rescues for Q=K"),
        mark("Q=K scores both directions alike. Do signed factors help, or Reformer's unit keys?"),
        mark(
            "After 600 steps all three are near one half. With signed factors scores stay "
            "symmetric; with unit keys they are nearly so. Then try four heads."
        ),
        Experiment(task="directed", sharing=["QKV", "Q=K", "Indefinite", "Reformer"]),
    ),
    Preset(
        mark("Tied later"),
        mark("Train three matrices, then tie K and V halfway. Does a trained model survive?"),
        mark(
            "How far does the accuracy fall at step 300? Does the average of both matrices come "
            "back faster than either?"
        ),
        Experiment(
            task="phonebook",
            sharing=[
                "QKV",
                "K=V",
                "QKV tie=K=V",
                "QKV tie=K=V tie_by=keep_K",
                "QKV tie=K=V tie_by=keep_V",
            ],
        ),
    ),
    Preset(
        mark("A smaller cache"),
        mark("Four heads of queries. Are four heads of keys and values better than one?"),
        mark(
            "From 64 numbers kept per token (KV cache) to 8, all solve it. Then set the head width "
            "to 2: which of them solve it within as many steps?"
        ),
        Experiment(task="phonebook", sharing=["MHA-4", "GQA", "MQA", "K=V + MQA"]),
    ),
    Preset(
        mark("What followed last time"),
        mark(
            "A token comes back: what stood after it before? Can one layer of attention find that?"
        ),
        mark(
            "With one layer all stay near chance for these 500 steps. Set the layers to 2: QKV, "
            "K=V and Q=V solve it. Then switch the self-mask on: does Q=K=V solve it, too?"
        ),
        Experiment(task="induction", n_seeds=3, n_layers=1),
    ),
    Preset(
        mark("A token finds itself"),
        mark(
            "With one matrix for queries and keys a token often attends to itself. What if it may "
            "not?"
        ),
        mark(
            "After 500 steps Q=K and Q=K=V have not solved it with every seed; with the self-mask "
            "they have."
        ),
        Experiment(
            task="induction",
            sharing=["QKV", "Q=K", "Q=K self_mask", "Q=K=V", "Q=K=V self_mask"],
        ),
    ),
    Preset(
        mark("Two hops"),
        mark(
            "Ada points to Cem, Cem to Ben: who is two hops on from Ada? Does one layer find out?"
        ),
        mark(
            "See accuracy by hops in “Numbers and downloads”: within these 800 steps one layer "
            "solves one hop, not two. Then set the layers to 2, with the self-mask off and on."
        ),
        Experiment(task="k_hop", n_seeds=2, n_layers=1),
    ),
    Preset(
        mark("A benchmark of recall"),
        mark("Keys come back later, each with its value long gone. Which sharings recall it?"),
        mark(
            "Within 800 steps QKV, K=V and Q=V solve it with both seeds. Q=K and Q=K=V do so with "
            "some seeds only: try others, then switch the self-mask on."
        ),
        full_size("mqar").replace(n_seeds=2),
    ),
    Preset(
        mark("Two neighbours of one name"),
        mark(
            "“network” is near “neural” and “social”. Must queries differ from keys to find both?"
        ),
        mark(
            "Q=K is enough here. A token often scores itself high: does Q=K=V need the self-mask?"
        ),
        Experiment(task="neighbours", n_seeds=3),
    ),
    Preset(
        mark("Reverse, as published"),
        mark("A list from back to front, two layers, four heads. Is a matrix less as good here?"),
        mark(
            "QKV, K=V and Q=V solve it in 158 steps, Q=K all but; Q=K=V only with the self-mask "
            "on. Takes a few minutes."
        ),
        full_size("reverse").replace(n_seeds=2),
    ),
    Preset(
        mark("Encoder and decoder"),
        mark(
            "Queries of the decoder meet keys of the encoder. Does it matter who shares a matrix?"
        ),
        mark(
            "All five solve it within 300 steps: in cross-attention, queries and keys come from "
            "different tokens."
        ),
        Experiment(task="dictionary", n_seeds=3),
    ),
)
