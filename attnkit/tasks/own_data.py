"""Tasks on data of one's own: their registry, and the text form in which all carry the data.

The data are a setting like any other, so that an experiment is complete in itself. No task here
stands in `TASKS`, because none has examples without somebody's data.
"""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeGuard, TypeVar
from urllib.parse import quote
from uuid import UUID

import numpy as np

from attnkit.foundation.corpus import hash_of_text
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.names import as_typed
from attnkit.foundation.settings import InvalidExperiment, Problem, dial, shown
from attnkit.foundation.words import listed
from attnkit.tasks.base import TASKS, Task

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 2_000_000
"""Largest size of a file with data, and of the texts in it."""

MOST_ROWS = 20_000
"""Largest number of rows of a table."""

FEWEST_ROWS = 8
"""Smallest number of different rows of a table, so that one can be held out."""

MOST_WORDS = 4096
"""Largest number of different names in a column: each has a vector of its own."""

LONGEST_NAME = 100
"""Largest number of characters of a name."""

LONGEST_SHOWN = 12
"""Largest number of characters of a name on an axis."""

_SINGLE = (Number, np.bool_, time, timedelta, UUID)
"""Types of the values, beside texts, dates and those of pandas, that a cell can have."""

_MISSING = ("None", "nan", "NaT", "<NA>")
"""How values that stand for a missing cell are written, none of which is a text."""

LONGEST_IN_LINK = 6000
"""Largest number of characters of data in a link, as an address writes them."""


class OwnData(Task):
    """A task on data of one's own, which are its setting `data`.

    Attributes:
        n_columns: Number of columns of a table; 0 for a text.
    """

    family: ClassVar[str] = "Text"
    n_columns: ClassVar[int] = 0

    data: str = dial("", mark("Data"), mark("The data of one's own, as text."))

    @classmethod
    @abstractmethod
    def read(cls, path: str | Path, **settings: Any) -> Self:
        """Return the task on the data of a file."""

    @classmethod
    @abstractmethod
    def text_form(cls, data: str) -> str:
        """Return data in their text form.

        Raises:
            InvalidExperiment: If they cannot be used.
        """

    @classmethod
    def fitting(cls, data: str) -> dict[str, Any]:
        """Return the dials whose defaults do not go with some data, with values that do."""
        return {}

    @classmethod
    @abstractmethod
    def size_in_words(cls, data: str) -> str:
        """Return how large data in their text form are, for example "table of 40 rows"."""

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """Sentences on what the data are and on how they are split."""

    @property
    def fingerprint(self) -> str:
        return hash_of_text(self.data)


OWN_TASKS: dict[str, type[OwnData]] = {}
"""Tasks on data of one's own by name."""

_Own = TypeVar("_Own", bound=OwnData)


def register_own(task: type[_Own]) -> type[_Own]:
    """Register a task on data of one's own."""
    assert task.name not in TASKS
    OWN_TASKS[task.name] = task
    return task


def is_task(name: object) -> TypeGuard[str]:
    """Return whether there is a task of this name, also on data of one's own."""
    return isinstance(name, str) and (name in TASKS or name in OWN_TASKS)


def task_named(name: str) -> type[Task]:
    """Return the task of a name, also one on data of one's own.

    Raises:
        KeyError: If there is no such task.
    """
    return OWN_TASKS[name] if name in OWN_TASKS else TASKS[name]


def own_notes(task: Task) -> list[str]:
    """Return sentences on data of one's own; none for another task."""
    return task.notes if isinstance(task, OwnData) else []


def data_in_link(data: str) -> str:
    """Return data as a link carries them: the data if they are short, otherwise their hash."""
    return data if len(quote(data)) <= LONGEST_IN_LINK else hash_in_link(data)


def hash_in_link(data: str) -> str:
    """Return the hash that stands in a link in place of data."""
    return f"#{hash_of_text(data)}"


def is_hash(data: str) -> bool:
    """Return whether a text is the hash that stands in a link in place of data."""
    return re.fullmatch("#[0-9a-f]{16}", data) is not None


def check_present(data: str) -> None:
    """Raise the error for the hash that stands in a link in place of long data."""
    if is_hash(data):
        allowed = mark(
            "the data themselves: they were too long for the link, so add them by --data FILE, "
            "ak.Table(rows) or ak.Text(text)"
        )
        raise wrong_data(data, allowed)


