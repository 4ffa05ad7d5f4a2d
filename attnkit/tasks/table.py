"""Tables of one's own: their split, how they are learnt by heart, and pairs looked up in a book.

A table is kept as lines of cells with a tab between two; `Table.read` and `Table(rows)` bring
anything else into this form.
"""

from __future__ import annotations

import itertools
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.corpus import hash_of_text
from attnkit.foundation.documents import BadDocument
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import dial, disagreement
from attnkit.foundation.words import listed
from attnkit.tasks.base import HELD_OUT_ONE_IN, NOTHING, Examples, Label
from attnkit.tasks.draws import choose, choose_few
from attnkit.tasks.own_data import (
    LONGEST_SHOWN,
    OwnData,
    check_present,
    kinds,
    register_own,
    rows_in,
    table_text,
)
from attnkit.tasks.own_files import TABLES, Choices, read_file
from attnkit.tasks.phonebook import entry_label

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_MOST_NUMBERS = 2**16
"""Largest number of positions of the examples that are made at once."""

BLANK = "?"

Learn = Literal["in_context", "by_heart"]


class Rows:
    """The different rows of a table in its text form, one in eight of which is held out.

    Those with the smallest hashes are held out, at least two, and not all with the same answer if
    that is possible. The first name of a row keeps at least one answer of the table that it can
    have in training.

    Attributes:
        cells: Cells of each row, as typed, (rows, columns).
        held_out: Whether each row is held out, (rows,).
        n_given: Number of rows that were given; repeated rows count.
    """

    def __init__(self, data: str) -> None:
        lines = data.split("\n")
        different = list(dict.fromkeys(lines))
        self.n_given = len(lines)
        self.cells = tuple(tuple(line.split("\t")) for line in different)
        self.held_out = np.zeros(len(different), bool)
        n_answers = len({row[-1] for row in self.cells})
        n_left = max(2, round(len(different) / HELD_OUT_ONE_IN))
        n_of_key, answers = Counter[str](), set[str]()
        for index in sorted(
            range(len(different)), key=lambda index: hash_of_text(different[index])
        ):
            key, answer = self.cells[index][0], self.cells[index][-1]
            is_another = n_left > 1 or len({*answers, answer}) > 1
            if n_left and is_another and n_of_key[key] < n_answers - 1:
                self.held_out[index] = True
                n_of_key[key] += 1
                answers.add(answer)
                n_left -= 1

    @cached_property
    def numbers(self) -> np.ndarray:
        """Every cell as the index of its name among `words` of its column, (rows, columns)."""
        columns = range(len(self.cells[0]))
        ids = [{word: i for i, word in enumerate(self.words(column))} for column in columns]
        return np.array([[ids[i][cell] for i, cell in enumerate(row)] for row in self.cells])

    @cached_property
    def first_questions(self) -> list[int]:
        """First ids of the columns of a question by heart, and that of its question mark."""
        counts = [len(self.words(column)) for column in range(len(self.cells[0]) - 1)]
        return [0, *itertools.accumulate(counts)]

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


rows_of = lru_cache(8)(Rows)


class ByKey:
    """Values by key, of which random ones are drawn: of a key with preferred values, only these."""

    def __init__(
        self, keys: np.ndarray, values: np.ndarray, preferred: np.ndarray | None = None
    ) -> None:
        if preferred is not None:
            drawn = preferred | ~np.isin(keys, keys[preferred])
            keys, values = keys[drawn], values[drawn]
        order = np.argsort(keys, kind="stable")
        self._keys, self._values = keys[order], values[order]

    def draw(self, keys: np.ndarray, lots: np.ndarray, nothing: int = NOTHING) -> np.ndarray:
        """Return a random value of each key; `nothing` where it has none."""
        low, high = (np.searchsorted(self._keys, keys, side) for side in ("left", "right"))
        place = low + np.floor(lots * (high - low)).astype(np.int64)
        found = self._values[place.clip(max=len(self._values) - 1)]
        return np.where(high > low, found, nothing)


