"""A phone book of one's own: text in, entries and what is wrong with it out.

To the models names and numbers are only labels. So any name becomes one of the task's name ids,
any number one of its number ids, and, in the fuzzy phone book, any letter at a place one of the
letter ids of that place; what is shown is what was typed. No torch and no Streamlit here.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np

from attnkit.tasks import Task
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.phonebook import Phonebook

MOST_CHARACTERS = 20_000
"""Longer texts are not read."""

NOT_IN_BOOK = "a number not in the book"

MOST_SHOWN = 24
"""Letters of a name or number that are shown."""

FEWEST_ENTRIES = 2

_LONGEST_NUMBER = 40
_EXAMPLE = "a name, then a number, such as “Ada 31”"
_FOLDED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "t", "ı": "i", "æ": "ae", "œ": "oe"}
)
_SEPARATORS = "\t;,:"
_INK = "()./+-"
_NUMBER = re.compile(r"[+(]{0,2}\d[\d\s()./+-]*")
_BEGIN = re.compile(r"(?:^|(?<=\s))[+(]{0,2}\d")


@dataclass(frozen=True)
class BookEntry:
    """One line of the book: as typed, and where."""

    line: int
    name: str
    number: str


@dataclass(frozen=True)
class Book:
    """What was read.

    Attributes:
        entries: the lines that could be used, in their order.
        problems: why it cannot be asked; empty if it can. notes: what was changed or left out.
    """

    entries: list[BookEntry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BookQuery:
    """A book with a question, as token ids.

    Attributes:
        tokens: (2n, fields) the entries, then a question for every one of them.
        row: which of the questions is the one that was typed.
        right: places of the entries that are right: none, one, or several equally near.
        classes: class → the number as typed.
    """

    tokens: np.ndarray
    row: int
    right: list[int]
    classes: dict[int, str]
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def can_be_asked(task: Task) -> TypeGuard[Phonebook | FuzzyPhonebook]:
    """Whether a task is a phone book."""
    return isinstance(task, Phonebook | FuzzyPhonebook)


def shown(text: str) -> str:
    """A name or number on a page: one line, not too long."""
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def most_entries(task: Task) -> int:
    """As many as the task's dial allows."""
    bounds = type(task).model_fields["n_entries"].metadata
    return int(next(bound.le for bound in bounds if hasattr(bound, "le")))


def read_book(text: str, task: Task) -> Book:
    """Read lines of a name and a number, parted by comma, semicolon, colon, tab or spaces.

    A number begins with a digit, perhaps after + or (, and goes on with digits, spaces and
    ( ) . / + -. It is what comes after the line's last separator; where that is no number, it is
    the end of the line, after a space. Empty lines count for nothing. Of a name that stands twice
    the first is kept.

    Args:
        text: what was typed. task: a phone book, exact or fuzzy.
    """
    if len(text) > MOST_CHARACTERS:
        limit = f"allowed at most {MOST_CHARACTERS:,}"
        return Book(problems=[f"The text: got {len(text):,} characters, {limit}."])
    notes, problems, entries = list[str](), list[str](), list[BookEntry]()
    first: dict[str, BookEntry] = {}
    n_controls = 0
    normalised = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    for line, raw in enumerate(normalised.split("\n"), 1):
        clean = _without_controls(raw)
        n_controls += clean != raw
        if not clean.strip():
            continue
        name, number = _parts(clean)
        if trouble := _trouble(name, number, clean, task):
            problems.append(f"Line {line}: {trouble}")
            continue
        entry = BookEntry(line, name, number)
        key = same_name(name, task)
        known = first.setdefault(key, entry)
        if known is not entry:
            notes.append(_twice(entry, known, task))
            continue
        entries.append(entry)
    if n_controls:
        lines = "1 line" if n_controls == 1 else f"{n_controls} lines"
        notes.append(f"Invisible control characters were left out of {lines}.")
    problems += _problems_of_all(entries, task, bool(problems))
    return Book(entries, problems, notes)


