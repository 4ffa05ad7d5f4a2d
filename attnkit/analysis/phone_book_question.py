"""Questions to a custom phone book, as token ids. This module imports no torch and no Streamlit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from attnkit.analysis.custom_phone_book import Book, same_name, same_number, shortened
from attnkit.foundation.language import mark, tr
from attnkit.foundation.names import composed, without_controls
from attnkit.tasks import Task
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.phonebook import Phonebook

NOT_IN_BOOK = mark("a number not in the book")
"""Text of a class of answers that no entry of the book has."""


@dataclass(frozen=True)
class BookQuery:
    """A book with a question, as token ids.

    Attributes:
        tokens: Entries, then one question for each of them, (2n, fields).
        row: Index of the typed question among the questions.
        right: Indices of the right entries: none, one, or several that are equally near.
        classes: Class → phone number as typed.
        problems: Sentences on why the question cannot be asked; then the other fields are empty.
        notes: Sentences on how the models read the question.
    """

    tokens: np.ndarray
    row: int
    right: list[int]
    classes: dict[int, str]
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def ask(book: Book, name: str, task: Task) -> BookQuery:
    """Turn a book without problems and a typed question into token ids.

    There is one question for the name of every entry; the typed name replaces the nearest of them.
    The other names are not misspelled here; in training, the fuzzy phone book misspells all.
    """
    name = without_controls(composed(name)).strip()
    numbers: dict[str, int] = {}
    for entry in book.entries:
        numbers.setdefault(same_number(entry.number), len(numbers))
    values = np.array([numbers[same_number(entry.number)] for entry in book.entries])
    # Reversed, so that of numbers that count as the same the first spelling is shown.
    classes = {numbers[same_number(entry.number)]: entry.number for entry in reversed(book.entries)}
    key = same_name(name, task)
    if not key:
        return _refused(_wrong_question(name, task))
    if isinstance(task, FuzzyPhonebook):
        return _ask_fuzzy(book, key, values, classes, task)
    assert isinstance(task, Phonebook)
    return _ask_exact(book, key, name, values, classes, task)


def _wrong_question(name: str, task: Task) -> str:
    """Return what is wrong with a question whose name cannot be read."""
    name = shortened(name)
    if isinstance(task, FuzzyPhonebook):
        return tr(
            "The question: got “{name}”, allowed a name with letters or digits, of any alphabet.",
            name=name,
        )
    return tr("The question: got “{name}”, allowed a name.", name=name)


def _refused(problem: str) -> BookQuery:
    return BookQuery(np.zeros((0, 0), np.int64), 0, [], {}, [problem])


def _ask_exact(
    book: Book, key: str, name: str, values: np.ndarray, classes: dict[int, str], task: Phonebook
) -> BookQuery:
    n = len(book.entries)
    keys = [same_name(entry.name, task) for entry in book.entries]
    queried = np.arange(n)  # name ids
    notes = []
    right = [keys.index(key)] if key in keys else []
    row = right[0] if right else n - 1
    if not right:
        if n >= task.n_names:
            return _refused(
                tr(
                    "The question: got “{name}”, allowed a name of the book: all {n} name ids are "
                    "in use (the setting Names).",
                    name=shortened(name),
                    n=task.n_names,
                )
            )
        queried[row] = n
        notes.append(
            tr(
                "“{name}” is not in the book. In training, every question was about a name in the "
                "book, so the models cannot answer that they do not know a name.",
                name=shortened(name),
            )
        )
    blank = np.full(n, task.n_names + task.n_values)
    entries = np.stack([np.arange(n), task.n_names + values], -1)
    tokens = np.concatenate([entries, np.stack([queried, blank], -1)])
    return BookQuery(tokens, row, right, classes, [], notes)


def _ask_fuzzy(
    book: Book, key: str, values: np.ndarray, classes: dict[int, str], task: FuzzyPhonebook
) -> BookQuery:
    n = len(book.entries)
    keys = [same_name(entry.name, task) for entry in book.entries]
    distances = [_distance(key, other) for other in keys]
    nearest = min(distances)
    right = [index for index, distance in enumerate(distances) if distance == nearest]
    row, notes = right[0], [tr("The models read “{key}”.", key=key)]
    if nearest > task.n_wrong:
        notes.append(
            tr(
                "Even the nearest name differs in {n} of {of} letters; in training it was {usual}.",
                n=nearest,
                of=task.n_letters,
                usual=task.n_wrong,
            )
        )
    if len(right) > 1:
        names = ", ".join(f"“{shortened(book.entries[index].name)}”" for index in right)
        notes.append(tr("Equally near: {names}; each counts as right.", names=names))
    closest = _closest_pair(keys)
    if closest is not None and closest[0] < task.distance:
        distance, *pair = closest
        first, second = (shortened(book.entries[index].name) for index in pair)
        notes.append(
            tr(
                "“{first}” and “{second}” differ in {n} of {of} letters only; in training, names "
                "of a book differed in at least {fewest}.",
                first=first,
                second=second,
                n=distance,
                of=task.n_letters,
                fewest=task.distance,
            )
        )
    queried = [key if index == row else name for index, name in enumerate(keys)]
    letters = np.zeros((2 * n, task.n_letters), np.int64)
    for position in range(task.n_letters):
        ids: dict[str, int] = {}
        for token, name in enumerate([*keys, *queried]):
            letters[token, position] = ids.setdefault(name[position], len(ids))
        if len(ids) > task.n_alphabet:
            return _refused(
                tr(
                    "The names: got {n} different letters in place {place}, allowed at most {most} "
                    "(the setting Alphabet).",
                    n=len(ids),
                    place=position + 1,
                    most=task.n_alphabet,
                )
            )
    letters += np.arange(task.n_letters) * task.n_alphabet
    first_value = task.n_letters * task.n_alphabet
    last = np.concatenate([first_value + values, np.full(n, task.d_vocab - 1)])
    tokens = np.concatenate([letters, last[:, None]], 1)
    return BookQuery(tokens, row, right, classes, [], notes)


def _distance(name: str, other: str) -> int:
    """Return the number of positions at which two names differ."""
    return sum(a != b for a, b in zip(name, other, strict=True))


def _closest_pair(keys: list[str]) -> tuple[int, int, int] | None:
    """Return the distance of the two nearest names, and their indices."""
    pairs = [
        (_distance(keys[first], keys[second]), first, second)
        for second in range(len(keys))
        for first in range(second)
    ]
    return min(pairs, default=None)
