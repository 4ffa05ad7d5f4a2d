"""Induction: a token is repeated, and the answer is the token that followed it before."""

from __future__ import annotations

from string import ascii_letters
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial
from attnkit.tasks.base import Examples, Label, Task, in_order, register_task
from attnkit.tasks.draws import choose

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register_task
class Induction(Task):
    """List different tokens, then repeat all but the last in random order: what followed each?

    A head of the first layer tells every token which one it follows; a head of the second finds
    the token that follows the query. The queries are in random order, so that no fixed distance
    leads to the answer.

    ```
    position   0   1   2   3   4   5   6
    token      f   b   k   c   k?  f?  b?
    label                      c   b   k
    target                     3   1   2
    ```

    Chance is a random other token of the row.
    """

    name: ClassVar[str] = "induction"
    title: ClassVar[str] = mark("Induction")
    place: ClassVar[int] = 60
    question: ClassVar[str] = mark("A token comes back: which token followed it before?")
    source: ClassVar[str] = mark("induction heads, arXiv 2209.11895")
    family: ClassVar[str] = "Recall benchmarks"
    overrides: ClassVar[dict[str, Any]] = {
        "n_layers": 2,
        "positions": "learned",
        "causal": True,
        "d_head": 32,
        "steps": 500,
    }
    at_most: ClassVar[dict[str, str]] = {"n_seen": "n_tokens"}
    lengths: ClassVar[tuple[str, ...]] = ("n_seen",)

    n_seen: int = dial(
        8, mark("Tokens"), mark("Tokens in the row; all but the last are asked."), ge=5, le=48
    )
    n_tokens: int = dial(
        16, mark("Vocabulary"), mark("Tokens that the row is drawn from."), ge=8, le=52
    )

    @property
    def d_vocab(self) -> int:
        return self.n_tokens

    @property
    def n_classes(self) -> int:
        return self.n_tokens

    @property
    def n_ctx(self) -> int:
        return 2 * self.n_seen - 1

    @property
    def answers_from(self) -> int:
        return self.n_seen

    @property
    def chance(self) -> float:
        return 1 / (self.n_seen - 1)

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        seen = choose(n_examples, self.n_tokens, self.n_seen, generator)
        queried = choose(n_examples, self.n_seen - 1, self.n_seen - 1, generator)
        tokens = torch.cat([seen, seen.gather(1, queried)], 1)
        return Examples(tokens[:, :, None], seen.gather(1, queried + 1), queried + 1, None)

    def book(self, tokens: Tensor) -> Tensor:
        return in_order(tokens[:, : self.n_seen])

    def label(self, tokens: np.ndarray) -> list[Label]:
        letters = [ascii_letters[token] for token in tokens[:, 0].tolist()]
        labels = [Label(letter, letter, letter) for letter in letters[: self.n_seen]]
        for letter in letters[self.n_seen :]:
            query = f"{letter} ?"
            labels.append(Label(query, query, query))
        return labels

    def answer_text(self, answer: int) -> str:
        return ascii_letters[answer]
