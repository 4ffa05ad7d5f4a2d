"""Multi-query associative recall: every key of a list of pairs is queried, soon or late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NOTHING, Examples, Label, Task, register_task
from attnkit.tasks.draws import choose_few

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_NEAREST = 8
"""Largest distance of the first group of answers; every further group reaches twice as far."""


@register_task
class Mqar(Task):
    """Recall the value of every key: pairs `key value`, then each key once more at some distance.

    As in Zoology, of V tokens, keys are 1 to V/2−1 and values V/2 to V−1, each drawn without
    replacement. Slots of two tokens follow the pairs. Slot i = 1, 2, … holds a query with a
    probability proportional to i^(a−1), without replacement, so that most queries follow soon. The
    answer is due at the query itself; the next token is not the answer. All other tokens are fill
    without a question: any of the V tokens, even a key or a value, or always 0, as in the
    published figure (V 8192; length and pairs (64, 4), (128, 8), (256, 16); two layers, one head,
    no MLP). Unlike here, the classes in Zoology are all V tokens; here they are the V/2 values.

    ```
    position   0   1   2   3   4   5   6   7   8   9   10  11
    token      2   8   4   7   0   0   4   0   0   0   2   0
               key val key val         ?               ?
    label                              7               8
    target                             3               1
    ```

    Chance is a random value of the example.
    """

    name: ClassVar[str] = "mqar"
    title: ClassVar[str] = mark("Multi-query recall")
    place: ClassVar[int] = 0
    question: ClassVar[str] = mark("A key comes back: which value followed it before?")
    source: ClassVar[str] = "MQAR of Zoology, arXiv 2312.04927"
    family: ClassVar[str] = "Recall benchmarks"
    overrides: ClassVar[dict[str, Any]] = {
        "n_layers": 2,
        "positions": "learned",
        "causal": True,
        "d_head": 32,
        "steps": 800,
        "batch_size": 32,
        "evaluate_every": 20,
    }
    full_size: ClassVar[dict[str, Any]] = {"batch_size": 64}
    slice_title: ClassVar[str] = mark("Tokens from the key to its query")
    lengths: ClassVar[tuple[str, ...]] = ("n_pairs", "length")

    n_tokens: int = dial(
        64,
        mark("Vocabulary"),
        mark("Token ids; the lower half are keys, the upper half values."),
        ge=16,
        le=8192,
        multiple_of=2,
    )
    n_pairs: int = dial(
        4, mark("Pairs"), mark("Keys with their values; each is asked once."), ge=2, le=64
    )
    length: int = dial(
        24,
        mark("Length"),
        mark("Length of the sequence; at least four tokens for every pair."),
        ge=8,
        le=512,
        multiple_of=2,
    )
    power_a: float = dial(
        0.01,
        mark("Power of distance"),
        mark("Near 0: queries follow soon. 1: queries are spread evenly."),
        ge=0.01,
        le=1.0,
        allow_inf_nan=False,
    )
    random_fill: bool = dial(
        True,
        mark("Random fill"),
        mark("Slots without a query hold random tokens; otherwise the token 0."),
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 4 * self.n_pairs > self.length:
            allowed = mark("at least {least}, four for every pair", least=4 * self.n_pairs)
            raise disagreement("length", self.length, allowed, "n_pairs")
        if self.n_pairs >= self.n_tokens // 2:
            allowed = mark("at most {most}, the number of keys", most=self.n_tokens // 2 - 1)
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
            fill = torch.randint(self.n_tokens, shape, generator=generator)
        else:
            fill = torch.zeros(shape, dtype=torch.int64)
        pairs = torch.stack([keys, self.n_classes + values], dim=-1).flatten(1)
        tokens = torch.cat([pairs, fill.scatter(1, queries, keys)], 1)
        nothing = torch.full(shape, NOTHING)
        sources = torch.arange(1, self.answers_from, 2).expand(n_examples, -1)
        labels, target = nothing.scatter(1, queries, values), nothing.scatter(1, queries, sources)
        return Examples(tokens[:, :, None], labels, target, None)

    def _slots(self, n_examples: int, generator: torch.Generator) -> Tensor:
        """Draw the slot of every key's query, (b, n).

        The slots with the shortest of exponential times win: a draw without replacement with
        probabilities proportional to their rates.
        """
        import torch

        n_slots = (self.length - self.answers_from) // 2
        mean_times = torch.arange(1, n_slots + 1) ** (1 - self.power_a)
        times = -torch.log1p(-torch.rand(n_examples, n_slots, generator=generator)) * mean_times
        return times.argsort(dim=1, stable=True)[:, : self.n_pairs]

    def book(self, tokens: Tensor) -> Tensor:
        return tokens[:, : self.answers_from].reshape(-1, self.n_pairs, 2)

    def label(self, tokens: np.ndarray) -> list[Label]:
        texts = [f"{token}" for token in tokens[:, 0].tolist()]
        keys = texts[: self.answers_from : 2]
        labels = []
        for position, token in enumerate(texts):
            is_first = position % 2 == 0
            if position < self.answers_from:
                full = tr("key {key}", key=token) if is_first else tr("value {value}", value=token)
            elif is_first and token in keys:
                full = f"{token} ?"
            else:
                # Translators: a token that only fills the space between questions.
                full = tr("fill {token}", token=token)
            labels.append(Label(token, f"{token} ?", full))
        return labels

    def answer_text(self, answer: int) -> str:
        return f"{self.n_classes + answer}"

    @property
    def _edges(self) -> list[int]:
        """Largest distance of every group."""
        edges, furthest = [_NEAREST], self.length - 2
        while edges[-1] < furthest:
            edges.append(2 * edges[-1])
        return [*edges[:-1], furthest]

    @property
    def slice_names(self) -> tuple[str, ...]:
        lows = [2, *(edge + 2 for edge in self._edges)]
        return tuple(f"{low}–{high}" for low, high in zip(lows, self._edges, strict=False))

    def slices(self, examples: Examples) -> Tensor:
        import torch

        queries = torch.arange(self.answers_from, self.length)
        group = torch.bucketize(queries - (examples.target - 1), torch.tensor(self._edges))
        return group.where(examples.labels != NOTHING, NOTHING)
