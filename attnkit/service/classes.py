"""Classes that guess together: how many guessed what, as numbers without names.

Classes are kept in the database of the results: they survive a restart of the server, and servers
with one database share them. Where the database cannot be written, a class begins in the memory of
its server. There is no Streamlit here.

The tables hold no personal data: a browser is a hash of its random id with the code of the class,
and an address is two bytes of a hash, which thousands of addresses share.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from attnkit.foundation.settings import message_of
from attnkit.service.database import Database, Unavailable, lock_writers

MOST_CLASSES = 100
"""Classes of one database; beyond it, the owner with most of them loses the one used longest
ago."""

LEAST_PUPILS, USUAL_PUPILS, MOST_PUPILS = 2, 40, 300
"""Pupils that a class may expect, and how many it expects if its teacher does not say."""

MOST_QUESTIONS = 5
"""Questions of one class; beyond it, a new one takes the place of the one asked longest ago, but
not of the first, which is that of the lesson."""

FULL_CLASSES = 3
"""Guesses about one question in all, as a multiple of the pupils that the class expects.

Pupils behind one router have one address, so each address has a place for every expected pupil, and
forged cookies fill no more than these. One address that fills its places takes none from the pupils
behind another one, and neither do two. The limit of all addresses together keeps the tables small.
"""

UNUSED_DAYS = 30
"""Days after which a class is deleted that nobody has used."""

USED_MICROSECONDS = 3600 * 1_000_000
"""Time within which all visits of a class count as one use, to save writes."""

AWAY_SECONDS = 5.0
"""Seconds without another try after a database did not answer, so that pages do not wait for it."""

_CHARACTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Characters of codes, without those that look like others."""

_CODE, _TEACHER_CODE = 5, 10
"""Random characters of the codes of pupils and of teachers."""

_TABLES = sa.MetaData()

_CLASSES = sa.Table(
    "attnkit_classes",
    _TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("code", sa.String(1 + _CODE), unique=True, nullable=False),
    sa.Column("teacher_code", sa.String(1 + _TEACHER_CODE), unique=True, nullable=False),
    sa.Column("lesson", sa.Text, nullable=False),
    sa.Column("expected", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(4), nullable=False),
    sa.Column("visitor", sa.String(32), nullable=False),
    sa.Column("used_at", sa.BigInteger, nullable=False),
)

_QUESTIONS = sa.Table(
    "attnkit_questions",
    _TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("code", sa.String(1 + _CODE), nullable=False),
    sa.Column("question", sa.String(16), nullable=False),
    sa.Column("closed", sa.Boolean, nullable=False),
    sa.Column("seed", sa.BigInteger),
    sa.UniqueConstraint("code", "question"),
)

_GUESSES = sa.Table(
    "attnkit_guesses",
    _TABLES,
    sa.Column("code", sa.String(1 + _CODE), primary_key=True),
    sa.Column("question", sa.String(16), primary_key=True),
    sa.Column("visitor", sa.String(32), primary_key=True),
    sa.Column("address", sa.String(4), nullable=False),
    sa.Column("options", sa.Text, nullable=False),
    sa.Column("settled", sa.Boolean, nullable=False),
)

T = TypeVar("T")

Guess = frozenset[str]
"""Names of the options that a visitor has chosen."""


@dataclass(frozen=True)
class Classroom:
    """A class that guesses together, about the question of its lesson and those of its teacher.

    Attributes:
        lesson: Name of its lesson.
        code: Code with which pupils join it; it begins with the first character of the lesson.
        teacher_code: Code of the teacher's page; it begins like the other one.
    """

    lesson: str
    code: str
    teacher_code: str


@dataclass(frozen=True)
class Standing:
    """How far a class is with a question, and how a visitor's own guess counts in it.

    Attributes:
        is_asked: Whether the class guesses about the question at all.
        is_closed: Whether no guess is changed any more, because the teacher has begun to train.
        seed: First seed of the teacher's finished run; None if there is none yet.
        guess: The counted guess of the visitor; empty if none is counted.
        is_settled: Whether the guess stays as it is, because the visitor has begun to train.
        has_place: Whether a guess of the visitor can be counted, or is.
    """

    is_asked: bool = True
    is_closed: bool = False
    seed: int | None = None
    guess: Guess = frozenset()
    is_settled: bool = False
    has_place: bool = True

    @property
    def takes_guesses(self) -> bool:
        """Whether a guess of the visitor is counted now."""
        return self.is_asked and self.has_place and not (self.is_closed or self.is_settled)


