"""Transfer: an embedding learned for one question serves the opposite one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NAMES, Examples, Label, Task, choose, register_task

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Lookup(Task):
    """Entries `name number`, all different, then every entry again with one of the two hidden.

    Names and numbers are ids and classes of one space, names first; then come the two blanks.
    """

    family: ClassVar[str] = "Questions people ask"
    source: ClassVar[str] = "the answer “same basic embedding” on Stack Exchange"
    hidden: ClassVar[int]
    """The field that is asked for: 0 the name, 1 the number."""

    n_entries: int = dial(8, "Entries", "Entries in the book; each is asked once.", ge=2, le=16)
    n_names: int = dial(32, "Names", "Names that entries are drawn from.", ge=4, le=64)
    n_values: int = dial(32, "Numbers", "Numbers that entries are drawn from.", ge=4, le=64)

    @model_validator(mode="after")
    def _check(self) -> Self:
        least, other = min((self.n_names, "n_names"), (self.n_values, "n_values"))
        if self.n_entries > least:
            raise disagreement("n_entries", self.n_entries, f"at most {other} ({least})", other)
        return self

    @property
    def n_fields(self) -> int:
        return 2

    @property
    def d_vocab(self) -> int:
        return self.n_classes + 2

    @property
    def n_classes(self) -> int:
        return self.n_names + self.n_values

    @property
    def n_ctx(self) -> int:
        return 2 * self.n_entries

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

    def book(self, tokens: Tensor) -> Tensor:
        return tokens[:, : self.n_entries]

    def answer_text(self, answer: int) -> str:
        is_name = answer < self.n_names
        return NAMES[answer] if is_name else super().answer_text(answer - self.n_names)

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for token in tokens.tolist():
            parts = [self.answer_text(part) if part < self.n_classes else "?" for part in token]
            text = " ".join(parts)
            labels.append(Label(text if "?" in parts else parts[0], text, text))
        return labels


class Before(Lookup):
    """What the embedding of `transfer` is trained on: every name's number.

    ```
    position   0       1       2       3       4       5
    token      Ada 31  Ben 14  Cem 25  Ben ?   Cem ?   Ada ?
    label                              14      25      31
    target                             1       2       0
    ```

    Chance is the number of a random entry.
    """

    name: ClassVar[str] = "before_transfer"
    title: ClassVar[str] = "Before transfer"
    question: ClassVar[str] = "Each name is asked once: what is its number?"
    hidden: ClassVar[int] = 1


@register_task
class Transfer(Lookup):
    """A phone book is asked the other way round: whose number is this?

    Only the embedding is kept from the earlier task, that of names' numbers, and frozen; so the
    blank for a name, which it never saw, stays as it was drawn.

    ```
    position   0       1       2       3       4       5
    token      Ada 31  Ben 14  Cem 25  ? 14    ? 25    ? 31
    label                              Ben     Cem     Ada
    target                             1       2       0
    ```

    Chance is the name of a random entry.
    """

    name: ClassVar[str] = "transfer"
    title: ClassVar[str] = "Transfer"
    question: ClassVar[str] = "The embedding has learned names' numbers: whose number is this?"
    overrides: ClassVar[dict[str, Any]] = {
        "d_head": 32,
        "self_mask": False,
        "steps": 1400,
        "earlier_steps": 600,
    }
    hidden: ClassVar[int] = 0

    @property
    def earlier(self) -> Before:
        return Before(**self.model_dump())
