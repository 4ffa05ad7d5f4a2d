"""Dual role: the same word asks for one and is asked for by another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NAMES, Examples, Label, Task, choose, register_task

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_AROUND = 3
"""Names of a circle: the fewest of which one is asked for and another asks."""


@register_task
class DualRole(Task):
    """A name asks for the number of the next name of its circle; the one before it is a decoy.

    The circles, of three names each, are the same in all books: no token says who asks for whom,
    it has to be learned. All names of a circle are in the book, in any order, so every token
    asks for one of the others and is asked for by the other. With the circles Ada, Ben, Cem and
    Dia, Eli, Fay:

    ```
    position   0       1       2       3       4       5
    token      Ben 31  Dia 14  Cem 25  Ada 19  Fay 40  Eli 12
    label      25      12      19      31      14      40
    target     2       5       3       0       1       4
    reverse    3       4       0       2       5       1
    ```

    Chance is the number of another entry at random. The plateau is observed, not proved: what
    can be proved is that scores which are the same in both directions prefer the next name for
    at most two of three, as S(0,1) > S(2,0) > S(1,2) > S(0,1) contradicts itself. Of one long
    circle over all words, a symmetric score could prefer the next name for all but one of them.
    """

    name: ClassVar[str] = "dual_role"
    title: ClassVar[str] = "Dual role"
    question: ClassVar[str] = "Ada asks for Ben, Ben for Cem, Cem for Ada: what is the number?"
    family: ClassVar[str] = "Questions people ask"
    source: ClassVar[str] = "the answer “smell the smell of failure” on Stack Exchange"
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": True, "steps": 600}

    n_circles: int = dial(3, "Circles", "Circles of three names in the book.", ge=2, le=5)
    n_names: int = dial(30, "Names", "Names of all circles.", ge=6, le=63, multiple_of=_AROUND)
    n_values: int = dial(32, "Numbers", "Different numbers an entry can have.", ge=4, le=64)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.n_ctx > self.n_names:
            allowed = f"at most {self.n_names // _AROUND}, a third of n_names"
            raise disagreement("n_circles", self.n_circles, allowed, "n_names")
        return self

    @property
    def n_fields(self) -> int:
        return 2

    @property
    def d_vocab(self) -> int:
        return self.n_names + self.n_values

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def n_ctx(self) -> int:
        return _AROUND * self.n_circles

    @property
    def answers_from(self) -> int:
        return 0

    @property
    def chance(self) -> float:
        others = self.n_ctx - 1
        return 1 / others + (1 - 1 / others) / self.n_values

    @property
    def plateau(self) -> float:
        return 0.5 + 0.5 / self.n_values

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        circles = choose(n_examples, self.n_names // _AROUND, self.n_circles, generator)
        names = (_AROUND * circles[:, :, None] + torch.arange(_AROUND)).flatten(1)
        order = choose(n_examples, self.n_ctx, self.n_ctx, generator)
        values = torch.randint(self.n_values, order.shape, generator=generator)
        tokens = torch.stack([names.gather(1, order), self.n_names + values], -1)
        position = order.argsort(1).unflatten(1, (-1, _AROUND))  # of every name of every circle
        target = position.roll(-1, 2).flatten(1).gather(1, order)
        reverse = position.roll(1, 2).flatten(1).gather(1, order)
        return Examples(tokens, values.gather(1, target), target, reverse)

    def book(self, tokens: Tensor) -> Tensor:
        return tokens

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for name, value in tokens.tolist():
            place = name % _AROUND
            after = NAMES[name - place + (place + 1) % _AROUND]
            number = self.answer_text(value - self.n_names)
            asking = f"{NAMES[name]} asks {after}"
            labels.append(Label(NAMES[name], asking, f"{asking}, {number}"))
        return labels
