"""Custom phone books: parse the text that a visitor typed, and turn a question into token ids.

To the models, names and numbers are only labels. So any name becomes one of the task's name ids,
any number one of its number ids, and, in the fuzzy phone book, any letter of a name one of the
letter ids of its position; pages show what was typed. This module imports no torch and no
Streamlit.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import combinations
from types import SimpleNamespace
from typing import NamedTuple, TypeGuard

import numpy as np

from attnkit.experiment.experiment import settings
from attnkit.foundation.language import mark, tr
from attnkit.foundation.names import composed, without_controls
from attnkit.foundation.words import Sentence, first_true
from attnkit.tasks import Task
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.phonebook import Phonebook

NOT_IN_BOOK = mark("a number not in the book")
"""Text of a class of answers that no entry of the book has."""

MOST_CHARACTERS = 20_000
"""Most characters of a text; a longer one is refused."""

MOST_SHOWN = 24
"""Most characters of a name or number on a page."""

_FOLDED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "t", "ı": "i", "æ": "ae", "œ": "oe"}
)
_SEPARATORS = "\t;,:"
_NUMBER = re.compile(r"(?:^|(?<=[\s,;:]))[+(]{0,2}\d[\d ()./+\u00a0\u2009\u202f-]*$")
_LONGEST_NUMBER = 40


class BookEntry(NamedTuple):
    """One line of a book: its number, and its name and phone number as typed."""

    line: int
    name: str
    number: str


@dataclass(frozen=True)
class Book:
    """A book as it was parsed.

    Attributes:
        entries: The valid lines, in their order.
        problems: Sentences on why the models cannot answer it; empty if they can.
        notes: Sentences on what was changed or left out.
    """

    entries: list[BookEntry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class BookQuery(NamedTuple):
    """A book with a question, as token ids.

    Attributes:
        tokens: Entries, then one question for each of them, (2n, fields).
        row: Index of the typed question among the questions.
        right: Indices of the right entries: none, one, or several that are equally near.
        classes: Class → phone number as typed.
        notes: Sentences on how the models read the question.
    """

    tokens: np.ndarray
    row: int
    right: list[int]
    classes: dict[int, str]
    notes: list[str]


def is_phone_book(task: Task) -> TypeGuard[Phonebook | FuzzyPhonebook]:
    """Return whether a task is a phone book, exact or fuzzy."""
    return isinstance(task, Phonebook | FuzzyPhonebook)


def shortened(text: str) -> str:
    """Return a name or number, cut to `MOST_SHOWN` characters."""
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def most_entries(task: Task) -> int:
    """Return the most entries that the task's settings allow."""
    return int(settings(task.name)["n_entries"].high or 0)


def read_book(text: str, task: Task) -> Book:
    """Parse lines of a name and a number, separated by comma, semicolon, colon, tab or spaces.

    A number begins with a digit, which may follow + or (, and continues with digits, spaces and
    ( ) . / + -. It is the text after the last separator of the line or, if that is no number, the
    digits at the end of the line, after a space. Empty lines are skipped. If a name occurs twice,
    the first line is kept.

    Args:
        text: Text that was typed.
        task: Phone book task, exact or fuzzy.
    """
    if len(text) > MOST_CHARACTERS:
        problem = tr(
            "The text: got {n:,} characters, allowed at most {most:,}.",
            n=len(text),
            most=MOST_CHARACTERS,
        )
        return Book(problems=[problem])
    notes, problems, entries = list[str](), list[str](), list[BookEntry]()
    first_with_name: dict[str, BookEntry] = {}
    normalised = composed(text).replace("\r\n", "\n").replace("\r", "\n")
    for line, raw in enumerate(map(without_controls, normalised.split("\n")), 1):
        if not raw.strip():
            continue
        name, number = _split_line(raw)
        numbers = SimpleNamespace(line=shortened(raw.strip()), name=shortened(name), number=number)
        numbers.n, numbers.most = len(number), _LONGEST_NUMBER
        numbers.key = same_name(name, task)
        if problem := first_true(_WRONG_LINE, numbers):
            problems.append(tr("Line {line}: {problem}", line=line, problem=problem))
            continue
        entry = BookEntry(line, name, number)
        first = first_with_name.setdefault(numbers.key, entry)
        if first is not entry:
            notes.append(_duplicate_note(entry, first, task))
            continue
        entries.append(entry)
    n, n_numbers = len(entries), len({same_number(entry.number) for entry in entries})
    most = most_entries(task)
    numbers = SimpleNamespace(
        n=n,
        most=most,
        fewest=2,
        line=entries[most].line if n > most else 0,
        wrong_lines=bool(problems),
        n_numbers=n_numbers,
        most_numbers=int(getattr(task, "n_values", n_numbers)),
        most_names=int(getattr(task, "n_names", n)),
    )
    problems += [row.fill(numbers) for row in _WRONG_BOOK if row.holds(numbers)]
    return Book(entries, problems, notes)


def same_name(name: str, task: Task) -> str:
    """Return a normal form that is equal for names that count as the same; it may be empty.

    In the exact phone book it ignores case and spaces. In the fuzzy one it consists of the letters
    and digits without case and accents, cut or padded to the task's number of letters.
    """
    if not isinstance(task, FuzzyPhonebook):
        return " ".join(unicodedata.normalize("NFC", name.casefold()).split())
    folded = unicodedata.normalize("NFKD", name.casefold().translate(_FOLDED))
    letters = "".join(letter for letter in folded if unicodedata.category(letter)[0] in "LN")
    return letters[: task.n_letters].ljust(task.n_letters, "·").upper() if letters else ""