def wrong_data(got: str, allowed: str) -> InvalidExperiment:
    """Return the error for data that cannot be used."""
    return InvalidExperiment([Problem("data", got, allowed)])


# The text form of a table


def kinds() -> dict[int, type[OwnData]]:
    """Return number of columns → the task on tables with so many."""
    return {task.n_columns: task for task in OWN_TASKS.values() if task.n_columns}


def table_text(
    rows: Any, n_columns: int, numbers: Iterable[int] = (), *, leave_out_empty: bool = False
) -> str:
    """Return rows in their text form: a line per row, and a tab between two cells.

    Args:
        rows: The rows, see `rows_in`.
        n_columns: Number of cells of each row.
        numbers: Number of each row in its file, for messages. Empty: counted from 1.
        leave_out_empty: Whether rows with empty cells are left out instead of refused.

    Raises:
        InvalidExperiment: If they cannot be used; the message names the first rows that are wrong.
    """
    table, empty = list[tuple[str, ...]](), dict[int, str]()
    for number, row in zip([*numbers] or itertools.count(1), rows_in(rows), strict=False):
        if len(table) == MOST_ROWS:
            got = tr("{n:,} rows or more", n=number)
            raise wrong_data(got, mark("at most {most:,} rows", most=MOST_ROWS))
        if not row and isinstance(rows, str):
            continue
        if len(row) != n_columns:
            place = _place(number, row)
            got = tr_n("{row} with {n:,} cell", "{row} with {n:,} cells", len(row), row=place)
            allowed = mark("2 (key, value) or 3 (who, relation, whom), in every row as many")
            raise wrong_data(got, allowed)
        names = tuple(_name(cell, number, row) for cell in map(cell_text, row))
        if all(names):
            table.append(names)
        else:
            empty[number] = _shown_cells(row)
    if empty and not leave_out_empty:
        first = [f"{number:,}" for number in [*empty][:5]]
        if len(empty) == 1:
            first = [f"{number:,}: {cells}" for number, cells in empty.items()]
        got = tr_n(
            "{n:,} row with an empty cell (row {numbers})",
            "{n:,} rows with empty cells (first in rows {numbers})",
            len(empty),
            numbers=listed(first),
        )
        raise wrong_data(got, mark("a name in each cell: fill them, or leave these rows out"))
    if sum(map(len, itertools.chain.from_iterable(table))) > MOST_BYTES:
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
    """Return rows of any accepted form as sequences of cells; blank lines of a text have none."""
    if isinstance(rows, str):
        return (line.split("\t") if line.strip() else [] for line in rows.split("\n"))
    if hasattr(rows, "itertuples"):
        frame = with_key(rows)
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


def with_key(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a data frame whose index is its first columns, unless that only numbers the rows."""
    if frame.index.name is None and frame.index.inferred_type == "integer":
        return frame
    names = [name or "" for name in frame.index.names]
    return frame.reset_index(names=names, allow_duplicates=True)


def cell_text(cell: Any) -> Any:
    """Return a cell as a text without spaces around it, or empty if it is missing.

    What is no single value stays, and is refused if its column is taken.
    """
    if isinstance(cell, str):
        return cell.strip()
    try:
        text = str(cell)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return cell
    if text in _MISSING:
        return ""
    if isinstance(cell, date):
        return text.removesuffix(" 00:00:00")
    if isinstance(cell, _SINGLE) or type(cell).__module__.partition(".")[0] == "pandas":
        return text
    return cell.tolist() if isinstance(cell, np.ndarray) else cell


def _place(number: int, row: Sequence[Any]) -> str:
    return tr("row {number:,} ({cells})", number=number, cells=_shown_cells(row))


def _shown_cells(row: Sequence[Any]) -> str:
    return ", ".join(shown(cell, most=LONGEST_SHOWN) for cell in [*row][:5])


def _name(cell: Any, number: int, row: Sequence[Any]) -> str:
    if not isinstance(cell, str):
        got = tr("{row} with {cell}", row=_place(number, row), cell=shown(cell))
        raise wrong_data(got, mark("a text or a number in each cell"))
    if len(cell) > 2 * LONGEST_NAME or len(name := as_typed(cell)) > LONGEST_NAME:
        got = tr("{row} with a name of {n:,} characters", row=_place(number, row), n=len(cell))
        raise wrong_data(got, mark("at most {most:,}", most=LONGEST_NAME))
    return name
