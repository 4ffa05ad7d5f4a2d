"""Data of one's own from a file, a text or rows: how they are read, which is told before use.

A file does not say which of its lines names the columns, which column is a key, or whether three
columns are relations. `read_data` guesses it, tells each guess with the option that changes it, and
refuses what no guess can be right about. `table_text` brings the rows of any table into the text
form in which an experiment has them: a line per row, and a tab between two cells.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.foundation import documents
from attnkit.foundation.data_files import (
    ENCODINGS,
    MOST_BYTES,
    MOST_ROWS,
    TEXT,
    decoded,
    ending_of,
    is_key,
    read_sheet,
)
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.names import as_typed
from attnkit.foundation.settings import allowed_names, shown
from attnkit.foundation.words import listed
from attnkit.tasks.own_data import OWN_TASKS, OwnData, wrong_data
from attnkit.tasks.own_text import Text

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

_N_EXAMPLES = 3
"""Number of rows that a sentence quotes."""

_MOST_NAMED = 20
"""Largest number of columns that a message names."""

_MOST_QUOTED = 5
"""Largest number of cells of a wrong row that a message shows."""

FEWEST_ROWS = 8
"""Smallest number of different rows of a table, so that one can be held out."""

MOST_WORDS = 4096
"""Largest number of different names in a column: each has a vector of its own."""

LONGEST_NAME = 100
"""Largest number of characters of a name."""

LONGEST_SHOWN = 12
"""Largest number of characters of a name on an axis."""

_MISSING = ("None", "nan", "NaT", "<NA>")
"""How values that stand for a missing cell are written, none of which is a text."""


@dataclass(frozen=True)
class Choices:
    """How data are to be read; whatever is empty is guessed.

    Attributes:
        kind: Name of the task on them: "pairs", "relations" or "text".
        columns: Names of two or three columns.
        heading: Whether the first row names the columns.
        leave_out_empty: Whether rows that have empty cells are left out instead of refused.
        separator: What separates cells, one of `SEPARATORS`.
        encoding: Encoding of the text, one of `ENCODINGS`.
    """

    kind: str = ""
    columns: tuple[str, ...] = ()
    heading: bool | None = None
    leave_out_empty: bool = False
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


class ColumnsUnclear(BadDocument):
    """A table can be read, but which of its columns are meant must be said."""


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table with the names of its columns, before some of them are taken.

    Attributes:
        cells: All rows, as texts; columns without any content are left out.
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
        return int((some == "").any(axis=1).sum())


def read_file(path: str | Path, choices: Choices = Choices()) -> Reading:
    """Return the data of a file.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it is neither a table nor a text, or if its columns must be chosen.
        InvalidExperiment: If its data cannot be used.
    """
    return read_data(documents.read_file(path, MOST_BYTES), ending_of(path), choices)


def read_data(
    content: bytes, ending: str, choices: Choices = Choices(), opened: OpenTable | None = None
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
        _note_encoding(guesses, encoding, choices)
        return Reading(Text.name, Text.text_form(text), guesses)
    opened = opened or open_table(content, ending, choices)
    guesses |= opened.guesses
    taken = _chosen_columns(opened.cells, opened.separator, choices, guesses)
    text = table_text(_rows_without_empty_cells(opened, list(taken), choices), len(taken))
    return Reading(kinds()[len(taken)].name, text, guesses, taken)


def open_table(content: bytes, ending: str, choices: Choices = Choices()) -> OpenTable:
    """Return a table with the names of its columns, of which none is taken yet.

    Raises:
        BadDocument: If it is no table.
    """
    sheet = read_sheet(content, ending, encoding=choices.encoding, separator=choices.separator)
    guesses: dict[str, str] = {}
    _note_encoding(guesses, sheet.encoding, choices)
    rows = sheet.cells.map(_text)
    rows = rows.loc[:, (rows != "").any(axis=0)]
    if not rows.size:
        raise BadDocument(tr("it has no rows"))
    if sheet.is_named:
        return OpenTable(_under(rows, [*rows.columns]), None, "", guesses)
    first = [str(cell) for cell in rows.iloc[0]]
    heading = choices.heading
    if heading is None:
        rest = rows.iloc[1:].map(str).to_numpy().tolist()
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
    return OpenTable(_under(cells, names), heading, sheet.separator, guesses)


def kinds() -> dict[int, type[OwnData]]:
    """Return number of columns → the task on tables with so many."""
    tasks = (task for task in OWN_TASKS.values() if issubclass(task, OwnData))
    return {task.n_columns: task for task in tasks if task.n_columns}


def _note_encoding(guesses: dict[str, str], encoding: str, choices: Choices) -> None:
    if encoding not in ("", "utf_8", choices.encoding):
        name = ENCODINGS.get(encoding, encoding)
        guesses["encoding"] = tr("Its characters are read as {encoding}.", encoding=name)


def _under(cells: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return cells under different names of their columns."""
    different = list[str]()
    for name in names:
        of_name = itertools.chain([name], (f"{name} ({i})" for i in itertools.count(2)))
        different.append(next(one for one in of_name if one not in different))
    return cells.set_axis(different, axis=1).reset_index(drop=True)