def ask(book: Book, name: str, task: Task) -> BookQuery:
    """Turn a book without problems and a question into token ids.

    Every entry's name is asked once, the typed one in place of the nearest's. The others are asked
    as they stand; only in training does the fuzzy phone book misspell them, too.
    """
    name = _without_controls(unicodedata.normalize("NFC", name)).strip()
    numbers: dict[str, int] = {}
    for entry in book.entries:
        numbers.setdefault(same_number(entry.number), len(numbers))
    values = np.array([numbers[same_number(entry.number)] for entry in book.entries])
    classes = {numbers[same_number(entry.number)]: entry.number for entry in reversed(book.entries)}
    key = same_name(name, task)
    if not key:
        return _unasked(f"The question: got “{shown(name)}”, allowed {_allowed_name(task)}.")
    if isinstance(task, FuzzyPhonebook):
        return _ask_fuzzy(book, key, values, classes, task)
    assert isinstance(task, Phonebook)
    return _ask_exact(book, key, name, values, classes, task)


def same_name(name: str, task: Task) -> str:
    """What is equal for names that count as the same; empty if there is nothing to read.

    Exact: case and spaces do not count. Fuzzy: the letters and digits without case and accents,
    cut or filled up to the task's number of letters.
    """
    if not isinstance(task, FuzzyPhonebook):
        return " ".join(unicodedata.normalize("NFC", name.casefold()).split())
    folded = unicodedata.normalize("NFKD", name.casefold().translate(_FOLDED))
    letters = "".join(letter for letter in folded if unicodedata.category(letter)[0] in "LN")
    return letters[: task.n_letters].ljust(task.n_letters, "·").upper() if letters else ""


def same_number(number: str) -> str:
    """What is equal for numbers that count as the same: spaces do not count."""
    return "".join(unicodedata.normalize("NFKC", number).split())


