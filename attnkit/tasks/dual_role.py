"""Dual role: every name looks up one name and is looked up by another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NAMES, Examples, Label, register_task
from attnkit.tasks.draws import choose
from attnkit.tasks.phonebook import AskingBook

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float, Int64
    from torch import Tensor


_CIRCLE = 3
"""Names of a circle: the fewest with which a name's next and previous names differ."""


@register_task
class DualRole(AskingBook):
    """Every name asks for the number of the next name in its circle; the previous is a decoy.

    The circles, of three names each, are the same in all books. No token says which name is next,
    so a model has to learn it. All names of a circle are in the book, in any order: every token
    asks for one of the other two, and the remaining one asks for it. With the circles Ada, Ben,
    Cem and Dia, Eli, Fay:

    ```
    position   0       1       2       3       4       5
    token      Ben 31  Dia 14  Cem 25  Ada 19  Fay 40  Eli 12
    label      25      12      19      31      14      40
    target     2       5       3       0       1       4
    reverse    3       4       0       2       5       1
    ```

    With `fixed_names`, the vectors of the names are random, of equal length, and stay as they are.
    The matrices of queries and keys must then hold all `n_names` directed relations, as in the
    relational graph recognition of Adler (arXiv 2509.22840); learned vectors can arrange themselves
    by circles.

    Chance is the number of a random other entry. The plateau is observed, not proved. It can be
    proved that symmetric scores prefer the next name for at most two names of three, because
    S(0,1) > S(2,0) > S(1,2) > S(0,1) contradicts itself. In one long circle of all words, a
    symmetric score could prefer the next name for all words but one.
    """

    name: ClassVar[str] = "dual_role"
    title: ClassVar[str] = mark("Dual role")
    question: ClassVar[str] = mark(
        "After Ada comes Ben, then Cem, then Ada again: what is the next one's number?"
    )
    n_fields: ClassVar[int] = 2
    field_names: ClassVar[tuple[str, ...]] = ("name", "number")
    source: ClassVar[str] = mark("the answer “smell the smell of failure” on Stack Exchange")
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": True, "steps": 600}
    lengths: ClassVar[tuple[str, ...]] = ("n_circles",)

    n_circles: int = dial(
        3, mark("Circles"), mark("Circles of three names in the book."), ge=2, le=5
    )
    n_names: int = dial(
        30, mark("Names"), mark("Names in all circles."), ge=6, le=63, multiple_of=_CIRCLE
    )
    n_values: int = dial(
        32, mark("Numbers"), mark("Different numbers an entry can have."), ge=4, le=64
    )
    fixed_names: bool = dial(
        False, mark("Fixed names"), mark("The vectors of the names are random and are not trained.")
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.n_ctx > self.n_names:
            allowed = mark("at most {most}, a third of n_names", most=self.n_names // _CIRCLE)
            raise disagreement("n_circles", self.n_circles, allowed, "n_names")
        return self

    @property
    def d_vocab(self) -> int:
        return self.n_names + self.n_values

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def n_ctx(self) -> int:
        return _CIRCLE * self.n_circles

    @property
    def plateau(self) -> float:
        return 0.5 + 0.5 / self.n_values

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        circles = choose(n_examples, self.n_names // _CIRCLE, self.n_circles, generator)
        names = (_CIRCLE * circles[:, :, None] + torch.arange(_CIRCLE)).flatten(1)
        order = choose(n_examples, self.n_ctx, self.n_ctx, generator)
        values = torch.randint(self.n_values, order.shape, generator=generator)
        tokens = torch.stack([names.gather(1, order), self.n_names + values], -1)
        position = order.argsort(1).unflatten(1, (-1, _CIRCLE))  # (b, circles, names of a circle)
        target = position.roll(-1, 2).flatten(1).gather(1, order)
        reverse = position.roll(1, 2).flatten(1).gather(1, order)
        return Examples(tokens, values.gather(1, target), target, reverse)

    def fixed_embedding(
        self, d_model: int, generator: torch.Generator
    ) -> tuple[Int64[Tensor, " n"], Float[Tensor, "n m"]] | None:
        if not self.fixed_names:
            return None
        import torch

        rows = torch.nn.functional.normalize(
            torch.randn(self.n_names, d_model, generator=generator)
        )
        norm = math.sqrt(d_model / self.n_fields) / 2  # as long as the initial rows of learned ids
        return torch.arange(self.n_names), rows * norm

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for name, value in tokens.tolist():
            index = name % _CIRCLE
            following = NAMES[name - index + (index + 1) % _CIRCLE]
            number = self.answer_text(value - self.n_names)
            query = tr("{name} asks {other}", name=NAMES[name], other=following)
            labels.append(Label(NAMES[name], query, f"{query}, {number}"))
        return labels