def _text(cell: Any) -> Any:
    """Return a cell as a text without spaces around it, or empty if it is missing.

    Lists and objects stay, and are refused if their column is taken.
    """
    text = str(cell).strip()
    if isinstance(cell, str | list | dict):
        return text if isinstance(cell, str) else cell
    return "" if text in _MISSING else text


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


def _chosen_columns(
    cells: pd.DataFrame, separator: str, choices: Choices, guesses: dict[str, str]
) -> tuple[str, ...]:
    """Return the names of the columns that are taken, in the order of their roles."""
    names = list(cells.columns)
    if len(names) == 1:
        raise BadDocument(
            tr(
                "its rows have one cell ({name}), allowed two (key, value) or three (who, "
                "relation, whom): put a tab, a comma or a semicolon between them",
                name=_several(names),
            )
        )
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
        if len(taken) > 2 and _is_index(cells[names[0]]):
            taken = taken[1:]
            guesses["columns"] = tr(
                "The column {name} only numbers the rows and is left out.",
                name=shown(names[0], quoted=True),
            )
        if len(taken) == 3 and not wanted and not _is_relation(cells[taken[1]].map(str)):
            if separator == "," and cells[[*taken[1:]]].map(str.isdigit).all(axis=None):
                raise BadDocument(
                    tr(
                        "its numbers seem to have decimal commas: put them in quotation marks, or "
                        "separate its cells by semicolons"
                    )
                )
            raise ColumnsUnclear(
                tr(
                    "its column {name} names no relation, which several rows would have: choose "
                    "two of the columns {names}, or say that they are relations",
                    name=shown(taken[1], quoted=True),
                    names=_several(taken),
                )
            )
    allowed = [wanted] if wanted else list(ROLES)
    if len(taken) not in allowed or len({*taken}) < len(taken):
        raise ColumnsUnclear(
            tr_n(
                "it has {n} column ({names}), allowed {allowed}: choose columns",
                "it has {n} columns ({names}), allowed {allowed}: choose columns",
                len(taken),
                names=_several(taken),
                allowed=listed([f"{n} ({', '.join(map(tr, ROLES[n]))})" for n in allowed], "or"),
            )
        )
    return tuple(taken)


def _several(names: Sequence[str]) -> str:
    return ", ".join(shown(name, most=20) for name in islice(filter(None, names), 8))


def _is_index(column: pd.Series) -> bool:
    """Return whether a column counts rows from 0 or 1."""
    n, numbers = len(column), column.tolist()
    return n > 1 and numbers in ([*map(str, range(n))], [*map(str, range(1, n + 1))])


