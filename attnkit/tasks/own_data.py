"""Tasks on data of one's own: their registry, and how experiments and links carry the data.

The data are a setting like any other, so that an experiment is complete in itself. No task here
stands in `TASKS`, because none has examples without somebody's data.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self, TypeGuard, TypeVar
from urllib.parse import quote

from attnkit.foundation.corpus import hash_of_text
from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment, Problem, dial
from attnkit.tasks.base import TASKS, Task

LONGEST_IN_LINK = 6000
"""Largest number of characters of data in a link, as an address writes them."""


class OwnData(Task):
    """A task on data of one's own, which are its setting `data`.

    Attributes:
        n_columns: Number of columns of a table; 0 for a text.
    """

    family: ClassVar[str] = "Text"
    n_columns: ClassVar[int] = 0

    data: str = dial("", mark("Data"), mark("The data of one's own, as text."))

    @classmethod
    @abstractmethod
    def read(cls, path: str | Path, **settings: Any) -> Self:
        """Return the task on the data of a file."""

    @classmethod
    @abstractmethod
    def text_form(cls, data: str) -> str:
        """Return data in their text form.

        Raises:
            InvalidExperiment: If they cannot be used.
        """

    @classmethod
    def fitting(cls, data: str) -> dict[str, Any]:
        """Return the dials whose defaults do not go with some data, with values that do."""
        return {}

    @classmethod
    @abstractmethod
    def size_in_words(cls, data: str) -> str:
        """Return how large data in their text form are, for example "table of 40 rows"."""

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """Sentences on what the data are and on how they are split."""

    @property
    def fingerprint(self) -> str:
        return hash_of_text(self.data)


OWN_TASKS: dict[str, type[OwnData]] = {}
"""Tasks on data of one's own by name."""

_Own = TypeVar("_Own", bound=OwnData)


def register_own(task: type[_Own]) -> type[_Own]:
    """Register a task on data of one's own."""
    assert task.name not in TASKS
    OWN_TASKS[task.name] = task
    return task


def is_task(name: object) -> TypeGuard[str]:
    """Return whether there is a task of this name, also on data of one's own."""
    return isinstance(name, str) and (name in TASKS or name in OWN_TASKS)


def task_named(name: str) -> type[Task]:
    """Return the task of a name, also one on data of one's own.

    Raises:
        KeyError: If there is no such task.
    """
    return OWN_TASKS[name] if name in OWN_TASKS else TASKS[name]


def own_notes(task: Task) -> list[str]:
    """Return sentences on data of one's own; none for another task."""
    return task.notes if isinstance(task, OwnData) else []


def data_in_link(data: str) -> str:
    """Return data as a link carries them: the data if they are short, otherwise their hash."""
    return data if len(quote(data)) <= LONGEST_IN_LINK else hash_in_link(data)


def hash_in_link(data: str) -> str:
    """Return the hash that stands in a link in place of data."""
    return f"#{hash_of_text(data)}"


def is_hash(data: str) -> bool:
    """Return whether a text is the hash that stands in a link in place of data."""
    return re.fullmatch("#[0-9a-f]{16}", data) is not None


def check_present(data: str) -> None:
    """Raise the error for the hash that stands in a link in place of long data."""
    if is_hash(data):
        allowed = mark(
            "the data themselves: they were too long for the link, so add them by --data FILE, "
            "ak.Table(rows) or ak.Text(text)"
        )
        raise wrong_data(data, allowed)


def wrong_data(got: str, allowed: str) -> InvalidExperiment:
    """Return the error for data that cannot be used."""
    return InvalidExperiment([Problem("data", got, allowed)])
