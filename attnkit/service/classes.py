"""Classes that guess together: how many guessed what, as numbers without names.

All is kept in the memory of the server, within limits, and ends with it. There is no Streamlit.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_CLASSES = 100
"""Classes of one server; beyond it, the owner with most of them loses the one used longest ago."""

MOST_QUESTIONS = 5
"""Questions of one class; beyond it, a new one takes the place of the one guessed longest ago."""

MOST_VISITORS = 300
"""Visitors whose guesses about one question are counted."""

_CHARACTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Characters of codes, without those that look like others."""

_LENGTHS = {"code": 5, "teacher_code": 10}


@dataclass(frozen=True)
class Classroom:
    """A class that guesses together.

    Attributes:
        lesson: Name of its lesson.
        code: Code with which pupils join it.
        teacher_code: Code of the teacher's page.
        owner: Whoever has begun it, for limits.
        visitor: Random id of the visitor who has begun it.
        number: Number of classes begun before it.
    """

    lesson: str
    code: str
    teacher_code: str
    owner: str = field(default="", repr=False)
    visitor: str = field(default="", repr=False)
    number: int = field(default=0, repr=False)


Guess = frozenset[str]
"""Names of the options that a visitor has chosen."""


@dataclass
class _Question:
    """Guesses of a class about one question.

    Attributes:
        guesses: Guess of each visitor.
        settled: Visitors whose guess is not changed any more, because they have trained.
        is_closed: Whether no guess is changed any more, because the teacher has trained.
    """

    guesses: dict[str, Guess] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    is_closed: bool = False


class Classes:
    """The classes of one server. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._classes: dict[str, Classroom] = {}  # by the pupils' code; used longest ago first
        self._questions: dict[str, dict[str, _Question]] = {}  # by code; guessed longest ago first

    def begin(self, lesson: str, owner: str, visitor: str = "") -> Classroom:
        """Begin a class with new random codes.

        Args:
            lesson: Name of its lesson.
            owner: Whoever begins it. If there are too many classes, the owner with most of them
                loses one.
            visitor: Random id of the visitor who begins it; empty if it is not known.
        """
        with self._lock:
            while len(self._classes) >= MOST_CLASSES:
                owned = Counter(one.owner for one in self._classes.values())
                most = max(owned.values())
                oldest = next(c for c, one in self._classes.items() if owned[one.owner] == most)
                del self._classes[oldest], self._questions[oldest]
            codes = {
                name: "".join(secrets.choice(_CHARACTERS) for _ in range(length))
                for name, length in _LENGTHS.items()
            }
            begun = Classroom(
                lesson, owner=owner, visitor=visitor, number=next(self._numbers), **codes
            )
            self._classes[begun.code], self._questions[begun.code] = begun, {}
            return begun

    def begun(self, lesson: str, visitor: str) -> Classroom | None:
        """Return the class that a visitor has begun last with a lesson; None if there is none."""
        with self._lock:
            begun = (
                one
                for one in self._classes.values()
                if (one.lesson, one.visitor) == (lesson, visitor)
            )
            return max(begun, key=lambda one: one.number, default=None)

    def find(self, code: str) -> Classroom | None:
        """Return the class with a code, that of its pupils or of its teacher; None if none has."""
        with self._lock:
            for found in self._classes.values():
                if code in (found.code, found.teacher_code):
                    self._classes[found.code] = self._classes.pop(found.code)  # used last
                    return found
        return None

    def guess(self, code: str, question: str, visitor: str, options: Iterable[str]) -> None:
        """Count the guess of a visitor in place of an earlier one about the same question.

        A guess without options takes the earlier one back. Nothing is counted for a class that
        there is no longer, beyond `MOST_VISITORS`, or once the guess is settled.

        Args:
            code: Code of the pupils.
            question: What is guessed; a class may have several questions one after the other.
            visitor: Random id of the visitor.
            options: Names of the chosen options.
        """
        guess = Guess(options)
        with self._lock:
            about = self._about(code, question, begins=bool(guess))
            if about is None or about.is_closed or visitor in about.settled:
                return
            if not guess:
                about.guesses.pop(visitor, None)
            elif visitor in about.guesses or len(about.guesses) < MOST_VISITORS:
                about.guesses[visitor] = guess

    def settle(self, code: str, question: str, visitor: str = "") -> None:
        """Let a visitor's guess stay as it is from now on, or those of all; see `guess`.

        Args:
            code: Code of the pupils.
            question: What was guessed.
            visitor: Random id of the visitor; empty for all of the class.
        """
        with self._lock:
            about = self._about(code, question, begins=not visitor)
            if about is None:
                return
            if not visitor:
                about.is_closed = True
            elif visitor in about.guesses:
                about.settled.add(visitor)

    def is_closed(self, code: str, question: str) -> bool:
        """Return whether the guesses of a class about a question are settled."""
        with self._lock:
            about = self._about(code, question, begins=False)
            return about is not None and about.is_closed

    def guesses(self, code: str, question: str) -> Counter[Guess]:
        """Return how many visitors of a class have each guess about a question.

        Args:
            code: Code of the pupils.
            question: What is guessed.
        """
        with self._lock:
            about = self._about(code, question, begins=False)
            return Counter() if about is None else Counter(about.guesses.values())

    def _about(self, code: str, question: str, *, begins: bool) -> _Question | None:
        """Return what is known about a question, which may begin; None if there is nothing."""
        questions = self._questions.get(code)
        if questions is None or not (begins or question in questions):
            return None
        about = questions.pop(question, None) or _Question()
        while len(questions) >= MOST_QUESTIONS:
            del questions[next(iter(questions))]
        questions[question] = about
        return about
