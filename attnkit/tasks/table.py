"""Tables of one's own: how they are read, split by content, and learnt by heart.

A table is kept as lines of cells with a tab between two; `Table.read` and `Table(rows)` bring
anything else into this form.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from attnkit.foundation.corpus import hash_of_text
from attnkit.foundation.data_files import MOST_BYTES, MOST_ROWS, read_rows
from attnkit.foundation.names import as_typed
from attnkit.foundation.settings import dial, shown
from attnkit.foundation.words import counted
from attnkit.tasks.base import HELD_OUT_ONE_IN, NOTHING, Examples, Label
from attnkit.tasks.own_data import OWN_TASKS, OwnData, check_present, wrong_data

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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

_MOST_NUMBERS = 2**16
"""Largest number of positions of the examples that are made at once."""

BLANK = "?"

Learn = Literal["in_context", "by_heart"]


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

    def words(self, *columns: int) -> tuple[str, ...]:
        """Return the different names of some columns in the order of their first occurrence."""
        return tuple(dict.fromkeys(row[column] for row in self.cells for column in columns))


class Table(OwnData):
    """A table of one's own: pairs (key, value), or relations (who, relation, whom).

    `Table(rows)` returns a task on pairs if the rows have two cells, and on relations if they have
    three. It is trained like any other task: `Experiment(task=Table(rows), sharing=…)`.

    One row in eight, at least one, is held out, by a hash of its content: no example that is
    trained on holds it, and accuracy is measured on nothing else.

    With `learn="in_context"`, an example is a book of a few entries and their answers are in it.
    Training mixes the names anew in each book, so a model has to look the answer up: it shows what
    queries and keys can match. With `learn="by_heart"`, an example is a question without a book:
    it shows how many rows the weights can hold, and that a row that was held out cannot be known.

    Args:
        rows: A list of tuples of two or three names, a dictionary key → value, a data frame, or
            the text form, which has a line per row and tabs between its cells.
        **settings: Dials of the task.

    Raises:
        InvalidExperiment: If the rows cannot be used; the message names the row.
    """

    n_columns: ClassVar[int] = 0

    learn: Learn = dial(
        "in_context",
        "Learn",
        "In context: the answers are in the example, with names mixed anew. By heart: there is "
        "only the question, and the weights must hold the table.",
        choice_labels=("in context", "by heart"),
    )

    def __new__(cls, rows: Any = None, /, **settings: Any) -> Self:
        if cls is not Table:
            return super().__new__(cls)
        given = settings.get("data", "") if rows is None else rows
        n_columns = len(next(iter(_listed(given)), ()))
        return super().__new__(kind_of(n_columns))  # type: ignore[return-value]

    def __init__(self, rows: Any = None, /, **settings: Any) -> None:
        given = settings.pop("data", "") if rows is None else rows
        text = _checked if isinstance(given, str) else table_text
        super().__init__(data=text(given, self.n_columns), **settings)

    @classmethod
    def read(cls, path: str | Path, columns: Sequence[str] = (), **settings: Any) -> Self:
        """Return the task on the table of a file: CSV, TSV, JSON lines or Parquet.

        Args:
            path: The file.
            columns: Names of two or three columns in the first line of the file. None: all of its
                columns; the first line is then a row too, unless it is `key, value` or
                `who, relation, whom`.
            **settings: Dials of the task.

        Raises:
            OSError: If the file does not exist or cannot be read.
            BadDocument: If it is no table.
            InvalidExperiment: If its rows cannot be used.
        """
        return cls(read_rows(path, columns), **settings)

    @classmethod
    def text_form(cls, data: str) -> str:
        return _checked(data, cls.n_columns)

    @classmethod
    def most_entries(cls, data: str) -> int:
        """Return the largest number of entries of a book: that of different names to ask about."""
        return len(rows_of(data, cls.n_columns).words(0))

    @classmethod
    def fitting(cls, data: str) -> dict[str, Any]:
        field, most = cls.model_fields["n_entries"], cls.most_entries(data)
        fewest = next(bound.ge for bound in field.metadata if hasattr(bound, "ge"))
        if most < fewest:
            return {"learn": "by_heart"}
        return {"n_entries": most} if most < field.default else {}

    @classmethod
    def size_in_words(cls, data: str) -> str:
        return f"table of {counted(data.count(chr(10)) + 1, 'row')}"

    @property
    def rows(self) -> Rows:
        """The different rows of the table, and which of them are held out."""
        return rows_of(self.data, self.n_columns)

    @property
    def corpus(self) -> bool:  # type: ignore[override]
        """Whether examples are questions about a fixed set of rows."""
        return self.learn == "by_heart"

    @property
    @abstractmethod
    def vocabulary(self) -> str:
        """How many different names there are, for example "8 different keys and 3 values"."""

    @property
    def notes(self) -> list[str]:
        """Sentences on how many rows there are and how they are split."""
        rows = self.rows
        n, n_held_out = len(rows.cells), int(rows.held_out.sum())
        notes = [
            f"The table has {counted(n, 'row')} with {self.vocabulary}. A hash of their content "
            f"holds {counted(n_held_out, 'row')} out: no training example has them, and accuracy "
            "is measured on nothing else."
        ]
        if rows.n_given > n:
            notes.append(f"{counted(rows.n_given - n, 'row')} stood there before and count once.")
        if self.learn == "by_heart":
            notes.append(
                "By heart, training accuracy shows how much of the table the weights hold; a row "
                "that is held out can only be guessed."
            )
        return notes

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        import torch

        most = max(_MOST_NUMBERS // self.n_ctx, 1)
        sizes = [most] * (n_examples // most) + [n_examples % most] * (n_examples % most > 0)
        parts = [self._drawn(size, generator, held_out) for size in sizes]
        if len(parts) == 1:
            return parts[0]
        fields = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
        joined = {name: torch.cat(f) for name, f in fields.items() if f[0] is not None}
        return Examples(**joined)

    def _drawn(self, n_examples: int, generator: torch.Generator, held_out: bool) -> Examples:
        if self.learn == "by_heart":
            return self._ask_rows(n_examples, generator, held_out)
        make = self._held_out_books if held_out else self._books
        return make(n_examples, generator)

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        """Draw examples for training; held-out rows are in none of them."""
        return self.draw(n_examples, generator, held_out=False)

    def n_per_draw(self, n_examples: int, *, held_out: bool) -> int:
        return n_examples

    def book(self, tokens: Tensor) -> Tensor:
        """Return the entries; `draw` ignores them, as the rows decide the side."""
        return tokens[:, : self.answers_from or self.n_ctx]

    @abstractmethod
    def _books(self, n_examples: int, generator: torch.Generator) -> Examples:
        """Draw books of mixed names without any held-out row."""

    @abstractmethod
    def _held_out_books(self, n_examples: int, generator: torch.Generator) -> Examples:
        """Draw books of rows of the table that ask for held-out rows only."""

    @property
    def _question_words(self) -> list[tuple[str, ...]]:
        """Different names of every column of a question by heart."""
        return [self.rows.words(column) for column in range(self.n_columns - 1)]

    def _ask_rows(self, n_examples: int, generator: torch.Generator, held_out: bool) -> Examples:
        """Draw questions by heart: all cells of a row but the last, then a question mark."""
        import torch

        tokens, labels = _questions(self.data, self.n_columns)
        side = torch.from_numpy(np.flatnonzero(self.rows.held_out == held_out))
        index = side[torch.randint(len(side), (n_examples,), generator=generator)]
        asked = torch.from_numpy(labels)[index][:, None]
        taken = torch.from_numpy(tokens)[index][:, :, None]
        return Examples(taken, asked, torch.full_like(asked, NOTHING))

    def _label_by_heart(self, tokens: np.ndarray) -> list[Label]:
        words = [word for column in self._question_words for word in column] + [BLANK]
        texts = [words[token] for token in tokens[:, 0].tolist()]
        question = " ".join(texts[:-1])
        labels = [Label(on_axis(text), text, text) for text in texts[:-1]]
        return [*labels, Label(BLANK, f"{question} ?", f"{question} ?")]


def on_axis(name: str) -> str:
    """Return a name, cut to `LONGEST_SHOWN` characters."""
    return name if len(name) <= LONGEST_SHOWN else name[: LONGEST_SHOWN - 1].rstrip() + "…"


def kind_of(n_columns: int) -> type[Table]:
    """Return the task on tables of so many columns, that of two for any other number."""
    kinds = {kind.n_columns: kind for kind in OWN_TASKS.values() if issubclass(kind, Table)}
    return kinds.get(n_columns, kinds[2])


def table_text(rows: Any, n_columns: int) -> str:
    """Return rows in the text form: a line per row, and a tab between two cells.

    Raises:
        InvalidExperiment: If they cannot be used; the message names the first row that is wrong.
    """
    lines = []
    n_bytes = 0
    for number, row in enumerate(_listed(rows), 1):
        if number > MOST_ROWS:
            raise wrong_data(f"{number:,} rows or more", f"at most {MOST_ROWS:,} rows")
        place = partial(_place, number, row)
        if len(row) != n_columns:
            kinds = "2 (key, value) or 3 (who, relation, whom), in every row as many"
            raise wrong_data(f"{place()} with {counted(len(row), 'cell')}", kinds)
        cells = [_cell(cell, place) for cell in row]
        lines.append("\t".join(cells))
        n_bytes += sum(map(len, cells))
        if n_bytes > MOST_BYTES:
            raise wrong_data("a larger table", f"at most {MOST_BYTES:,} characters")
    different = len(set(lines))
    if different < FEWEST_ROWS:
        allowed = f"a table of at least {FEWEST_ROWS}"
        allowed += "" if different else ": use ak.Table(rows) or --data FILE"
        raise wrong_data(counted(different, "different row"), allowed)
    text = "\n".join(lines)
    if max(len(rows_of(text, n_columns).words(i)) for i in range(n_columns)) > MOST_WORDS:
        raise wrong_data("more different names in a column", f"at most {MOST_WORDS:,}")
    if not rows_of(text, n_columns).held_out.any():
        raise wrong_data("the same answer in every row", "at least 2 different answers")
    return text


@lru_cache(8)
def _checked(data: str, n_columns: int) -> str:
    """Return a table that is text already in its text form."""
    check_present(data)
    return table_text(data, n_columns)


def _listed(rows: Any) -> Iterable[Sequence[Any]]:
    """Yield rows of any accepted form as sequences of cells."""
    if isinstance(rows, str):
        return (line.split("\t") for line in rows.split("\n") if line.strip())
    if isinstance(rows, Mapping):
        return iter(rows.items())
    if hasattr(rows, "itertuples"):
        return list(rows.itertuples(index=False, name=None))
    if not isinstance(rows, Sequence):
        raise wrong_data(type(rows).__name__, "a list of rows, a dictionary or a data frame")
    for number, row in enumerate(rows, 1):
        if isinstance(row, str) or not isinstance(row, Sequence):
            raise wrong_data(f"row {number:,}, {shown(row)}", "rows of two or three names")
    return rows


def _place(number: int, row: Sequence[Any]) -> str:
    """Return the number of a row and its first cells."""
    cells = ", ".join(shown(cell, most=LONGEST_SHOWN) for cell in islice(row, _MOST_QUOTED))
    return f"row {number:,} ({cells})"


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
        got = "an empty cell" if is_empty else shown(cell)
        raise wrong_data(f"{place()} with {got}", "a text or a number in each cell")
    if isinstance(cell, int) and cell.bit_length() > 64:
        raise wrong_data(f"{place()} with a huge number", "numbers of at most 64 bits")
    text = str(cell)
    if len(text) > 2 * LONGEST_NAME or len(name := as_typed(text)) > LONGEST_NAME:
        got = f"{place()} with a name of {len(text):,} characters"
        raise wrong_data(got, f"at most {LONGEST_NAME}")
    if not name:
        raise wrong_data(f"{place()} with an empty cell", "a name in each cell")
    return name


@lru_cache(8)
def rows_of(data: str, n_columns: int) -> Rows:
    """Return the different rows of a table in its text form, and hold out one in eight.

    Those with the smallest hashes are held out. The first name of a row keeps at least one answer
    of the table that it can have in training.
    """
    lines = data.split("\n")
    different = list(dict.fromkeys(lines))
    cells = tuple(tuple(line.split("\t")) for line in different)
    assert all(len(row) == n_columns for row in cells)
    n_answers = len({row[-1] for row in cells})
    n_left = max(1, round(len(cells) / HELD_OUT_ONE_IN))
    held_out, n_of_key = np.zeros(len(cells), bool), Counter[str]()
    for index in sorted(range(len(cells)), key=lambda index: hash_of_text(different[index])):
        if n_left and n_of_key[cells[index][0]] < n_answers - 1:
            held_out[index] = True
            n_of_key[cells[index][0]] += 1
            n_left -= 1
    return Rows(cells, held_out, len(lines))


@lru_cache(8)
def _questions(data: str, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of every row's question by heart, (rows, columns), and its answer."""
    rows = rows_of(data, n_columns)
    tokens, first = np.zeros((len(rows.cells), n_columns), np.int64), 0
    for column in range(n_columns - 1):
        ids = {word: first + i for i, word in enumerate(rows.words(column))}
        tokens[:, column] = [ids[row[column]] for row in rows.cells]
        first += len(ids)
    tokens[:, -1] = first
    answers = {word: i for i, word in enumerate(rows.words(n_columns - 1))}
    return tokens, np.array([answers[row[-1]] for row in rows.cells])
