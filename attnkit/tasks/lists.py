"""Lists: reverse them, sort them, swap their halves, or map every symbol by itself.

These are the five tasks on which three projections were compared with fewer: Borji 2023
(arXiv 2305.19129), Kayyam, Madan Gopal and Lewis 2026 (arXiv 2606.04032).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import dial
from attnkit.tasks.base import NOTHING, Examples, Label, Task, in_order, register_task

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int64
    from torch import Tensor

SMALL: dict[str, Any] = {
    "d_model": 64,
    "n_heads": 4,
    "d_head": 16,
    "n_layers": 2,
    "d_mlp": 128,
    "positions": "learned",
    "blocks": "final_norm",
    "self_mask": False,
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "warm_up": 0.05,
    "clip": 5.0,
    "batch_size": 64,
    "n_train": 10_000,
    "steps": 158,
    "evaluate_every": 16,
    "n_eval": 256,
}
"""Settings with smaller batches and a smaller MLP than those of `PUBLISHED`.

The lists are shorter, too, by the default of `length`. Within the same number of steps, the same
sharings solve the tasks.
"""

PUBLISHED: dict[str, Any] = {"length": 16, "d_mlp": 256, "batch_size": 128, "n_eval": 2000}
"""Changes of `SMALL` that give one cell of the authors' seeded re-run of arXiv 2606.04032.

The model has width 64, 2 layers and 4 heads. The final LayerNorm is part of the authors' code,
not of their description. Without it, `Q=K=V` solves REVERSE with four layers; with it, it does
not, as published. Within these 158 steps QKV solves REVERSE and SWAP, and no variant solves SORT.
"""


class Lists(Task):
    """A list of independent, uniform random symbols; every position is an answer position."""

    family: ClassVar[str] = "Lists"
    source: ClassVar[str] = "Borji 2023; Kayyam et al. 2026"
    copies: ClassVar[float] = 1.7
    overrides: ClassVar[dict[str, Any]] = SMALL
    full_size: ClassVar[dict[str, Any]] = PUBLISHED
    # Translators: the place of a symbol in a list.
    slice_title: ClassVar[str] = mark("Place")
    lengths: ClassVar[tuple[str, ...]] = ("length",)
    answers_from: ClassVar[int] = 0
    first_number: ClassVar[int] = 0

    length: int = dial(
        10, mark("Length"), mark("Symbols in a list; each place answers."), ge=2, le=64
    )
    n_symbols: int = dial(10, mark("Symbols"), mark("Symbols that lists are made of."), ge=8, le=64)

    @property
    def d_vocab(self) -> int:
        return self.n_symbols

    @property
    def n_classes(self) -> int:
        return self.n_symbols

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def slice_names(self) -> tuple[str, ...]:
        return tuple(f"{place}" for place in range(1, self.length + 1))

    @property
    def chance(self) -> float:
        return 1 / self.n_symbols

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        shape = (n_examples, self.length)
        symbols = torch.randint(self.n_symbols, shape, generator=generator)
        labels, target = self._answers(symbols)
        return Examples(symbols[:, :, None], labels, target)

    @abstractmethod
    def _answers(
        self, symbols: Int64[Tensor, "b i"]
    ) -> tuple[Int64[Tensor, "b i"], Int64[Tensor, "b i"]]:
        """Return the labels and the targets."""

    def book(self, tokens: Tensor) -> Tensor:
        return in_order(tokens)

    def label(self, tokens: np.ndarray) -> list[Label]:
        return [
            Label(
                f"{symbol}",
                f"{place}: {symbol}",
                tr("place {place}: {symbol}", place=place, symbol=symbol),
            )
            for place, (symbol,) in enumerate(tokens.tolist(), 1)
        ]


def _positions(symbols: Int64[Tensor, "b i"]) -> Int64[Tensor, "b i"]:
    import torch

    return torch.arange(symbols.shape[1]).expand_as(symbols)


@register_task
class Reverse(Lists):
    """Return the list from back to front. Chance: the same symbol at every place.

    ```
    position   0  1  2  3
    token      3  1  4  7
    label      7  4  1  3
    target     3  2  1  0
    ```
    """

    name: ClassVar[str] = "reverse"
    # Translators: a task: to turn a list round.
    title: ClassVar[str] = mark("Reverse")
    question: ClassVar[str] = mark("What does the list look like from back to front?")

    def _answers(self, symbols: Tensor) -> tuple[Tensor, Tensor]:
        return symbols.flip(1), _positions(symbols).flip(1)


@register_task
class Sort(Lists):
    """Return the list in ascending order. Chance: the same symbol at every place.

    Only symbols that occur once have a target: repeated symbols are at several positions.

    ```
    position   0   1   2  3
    token      4   1   7  1
    label      1   1   4  7
    target     –   –   0  2
    ```
    """

    name: ClassVar[str] = "sort"
    # Translators: a task: to put a list in order.
    title: ClassVar[str] = mark("Sort")
    question: ClassVar[str] = mark("What does the list look like in ascending order?")

    def _answers(self, symbols: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        labels, position = symbols.sort(dim=1, stable=True)
        repeated = torch.zeros_like(labels, dtype=torch.bool)
        equal = labels[:, 1:] == labels[:, :-1]
        repeated[:, 1:] |= equal
        repeated[:, :-1] |= equal
        return labels, position.masked_fill(repeated, NOTHING)


@register_task
class Swap(Lists):
    """Return the second half of the list, then the first. Chance: the same symbol at every place.

    ```
    position   0  1  2  3
    token      3  1  4  7
    label      4  7  3  1
    target     2  3  0  1
    ```
    """

    name: ClassVar[str] = "swap"
    # Translators: a task: to exchange the halves of a list.
    title: ClassVar[str] = mark("Swap")
    question: ClassVar[str] = mark("What does the list look like with its halves swapped?")

    length: int = dial(
        10,
        mark("Length"),
        mark("Symbols in a list; each place answers."),
        ge=2,
        le=64,
        multiple_of=2,
    )

    def _answers(self, symbols: Tensor) -> tuple[Tensor, Tensor]:
        half = self.length // 2
        return symbols.roll(half, 1), _positions(symbols).roll(half, 1)


@register_task
class Subtract(Lists):
    """Return the largest symbol minus each, 9 − x by default. Chance: the same symbol everywhere.

    ```
    position   0  1  2  3
    token      3  1  4  7
    label      6  8  5  2
    target     0  1  2  3
    ```
    """

    name: ClassVar[str] = "sub"
    title: ClassVar[str] = mark("Subtract")
    question: ClassVar[str] = mark("What is the largest symbol minus each symbol?")

    def _answers(self, symbols: Tensor) -> tuple[Tensor, Tensor]:
        return self.n_symbols - 1 - symbols, _positions(symbols)


@register_task
class Copy(Lists):
    """Return the list unchanged. Chance: the same symbol at every place.

    ```
    position   0  1  2  3
    token      3  1  4  7
    label      3  1  4  7
    target     0  1  2  3
    ```
    """

    name: ClassVar[str] = "copy"
    # Translators: a task: to copy a list.
    title: ClassVar[str] = mark("Copy")
    question: ClassVar[str] = mark("Which symbol stands at each place?")

    def _answers(self, symbols: Tensor) -> tuple[Tensor, Tensor]:
        return symbols.clone(), _positions(symbols)