class Classes:
    """The classes of a server, or of several with one database. Safe to use from many threads.

    Every method except `begin` raises `Unavailable` if the database fails.

    Args:
        database: The database; None if there is none.
    """

    def __init__(self, database: Database | None = None) -> None:
        self._memory = Database(sa.create_engine("sqlite://"))
        self._memory.prepare(_TABLES.create_all)
        self._database, self._has_tables = database, False
        self._away_until, self._away = 0.0, ""  # until when it is not asked again, and why

    def dispose(self) -> None:
        """Forget the classes that are in memory only, and close their connection."""
        self._memory.close()

    def begin(
        self,
        lesson: str,
        question: str,
        owner: str,
        visitor: str = "",
        expected: int = USUAL_PUPILS,
    ) -> Classroom:
        """Begin a class with new random codes.

        Args:
            lesson: Name of its lesson.
            question: What it guesses about, a hash of at most 16 characters.
            owner: Whoever begins it. If there are too many classes, the owner with most of them
                loses one.
            visitor: Random id of the visitor who begins it; empty if it is not known.
            expected: Number of pupils, cut to what is allowed.
        """
        values = {
            "lesson": lesson,
            "expected": min(max(expected, LEAST_PUPILS), MOST_PUPILS),
            "owner": _hash(owner, size=2),
            "visitor": _hash(lesson, visitor),
        }
        work = partial(_begin, values, question)
        try:
            return self._do("", work)
        except Unavailable:  # the class then ends with the server, but it can take place
            return self._memory.do(work)

    def begun(self, lesson: str, visitor: str) -> Classroom | None:
        """Return the class that a visitor has begun last with a lesson; None if there is none."""
        find = partial(_row, _CLASSES.c.visitor == _hash(lesson, visitor))
        row = self._memory.do(find) or self._do("", find, changes=False)
        return None if row is None else _classroom(row)

    def find(self, code: str) -> Classroom | None:
        """Return the class with a code, that of its pupils or of its teacher; None if none has."""
        if not (code.isascii() and code.isalnum()):
            return None
        row = self._do(code, partial(_row, _has_code(code)), changes=False)
        if row is None:
            return None
        if _now() - row.used_at > USED_MICROSECONDS:
            self._do(code, partial(_use, row.code))
        return _classroom(row)

    def ask(self, code: str, question: str) -> None:
        """Let a class guess about a further question, because its teacher asks it.

        Pupils cannot: questions that differ slightly would take each other's place.
        """
        self._do(code, partial(_ask, code, question))

    def standing(self, code: str, question: str, visitor: str, address: str) -> Standing | None:
        """Return how a visitor stands in a class; None if there is no such class.

        Args:
            code: Code of the pupils.
            question: What is guessed.
            visitor: Random id of the visitor.
            address: Address that the visitor connects from.
        """
        who = _hash(code, visitor), _hash(address, size=2)
        return self._do(code, partial(_standing, code, question, *who), changes=False)

    def guess(
        self, code: str, question: str, visitor: str, address: str, options: Iterable[str]
    ) -> Standing | None:
        """Count the guess of a visitor in place of an earlier one; return how the visitor stands.

        A guess without options takes the earlier one back. The guess is counted if it is
        `Standing.guess` afterwards; otherwise not `Standing.takes_guesses`. See `standing`.
        """
        who = _hash(code, visitor), _hash(address, size=2)
        return self._do(code, partial(_guess, code, question, *who, Guess(options)))

    def settle(self, code: str, question: str, visitor: str) -> None:
        """Let a visitor's guess about a question stay as it is from now on."""
        own = _of(_GUESSES, code, question) & (_GUESSES.c.visitor == _hash(code, visitor))
        statement = sa.update(_GUESSES).where(own).values(settled=True)
        self._do(code, lambda connection: connection.execute(statement))

    def close(self, code: str, question: str, seed: int | None = None) -> None:
        """Let the guesses of all about a question stay as they are, because the teacher trains.

        Args:
            code: Code of the pupils.
            question: What was guessed.
            seed: First seed of the teacher's run once it is finished, for the pages of the pupils.
        """
        values = {"closed": True} if seed is None else {"closed": True, "seed": seed}
        statement = sa.update(_QUESTIONS).where(_of(_QUESTIONS, code, question)).values(**values)
        self._do(code, lambda connection: connection.execute(statement))

    def guesses(self, code: str, question: str) -> Counter[Guess]:
        """Return how many visitors of a class have each guess about a question."""
        query = sa.select(_GUESSES.c.options).where(_of(_GUESSES, code, question))
        rows = self._do(code, lambda connection: connection.scalars(query).all(), changes=False)
        return Counter(Guess(options.split("\n")) for options in rows)

    def _do(self, code: str, work: Callable[[sa.Connection], T], *, changes: bool = True) -> T:
        """Return the result of `work` in a transaction where the class with a code is kept."""
        kept_here = self._memory.do(partial(_row, _has_code(code)), changes=False)
        if self._database is None or kept_here is not None:
            return self._memory.do(work)
        if time.monotonic() < self._away_until:
            raise Unavailable(self._away)
        try:
            if not self._has_tables:
                self._database.do(_create_tables)
                self._has_tables = True
            return self._database.do(work, changes=changes)
        except Unavailable as error:
            self._has_tables = False  # somebody may have replaced the file
            self._away_until, self._away = time.monotonic() + AWAY_SECONDS, message_of(error)
            raise


def _create_tables(connection: sa.Connection) -> None:
    lock_writers(connection)
    _TABLES.create_all(connection)


