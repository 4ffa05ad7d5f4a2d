"""Transfer: an embedding that was learned for one question is used for the opposite question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NAMES, Examples, Label, register_task
from attnkit.tasks.draws import choose
from attnkit.tasks.phonebook import Book, entry_label

if TYPE_CHECKING:
    import torch


class Lookup(Book):
    """List different entries `name number`, then repeat each with one of its two fields hidden.

    Names, numbers and the two blanks share one range of ids, in this order; the classes are the
    names, then the numbers.
    """

    source: ClassVar[str] = mark("the answer “same basic embedding” on Stack Exchange")
    hidden: ClassVar[int]
    """Field that is hidden and asked for: 0 the name, 1 the number."""

    n_entries: int = dial(
        8, mark("Entries"), mark("Entries in the book; each is asked once."), ge=2, le=16
    )
    n_names: int = dial(32, mark("Names"), mark("Names that entries are drawn from."), ge=4, le=64)
    n_values: int = dial(
        32, mark("Numbers"), mark("Numbers that entries are drawn from."), ge=4, le=64
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        most, other = min((self.n_names, "n_names"), (self.n_values, "n_values"))
        if self.n_entries > most:
            allowed = mark("at most {setting} ({most})", setting=other, most=most)
            raise disagreement("n_entries", self.n_entries, allowed, other)
        return self

    @property
    def d_vocab(self) -> int:
        return self.n_classes + 2

    @property
    def n_classes(self) -> int:
        return self.n_names + self.n_values

    @property
    def answers_from(self) -> int:
        return self.n_entries

    @property
    def chance(self) -> float:
        return 1 / self.n_entries

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        names = choose(n_examples, self.n_names, self.n_entries, generator)
        values = choose(n_examples, self.n_values, self.n_entries, generator)
        target = choose(n_examples, self.n_entries, self.n_entries, generator)
        entries = torch.stack([names, self.n_names + values], -1)
        questions = entries.gather(1, target[:, :, None].expand(-1, -1, 2))
        labels = questions[:, :, self.hidden].clone()
        questions[:, :, self.hidden] = self.n_classes + self.hidden
        return Examples(torch.cat([entries, questions], 1), labels, target, None)

    def answer_text(self, answer: int) -> str:
        is_name = answer < self.n_names
        return NAMES[answer] if is_name else super().answer_text(answer - self.n_names)

    def label(self, tokens: np.ndarray) -> list[Label]:
        return [
            entry_label(*(self.answer_text(f) if f < self.n_classes else "?" for f in token))
            for token in tokens.tolist()
        ]


class Before(Lookup):
    """Task on which the embedding of `transfer` is trained: look up the number of every name.

    ```
    position   0       1       2       3       4       5
    token      Ada 31  Ben 14  Cem 25  Ben ?   Cem ?   Ada ?
    label                              14      25      31
    target                             1       2       0
    ```

    Chance is the number of a random entry.
    """

    name: ClassVar[str] = "before_transfer"
    title: ClassVar[str] = mark("Before transfer")
    question: ClassVar[str] = mark("Each name is asked once: what is its number?")
    hidden: ClassVar[int] = 1


@register_task
class Transfer(Lookup):
    """Look up names in a phone book by their numbers, with an embedding from the opposite task.

    Only the embedding is taken from the earlier task, which asks for the numbers of names, and it
    is frozen. The blank for a name does not occur there, so its row keeps its initial values.

    ```
    position   0       1       2       3       4       5
    token      Ada 31  Ben 14  Cem 25  ? 14    ? 25    ? 31
    label                              Ben     Cem     Ada
    target                             1       2       0
    ```

    Chance is the name of a random entry.
    """

    name: ClassVar[str] = "transfer"
    title: ClassVar[str] = mark("Transfer")
    question: ClassVar[str] = mark(
        "The embedding has learned to find numbers: whose number is this?"
    )
    overrides: ClassVar[dict[str, Any]] = {
        "d_head": 32,
        "self_mask": False,
        "steps": 1400,
        "earlier_steps": 600,
        "evaluate_every": 20,
    }
    hidden: ClassVar[int] = 0

    @property
    def earlier(self) -> Before:
        return Before(**self.model_dump())
