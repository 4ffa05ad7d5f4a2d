"""Data that a visitor brings into the Lab, before they are used."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.foundation.data_files import TEXT, ending_for
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.server import server_settings
from attnkit.tasks import OWN_TASKS
from attnkit.tasks.own_data import wrong_data
from attnkit.tasks.own_examples import EXAMPLES
from attnkit.tasks.own_files import ROLES, Choices, Opened, Reading, open_table, read_data
from attnkit.tasks.own_text import FEWEST_CHARACTERS, Text
from attnkit.ui.lab.controls import labels_of

PASTE, TYPE, UPLOAD = mark("Paste"), mark("Type into a table"), mark("Upload a file")

RECOGNISED = ""
"""Kind of data that are looked at to find out their kind."""

KINDS = {
    RECOGNISED: mark("Found out from the data"),
    "pairs": mark("Pairs: key, value"),
    "relations": mark("Relations: who, relation, whom"),
    "text": mark("A text"),
}
"""What data can be, with labels: the names of the tasks on them."""

_EMPTY_ROWS = 8
"""Number of rows of an empty table, the fewest that can be learnt."""

_BROUGHT = ("way", "text", "choices")
"""Fields of a draft that an example replaces."""

_MOST_CELLS = 20
"""Largest number of cells of a row in the table."""


@dataclass
class Draft:
    """Data that the visitor brings, before they are used.

    Attributes:
        way: How they come in.
        text: What was pasted or typed.
        file: Ending and content of the file that was uploaded.
        choices: How they are to be read.
        base: Table that the editor began with, and how often it has begun.
        is_open: Whether the visitor is asked for data.
        is_requested: Whether they are to be used; see `use_requested_data`.
        problem: Reason why they were not used; shown once.
        replaced: What the visitor had brought before an example replaced it, as values by name;
            empty if nothing was lost.
    """

    way: str = PASTE
    text: str = ""
    file: tuple[str, bytes] = ("", b"")
    choices: Choices = field(default_factory=Choices)
    base: tuple[pd.DataFrame | None, int] = (None, 0)
    is_open: bool = False
    is_requested: bool = False
    problem: str = ""
    replaced: dict[str, Any] = field(default_factory=dict)

    @property
    def is_example(self) -> bool:
        """Whether the data are those of an example, and not the visitor's own."""
        return self.way != UPLOAD and self.text in EXAMPLES.values()

    def take_example(self, text: str) -> None:
        """Replace the text by that of an example; what the visitor has brought can be restored."""
        if self.source[1].strip() and not self.is_example:
            self.replaced = {name: getattr(self, name) for name in _BROUGHT}
        self.way, self.text, self.choices = PASTE, text, Choices()

    def restore(self) -> None:
        """Bring back what an example has replaced, and ask for data with it."""
        for name, value in self.replaced.items():
            setattr(self, name, value)
        self.replaced, self.base, self.is_open = {}, (None, self.base[1] + 1), True

    @property
    def source(self) -> tuple[str, bytes]:
        """Ending of a file that would hold the data, and its content."""
        if self.way == UPLOAD:
            return self.file
        ending = ending_for(self.text)
        if ending == TEXT and (self.choices.kind or len(self.text) < FEWEST_CHARACTERS):
            ending = ".csv"  # so that a message says what is wrong with a table
        return ending, self.text.encode("utf-8", "replace")

    def opened(self) -> Opened | None:
        """Return the table with the names of its columns; None if it is none."""
        ending, content = self.source
        is_too_large = len(content) > server_settings().max_data_bytes
        if ending == TEXT or self.choices.kind == Text.name or is_too_large:
            return None
        try:
            return open_table(content, ending, self.choices)
        except BadDocument:
            return None

    def read(self, opened: Opened | None = None) -> Reading:
        """Return the data as they are read.

        Args:
            opened: What `opened` has returned, if it was called.

        Raises:
            BadDocument: If they are neither a table nor a text, or if columns must be chosen.
            InvalidExperiment: If they cannot be used, or not on this copy.
        """
        ending, content = self.source
        most = server_settings().max_data_bytes
        if len(content) > most:
            got = tr("{n:,} bytes", n=len(content))
            raise wrong_data(got, mark("at most {most:,} bytes on this copy", most=most))
        if not content.strip():
            raise wrong_data("", mark("a table or a text"))
        return read_data(content, ending, self.choices, opened)


def draft_of_session() -> Draft:
    """Return the draft of the present session."""
    draft: Draft = st.session_state.setdefault("own_data_draft", Draft())
    return draft


def table_of(draft: Draft) -> pd.DataFrame:
    """Return the table that the editor begins with: what was pasted, if it is a table."""
    opened = draft.opened()
    rows = [] if opened is None else opened.cells.iloc[:, :_MOST_CELLS].to_numpy().tolist()
    n = max([3 if draft.choices.kind == "relations" else 2, *map(len, rows)])
    heading = ROLES.get(n, [tr("column {number}", number=i + 1) for i in range(n)])
    filled = [[*row, *[""] * (n - len(row))] for row in rows or [[]] * _EMPTY_ROWS]
    return pd.DataFrame(filled, columns=list(heading), dtype="string")


def text_of_table(table: pd.DataFrame) -> str:
    """Return a table as text, with tabs between its cells and without empty rows."""
    rows = [["" if pd.isna(cell) else str(cell) for cell in row] for row in table.to_numpy()]
    lines = [[" ".join(cell.split()) for cell in row] for row in rows if any(row)]
    written = io.StringIO()
    csv.writer(written, delimiter="\t", lineterminator="\n").writerows(lines)
    return written.getvalue()


def in_words(error: BadDocument | InvalidExperiment) -> str:
    """Return a message about data that cannot be used."""
    if isinstance(error, BadDocument):
        return tr("Your data cannot be used: {reason}.", reason=str(error))
    labels = {name: text for task in OWN_TASKS for name, text in labels_of(task).items()}
    labels |= {"data": mark("Your data")}
    return " ".join(problem.on_screen(labels) for problem in error.problems)