def _begin(values: dict[str, Any], question: str, connection: sa.Connection) -> Classroom:
    lock_writers(connection)
    query = sa.select(_CLASSES.c.code, _CLASSES.c.owner, _CLASSES.c.used_at)
    rows = list(connection.execute(query.order_by(_CLASSES.c.used_at, _CLASSES.c.number)))
    oldest = _now() - UNUSED_DAYS * 86400 * 1_000_000
    ended = [row for row in rows if row.used_at < oldest]
    rows = [row for row in rows if row.used_at >= oldest]
    while len(rows) >= MOST_CLASSES:
        owned = Counter(row.owner for row in rows)
        most = max(owned.values())
        ended.append(next(row for row in rows if owned[row.owner] == most))
        rows.remove(ended[-1])
    for table in (_CLASSES, _QUESTIONS, _GUESSES):  # the class first, which guesses lock first
        connection.execute(sa.delete(table).where(table.c.code.in_([row.code for row in ended])))
    initial, known = values["lesson"][:1], {row.code for row in rows}
    code = next(code for code in iter(lambda: initial + _random(_CODE), "") if code not in known)
    codes = {"code": code, "teacher_code": initial + _random(_TEACHER_CODE)}
    connection.execute(sa.insert(_CLASSES).values(**values, **codes, used_at=_now()))
    _ask(code, question, connection)
    return Classroom(values["lesson"], **codes)


def _random(n_characters: int) -> str:
    return "".join(secrets.choice(_CHARACTERS) for _ in range(n_characters))


def _has_code(code: str) -> sa.ColumnElement[bool]:
    return sa.or_(_CLASSES.c.code == code, _CLASSES.c.teacher_code == code)


def _of(table: sa.Table, code: str, question: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.code == code, table.c.question == question)


def _row(condition: sa.ColumnElement[bool], connection: sa.Connection) -> sa.Row[Any] | None:
    """Return the row of a class, of several the one that began last; None if there is none."""
    query = sa.select(_CLASSES).where(condition).order_by(_CLASSES.c.number.desc())
    return connection.execute(query).first()


def _classroom(row: sa.Row[Any]) -> Classroom:
    return Classroom(row.lesson, row.code, row.teacher_code)


def _use(code: str, connection: sa.Connection) -> bool:
    """Note that a class is used, and lock it until the transaction ends; False if it is gone."""
    statement = sa.update(_CLASSES).where(_CLASSES.c.code == code).values(used_at=_now())
    return connection.execute(statement).rowcount > 0


def _ask(code: str, question: str, connection: sa.Connection) -> None:
    query = sa.select(_QUESTIONS.c.question).where(_QUESTIONS.c.code == code)
    if not _use(code, connection):
        return
    asked = list(connection.scalars(query.order_by(_QUESTIONS.c.number)))
    if question in asked:
        return
    if len(asked) >= MOST_QUESTIONS:
        for table in (_QUESTIONS, _GUESSES):
            connection.execute(sa.delete(table).where(_of(table, code, asked[1])))
    connection.execute(sa.insert(_QUESTIONS).values(code=code, question=question, closed=False))


def _standing(
    code: str, question: str, visitor: str, address: str, connection: sa.Connection
) -> Standing | None:
    room = _row(_CLASSES.c.code == code, connection)
    asked = connection.execute(sa.select(_QUESTIONS).where(_of(_QUESTIONS, code, question))).first()
    if room is None or asked is None:
        return None if room is None else Standing(is_asked=False)
    about, state = _of(_GUESSES, code, question), {"is_closed": asked.closed, "seed": asked.seed}
    query = sa.select(_GUESSES).where(about, _GUESSES.c.visitor == visitor)
    own = connection.execute(query).first()
    if own is not None:
        return Standing(**state, guess=Guess(own.options.split("\n")), is_settled=own.settled)
    of_address = sa.func.count().filter(_GUESSES.c.address == address)
    n, n_here = connection.execute(sa.select(sa.func.count(), of_address).where(about)).one()
    has_place = n_here < room.expected and n < FULL_CLASSES * room.expected
    return Standing(**state, has_place=has_place)


def _guess(
    code: str, question: str, visitor: str, address: str, guess: Guess, connection: sa.Connection
) -> Standing | None:
    who = code, question, visitor, address
    _use(code, connection)
    now = _standing(*who, connection)
    if now is None or not now.takes_guesses:
        return now
    own = _of(_GUESSES, code, question) & (_GUESSES.c.visitor == visitor)
    connection.execute(sa.delete(_GUESSES).where(own))
    if guess:
        row = dict(zip(("code", "question", "visitor", "address"), who, strict=True))
        options = "\n".join(sorted(guess))
        connection.execute(sa.insert(_GUESSES).values(**row, options=options, settled=False))
    return _standing(*who, connection)


def _hash(*parts: str, size: int = 16) -> str:
    """Return a hash of so many bytes; one of two bytes does not tell what was hashed."""
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=size).hexdigest()


def _now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000
