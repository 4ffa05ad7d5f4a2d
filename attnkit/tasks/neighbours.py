"""Neighbours: several keys are almost alike, and what they answer is not."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NAMES, Examples, Label, Task, choose, register_task

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float, Int64
    from torch import Tensor

MEMBERS = 4
"""Names in a family."""

_RANKS = ("1st", "2nd", "3rd")


@register_task
class Neighbours(Task):
    """A name asks for the numbers of its neighbours in turn, whose vectors are almost alike.

    Names come in families of four. Of every family in the book several members are entries, with
    different numbers; one that is none asks for the number of its first neighbour, then of its
    second. Nothing tells positions, so the first is the one whose place in the family is first,
    wherever it stands.

    ```
    position   0        1        2        3        4         5         6         7
    token      Ben2 14  Ada4 31  Ben1 25  Ada1 19  Ada2 1st  Ada2 2nd  Ben3 1st  Ben3 2nd
    label                                          19        31        25        14
    target                                         3         1         2         0
    ```

    The vectors of names are given and stay as they are: √cosine of a direction of the family and
    √(1 − cosine) of a direction of the place in it, all these orthogonal. Two members of a family
    have exactly that cosine, equal places of two families have 1 − cosine, all else has 0.

    Chance is the number of a random entry; a random neighbour's is right once in `n_alike`.
    """

    name: ClassVar[str] = "neighbours"
    title: ClassVar[str] = "Neighbours"
    place: ClassVar[int] = 40
    question: ClassVar[str] = "“network” is near “neural” and “social”: what does each one answer?"
    family: ClassVar[str] = "Questions people ask"
    source: ClassVar[str] = "the answer “neural … social … network” on Stack Exchange"
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": False, "steps": 600}
    slice_title: ClassVar[str] = "Neighbour"

    n_asking: int = dial(4, "Asking", "Families in the book; a member of each asks.", ge=2, le=6)
    n_families: int = dial(
        8, "Families", "Families of four names that those are drawn from.", ge=2, le=12
    )
    n_alike: int = dial(
        2, "Neighbours", "Entries of a family; each is asked for once.", ge=2, le=MEMBERS - 1
    )
    cosine: float = dial(
        0.9,
        "Cosine",
        "Between the vectors of two names of a family.",
        ge=0.6,
        le=0.99,
        allow_inf_nan=False,
    )
    n_values: int = dial(32, "Numbers", "Different numbers an entry can have.", ge=4, le=64)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.n_asking > self.n_families:
            allowed = f"at most n_families ({self.n_families})"
            raise disagreement("n_asking", self.n_asking, allowed, "n_families")
        if self.n_values < self.n_entries:
            allowed = f"at least {self.n_entries}: the numbers of a book differ"
            raise disagreement("n_values", self.n_values, allowed, "n_asking", "n_alike")
        return self

    @property
    def n_entries(self) -> int:
        """Entries in the book, and questions."""
        return self.n_asking * self.n_alike

    @property
    def n_names(self) -> int:
        """Names of all families."""
        return MEMBERS * self.n_families

    @property
    def n_fields(self) -> int:
        return 2

    @property
    def d_vocab(self) -> int:
        return self.n_names + self.n_values + self.n_alike

    @property
    def n_classes(self) -> int:
        return self.n_values

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

        shape = (n_examples, self.n_asking)
        families = choose(n_examples, self.n_families, self.n_asking, generator)
        ways = torch.tensor(_ways(self.n_alike))
        members = ways[torch.randint(len(ways), shape, generator=generator)]
        members = members + MEMBERS * families[:, :, None]
        neighbours = members[..., 1:].flatten(1)
        asker = members[..., :1].expand(-1, -1, self.n_alike).flatten(1)
        asked = torch.arange(self.n_alike).repeat(self.n_asking).expand_as(asker)
        values = choose(n_examples, self.n_values, self.n_entries, generator)
        order = choose(n_examples, self.n_entries, self.n_entries, generator)
        entries = torch.stack([neighbours, self.n_names + values], -1)
        entries = entries.gather(1, order[:, :, None].expand(-1, -1, 2))
        questions = torch.stack([asker, self.n_names + self.n_values + asked], -1)
        return Examples(torch.cat([entries, questions], 1), values, order.argsort(1), None)

    def book(self, tokens: Tensor) -> Tensor:
        return tokens[:, : self.n_entries]

    def fixed_embedding(
        self, d_model: int, generator: torch.Generator
    ) -> tuple[Int64[Tensor, " n"], Float[Tensor, "n m"]]:
        import torch

        directions = torch.empty(self.n_families + MEMBERS, d_model)
        torch.nn.init.orthogonal_(directions, generator=generator)
        of_family, of_member = directions.split([self.n_families, MEMBERS])
        alike, apart = math.sqrt(self.cosine), math.sqrt(1 - self.cosine)
        rows = (alike * of_family[:, None] + apart * of_member).flatten(0, 1)
        as_learned = math.sqrt(d_model / self.n_fields) / 2  # the length of an initial row
        return torch.arange(self.n_names), rows * as_learned

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
                rank = _RANKS[number - self.n_values]
                labels.append(Label(f"{text} ?", f"{text} {rank}", f"{text}, {rank} neighbour?"))
        return labels

    @property
    def slice_names(self) -> tuple[str, ...]:
        return _RANKS[: self.n_alike]

    def slices(self, examples: Examples) -> Tensor:
        asked = examples.tokens[:, self.answers_from :, 1]
        return asked - self.n_names - self.n_values


def _ways(n_alike: int) -> list[tuple[int, ...]]:
    """Every choice in a family of who asks, then of the entries, in order."""
    return [
        (asker, *entries)
        for entries in combinations(range(MEMBERS), n_alike)
        for asker in range(MEMBERS)
        if asker not in entries
    ]
