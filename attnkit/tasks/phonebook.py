"""Books of entries that are asked for, above all the phone book, where only similarity counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial
from attnkit.tasks.base import NAMES, Examples, Label, Task, register_task
from attnkit.tasks.draws import choose

if TYPE_CHECKING:
    import torch
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


@register_task
class Phonebook(Book):
    """Look up numbers: the book lists `name number`, then asks for every name once.

    ```
    position   0       1       2       3       4       5
    token      Ada 31  Ben 14  Cem 25  Ben ?   Cem ?   Ada ?
    label                              14      25      31
    target                             1       2       0
    ```

    Chance is the number of a random entry.
    """

    name: ClassVar[str] = "phonebook"
    title: ClassVar[str] = mark("Phone book")
    place: ClassVar[int] = 0
    question: ClassVar[str] = mark("Each name is asked once: what is its number?")
    source: ClassVar[str] = mark("the answer “similar to Jindrich” on Stack Exchange")
    default_query: ClassVar[str] = "Jindřich"
    """Default query for a visitor's own book in the Lab."""
    overrides: ClassVar[dict[str, Any]] = {"d_head": 8, "self_mask": False, "steps": 600}
    at_most: ClassVar[dict[str, str]] = {"n_entries": "n_names"}
    lengths: ClassVar[tuple[str, ...]] = ("n_entries",)

    n_entries: int = dial(
        8, mark("Entries"), mark("Entries in the book; each is asked once."), ge=2, le=32
    )
    n_names: int = dial(32, mark("Names"), mark("Names that entries are drawn from."), ge=4, le=64)
    n_values: int = dial(
        32, mark("Numbers"), mark("Different numbers an entry can have."), ge=4, le=64
    )

    @property
    def d_vocab(self) -> int:
        return self.n_names + self.n_values + 1

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def answers_from(self) -> int:
        return self.n_entries

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        shape = (n_examples, self.n_entries)
        names = choose(n_examples, self.n_names, self.n_entries, generator)
        values = torch.randint(self.n_values, shape, generator=generator)
        target = choose(n_examples, self.n_entries, self.n_entries, generator)
        blank = torch.full(shape, self.n_names + self.n_values)
        entries = torch.stack([names, self.n_names + values], dim=-1)
        questions = torch.stack([names.gather(1, target), blank], dim=-1)
        return Examples(torch.cat([entries, questions], 1), values.gather(1, target), target, None)

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for name, value in tokens.tolist():
            is_blank = value == self.n_names + self.n_values
            number = "?" if is_blank else self.answer_text(value - self.n_names)
            labels.append(entry_label(NAMES[name], number))
        return labels
