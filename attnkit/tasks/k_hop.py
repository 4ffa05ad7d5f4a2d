"""Several hops: follow a relation several times, from one entry to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NAMES, Examples, Label, register_task
from attnkit.tasks.draws import choose
from attnkit.tasks.phonebook import Book

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register_task
class KHop(Book):
    """Find the name that is several hops after another, in a cycle of entries `name: next name`.

    Each name is asked once. One layer can follow one hop; two layers can follow two, because
    entries can look up each other in the first layer.

    ```
    position   0         1         2         3       4       5
    token      Ada: Cem  Ben: Ada  Cem: Ben  Cem+2   Ada+1   Ben+2
    label                                    Ada     Cem     Cem
    target                                   1       0       0
    ```

    Chance is a random other name.
    """

    name: ClassVar[str] = "k_hop"
    title: ClassVar[str] = mark("Several hops")
    place: ClassVar[int] = 70
    question: ClassVar[str] = mark("Ada points to Cem, Cem to Ben: who is two hops from Ada?")
    source: ClassVar[str] = mark("k-hop of Physics of Language Models 4.1, arXiv 2512.17351")
    family: ClassVar[str] = "Recall benchmarks"
    copies: ClassVar[float] = 3.7
    overrides: ClassVar[dict[str, Any]] = {
        "n_layers": 2,
        "n_heads": 2,
        "d_head": 32,
        "steps": 800,
        "evaluate_every": 20,
        "n_seeds": 3,
    }
    full_size: ClassVar[dict[str, Any]] = {"n_seeds": 5}
    slice_title: ClassVar[str] = mark("Hops")
    at_most: ClassVar[dict[str, str]] = {"fewest_hops": "n_hops"}

    n_names: int = dial(
        8, mark("Names"), mark("Names in the cycle; each is asked once."), ge=6, le=32
    )
    n_hops: int = dial(2, mark("Hops"), mark("Largest number of hops in a question."), ge=1, le=8)
    fewest_hops: int = dial(
        1, mark("Fewest hops"), mark("Smallest number of hops in a question."), ge=1, le=8
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.n_hops >= self.n_names:
            allowed = mark("at most {most}, below n_names", most=self.n_names - 1)
            raise disagreement("n_hops", self.n_hops, allowed, "n_names")
        return self

    @property
    def d_vocab(self) -> int:
        return 2 * self.n_names + len(self.slice_names)

    @property
    def n_classes(self) -> int:
        return self.n_names

    @property
    def answers_from(self) -> int:
        return self.n_names

    @property
    def chance(self) -> float:
        return 1 / (self.n_names - 1)

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        n = self.n_names
        cycle, entries, queried = (choose(n_examples, n, n, generator) for _ in range(3))
        more = torch.randint(len(self.slice_names), (n_examples, n), generator=generator)
        last = (queried + self.fewest_hops + more - 1) % n
        following = cycle.roll(-1, 1)
        book = torch.stack([cycle, n + following], dim=-1)
        book = book.gather(1, entries[:, :, None].expand(-1, -1, 2))
        questions = torch.stack([cycle.gather(1, queried), 2 * n + more], dim=-1)
        position = torch.arange(n).expand(n_examples, -1)
        target = torch.zeros_like(entries).scatter(1, entries, position).gather(1, last)
        return Examples(torch.cat([book, questions], 1), following.gather(1, last), target, None)

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for name, other in tokens.tolist():
            more = other - 2 * self.n_names
            if more >= 0:
                query = f"{NAMES[name]}+{self.fewest_hops + more}"
                labels.append(Label(query, f"{query} ?", f"{query} ?"))
            else:
                text = f"{NAMES[name]}: {NAMES[other - self.n_names]}"
                labels.append(Label(NAMES[name], text, text))
        return labels

    def answer_text(self, answer: int) -> str:
        return NAMES[answer]

    @property
    def slice_names(self) -> tuple[str, ...]:
        return tuple(f"{k}" for k in range(self.fewest_hops, self.n_hops + 1))

    def slices(self, examples: Examples) -> Tensor:
        return examples.tokens[:, self.n_names :, 1] - 2 * self.n_names
