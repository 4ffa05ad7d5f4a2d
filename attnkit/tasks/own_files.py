"""Data of one's own from a file or a text: how they are read, which is told before they are used.

A file does not say which of its lines names the columns, which column is a key, or whether three
columns are relations. `read_data` guesses it, tells each guess with the option that changes it, and
refuses what no guess can be right about.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnkit.foundation.data_files import (
    ENCODINGS,
    TEXT,
    content_within_limits,
    decoded,
    ending_of,
    read_sheet,
)
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import allowed_names, shown
from attnkit.foundation.words import listed
from attnkit.tasks.own_data import OWN_TASKS, OwnData, wrong_data
from attnkit.tasks.own_text import Text
from attnkit.tasks.table_rows import table_text

if TYPE_CHECKING:
    import pandas as pd

# Translators: headings of the columns of a table; a key is what is asked for, a value the answer.
ROLES = {2: (mark("key"), mark("value")), 3: (mark("who"), mark("relation"), mark("whom"))}
"""What the columns of a table of pairs and of a table of relations are."""

HEADING_WORDS = frozenset(
    "answer antwort begriff boss capital category chef city clave country definition english "
    "espanol español francais français from german deutsch spanish french englisch inglés "
    "hauptstadt head id index key label land language manager name nombre país object palabra "
    "person predicate question frage pregunta relation respuesta schlüssel ciudad source spanisch "
    "stadt subject synonym tail target term to traducción translation übersetzung value valor "
    "wert who whom word wort".split()
)
"""Words that name columns, in English, German and Spanish."""

N_PREVIEWED = 5
"""Number of rows that are shown before data are used."""

_N_EXAMPLES = 3
"""Number of rows that a sentence quotes."""

_MOST_NAMED = 20
"""Largest number of columns that a message names."""


@dataclass(frozen=True)
class Choices:
    """How data are to be read; whatever is empty is guessed.

    Attributes:
        kind: Name of the task on them: "pairs", "relations" or "text".
        columns: Names of two or three columns.
        heading: Whether the first row names the columns.
        empty: What is done with rows that have empty cells: they are refused or left out.
        separator: What separates cells, one of `SEPARATORS`.
        encoding: Encoding of the text, one of `ENCODINGS`.
    """

    kind: str = ""
    columns: tuple[str, ...] = ()
    heading: bool | None = None
    empty: Literal["refuse", "leave out"] = "refuse"
    separator: str = ""
    encoding: str = ""


@dataclass(frozen=True, eq=False)
class Reading:
    """Data as they have been read.

    Attributes:
        task: Name of the task on them.
        data: The data in their text form.
        guesses: Field of `Choices` → a sentence on what was guessed, for each guess that was made.
        columns: Names of the columns that were taken.
    """

    task: str
    data: str
    guesses: dict[str, str]
    columns: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """Name of a column that was taken → what it is, in the visitor's language."""
        roles = ROLES.get(len(self.columns), ())
        return {name: tr(role) for name, role in zip(self.columns, roles, strict=True)}

    def in_words(self) -> str:
        """Return a sentence on what the data were read as, with their first rows."""
        if not self.columns:
            return tr("Read as a text of {n:,} characters.", n=len(self.data))
        rows = self.data.split("\n")
        return tr(
            "Read as a table of {n:,} rows ({columns}), such as {examples}.",
            n=len(rows),
            columns=", ".join(f"{role}: {name}" for name, role in self.roles.items()),
            examples="; ".join(row.replace("\t", " → ") for row in rows[:_N_EXAMPLES]),
        )


@dataclass(frozen=True, eq=False)
class Opened:
    """A table with the names of its columns, before some of them are taken.

    Attributes:
        cells: All rows; columns without any content are left out.
        heading: Whether its first row names the columns; None if the file names them itself.
        separator: What separates its cells; empty if nothing does.
        guesses: See `Reading`.
    """

    cells: pd.DataFrame
    heading: bool | None
    separator: str
    guesses: dict[str, str]

    def n_empty(self, columns: Sequence[str] = ()) -> int:
        """Return the number of rows with empty cells in some columns, or in any."""
        some = self.cells[[name for name in columns if name in self.cells] or [*self.cells]]
        return int((some.map(_text) == "").any(axis=1).sum())


def read_file(path: str | Path, choices: Choices = Choices()) -> Reading:
    """Return the data of a file.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it is neither a table nor a text, or if its columns must be chosen.
        InvalidExperiment: If its data cannot be used.
    """
    return read_data(content_within_limits(path), ending_of(path), choices)


