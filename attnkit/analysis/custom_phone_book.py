"""Custom phone books: parse the text that a visitor typed, and turn it into token ids.

To the models, names and numbers are only labels. So any name becomes one of the task's name ids,
any number one of its number ids, and, in the fuzzy phone book, any letter of a name one of the
letter ids of its position; pages show what was typed. This module imports no torch and no
Streamlit.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np

from attnkit.experiment.experiment import settings
from attnkit.foundation.names import composed, without_controls
from attnkit.foundation.words import counted
from attnkit.tasks import Task
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.phonebook import Phonebook

MOST_CHARACTERS = 20_000
"""Most characters of a text; a longer one is refused."""

NOT_IN_BOOK = "a number not in the book"
"""Text of a class of answers that no entry of the book has."""

MOST_SHOWN = 24
"""Most characters of a name or number on a page."""

FEWEST_ENTRIES = 2

_LONGEST_NUMBER = 40
_EXAMPLE = "a name, then a number, such as “Ada 31”"
_FOLDED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "t", "ı": "i", "æ": "ae", "œ": "oe"}
)
_SEPARATORS = "\t;,:"
_PUNCTUATION = "()./+-"
_NUMBER = re.compile(r"[+(]{0,2}\d[\d\s()./+-]*")
_NUMBER_START = re.compile(r"(?:^|(?<=\s))[+(]{0,2}\d")


@dataclass(frozen=True)
class BookEntry:
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
        limit = f"allowed at most {MOST_CHARACTERS:,}"
        return Book(problems=[f"The text: got {len(text):,} characters, {limit}."])
    notes, problems, entries = list[str](), list[str](), list[BookEntry]()
    first_with_name: dict[str, BookEntry] = {}
    n_cleaned = 0
    normalised = composed(text).replace("\r\n", "\n").replace("\r", "\n")
    for line, raw in enumerate(normalised.split("\n"), 1):
        clean = without_controls(raw)
        n_cleaned += clean != raw
        if not clean.strip():
            continue
        name, number = _split_line(clean)
        if problem := _problem_of_line(name, number, clean, task):
            problems.append(f"Line {line}: {problem}")
            continue
        entry = BookEntry(line, name, number)
        first = first_with_name.setdefault(same_name(name, task), entry)
        if first is not entry:
            notes.append(_duplicate_note(entry, first, task))
            continue
        entries.append(entry)
    if n_cleaned:
        notes.append(
            f"Invisible control characters were removed from {counted(n_cleaned, 'line')}."
        )
    problems += _problems_of_book(entries, task, bool(problems))
    return Book(entries, problems, notes)


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
        return _refused(f"The question: got “{shortened(name)}”, allowed {_allowed_name(task)}.")
    if isinstance(task, FuzzyPhonebook):
        return _ask_fuzzy(book, key, values, classes, task)
    assert isinstance(task, Phonebook)
    return _ask_exact(book, key, name, values, classes, task)


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
    """Return name and number: the text after the last separator, else the digits at the end."""
    line = _trimmed(line)
    cut = 1 + max(line.rfind(separator) for separator in _SEPARATORS)
    if not (cut and _NUMBER.fullmatch(line[cut:].strip())):
        cut = len(line)  # scan backwards: a search would try every digit of the line
        while cut and (
            line[cut - 1].isdecimal() or line[cut - 1].isspace() or line[cut - 1] in _PUNCTUATION
        ):
            cut -= 1
        start = _NUMBER_START.search(line, cut)
        cut = len(line) if start is None else start.start()
    return _trimmed(line[:cut]), line[cut:].strip()


def _trimmed(text: str) -> str:
    """Remove spaces on both sides and separators at the end."""
    return text.strip().rstrip(_SEPARATORS + " ").strip()


def _problem_of_line(name: str, number: str, line: str, task: Task) -> str:
    """Return what is wrong with one line; empty if nothing is."""
    got = f"got “{shortened(line.strip())}”"
    if not name:
        return f"{got}, which has no name; allowed is {_EXAMPLE}."
    if not number:
        return f"{got}, which has no number; allowed is {_EXAMPLE}."
    if len(number) > _LONGEST_NUMBER:
        return f"got a number of {len(number)} characters, allowed at most {_LONGEST_NUMBER}."
    if not same_name(name, task):
        return f"got the name “{shortened(name)}”, allowed {_allowed_name(task)}."
    return ""


def _allowed_name(task: Task) -> str:
    if isinstance(task, FuzzyPhonebook):
        return "a name with letters or digits, of any alphabet"
    return "a name"


def _duplicate_note(entry: BookEntry, first: BookEntry, task: Task) -> str:
    """Return the note on an entry with the same name as the first such entry."""
    lines = f"Lines {first.line} and {entry.line}"
    outcome = f"line {first.line} is kept, line {entry.line} left out"
    name, first_name = shortened(entry.name), shortened(first.name)
    if isinstance(task, FuzzyPhonebook) and name.casefold() != first_name.casefold():
        key = same_name(entry.name, task)
        return f"{lines}: the models read both “{first_name}” and “{name}” as {key}; {outcome}."
    return f"{lines}: “{name}” occurs twice; {outcome}."


def _problems_of_book(entries: list[BookEntry], task: Task, has_others: bool) -> list[str]:
    """Return what is wrong with the valid lines together."""
    most, problems = most_entries(task), []
    if len(entries) > most:
        line = entries[most].line
        problems.append(
            f"The book: got {len(entries)} entries, allowed at most {most}: leave out the lines "
            f"from line {line} on, or other lines."
        )
    if len(entries) < FEWEST_ENTRIES and not has_others:
        got = {0: "no entries", 1: "1 entry"}[len(entries)]
        problems.append(
            f"The book: got {got}, allowed at least {FEWEST_ENTRIES}: lines of {_EXAMPLE}."
        )
    n_numbers = len({same_number(entry.number) for entry in entries})
    n_values = int(getattr(task, "n_values", n_numbers))
    if n_numbers > n_values:
        problems.append(
            f"The book: got {n_numbers} different numbers, allowed at most {n_values} (the setting "
            "Numbers)."
        )
    n_names = int(getattr(task, "n_names", len(entries)))
    if n_names < len(entries) <= most:
        problems.append(
            f"The book: got {len(entries)} names, allowed at most {n_names} (the setting Names)."
        )
    return problems


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
                f"The question: got “{shortened(name)}”, allowed a name of the book: all "
                f"{task.n_names} name ids are in use (the setting Names)."
            )
        queried[row] = n
        notes.append(
            f"“{shortened(name)}” is not in the book. In training, every question was about a "
            "name in the book, so the models cannot answer that they do not know a name."
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
    row, notes = right[0], [f"The models read “{key}”."]
    if nearest > task.n_wrong:
        notes.append(
            f"Even the nearest name differs in {nearest} of {task.n_letters} letters; in training "
            f"it was {task.n_wrong}."
        )
    if len(right) > 1:
        names = ", ".join(f"“{shortened(book.entries[index].name)}”" for index in right)
        notes.append(f"Equally near: {names}; each counts as right.")
    closest = _closest_pair(keys)
    if closest is not None and closest[0] < task.distance:
        distance, *pair = closest
        first, second = (shortened(book.entries[index].name) for index in pair)
        notes.append(
            f"“{first}” and “{second}” differ in {distance} of {task.n_letters} letters only; in "
            f"training, names of a book differed in at least {task.distance}."
        )
    queried = [key if index == row else name for index, name in enumerate(keys)]
    letters = np.zeros((2 * n, task.n_letters), np.int64)
    for position in range(task.n_letters):
        ids: dict[str, int] = {}
        for token, name in enumerate([*keys, *queried]):
            letters[token, position] = ids.setdefault(name[position], len(ids))
        if len(ids) > task.n_alphabet:
            return _refused(
                f"The names: got {len(ids)} different letters in place {position + 1}, allowed at "
                f"most {task.n_alphabet} (the setting Alphabet)."
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
