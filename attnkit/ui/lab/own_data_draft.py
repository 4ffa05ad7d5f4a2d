"""Data that a visitor brings into the Lab, before they are used."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.foundation.data_files import (
    HEADINGS,
    TEXT,
    column_names,
    ending_for,
    seems_heading,
)
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.separators import separator_of
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.server import server_settings
from attnkit.tasks import OWN_TASKS, Table
from attnkit.tasks.own_data import wrong_data
from attnkit.tasks.own_examples import EXAMPLES
from attnkit.tasks.own_files import data_of
from attnkit.tasks.own_text import FEWEST_CHARACTERS
from attnkit.ui.lab.controls import labels_of

PASTE, TYPE, UPLOAD = mark("Paste"), mark("Type into a table"), mark("Upload a file")

RECOGNISED = "recognised"
"""Kind of data that are looked at to find out their kind."""

KINDS = {
    RECOGNISED: mark("Found out from the data"),
    "pairs": mark("Pairs: key, value"),
    "relations": mark("Relations: who, relation, whom"),
    "text": mark("A text"),
}
"""What data can be, with labels: the names of the tasks on them."""

_ALLOWED = {
    "pairs": mark("pairs: key, value, so choose the columns or another kind"),
    "relations": mark("relations: who, relation, whom, so choose the columns or another kind"),
    "text": mark("a text, so choose the columns or another kind"),
}
"""What is allowed if the visitor has said that the data are of a kind."""

_EMPTY_ROWS = 8
"""Number of rows of an empty table, the fewest that can be learnt."""

_BROUGHT = ("way", "text", "kind", "heading", "columns")
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
        kind: What they are, one of `KINDS`.
        heading: Whether the first line names the columns; None as the line itself says.
        columns: Names of the chosen columns.
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
    kind: str = RECOGNISED
    heading: bool | None = None
    columns: list[str] = field(default_factory=list)
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
        self.way, self.text, self.kind, self.heading, self.columns = (
            PASTE,
            text,
            RECOGNISED,
            None,
            [],
        )

    def restore(self) -> None:
        """Bring back what an example has replaced, and ask for data with it."""
        for name, value in self.replaced.items():
            setattr(self, name, value)
        self.replaced, self.base, self.is_open = {}, (None, self.base[1] + 1), True

    @property
    def source(self) -> tuple[str, bytes]:
        """Ending of a file that would hold the data, and its content."""
        if self.way == UPLOAD:
            ending, content = self.file
            return (TEXT, content) if self.kind == "text" and ending != ".parquet" else self.file
        ending = ending_for(self.text)
        is_short = len(self.text) < FEWEST_CHARACTERS
        if self.kind == "text":
            ending = TEXT
        elif ending == TEXT and (self.kind != RECOGNISED or is_short):
            ending = ".csv"  # so that a message says what is wrong with a table
        return ending, self.text.encode("utf-8", "replace")

    @property
    def names(self) -> list[str]:
        """Cells of the first line, if the data are a table."""
        ending, content = self.source
        try:
            return [] if ending == TEXT else column_names(content, ending)
        except BadDocument:
            return []

    @property
    def n_columns(self) -> tuple[int, ...]:
        """Numbers of columns that a table of this kind may have."""
        return tuple(
            task.n_columns
            for name, task in OWN_TASKS.items()
            if issubclass(task, Table) and self.kind in (RECOGNISED, name)
        )

    @property
    def has_heading(self) -> bool:
        """Whether the first line names the columns."""
        if self.heading is not None:
            return self.heading
        ending, content = self.source
        try:
            return ending in (".csv", ".tsv") and seems_heading(content, ending)
        except BadDocument:
            return False

    def read(self) -> tuple[str, str]:
        """Return the name of the task on the data, and the data in their text form.

        Raises:
            BadDocument: If they are neither a table nor a text.
            InvalidExperiment: If they cannot be used, or not on this copy.
        """
        ending, content = self.source
        most = server_settings().max_data_bytes
        if len(content) > most:
            got = tr("{n:,} bytes", n=len(content))
            raise wrong_data(got, mark("at most {most:,} bytes on this copy", most=most))
        if not content.strip():
            raise wrong_data("", mark("a table or a text"))
        names, columns = self.names, list[str]()
        if len(names) > max(self.n_columns, default=0) or self.columns:
            columns = [name for name in self.columns if name in names]
        elif self.has_heading and ending in (".csv", ".tsv"):
            columns = names
        task, data = data_of(content, ending, columns)
        if self.kind not in (RECOGNISED, task):
            n_columns = data.partition("\n")[0].count("\t") + 1
            got = tr_n("a table of {n} column", "a table of {n} columns", n_columns)
            raise wrong_data(got, _ALLOWED[self.kind])
        return task, OWN_TASKS[task].text_form(data)  # type: ignore[attr-defined]


def draft_of_session() -> Draft:
    """Return the draft of the present session."""
    draft: Draft = st.session_state.setdefault("own_data_draft", Draft())
    return draft


def table_of(draft: Draft) -> pd.DataFrame:
    """Return the table that the editor begins with: what was pasted, whatever it is."""
    try:
        task, data = draft.read()
        is_table = issubclass(OWN_TASKS[task], Table)
        rows = [line.split("\t") for line in data.split("\n")] if is_table else _cells(draft.text)
    except (BadDocument, InvalidExperiment):
        rows = _cells(draft.text)
    n = max([len(HEADINGS[draft.kind == "relations"]), *map(len, rows)])
    heading = (
        HEADINGS[n - 2]
        if n <= len(HEADINGS[1])
        else [tr("column {number}", number=i + 1) for i in range(n)]
    )
    filled = [[*row, *[""] * (n - len(row))] for row in rows or [[]] * _EMPTY_ROWS]
    return pd.DataFrame(filled, columns=list(heading), dtype="string")


def text_of_table(table: pd.DataFrame) -> str:
    """Return a table as text, with tabs between its cells and without empty rows."""
    rows = [["" if pd.isna(cell) else str(cell) for cell in row] for row in table.to_numpy()]
    lines = [[" ".join(cell.split()) for cell in row] for row in rows if any(row)]
    written = io.StringIO()
    csv.writer(written, delimiter="\t", lineterminator="\n").writerows(lines)
    return written.getvalue()


def _cells(text: str) -> list[list[str]]:
    """Return the cells of a text that may be no table, at most `_MOST_CELLS` in a row."""
    separator = separator_of(text) if ending_for(text) == ".csv" else "\t"
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error:  # an endless cell
        rows = [line.split(separator) for line in text.splitlines()]
    return [row[:_MOST_CELLS] for row in rows if any(row)]


def in_words(error: BadDocument | InvalidExperiment) -> str:
    """Return a message about data that cannot be used."""
    if isinstance(error, BadDocument):
        return tr("Your data cannot be used: {reason}.", reason=str(error))
    labels = {name: text for task in OWN_TASKS for name, text in labels_of(task).items()}
    labels |= {"data": mark("Your data")}
    return " ".join(problem.on_screen(labels) for problem in error.problems)