def read_data(
    content: bytes, ending: str, choices: Choices = Choices(), opened: Opened | None = None
) -> Reading:
    """Return the data in the content of a file.

    Args:
        content: Content of the file.
        ending: Ending of its name, as `ending_of` returns it.
        choices: How it is read.
        opened: The table that `open_table` has opened with these choices, if it has.

    Raises:
        BadDocument: If it is neither a table nor a text, or if its columns must be chosen.
        InvalidExperiment: If its data cannot be used.
    """
    guesses: dict[str, str] = {}
    if (ending == TEXT and not choices.kind) or choices.kind == Text.name:
        if choices.columns:
            raise BadDocument(tr("it is a text, which has no columns"))
        text, encoding = decoded(content, choices.encoding)
        _tell_encoding(guesses, encoding, choices)
        return Reading(Text.name, Text.text_form(text), guesses)
    opened = opened or open_table(content, ending, choices)
    guesses |= opened.guesses
    taken = _taken(opened.cells, opened.separator, choices, guesses)
    text = table_text(_filled(opened.cells[list(taken)], choices), len(taken))
    return Reading(kinds()[len(taken)].name, text, guesses, taken)


def open_table(content: bytes, ending: str, choices: Choices = Choices()) -> Opened:
    """Return a table with the names of its columns, of which none is taken yet.

    Raises:
        BadDocument: If it is no table.
    """
    sheet = read_sheet(content, ending, encoding=choices.encoding, separator=choices.separator)
    guesses: dict[str, str] = {}
    _tell_encoding(guesses, sheet.encoding, choices)
    rows = sheet.cells.loc[:, (sheet.cells.map(_text) != "").any(axis=0)]
    if not rows.size:
        raise BadDocument(tr("it has no rows"))
    if sheet.is_named:
        return Opened(_under(rows, [*rows.columns]), None, "", guesses)
    first = [_text(cell) for cell in rows.iloc[0]]
    heading = choices.heading
    if heading is None:
        rest = rows.iloc[1:].map(_text).to_numpy().tolist()
        heading = (
            bool({*choices.columns} & {*first}) if choices.columns else seems_heading(first, rest)
        )
        quoted = _several(first)
        if not choices.columns and tuple(filter(None, map(str.lower, first))) not in ROLES.values():
            guesses["heading"] = (
                tr("The first row ({names}) names the columns and is no data.", names=quoted)
                if heading
                else tr("The first row ({names}) is data and names no columns.", names=quoted)
            )
    numbered = [tr("column {number}", number=i + 1) for i in range(len(first))]
    names = [name or numbered[i] for i, name in enumerate(first)] if heading else numbered
    cells = rows.iloc[1:] if heading else rows
    return Opened(_under(cells, names), heading, sheet.separator, guesses)


def kinds() -> dict[int, type[OwnData]]:
    """Return number of columns → the task on tables with so many."""
    tasks = (task for task in OWN_TASKS.values() if issubclass(task, OwnData))
    return {task.n_columns: task for task in tasks if task.n_columns}


def _tell_encoding(guesses: dict[str, str], encoding: str, choices: Choices) -> None:
    if encoding not in ("", "utf_8", choices.encoding):
        name = ENCODINGS.get(encoding, encoding)
        guesses["encoding"] = tr("Its characters are read as {encoding}.", encoding=name)


