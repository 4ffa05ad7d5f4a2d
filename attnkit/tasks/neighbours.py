"""Neighbours: several keys have almost the same vector, but different values."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NAMES, Examples, Label, register_task
from attnkit.tasks.draws import choose
from attnkit.tasks.phonebook import Book

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float, Int64
    from torch import Tensor

MEMBERS = 4
"""Names in a family."""

_RANKS = (mark("1st"), mark("2nd"), mark("3rd"))


@register_task
class Neighbours(Book):
    """Ask for the numbers of a name's neighbours one by one; their vectors are almost alike.

    Names come in families of four. Several members of each family in the book are entries, with
    different numbers. A member without an entry asks for the number of its first neighbour, then
    of its second. They are counted by their index in the family, not by their position.

    ```
    position   0        1        2        3        4         5         6         7
    token      Ben2 14  Ada4 31  Ben1 25  Ada1 19  Ada2 1st  Ada2 2nd  Ben3 1st  Ben3 2nd
    label                                          19        31        25        14
    target                                         3         1         2         0
    ```

    The vectors of names are fixed: √cosine times a direction of the family plus √(1 − cosine)
    times a direction of the index in the family, all orthogonal to each other. Two members of a
    family have exactly that cosine, equal indices of two families have 1 − cosine, and any other
    two names have 0.

    Chance is the number of a random entry; that of a random neighbour is right once in `n_alike`.
    """

    name: ClassVar[str] = "neighbours"
    title: ClassVar[str] = mark("Neighbours")
    place: ClassVar[int] = 40
    question: ClassVar[str] = mark(
        "“network” is near “neural” and “social”: what are their numbers?"
    )
    source: ClassVar[str] = mark("the answer “neural … social … network” on Stack Exchange")
    copies: ClassVar[float] = 3.2
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": False, "steps": 600}
    slice_title: ClassVar[str] = mark("Neighbour")
    at_most: ClassVar[dict[str, str]] = {"n_asking": "n_families"}
    lengths: ClassVar[tuple[str, ...]] = ("n_asking",)

    n_asking: int = dial(
        4, mark("Families in the book"), mark("One member of each family is the query."), ge=2, le=6
    )
    n_families: int = dial(
        8,
        mark("Families in all"),
        mark("Families of four names from which a book is drawn."),
        ge=2,
        le=12,
    )
    n_alike: int = dial(
        2,
        mark("Neighbours"),
        mark("Entries of each family; each is asked for once."),
        ge=2,
        le=MEMBERS - 1,
    )
    cosine: float = dial(
        0.9,
        mark("Cosine"),
        mark("Cosine between the vectors of two names of a family."),
        ge=0.6,
        le=0.99,
        allow_inf_nan=False,
    )
    n_values: int = dial(
        32, mark("Numbers"), mark("Different numbers an entry can have."), ge=4, le=64
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.n_values < self.n_entries:
            allowed = mark("at least {least}: the numbers of a book differ", least=self.n_entries)
            raise disagreement("n_values", self.n_values, allowed, "n_asking", "n_alike")
        return self

    @property
    def n_entries(self) -> int:
        """Number of entries in the book, and of questions."""
        return self.n_asking * self.n_alike

    @property
    def n_names(self) -> int:
        """Number of names in all families."""
        return MEMBERS * self.n_families

    @property
    def d_vocab(self) -> int:
        return self.n_names + self.n_values + self.n_alike

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def answers_from(self) -> int:
        return self.n_entries

    @property
    def chance(self) -> float:
        return 1 / self.n_entries

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        shape = (n_examples, self.n_asking)
        families = choose(n_examples, self.n_families, self.n_asking, generator)
        choices = torch.tensor(_choices(self.n_alike))
        members = choices[torch.randint(len(choices), shape, generator=generator)]
        members = members + MEMBERS * families[:, :, None]
        neighbours = members[..., 1:].flatten(1)
        queries = members[..., :1].expand(-1, -1, self.n_alike).flatten(1)
        ranks = torch.arange(self.n_alike).repeat(self.n_asking).expand_as(queries)
        values = choose(n_examples, self.n_values, self.n_entries, generator)
        order = choose(n_examples, self.n_entries, self.n_entries, generator)
        entries = torch.stack([neighbours, self.n_names + values], -1)
        entries = entries.gather(1, order[:, :, None].expand(-1, -1, 2))
        questions = torch.stack([queries, self.n_names + self.n_values + ranks], -1)
        return Examples(torch.cat([entries, questions], 1), values, order.argsort(1), None)

    def fixed_embedding(
        self, d_model: int, generator: torch.Generator
    ) -> tuple[Int64[Tensor, " n"], Float[Tensor, "n m"]]:
        import torch

        directions = torch.empty(self.n_families + MEMBERS, d_model)
        torch.nn.init.orthogonal_(directions, generator=generator)
        of_family, of_member = directions.split([self.n_families, MEMBERS])
        shared, separate = math.sqrt(self.cosine), math.sqrt(1 - self.cosine)
        rows = (shared * of_family[:, None] + separate * of_member).flatten(0, 1)
        norm = math.sqrt(d_model / self.n_fields) / 2  # as long as the initial rows of learned ids
        return torch.arange(self.n_names), rows * norm

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for name, value in tokens.tolist():
            family, member = divmod(name, MEMBERS)
            text = f"{NAMES[family]}{member + 1}"
            number = value - self.n_names
            if number < self.n_values:
                full = f"{text} {self.answer_text(number)}"
                labels.append(Label(text, full, full))
            else:
                rank = tr(_RANKS[number - self.n_values])
                # Translators: {rank} is "1st", "2nd" or "3rd".
                full = tr("{name}, {rank} neighbour?", name=text, rank=rank)
                labels.append(Label(f"{text} ?", f"{text} {rank}", full))
        return labels

    @property
    def slice_names(self) -> tuple[str, ...]:
        return _RANKS[: self.n_alike]

    def slices(self, examples: Examples) -> Tensor:
        ranks = examples.tokens[:, self.answers_from :, 1]
        return ranks - self.n_names - self.n_values


def _choices(n_alike: int) -> list[tuple[int, ...]]:
    """Return all choices of the member that asks and of the entries, in the order of the family."""
    return [
        (query, *entries)
        for entries in combinations(range(MEMBERS), n_alike)
        for query in range(MEMBERS)
        if query not in entries
    ]
