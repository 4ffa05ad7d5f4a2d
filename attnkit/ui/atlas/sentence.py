"""Section of the Atlas in which a trained model reads a visitor's own sentence."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import streamlit as st

from attnkit.figures.sentence import describe_heads, explain, sentence_film
from attnkit.foundation.tables import csv_of_frame
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.sentence import (
    MOST_CHARACTERS,
    MOST_TOKENS,
    SentenceReading,
    checked_sentence,
)
from attnkit.service.server import server_settings
from attnkit.ui import components
from attnkit.ui.atlas.choice import numbers
from attnkit.ui.atlas.custom_model import LONGEST_SOURCE, TICK_SECONDS, off_here
from attnkit.ui.atlas.model_process import ModelProcess
from attnkit.ui.markdown import plain
from attnkit.ui.server.browser_messages import LONGEST_TEXT
from attnkit.ui.server.turns import fragment
from attnkit.ui.standalone import standalone_html
from attnkit.ui.widgets import bound, download

FIGURES, STATE = "sentence", "atlas_sentence"
"""Keys of the component, and of the section's state in a visitor's session."""


class SentenceProcess(ModelProcess):
    """A model in memory that reads one sentence after another; it ends with this object.

    Args:
        source: A folder, a file, a package or a name on the hub.
    """

    def __init__(self, source: str) -> None:
        super().__init__(["sentence", "--out", "{folder}/read"], source, listens=True)
        self._n_given = 0

    def give(self, sentence: str) -> None:
        """Give the model a sentence, which is one line."""
        self._n_given += 1
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, and `problem` says why
            self._process.stdin.write(f"{sentence}\n".encode())
            self._process.stdin.flush()

    @property
    def reads(self) -> bool:
        """Whether the last sentence has not been read or refused yet."""
        return self.moving and not self._answer.exists() and not self._refusal

    def reading(self) -> SentenceReading:
        """Return the reading of the last sentence.

        Raises:
            OSError: If its file cannot be read.
            Unreadable: If the model could not be loaded or run, or cannot read this sentence.
        """
        if not self._answer.exists() and (problem := self._refusal or self.problem):
            raise Unreadable(problem)
        return SentenceReading.from_bytes(self._answer.read_bytes())

    @property
    def _refusal(self) -> str:
        """Why the model cannot read the last sentence; empty if that is not known."""
        return self.error_after(f"line {self._n_given}: ")

    @property
    def _answer(self) -> Path:
        return self.folder / "read" / f"{self._n_given}.safetensors"


@dataclass
class SentenceState:
    """The sentence that one visitor has typed, and its reading.

    Attributes:
        source: Name of the model, as typed.
        sentence: The sentence, as typed.
        process: The model in memory; None if there is none.
        waits: Whether a sentence was given and its reading has not been taken.
        reading: The last reading; None before the first one.
        problem: Why the last sentence was not read; empty if it was.
    """

    source: str = ""
    sentence: str = ""
    process: SentenceProcess | None = None
    waits: bool = False
    reading: SentenceReading | None = None
    problem: str = ""

    def begin(self) -> None:
        """Give the sentence to the model, which is loaded first if it is not in memory."""
        self.problem, source = "", self.source.strip()
        try:
            sentence = checked_sentence(self.sentence)
            if not source:
                raise Unreadable("Name a model.")
            if self.process is None or self.process.name != source or not self.process.moving:
                self.unload()
                self.process = SentenceProcess(source)
        except (OSError, Unreadable) as error:
            self.problem = str(error)
            return
        self.process.give(sentence)
        self.waits = True

    def take(self) -> None:
        """Take the reading that has come, or note why there is none."""
        self.waits = False
        assert self.process is not None
        try:
            self.reading = self.process.reading()
        except (OSError, Unreadable) as error:
            self.problem = self.process.problem_of(error)
            if not self.process.moving:
                self.unload()

    def unload(self) -> None:
        """End the process with the model; what was read stays."""
        if self.process is not None:
            self.process.stop()
        self.process, self.waits = None, False

    def choose(self) -> None:
        """Show the head that was pressed in a figure."""
        kind = dict[Literal["layer", "head", "query_index", "key_position"], components.Index]
        picked: dict[str, int] | None = components.reported(FIGURES, "picked", kind)
        if picked and self.reading is not None:
            with suppress(KeyError, ValueError):  # a forged head
                self.reading = self.reading.head(picked["layer"], picked["head"])

    def turn(self, axis: int, index: int) -> None:
        """Show another layer (axis 0) or another head (axis 1)."""
        assert self.reading is not None
        layer, head = self.reading.shown_head
        self.reading = self.reading.head(*((index, head), (layer, index))[axis])


def show_sentence() -> None:
    """Draw the section; it is drawn again by itself while a model reads."""
    if server_settings().hosted:
        off_here("run a model", 'python -m attnkit sentence MODEL "The cat sat." --out cat.html')
        return
    state: SentenceState = st.session_state.setdefault(STATE, SentenceState())
    fragment(_area, run_every=TICK_SECONDS if state.waits else None)(state)


def _area(state: SentenceState) -> None:
    process = state.process
    if state.waits and process is not None and not process.reads:
        state.take()
        st.rerun()
    st.markdown(
        "Type a sentence and see the attention of every head of a trained model, its scores, and "
        "their symmetric and antisymmetric part."
    )
    st.text_input(
        "Model",
        placeholder="sentence-transformers/all-MiniLM-L6-v2",
        help="A name on the Hugging Face hub, an installed package, or a folder on the machine "
        "that runs this page, with the model’s tokenizer in it. It needs the extra `models`.",
        max_chars=LONGEST_SOURCE,
        width=420,
        **bound(state, "source", "sentence_source"),
    )
    st.text_area(
        "Sentence",
        placeholder="The dog that the cats saw ran away.",
        help=f"Up to {MOST_CHARACTERS:,} characters. Of long sentences, the first {MOST_TOKENS} "
        "tokens are read.",
        height=80,
        max_chars=LONGEST_TEXT,
        **bound(state, "sentence", "sentence_text"),
    )
    with st.container(horizontal=True):
        icon = ":material/play_arrow:"
        if st.button("Read", type="primary", icon=icon, disabled=state.waits, key="sentence_read"):
            state.begin()
            st.rerun()
        label = "Stop" if state.waits else "Unload the model"
        if process is not None and st.button(label, icon=":material/stop:", key="sentence_stop"):
            state.unload()
            st.rerun()
    if state.waits:
        st.caption("The model is loaded, if it is not in memory yet, and reads the sentence.")
    if state.problem:
        st.error(plain(state.problem), icon=":material/error:")
    if state.reading is not None:
        _figures(state, state.reading)


def _figures(state: SentenceState, reading: SentenceReading) -> None:
    """Draw what the model has read: sentences, figures, numbers and downloads."""
    st.markdown(f"**{plain(reading.model)}**: {plain(reading.sentence)}")
    for sentence in explain(reading):
        st.caption(plain(sentence))
    st.caption(plain(describe_heads(reading)))
    with st.container(horizontal=True):
        for axis, label in enumerate(("Layer", "Head")):
            key, shown = f"sentence_{label.lower()}", {"at": reading.shown_head[axis]}
            take = partial(state.turn, axis)
            options = range(reading.scores.shape[axis])
            st.selectbox(label, options, width=100, **bound(shown, "at", key, take))
    blob = sentence_film(reading).to_bytes()
    draw = components.component("sentence", *components.FILM)
    draw(key=FIGURES, data=blob, on_picked_change=state.choose)
    numbers("sentence", lambda: reading.table, "Where every head looks, and its symmetric share")
    with st.container(horizontal=True):
        title, note = f"{reading.model}: {reading.sentence}", " ".join(explain(reading))
        page = partial(standalone_html, title, "sentence", blob, note)
        download("Figures as one file", page, "attnkit-sentence.html", key="sentence_html")
        table = partial(csv_of_frame, reading.table)
        download("All heads as CSV", table, "attnkit-sentence.csv", key="sentence_csv")
