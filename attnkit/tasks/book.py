"""Books of entries that are asked for, and what the tasks with a book have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attnkit.tasks.base import Label, Task

if TYPE_CHECKING:
    from torch import Tensor


class Book(Task):
    """Entries, then one question for each of them, in random order.

    Chance is the answer of a random entry, if answers are drawn with replacement.
    """

    family: ClassVar[str] = "Questions people ask"

    @property
    def n_fields(self) -> int:
        return 2

    @property
    def field_names(self) -> tuple[str, ...]:
        return ("name", "number")

    @property
    def n_ctx(self) -> int:
        return 2 * self.answers_from

    @property
    def chance(self) -> float:
        return chance_of_one_in(self.answers_from, self.n_classes)

    def book(self, tokens: Tensor) -> Tensor:
        return tokens[:, : self.answers_from]


class AskingBook(Task):
    """Entries, each of which asks for the number of another one.

    Chance is the number of a random other entry.
    """

    family: ClassVar[str] = "Questions people ask"
    answers_from: ClassVar[int] = 0

    @property
    def chance(self) -> float:
        return chance_of_one_in(self.n_ctx - 1, self.n_classes)

    def book(self, tokens: Tensor) -> Tensor:
        return tokens


def chance_of_one_in(n_entries: int, n_classes: int) -> float:
    """Return the probability that the answer of a random entry is right, if answers repeat."""
    return 1 / n_entries + (1 - 1 / n_entries) / n_classes


def entry_label(*fields: str) -> Label:
    """Return the label of an entry, whose first field is its name, or of a question with a "?"."""
    text = " ".join(fields)
    return Label(text if "?" in fields else fields[0], text, text)
