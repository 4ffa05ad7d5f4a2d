"""Relations between the entries of a book, directed and mutual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial
from attnkit.tasks.base import NAMES, Examples, Label, register_task
from attnkit.tasks.draws import choose
from attnkit.tasks.phonebook import AskingBook

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Relation(AskingBook):
    """Entries `name, other name, number`: each entry asks for the number of its other name.

    Chance is the number of a random other entry.
    """

    n_fields: ClassVar[int] = 3
    at_most: ClassVar[dict[str, str]] = {"n_entries": "n_names"}
    lengths: ClassVar[tuple[str, ...]] = ("n_entries",)
    between: ClassVar[str]
    """Text between the two names of an entry; no arrow, because arrows stand for scores."""

    n_entries: int = dial(
        8, mark("Entries"), mark("People in the book; each answers once."), ge=4, le=16
    )
    n_names: int = dial(32, mark("Names"), mark("Names that entries are drawn from."), ge=4, le=64)
    n_values: int = dial(
        32, mark("Numbers"), mark("Different numbers an entry can have."), ge=4, le=64
    )

    @property
    def d_vocab(self) -> int:
        return 2 * self.n_names + self.n_values

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def n_ctx(self) -> int:
        return self.n_entries

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for name, other, value in tokens.tolist():
            number = self.answer_text(value - 2 * self.n_names)
            query = f"{NAMES[name]}{self.between}{NAMES[other - self.n_names]}"
            labels.append(Label(NAMES[name], query, f"{query}, {number}"))
        return labels

    def _examples(
        self, target: Tensor, reverse: Tensor | None, generator: torch.Generator
    ) -> Examples:
        """Draw examples in which the other name of entry i is that of entry target[:, i]."""
        import torch

        names = choose(len(target), self.n_names, self.n_entries, generator)
        values = torch.randint(self.n_values, target.shape, generator=generator)
        others = self.n_names + names.gather(1, target)
        tokens = torch.stack([names, others, 2 * self.n_names + values], dim=-1)
        return Examples(tokens, values.gather(1, target), target, reverse)


@register_task
class Directed(Relation):
    """Everyone reports to one other person, in a single cycle: what is that person's number?

    Each entry has one successor and one predecessor, and symmetric scores alone cannot
    distinguish them.

    ```
    position   0             1             2
    token      Ada: Cem 31   Ben: Ada 14   Cem: Ben 25
    label      25            31            14
    target     2             0             1
    reverse    1             2             0
    ```
    """

    name: ClassVar[str] = "directed"
    title: ClassVar[str] = mark("Directed relation")
    place: ClassVar[int] = 10
    question: ClassVar[str] = mark("Ada's boss is Cem: what is Cem's number?")
    source: ClassVar[str] = mark("the answer “movie … bomb” on Stack Exchange")
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": True, "steps": 600}
    between: ClassVar[str] = ": "
    label_legend: ClassVar[str] = mark("name: boss")
    field_names: ClassVar[tuple[str, ...]] = ("name", "boss", "number")

    @property
    def plateau(self) -> float:
        return 0.5 + 0.5 / self.n_values

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        order = choose(n_examples, self.n_entries, self.n_entries, generator)
        target = order.scatter(1, order, order.roll(-1, 1))
        reverse = order.scatter(1, order, order.roll(1, 1))
        return self._examples(target, reverse, generator)


@register_task
class Mutual(Relation):
    """All are married to one other person and name each other: what is the partner's number?

    ```
    position   0             1             2             3
    token      Ada & Cem 31  Ben & Dia 14  Cem & Ada 25  Dia & Ben 19
    label      25            19            31            14
    target     2             3             0             1
    ```
    """

    name: ClassVar[str] = "mutual"
    title: ClassVar[str] = mark("Mutual relation")
    place: ClassVar[int] = 20
    question: ClassVar[str] = mark("Ada and Cem are married: what is Cem's number?")
    source: ClassVar[str] = mark("control of the directed relation")
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": True, "steps": 600}
    between: ClassVar[str] = " & "
    field_names: ClassVar[tuple[str, ...]] = ("name", "partner", "number")

    n_entries: int = dial(
        8,
        mark("Entries"),
        mark("People in the book, in pairs; each answers once."),
        ge=4,
        le=16,
        multiple_of=2,
    )

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        order = choose(n_examples, self.n_entries, self.n_entries, generator)
        partner = order.unflatten(1, (-1, 2)).flip(2).flatten(1)
        target = order.scatter(1, order, partner)
        return self._examples(target, None, generator)