def _is_relation(column: pd.Series) -> bool:
    """Return whether the middle one of three columns can name relations."""
    filled = [cell for cell in column if cell]
    is_repeated = len({*filled}) <= max(1, len(filled) // 2)
    return is_repeated and not all(map(is_number, filled))


def _rows_without_empty_cells(
    opened: OpenTable, taken: list[str], choices: Choices
) -> list[tuple[Any, ...]]:
    """Return the rows without empty cells; leave the others out if that was chosen."""
    table, first = opened.cells[taken], 2 if opened.heading else 1  # as a spreadsheet counts
    is_empty = (table == "").any(axis=1)
    n_empty = int(is_empty.sum())
    if n_empty and not choices.leave_out_empty:
        numbers = listed([f"{first + i:,}" for i in is_empty.to_numpy().nonzero()[0][:5]], "and")
        got = tr_n(
            "{n:,} row with an empty cell (row {numbers})",
            "{n:,} rows with empty cells (first in rows {numbers})",
            n_empty,
            numbers=numbers,
        )
        raise wrong_data(got, mark("a name in each cell: fill them, or leave these rows out"))
    return list(table[~is_empty].itertuples(index=False, name=None))


def table_text(rows: Any, n_columns: int) -> str:
    """Return rows in their text form.

    Raises:
        InvalidExperiment: If they cannot be used; the message names the first row that is wrong.
    """
    table, n_bytes = list[tuple[str, ...]](), 0
    for number, row in enumerate(rows_in(rows), 1):
        if number > MOST_ROWS:
            got = tr("{n:,} rows or more", n=number)
            raise wrong_data(got, mark("at most {most:,} rows", most=MOST_ROWS))
        place = partial(_place, number, row)
        if len(row) != n_columns:
            got = tr_n("{row} with {n:,} cell", "{row} with {n:,} cells", len(row), row=place())
            kinds = mark("2 (key, value) or 3 (who, relation, whom), in every row as many")
            raise wrong_data(got, kinds)
        cells = tuple(_cell(cell, place) for cell in row)
        table.append(cells)
        n_bytes += sum(map(len, cells))
        if n_bytes > MOST_BYTES:
            allowed = mark("at most {most:,} characters", most=MOST_BYTES)
            raise wrong_data(tr("a larger table"), allowed)
    different = len({*table})
    if different < FEWEST_ROWS:
        got = tr_n("{n:,} different row", "{n:,} different rows", different)
        if different:
            raise wrong_data(got, mark("a table of at least {fewest}", fewest=FEWEST_ROWS))
        allowed = mark(
            "a table of at least {fewest}: use ak.Table(rows) or --data FILE", fewest=FEWEST_ROWS
        )
        raise wrong_data(got, allowed)
    columns = [{*column} for column in zip(*table, strict=True)]
    if max(map(len, columns)) > MOST_WORDS:
        allowed = mark("at most {most:,}", most=MOST_WORDS)
        raise wrong_data(tr("more different names in a column"), allowed)
    if len(columns[-1]) < 2:
        allowed = mark("at least 2 different answers")
        raise wrong_data(tr("the same answer in every row"), allowed)
    return "\n".join(map("\t".join, table))


def rows_in(rows: Any) -> Iterable[Sequence[Any]]:
    """Return rows of any accepted form as sequences of cells."""
    if isinstance(rows, str):
        return (line.split("\t") for line in rows.split("\n") if line.strip())
    if hasattr(rows, "itertuples"):  # a data frame, whose index may be its key
        frame = rows.reset_index(allow_duplicates=True) if is_key(rows.index) else rows
        return [*zip(*(frame.iloc[:, i].array for i in range(frame.shape[1])), strict=True)]
    if isinstance(rows, Mapping) or hasattr(rows, "to_frame"):  # also a series
        items: Iterable[Sequence[Any]] = rows.items()
        return items
    if not isinstance(rows, Sequence):
        allowed = mark("a list of rows, a dictionary or a data frame")
        raise wrong_data(type(rows).__name__, allowed)
    for number, row in enumerate(rows, 1):
        if isinstance(row, str) or not isinstance(row, Sequence):
            got = tr("row {number:,}, {row}", number=number, row=shown(row))
            raise wrong_data(got, mark("rows of two or three names"))
    return rows


def _place(number: int, row: Sequence[Any]) -> str:
    """Return the number of a row and its first cells."""
    cells = ", ".join(shown(cell, most=LONGEST_SHOWN) for cell in islice(row, _MOST_QUOTED))
    return tr("row {number:,} ({cells})", number=number, cells=cells)


def _cell(cell: Any, place: Callable[[], str]) -> str:
    """Return a cell as a name.

    Args:
        cell: The cell.
        place: Returns where it stands, for messages, such as "row 3 (France, )".
    """
    if not isinstance(cell, str | int | float | np.number | np.bool_) or cell != cell:
        if isinstance(cell, float | np.floating) or str(cell) in _MISSING:
            got = tr("{row} with an empty cell", row=place())
        else:
            got = tr("{row} with {cell}", row=place(), cell=shown(cell))
        raise wrong_data(got, mark("a text or a number in each cell"))
    if isinstance(cell, int) and cell.bit_length() > 64:
        got = tr("{row} with a huge number", row=place())
        raise wrong_data(got, mark("numbers of at most 64 bits"))
    text = str(cell)
    if len(text) > 2 * LONGEST_NAME or len(name := as_typed(text)) > LONGEST_NAME:
        got = tr("{row} with a name of {n:,} characters", row=place(), n=len(text))
        raise wrong_data(got, mark("at most {most:,}", most=LONGEST_NAME))
    if not name:
        got = tr("{row} with an empty cell", row=place())
        raise wrong_data(got, mark("a name in each cell"))
    return name