def _under(cells: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return cells under different names of their columns."""
    n_of_name = Counter[str]()
    different = []
    for name in names:
        n_of_name[name] += 1
        different.append(name if n_of_name[name] == 1 else f"{name} ({n_of_name[name]})")
    return cells.set_axis(different, axis=1).reset_index(drop=True)


def _text(cell: Any) -> str:
    """Return a cell as a text without spaces around it; a missing one is empty."""
    missing = cell is None or cell != cell
    return "" if missing or str(cell) in ("NaT", "<NA>") else str(cell).strip()


def seems_heading(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row of a table seems to name the columns.

    It does if all of its cells are words that name columns; if a cell is no number and all others
    of its column are; if it is written in small letters, and nearly all others of a column begin
    with a capital; or if none of its three names stands in another row, while every other relation
    stands in several.
    """
    if not all(first):
        return not first[0]  # an index has no name
    if all(name.lower().split("_")[-1] in HEADING_WORDS for name in first):
        return True
    if not rest:
        return False
    columns = [[row[i] for row in rest] for i in range(len(first))]
    for name, column in zip(first, columns, strict=True):
        filled = [cell for cell in column if cell]
        if filled and not is_number(name) and all(map(is_number, filled)):
            return True
    if all(map(str.islower, first)):
        capitals = [sum(cell[:1].isupper() for cell in column) for column in columns]
        if max(capitals) > 0.9 * len(rest):
            return True
    if len(first) != 3:
        return False
    n_rows = Counter(columns[1])
    people = {*columns[0], *columns[2]}
    is_apart = first[1] not in n_rows and people.isdisjoint((first[0], first[2]))
    return is_apart and min(n_rows.values()) > 1


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, also with a decimal comma."""
    try:
        return math.isfinite(float(cell.replace(",", ".", 1)))
    except ValueError:
        return False


def _taken(
    cells: pd.DataFrame, separator: str, choices: Choices, guesses: dict[str, str]
) -> tuple[str, ...]:
    """Return the names of the columns that are taken, in the order of their roles."""
    names = list(cells.columns)
    wanted = next((n for n, task in kinds().items() if task.name == choices.kind), 0)
    if choices.columns:
        unknown = [name for name in choices.columns if name not in names]
        if unknown:
            known = allowed_names(map(shown, names[:_MOST_NAMED]), unknown[0])
            name = shown(unknown[0], quoted=True)
            wrong = tr("it has no column {name}, allowed {allowed}", name=name, allowed=known)
            raise BadDocument(wrong)
        taken = choices.columns
    else:
        taken = tuple(names)
        if len(taken) > 2 and _is_index(names[0], cells[names[0]].map(_text)):
            taken = taken[1:]
            guesses["columns"] = tr(
                "The column {name} only numbers the rows and is left out.",
                name=shown(names[0], quoted=True),
            )
        if len(taken) == 3 and not wanted and not _is_relation(cells[taken[1]].map(_text)):
            if separator == "," and cells[[*taken[1:]]].map(_text).map(str.isdigit).all(axis=None):
                raise BadDocument(
                    tr(
                        "its numbers seem to have decimal commas: put them in quotation marks, or "
                        "separate its cells by semicolons"
                    )
                )
            raise BadDocument(
                tr(
                    "its column {name} names no relation, which several rows would have: choose "
                    "two of the columns {names}, or say that they are relations",
                    name=shown(taken[1], quoted=True),
                    names=_several(taken),
                )
            )
    if len(taken) not in ({wanted} if wanted else ROLES) or len({*taken}) < len(taken):
        raise BadDocument(
            tr_n(
                "it has {n} column ({names}), allowed {allowed}: choose columns",
                "it has {n} columns ({names}), allowed {allowed}: choose columns",
                len(taken),
                names=_several(taken),
                allowed=_allowed(wanted),
            )
        )
    return tuple(taken)


def _several(names: Sequence[str]) -> str:
    return ", ".join(shown(name, most=20) for name in islice(filter(None, names), 8))


def _allowed(wanted: int) -> str:
    counts = [wanted] if wanted else list(ROLES)
    return listed([f"{n} ({', '.join(map(tr, ROLES[n]))})" for n in counts], "or")


def _is_index(name: str, column: pd.Series) -> bool:
    """Return whether a column counts rows from 0 or 1."""
    first = column.iloc[0]
    if first not in ("0", "1") or len(column) < 2:
        return False
    start = int(first)
    return column.tolist() == [str(start + i) for i in range(len(column))]


def _is_relation(column: pd.Series) -> bool:
    """Return whether the middle one of three columns can name relations."""
    filled = [cell for cell in column if cell]
    is_repeated = len({*filled}) <= max(1, len(filled) // 2)
    return is_repeated and not all(map(is_number, filled))


def _filled(table: pd.DataFrame, choices: Choices) -> list[tuple[Any, ...]]:
    """Return the rows without empty cells; leave the others out if that was chosen."""
    is_empty = (table.map(_text) == "").any(axis=1)
    n_empty = int(is_empty.sum())
    if n_empty and choices.empty == "refuse":
        numbers = listed([f"{i + 1:,}" for i in is_empty.to_numpy().nonzero()[0][:5]], "and")
        got = tr_n(
            "{n:,} row with an empty cell (row {numbers})",
            "{n:,} rows with empty cells (first in rows {numbers})",
            n_empty,
            numbers=numbers,
        )
        raise wrong_data(got, mark("a name in each cell: fill them, or leave these rows out"))
    cells = table[~is_empty].map(
        lambda cell: cell if isinstance(cell, list | dict) else _text(cell)
    )
    return list(cells.itertuples(index=False, name=None))