class Table(OwnData):
    """A table of one's own: pairs (key, value), or relations (who, relation, whom).

    `Table(rows)` returns a task on pairs if the rows have two cells, and on relations if they have
    three. It is trained like any other task: `Experiment(task=Table(rows), sharing=…)`.

    With `learn="in_context"`, an example is a book of a few entries and their answers are in it.
    Training mixes the names anew in each book, so a model has to look the answer up: it shows what
    queries and keys can match. One row in eight, at least two rows where possible, is held out, by
    a hash of its content: no example that is trained on holds it, and accuracy is measured on
    nothing else. With `learn="by_heart"`, an example is a question without a book, all rows are
    trained on and asked, and accuracy shows how many rows the weights hold.

    Args:
        rows: A list of tuples of two or three names, a dictionary key → value, a data frame, or
            the text form, which has a line per row and tabs between its cells.
        **settings: Dials of the task.

    Raises:
        InvalidExperiment: If the rows cannot be used; the message names the row.
    """

    source: ClassVar[str] = mark("a table of one's own")
    most_allowed: ClassVar[str]
    """How many entries are allowed, with `{most}` in place of their number."""

    if TYPE_CHECKING:  # each kind of table has its own bounds
        n_entries: int

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
        n_columns = len(next(filter(len, rows_in(given)), ()))
        return super().__new__(kinds().get(n_columns, kinds()[2]))  # type: ignore[return-value]

    def __init__(self, rows: Any = None, /, **settings: Any) -> None:
        given = settings.pop("data", "") if rows is None else rows
        text = given if isinstance(given, str) else table_text(given, self.n_columns)
        text = self.text_form(text)
        is_chosen = "n_entries" in settings or settings.get("learn") == "by_heart"
        fitting = {} if is_chosen else self.fitting(text)
        super().__init__(data=text, **fitting | settings)

    @model_validator(mode="after")
    def _check(self) -> Self:
        most = self.most_entries(self.data)
        if self.learn == "in_context" and self.n_entries > most:
            allowed = mark(str(self.most_allowed), most=most)
            raise disagreement("n_entries", self.n_entries, allowed, "data", "learn")
        return self

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
        kind, names = getattr(cls, "name", ""), tuple(map(str, columns))
        choices = Choices(kind, names, heading, leave_out_empty, encoding=encoding)
        reading = read_file(path, choices)
        if not reading.columns:
            allowed = listed(TABLES, "or")
            raise BadDocument(tr("it is a text, allowed a table: {allowed}", allowed=allowed))
        for guess in reading.guesses.values():
            warnings.warn(f"{path}: {guess}", stacklevel=2)
        return cls(reading.data, **settings)

    @classmethod
    @lru_cache(8)
    def text_form(cls, data: str) -> str:
        check_present(data)
        return table_text(data, cls.n_columns)

    @classmethod
    def most_entries(cls, data: str) -> int:
        """Return the largest number of entries of a book: that of different names to ask about."""
        return len(rows_of(data).words(0))

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
        return rows_of(self.data)

    @property
    @abstractmethod
    def vocabulary(self) -> str:
        """How many different names there are, for example "8 different keys and 3 values"."""

    @property
    def notes(self) -> list[str]:
        """Sentences on how many rows there are and how they are split."""
        rows = self.rows
        n, n_held_out = len(rows.cells), int(rows.held_out.sum())
        notes = [tr("The table has {n:,} rows ({names}).", n=n, names=self.vocabulary)]
        if self.learn == "by_heart":
            notes.append(
                tr(
                    "By heart, all rows are trained on and asked: accuracy shows how much of the "
                    "table the weights hold."
                )
            )
        else:
            notes.append(
                tr_n(
                    "A hash of their content holds {n:,} row out: no training example has it, and "
                    "accuracy is measured on nothing else.",
                    "A hash of their content holds {n:,} rows out: no training example has them, "
                    "and accuracy is measured on nothing else.",
                    n_held_out,
                )
            )
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
        return notes

    @property
    def asks_trained(self) -> bool:  # type: ignore[override]
        """Whether all rows are trained on and asked."""
        return self.learn == "by_heart"

    @property
    def most_right(self) -> float:
        if self.learn == "in_context":
            return 1.0
        return len({row[:-1] for row in self.rows.cells}) / len(self.rows.cells)

    @property
    def _chance_by_heart(self) -> float:
        answers = self.rows.numbers[:, -1]
        return float(np.bincount(answers).max() / len(answers))

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        import torch

        most = max(_MOST_NUMBERS // self.n_ctx, 1)
        sizes = [most] * (n_examples // most) + [n_examples % most] * (n_examples % most > 0)
        make = self._held_out_books if held_out else self._books
        if self.learn == "by_heart":
            make = self._ask_rows
        parts = [make(size, generator) for size in sizes]
        fields = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
        joined = {name: torch.cat(f) for name, f in fields.items() if f[0] is not None}
        return Examples(**joined)

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

    def _ask_rows(self, n_examples: int, generator: torch.Generator) -> Examples:
        """Draw questions by heart: all cells of a row but the last, then a question mark."""
        import torch

        index = torch.randint(len(self.rows.cells), (n_examples,), generator=generator)
        rows = torch.from_numpy(self.rows.numbers)[index]
        asked = rows[:, -1:].clone()
        rows[:, -1] = 0
        rows += torch.tensor(self.rows.first_questions)
        return Examples(rows[:, :, None], asked, torch.full_like(asked, NOTHING))

    def label(self, tokens: np.ndarray) -> list[Label]:
        if self.learn == "in_context":
            return self._label_book(tokens)
        ids = zip(tokens[:, 0].tolist(), self.rows.first_questions, strict=True)
        texts = [self.rows.words(i)[token - first] for i, (token, first) in enumerate([*ids][:-1])]
        question = f"{' '.join(texts)} {BLANK}"
        return [
            *(Label(on_axis(text), text, text) for text in texts),
            Label(BLANK, question, question),
        ]

    @abstractmethod
    def _label_book(self, tokens: np.ndarray) -> list[Label]: ...

    def answer_text(self, answer: int) -> str:
        return self.rows.words(self.n_columns - 1)[answer]


def on_axis(name: str) -> str:
    """Return a name, cut to `LONGEST_SHOWN` characters."""
    return name if len(name) <= LONGEST_SHOWN else name[: LONGEST_SHOWN - 1].rstrip() + "…"


@register_own
class Pairs(Table):
    """Look up the value of a key in a book of pairs from one's own table, or by heart.

    In context, a book lists `key value` and then asks for every key once. Training pairs keys with
    random values of the table, but never as in a held-out row. Evaluation uses rows of the table
    as they are, with as many held-out rows in a book as possible; only these count.

    ```
    position   0             1           2         3
    token      France Paris  Italy Rome  Italy ?   France ?
    label                                Rome      Paris
    target                               1         0
    ```

    By heart, the same question stands alone: `Italy`, then `?`. Chance is the value of a random
    entry or the commonest value, whichever is right more often.
    """

    name: ClassVar[str] = "pairs"
    title: ClassVar[str] = mark("Your own pairs")
    question: ClassVar[str] = mark("Each key is asked once: what is its value?")
    n_columns: ClassVar[int] = 2
    most_allowed: ClassVar[str] = mark("at most {most}, the different keys of the table")
    overrides: ClassVar[dict[str, Any]] = {"d_head": 8, "self_mask": False, "steps": 600}

    n_entries: int = dial(
        8, mark("Entries"), mark("Entries in a book; each is asked once."), ge=2, le=32
    )

    @property
    def _n_words(self) -> tuple[int, int]:
        return len(self.rows.words(0)), len(self.rows.words(1))

    @property
    def vocabulary(self) -> str:
        n_keys, n_values = self._n_words
        # Translators: for example "12 different keys and 3 different values".
        return tr(
            "{keys} and {values}",
            keys=tr_n("{n:,} different key", "{n:,} different keys", n_keys),
            values=tr_n("{n:,} different value", "{n:,} different values", n_values),
        )

    @property
    def n_fields(self) -> int:
        return 1 if self.learn == "by_heart" else 2

    @property
    def d_vocab(self) -> int:
        return self._n_words[0] + 1 + (0 if self.learn == "by_heart" else self._n_words[1])

    @property
    def n_classes(self) -> int:
        return self._n_words[1]

    @property
    def answers_from(self) -> int:
        return 1 if self.learn == "by_heart" else self.n_entries

    @property
    def n_ctx(self) -> int:
        return 2 * self.answers_from

    @property
    def chance(self) -> float:
        if self.learn == "by_heart":
            return self._chance_by_heart
        of_commonest = self.rows.share_of_commonest
        of_entry = 1 / self.n_entries + (1 - 1 / self.n_entries) * _index(self.data).share_of_entry
        return max(of_commonest, of_entry)

    def _books(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        n_keys, n_values = self._n_words
        held_out = torch.from_numpy(_index(self.data).held_out)
        keys = choose_few(n_examples, n_keys, self.n_entries, generator)
        values = torch.randint(n_values, keys.shape, generator=generator)
        while True:
            wrong = torch.isin(keys * n_values + values, held_out)
            if not wrong.any():
                return self._asked(keys, values, torch.ones_like(wrong), generator)
            values[wrong] = torch.randint(n_values, (int(wrong.sum()),), generator=generator)

    def _held_out_books(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        index, n_values = _index(self.data), self._n_words[1]
        first, others = index.keys_held_out, index.keys_trained
        n_first = min(len(first), self.n_entries)
        chosen = first[choose(n_examples, len(first), n_first, generator).numpy()]
        if n_first < self.n_entries:
            rest = choose(n_examples, len(others), self.n_entries - n_first, generator)
            chosen = np.concatenate([chosen, others[rest.numpy()]], 1)
        shuffled = choose(n_examples, self.n_entries, self.n_entries, generator)
        keys = torch.from_numpy(chosen).gather(1, shuffled)
        lots = torch.rand(keys.shape, generator=generator, dtype=torch.float64)
        pairs = torch.from_numpy(index.of_key.draw(keys.numpy(), lots.numpy()))
        is_held_out = torch.isin(pairs, torch.from_numpy(index.held_out))
        return self._asked(keys, pairs % n_values, is_held_out, generator)

    def _asked(
        self, keys: Tensor, values: Tensor, counts: Tensor, generator: torch.Generator
    ) -> Examples:
        import torch

        n_keys, n_values = self._n_words
        target = choose(len(keys), self.n_entries, self.n_entries, generator)
        blank = torch.full_like(keys, n_keys + n_values)
        entries = torch.stack([keys, n_keys + values], -1)
        questions = torch.stack([keys.gather(1, target), blank], -1)
        asked = counts.gather(1, target)
        labels = values.gather(1, target).where(asked, -1)
        return Examples(torch.cat([entries, questions], 1), labels, target.where(asked, -1))

    def _label_book(self, tokens: np.ndarray) -> list[Label]:
        keys, values = self.rows.words(0), [*self.rows.words(1), BLANK]
        labels = []
        for key, value in (tokens - [0, len(keys)]).tolist():
            made = entry_label(keys[key], values[value])
            labels.append(Label(on_axis(made.short), made.query, made.full))
        return labels


class _Index:
    """The pairs of a table as numbers: key × number of values + value.

    Attributes:
        share_of_entry: How often the value of a random row is right for a held-out pair.
    """

    def __init__(self, data: str) -> None:
        rows = rows_of(data)
        keys, values = rows.numbers.T
        pairs = rows.numbers @ (len(rows.words(1)), 1)
        self.held_out = np.sort(pairs[rows.held_out])
        self.keys_held_out = np.unique(keys[rows.held_out])
        self.keys_trained = np.setdiff1d(keys, self.keys_held_out)
        self.of_key = ByKey(keys, pairs, rows.held_out)
        asked = np.bincount(values)[values[rows.held_out]]
        self.share_of_entry = float(asked.mean()) / len(values)


_index = lru_cache(8)(_Index)
