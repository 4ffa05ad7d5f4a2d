"""Tables of one's own: their dials, their examples, and how they are learnt by heart.

A table is kept as lines of cells with a tab between two; `Table.read` and `Table(rows)` bring
anything else into this form.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from attnkit.foundation.data_files import TABLES
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import dial
from attnkit.foundation.words import listed
from attnkit.tasks.base import NOTHING, Examples, Label
from attnkit.tasks.own_data import OwnData
from attnkit.tasks.own_files import Choices, kinds, read_file
from attnkit.tasks.table_rows import (
    LONGEST_SHOWN,
    Rows,
    checked_text,
    rows_in,
    rows_of,
    table_text,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_MOST_NUMBERS = 2**16
"""Largest number of positions of the examples that are made at once."""

BLANK = "?"

Learn = Literal["in_context", "by_heart"]


class Table(OwnData):
    """A table of one's own: pairs (key, value), or relations (who, relation, whom).

    `Table(rows)` returns a task on pairs if the rows have two cells, and on relations if they have
    three. It is trained like any other task: `Experiment(task=Table(rows), sharing=…)`.

    One row in eight, at least two rows where possible, is held out, by a hash of its content: no
    example that is trained on holds it, and accuracy is measured on nothing else.

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

    learn: Learn = dial(
        "in_context",
        mark("Learn"),
        mark(
            "In context: the answers are in the example, with names mixed anew. By heart: there is "
            "only the question, and the weights must hold the table."
        ),
        choice_labels=(mark("in context"), mark("by heart")),
    )

    def __new__(cls, rows: Any = None, /, **settings: Any) -> Self:
        if cls is not Table:
            return super().__new__(cls)
        given = settings.get("data", "") if rows is None else rows
        n_columns = len(next(iter(rows_in(given)), ()))
        return super().__new__(kinds().get(n_columns, kinds()[2]))  # type: ignore[return-value]

    def __init__(self, rows: Any = None, /, **settings: Any) -> None:
        given = settings.pop("data", "") if rows is None else rows
        text = checked_text if isinstance(given, str) else table_text
        super().__init__(data=text(given, self.n_columns), **settings)

    @classmethod
    def read(
        cls,
        path: str | Path,
        columns: Sequence[str] = (),
        *,
        heading: bool | None = None,
        encoding: str = "",
        leave_out_empty: bool = False,
        **settings: Any,
    ) -> Self:
        """Return the task on the table of a file: CSV, TSV, JSON, Parquet or a workbook.

        A warning tells each guess about the file; the arguments replace it.

        Args:
            path: The file.
            columns: Names of two or three columns. Empty: all but one that numbers the rows.
            heading: Whether the first row names the columns. None: as the rows look.
            encoding: Python's name of the encoding of a text. Empty: the likeliest one.
            leave_out_empty: Whether rows with empty cells are left out instead of refused.
            **settings: Dials of the task.

        Raises:
            OSError: If the file does not exist or cannot be read.
            BadDocument: If it is no table, or if its columns must be chosen.
            InvalidExperiment: If its rows cannot be used.
        """
        empty: Literal["refuse", "leave out"] = "leave out" if leave_out_empty else "refuse"
        kind = getattr(cls, "name", "")
        choices = Choices(kind, tuple(columns), heading, empty, encoding=encoding)
        reading = read_file(path, choices)
        if not reading.columns:
            allowed = listed(TABLES, "or")
            raise BadDocument(tr("it is a text, allowed a table: {allowed}", allowed=allowed))
        for guess in reading.guesses.values():
            warnings.warn(f"{path}: {guess}", stacklevel=2)
        return cls(reading.data, **settings)

    @classmethod
    def text_form(cls, data: str) -> str:
        return checked_text(data, cls.n_columns)

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
        n_rows = data.count("\n") + 1
        return tr_n("table of {n:,} row", "table of {n:,} rows", n_rows)

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
            tr("The table has {n:,} rows ({names}).", n=n, names=self.vocabulary),
            tr_n(
                "A hash of their content holds {n:,} row out: no training example has it, and "
                "accuracy is measured on nothing else.",
                "A hash of their content holds {n:,} rows out: no training example has them, and "
                "accuracy is measured on nothing else.",
                n_held_out,
            ),
        ]
        if n_repeated := rows.n_given - n:
            notes.append(
                tr_n(
                    "{n:,} row stood there before and counts once.",
                    "{n:,} rows stood there before and count once.",
                    n_repeated,
                )
            )
        if conflicts := rows.conflicts:
            question, answers = next(iter(conflicts.items()))
            example = f"{' '.join(question)}: {', '.join(answers[:3])}"
            notes.append(
                tr_n(
                    "{n:,} question has several answers ({example}): each example has one of "
                    "them, drawn at random, and by heart no more than one can be right.",
                    "{n:,} questions have several answers (first {example}): each example has one "
                    "of them, drawn at random, and by heart no more than one can be right.",
                    len(conflicts),
                    example=example,
                )
            )
        if self.learn == "by_heart":
            notes.append(
                tr(
                    "By heart, training accuracy shows how much of the table the weights hold; a "
                    "row that is held out can only be guessed."
                )
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