def _without_controls(text: str) -> str:
    """Without characters that leave no ink or turn the writing direction; a tab stays."""
    return "".join(
        letter
        for letter in text
        if letter == "\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    )


def _parts(line: str) -> tuple[str, str]:
    """Name and number: what comes after the last separator, else the digits at the end."""
    line = _trimmed(line)
    cut = 1 + max(line.rfind(separator) for separator in _SEPARATORS)
    if not (cut and _NUMBER.fullmatch(line[cut:].strip())):
        cut = len(line)  # the end is scanned backwards: a search would try every digit of the line
        while cut and (
            line[cut - 1].isdecimal() or line[cut - 1].isspace() or line[cut - 1] in _INK
        ):
            cut -= 1
        begin = _BEGIN.search(line, cut)
        cut = len(line) if begin is None else begin.start()
    return _trimmed(line[:cut]), line[cut:].strip()


def _trimmed(text: str) -> str:
    """Without spaces around it and separators after it."""
    return text.strip().rstrip(_SEPARATORS + " ").strip()


def _trouble(name: str, number: str, line: str, task: Task) -> str:
    """What is wrong with one line; empty if nothing is."""
    told = f"got “{shown(line.strip())}”"
    if not name:
        return f"{told}, which has no name; allowed is {_EXAMPLE}."
    if not number:
        return f"{told}, which has no number; allowed is {_EXAMPLE}."
    if len(number) > _LONGEST_NUMBER:
        return f"got a number of {len(number)} characters, allowed at most {_LONGEST_NUMBER}."
    if not same_name(name, task):
        return f"got the name “{shown(name)}”, allowed {_allowed_name(task)}."
    return ""


def _allowed_name(task: Task) -> str:
    if isinstance(task, FuzzyPhonebook):
        return "a name with letters or digits, of any alphabet"
    return "a name"


def _twice(entry: BookEntry, known: BookEntry, task: Task) -> str:
    kept = f"line {known.line} is kept, line {entry.line} left out"
    name, other = shown(entry.name), shown(known.name)
    if isinstance(task, FuzzyPhonebook) and name.casefold() != other.casefold():
        key = same_name(entry.name, task)
        return (
            f"Lines {known.line} and {entry.line}: “{other}” and “{name}” both read {key}; {kept}."
        )
    return f"Lines {known.line} and {entry.line}: “{name}” stands twice; {kept}."


def _problems_of_all(entries: list[BookEntry], task: Task, has_others: bool) -> list[str]:
    """What is wrong with the lines together."""
    most, problems = most_entries(task), []
    if len(entries) > most:
        line = entries[most].line
        problems.append(
            f"The book: got {len(entries)} entries, allowed at most {most}: leave out the lines "
            f"from line {line} on, or others."
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
            f"The book: got {n_numbers} different numbers, allowed at most {n_values} (the dial "
            "Numbers)."
        )
    n_names = int(getattr(task, "n_names", len(entries)))
    if n_names < len(entries) <= most:
        problems.append(
            f"The book: got {len(entries)} names, allowed at most {n_names} (the dial Names)."
        )
    return problems


def _unasked(problem: str) -> BookQuery:
    return BookQuery(np.zeros((0, 0), np.int64), 0, [], {}, [problem])


def _ask_exact(
    book: Book, key: str, name: str, values: np.ndarray, classes: dict[int, str], task: Phonebook
) -> BookQuery:
    n = len(book.entries)
    keys = [same_name(entry.name, task) for entry in book.entries]
    asked = np.arange(n)
    notes = []
    right = [keys.index(key)] if key in keys else []
    row = right[0] if right else n - 1
    if not right:
        if n >= task.n_names:
            return _unasked(
                f"The question: got “{shown(name)}”, allowed a name of the book: all "
                f"{task.n_names} name ids are in use (the dial Names)."
            )
        asked[row] = n
        notes.append(
            f"“{shown(name)}” is not in the book. The models were never asked for such a name and "
            "cannot say that they do not know it."
        )
    blank = np.full(n, task.n_names + task.n_values)
    entries = np.stack([np.arange(n), task.n_names + values], -1)
    tokens = np.concatenate([entries, np.stack([asked, blank], -1)])
    return BookQuery(tokens, row, right, classes, [], notes)


def _ask_fuzzy(
    book: Book, key: str, values: np.ndarray, classes: dict[int, str], task: FuzzyPhonebook
) -> BookQuery:
    n = len(book.entries)
    keys = [same_name(entry.name, task) for entry in book.entries]
    apart = [_apart(key, other) for other in keys]
    nearest = min(apart)
    right = [place for place, distance in enumerate(apart) if distance == nearest]
    row, notes = right[0], [f"The models read “{key}”."]
    if nearest > task.n_wrong:
        notes.append(
            f"Even the nearest name differs in {nearest} of {task.n_letters} letters; in training "
            f"it was {task.n_wrong}."
        )
    if len(right) > 1:
        names = ", ".join(f"“{shown(book.entries[place].name)}”" for place in right)
        notes.append(f"Equally near: {names}; each counts as right.")
    close = _closest(keys)
    if close is not None and close[0] < task.distance:
        distance, one, other = close
        first, second = (shown(book.entries[place].name) for place in (one, other))
        notes.append(
            f"“{first}” and “{second}” differ in {distance} of {task.n_letters} letters only; in "
            f"training, names of a book differed in at least {task.distance}."
        )
    asked = [key if place == row else other for place, other in enumerate(keys)]
    letters = np.zeros((2 * n, task.n_letters), np.int64)
    for place in range(task.n_letters):
        ids: dict[str, int] = {}
        for token, name in enumerate([*keys, *asked]):
            letters[token, place] = ids.setdefault(name[place], len(ids))
        if len(ids) > task.n_alphabet:
            return _unasked(
                f"The names: got {len(ids)} different letters in place {place + 1}, allowed at "
                f"most {task.n_alphabet} (the dial Alphabet)."
            )
    letters += np.arange(task.n_letters) * task.n_alphabet
    first_value = task.n_letters * task.n_alphabet
    last = np.concatenate([first_value + values, np.full(n, task.d_vocab - 1)])
    tokens = np.concatenate([letters, last[:, None]], 1)
    return BookQuery(tokens, row, right, classes, [], notes)


def _apart(one: str, other: str) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def _closest(keys: list[str]) -> tuple[int, int, int] | None:
    """How far the two nearest names are apart, and which they are."""
    pairs = [
        (_apart(keys[one], keys[other]), one, other)
        for other in range(len(keys))
        for one in range(other)
    ]
    return min(pairs, default=None)
