"""Multi-query associative recall: keys seen once among values are asked for, soon or late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NOTHING, Examples, Label, Task, choose_few, register_task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_NEAR = 8
"""The nearest group of distances reaches so far; every further one twice as far."""


@register_task
class Mqar(Task):
    """Pairs `key value`, then each key once more at some distance: which value was its?

    As the builder of Zoology has it: of V tokens, keys are 1 to V/2−1 and values V/2 to V−1, each
    drawn without replacement. After the pairs come slots of two tokens; slot i = 1, 2, … holds a
    query with a probability in proportion to i^(a−1), without replacement, so that most follow
    soon. The answer is due on the query itself and does not follow it; all other tokens are fill
    and are asked nothing. Fill is any of the V tokens, even a key or a value, or always 0, as in
    the published figure: V 8192, (T, N) (64, 4), (128, 8), (256, 16), two layers, one head, no MLP.
    What differs: answers are told apart among the V/2 values, there among all V tokens.

    ```
    position   0   1   2   3   4   5   6   7   8   9   10  11
    token      2   8   4   7   0   0   4   0   0   0   2   0
               key val key val         ?               ?
    label                              7               8
    target                             3               1
    ```

    Chance is a value of the example picked at random.
    """

    name: ClassVar[str] = "mqar"
    title: ClassVar[str] = "Multi-query recall"
    place: ClassVar[int] = 0
    question: ClassVar[str] = "A key comes back: which value followed it?"
    source: ClassVar[str] = "MQAR of Zoology, arXiv 2312.04927"
    family: ClassVar[str] = "Recall benchmarks"
    overrides: ClassVar[dict[str, Any]] = {
        "n_layers": 2,
        "positions": "learned",
        "causal": True,
        "d_head": 32,
        "steps": 800,
    }
    slice_title: ClassVar[str] = "Tokens from the key to its query"

    n_tokens: int = dial(
        64,
        "Vocabulary",
        "Token ids; the lower half are keys, the upper half values.",
        ge=16,
        le=8192,
        multiple_of=2,
    )
    n_pairs: int = dial(4, "Pairs", "Keys with their values; each is asked once.", ge=2, le=64)
    length: int = dial(
        24, "Length", "Tokens in all; at least four for every pair.", ge=8, le=512, multiple_of=2
    )
    power_a: float = dial(
        0.01,
        "Power of distance",
        "Near 0: queries follow soon; 1: all slots are alike.",
        ge=0.01,
        le=1.0,
        allow_inf_nan=False,
    )
    random_fill: bool = dial(
        True, "Random fill", "Slots without a query hold any tokens; if not, the token 0."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 4 * self.n_pairs > self.length:
            allowed = f"at least {4 * self.n_pairs}, four for every pair"
            raise disagreement("length", self.length, allowed, "n_pairs")
        if self.n_pairs >= self.n_tokens // 2:
            allowed = f"at most {self.n_tokens // 2 - 1}, the number of keys"
            raise disagreement("n_pairs", self.n_pairs, allowed, "n_tokens")
        return self

    @property
    def d_vocab(self) -> int:
        return self.n_tokens

    @property
    def n_classes(self) -> int:
        return self.n_tokens // 2

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def answers_from(self) -> int:
        return 2 * self.n_pairs

    @property
    def sparse(self) -> bool:
        return True

    @property
    def chance(self) -> float:
        return 1 / self.n_pairs

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        n_keys, n_answers = self.n_tokens // 2 - 1, self.length - self.answers_from
        keys = 1 + choose_few(n_examples, n_keys, self.n_pairs, generator)
        values = choose_few(n_examples, self.n_classes, self.n_pairs, generator)
        queries = 2 * self._slots(n_examples, generator)
        shape = (n_examples, n_answers)
        if self.random_fill:
            asked = torch.randint(self.n_tokens, shape, generator=generator)
        else:
            asked = torch.zeros(shape, dtype=torch.int64)
        pairs = torch.stack([keys, self.n_classes + values], dim=-1).flatten(1)
        tokens = torch.cat([pairs, asked.scatter(1, queries, keys)], 1)
        nothing = torch.full(shape, NOTHING)
        holders = torch.arange(1, self.answers_from, 2).expand(n_examples, -1)
        labels, target = nothing.scatter(1, queries, values), nothing.scatter(1, queries, holders)
        return Examples(tokens[:, :, None], labels, target, None)

    def _slots(self, n_examples: int, generator: torch.Generator) -> Tensor:
        """(b, n) slot of every key's query: a race of exponential times at the slots' rates."""
        import torch

        n_slots = (self.length - self.answers_from) // 2
        mean_times = torch.arange(1, n_slots + 1) ** (1 - self.power_a)
        times = -torch.log1p(-torch.rand(n_examples, n_slots, generator=generator)) * mean_times
        return times.argsort(dim=1, stable=True)[:, : self.n_pairs]

    def book(self, tokens: Tensor) -> Tensor:
        return tokens[:, : self.answers_from].reshape(-1, self.n_pairs, 2)

    def label(self, tokens: np.ndarray) -> list[Label]:
        shown = [f"{token}" for token in tokens[:, 0].tolist()]
        keys = shown[: self.answers_from : 2]
        labels = []
        for position, token in enumerate(shown):
            if position < self.answers_from:
                full = f"{('key', 'value')[position % 2]} {token}"
            else:
                full = f"{token} ?" if token in keys and position % 2 == 0 else f"fill {token}"
            labels.append(Label(token, f"{token} ?", full))
        return labels

    def answer_text(self, answer: int) -> str:
        return f"{self.n_classes + answer}"

    @property
    def _edges(self) -> list[int]:
        """The largest distance of every group."""
        edges, furthest = [_NEAR], self.length - 2
        while edges[-1] < furthest:
            edges.append(2 * edges[-1])
        return [*edges[:-1], furthest]

    @property
    def slice_names(self) -> tuple[str, ...]:
        lows = [2, *(edge + 2 for edge in self._edges)]
        return tuple(f"{low}–{high}" for low, high in zip(lows, self._edges, strict=False))

    def slices(self, examples: Examples) -> Tensor:
        import torch

        at = torch.arange(self.answers_from, self.length)
        group = torch.bucketize(at - (examples.target - 1), torch.tensor(self._edges))
        return group.where(examples.labels != NOTHING, NOTHING)
