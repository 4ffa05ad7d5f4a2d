"""Rows of a table of one's own: their text form, what is wrong with them, and their split."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import Any

import numpy as np

from attnkit.foundation.corpus import hash_of_text
from attnkit.foundation.data_files import MOST_BYTES, MOST_ROWS
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.names import as_typed
from attnkit.foundation.settings import shown
from attnkit.tasks.base import HELD_OUT_ONE_IN
from attnkit.tasks.own_data import check_present, wrong_data

FEWEST_ROWS = 8
"""Smallest number of different rows of a table, so that one can be held out."""

MOST_WORDS = 4096
"""Largest number of different names in a column: each has a vector of its own."""

LONGEST_NAME = 100
"""Largest number of characters of a name."""

LONGEST_SHOWN = 12
"""Largest number of characters of a name on an axis."""

_MOST_QUOTED = 5
"""Largest number of cells of a wrong row that a message shows."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The different rows of a table, and their split.

    Attributes:
        cells: Cells of each row, as typed, (rows, columns).
        held_out: Whether each row is held out, (rows,).
        n_given: Number of rows that were given; repeated rows count.
    """

    cells: tuple[tuple[str, ...], ...]
    held_out: np.ndarray
    n_given: int

    @cached_property
    def conflicts(self) -> dict[tuple[str, ...], list[str]]:
        """Question, all cells of a row but the last, → its answers, if it has several."""
        answers: dict[tuple[str, ...], list[str]] = {}
        for *question, answer in self.cells:
            answers.setdefault(tuple(question), []).append(answer)
        return {question: found for question, found in answers.items() if len(found) > 1}

    @cached_property
    def share_of_commonest(self) -> float:
        """How often the commonest answer is right, in the table or where rows are held out.

        The larger share counts; of several answers that are as common, their mean.
        """
        n_rows = Counter(row[-1] for row in self.cells)
        most = max(n_rows.values())
        commonest = {answer for answer, n in n_rows.items() if n == most}
        asked = [row[-1] in commonest for row in itertools.compress(self.cells, self.held_out)]
        return max(most / len(self.cells), sum(asked) / len(asked) / len(commonest))

    def words(self, *columns: int) -> tuple[str, ...]:
        """Return the different names of some columns in the order of their first occurrence."""
        return tuple(dict.fromkeys(row[column] for row in self.cells for column in columns))


def table_text(rows: Any, n_columns: int) -> str:
    """Return rows in the text form: a line per row, and a tab between two cells.

    Raises:
        InvalidExperiment: If they cannot be used; the message names the first row that is wrong.
    """
    lines = []
    n_bytes = 0
    for number, row in enumerate(rows_in(rows), 1):
        if number > MOST_ROWS:
            got = tr("{n:,} rows or more", n=number)
            raise wrong_data(got, mark("at most {most:,} rows", most=MOST_ROWS))
        place = partial(_place, number, row)
        if len(row) != n_columns:
            got = tr_n("{row} with {n:,} cell", "{row} with {n:,} cells", len(row), row=place())
            kinds = mark("2 (key, value) or 3 (who, relation, whom), in every row as many")
            raise wrong_data(got, kinds)
        cells = [_cell(cell, place) for cell in row]
        lines.append("\t".join(cells))
        n_bytes += sum(map(len, cells))
        if n_bytes > MOST_BYTES:
            allowed = mark("at most {most:,} characters", most=MOST_BYTES)
            raise wrong_data(tr("a larger table"), allowed)
    different = len(set(lines))
    if different < FEWEST_ROWS:
        got = tr_n("{n:,} different row", "{n:,} different rows", different)
        if different:
            raise wrong_data(got, mark("a table of at least {fewest}", fewest=FEWEST_ROWS))
        allowed = mark(
            "a table of at least {fewest}: use ak.Table(rows) or --data FILE", fewest=FEWEST_ROWS
        )
        raise wrong_data(got, allowed)
    text = "\n".join(lines)
    if max(len(rows_of(text, n_columns).words(i)) for i in range(n_columns)) > MOST_WORDS:
        allowed = mark("at most {most:,}", most=MOST_WORDS)
        raise wrong_data(tr("more different names in a column"), allowed)
    if not rows_of(text, n_columns).held_out.any():
        allowed = mark("at least 2 different answers")
        raise wrong_data(tr("the same answer in every row"), allowed)
    return text


@lru_cache(8)
def checked_text(data: str, n_columns: int) -> str:
    """Return a table that is text already in its text form."""
    check_present(data)
    return table_text(data, n_columns)


def rows_in(rows: Any) -> Iterable[Sequence[Any]]:
    """Yield rows of any accepted form as sequences of cells."""
    if isinstance(rows, str):
        return (line.split("\t") for line in rows.split("\n") if line.strip())
    if hasattr(rows, "itertuples"):  # a data frame, whose index may be its key
        is_numbered = type(rows.index).__name__ == "RangeIndex"
        tuples: Iterable[Sequence[Any]] = rows.itertuples(index=not is_numbered, name=None)
        return list(tuples)
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
    if isinstance(cell, np.generic):
        cell = cell.item()
    if not isinstance(cell, str | int | float) or cell != cell:
        is_empty = isinstance(cell, float) or str(cell) in ("None", "NaT", "<NA>")
        if is_empty:
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


@lru_cache(8)
def rows_of(data: str, n_columns: int) -> Rows:
    """Return the different rows of a table in its text form, and hold out one in eight.

    Those with the smallest hashes are held out, at least two, and not all with the same answer if
    that is possible. The first name of a row keeps at least one answer of the table that it can
    have in training.
    """
    lines = data.split("\n")
    different = list(dict.fromkeys(lines))
    cells = tuple(tuple(line.split("\t")) for line in different)
    assert all(len(row) == n_columns for row in cells)
    n_answers = len({row[-1] for row in cells})
    n_left = max(2, round(len(cells) / HELD_OUT_ONE_IN))
    held_out, n_of_key, answers = np.zeros(len(cells), bool), Counter[str](), set[str]()
    for index in sorted(range(len(cells)), key=lambda index: hash_of_text(different[index])):
        key, answer = cells[index][0], cells[index][-1]
        is_another = n_left > 1 or len({*answers, answer}) > 1
        if n_left and is_another and n_of_key[key] < n_answers - 1:
            held_out[index] = True
            n_of_key[key] += 1
            answers.add(answer)
            n_left -= 1
    return Rows(cells, held_out, len(lines))