def same_number(number: str) -> str:
    """Return a normal form that is equal for numbers that differ in spaces only."""
    return "".join(unicodedata.normalize("NFKC", number).split())


def _split_line(line: str) -> tuple[str, str]:
    line = _trimmed(line)
    number = _NUMBER.search(line, max(0, len(line) - 2 * _LONGEST_NUMBER))
    cut = len(line) if number is None else number.start()
    return _trimmed(line[:cut]), line[cut:].strip()


def _trimmed(text: str) -> str:
    return text.strip().rstrip(_SEPARATORS + " ").strip()


def _duplicate_note(entry: BookEntry, first: BookEntry, task: Task) -> str:
    name, first_name = shortened(entry.name), shortened(first.name)
    if isinstance(task, FuzzyPhonebook) and name.casefold() != first_name.casefold():
        return tr(
            "Lines {first} and {second}: the models read both “{first_name}” and “{name}” as "
            "{key}; line {first} is kept, line {second} left out.",
            first=first.line,
            second=entry.line,
            first_name=first_name,
            name=name,
            key=same_name(entry.name, task),
        )
    return tr(
        "Lines {first} and {second}: “{name}” occurs twice; line {first} is kept, line {second} "
        "left out.",
        first=first.line,
        second=entry.line,
        name=name,
    )


_WRONG_LINE = (
    Sentence(
        "got “{line}”, which has no name; allowed is a name, then a number, such as “Ada 31”.",
        lambda n: not n.name,
    ),
    Sentence(
        "got “{line}”, which has no number; allowed is a name, then a number, such as “Ada 31”.",
        lambda n: not n.number,
    ),
    Sentence("got a number of {n} characters, allowed at most {most}.", lambda n: n.n > n.most),
    Sentence(
        "got the name “{name}”, allowed a name with letters or digits, of any alphabet.",
        lambda n: not n.key,
    ),
)
"""What can be wrong with a line, without its number."""

_WRONG_BOOK = (
    Sentence(
        "The book: got {n} entries, allowed at most {most}: leave out the lines from line {line} "
        "on, or other lines.",
        lambda n: n.n > n.most,
    ),
    Sentence(
        "The book: got 1 entry, allowed at least {fewest}: lines of a name, then a number, such as "
        "“Ada 31”.",
        lambda n: n.n == 1 and not n.wrong_lines,
    ),
    Sentence(
        "The book: got no entries, allowed at least {fewest}: lines of a name, then a number, such "
        "as “Ada 31”.",
        lambda n: n.n == 0 and not n.wrong_lines,
    ),
    Sentence(
        "The book: got {n_numbers} different numbers, allowed at most {most_numbers} (the setting "
        "Numbers).",
        lambda n: n.n_numbers > n.most_numbers,
    ),
    Sentence(
        "The book: got {n} names, allowed at most {most_names} (the setting Names).",
        lambda n: n.most_names < n.n <= n.most,
    ),
)
"""What can be wrong with a book; all that holds is told."""


def ask(book: Book, name: str, task: Task) -> BookQuery:
    """Turn a book without problems and a typed question into token ids.

    There is one question for the name of every entry; the typed name replaces the nearest of them.
    The other names are not misspelled here; in training, the fuzzy phone book misspells all.

    Raises:
        ValueError: If it cannot be asked; the message is a sentence.
    """
    name = without_controls(composed(name)).strip()
    key = same_name(name, task)
    if not key:
        problem = tr("The question: got “{name}”, allowed a name.", name=shortened(name))
        if isinstance(task, FuzzyPhonebook):
            problem = tr(
                "The question: got “{name}”, allowed a name with letters or digits, of any "
                "alphabet.",
                name=shortened(name),
            )
        raise ValueError(problem)
    numbers = [same_number(entry.number) for entry in book.entries]
    class_of = {number: i for i, number in enumerate(dict.fromkeys(numbers))}
    values = np.array([class_of[number] for number in numbers])
    # Of numbers that count as the same the first spelling is shown.
    classes = {i: book.entries[numbers.index(number)].number for number, i in class_of.items()}
    if isinstance(task, FuzzyPhonebook):
        return _ask_fuzzy(book, key, values, classes, task)
    assert isinstance(task, Phonebook)
    return _ask_exact(book, key, name, values, classes, task)


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
            raise ValueError(
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
    return BookQuery(tokens, row, right, classes, notes)


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
    pairs = combinations(range(n), 2)
    distance, first, second = min((_distance(keys[i], keys[j]), i, j) for i, j in pairs)
    if distance < task.distance:
        notes.append(
            tr(
                "“{first}” and “{second}” differ in {n} of {of} letters only; in training, names "
                "of a book differed in at least {fewest}.",
                first=shortened(book.entries[first].name),
                second=shortened(book.entries[second].name),
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
            raise ValueError(
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
    return BookQuery(tokens, row, right, classes, notes)


def _distance(name: str, other: str) -> int:
    return sum(a != b for a, b in zip(name, other, strict=True))
