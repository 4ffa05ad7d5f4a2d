"""Fuzzy recall of MAD: keys and values of several tokens; different keys can share tokens."""

from __future__ import annotations

from math import perm
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NOTHING, Examples, Label, Task, in_order, register_task
from attnkit.tasks.draws import choose, choose_few
from attnkit.tasks.mad import LETTERS, SOURCE

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register_task
class FuzzyRecall(Task):
    """List keys and values of one to three tokens, then repeat each key, followed by its value.

    As in MAD, the tokens of a key differ from each other, and so do those of a value. Keys can
    share tokens, so that one token does not identify a key. The tokens of the value are the
    answers one after the other, beginning at the last token of the key. MAD's sizes are 7 key
    tokens, 8 value tokens, keys and values of up to 3 tokens, length 128 (16 pairs here have 123).

    Unlike here, MAD streams keys and values until the length is reached, then pads. Here different
    keys come first, then each once more, and every size is equally frequent, so that all examples
    have one length. MAD tests with keys of the largest size only; here accuracy is reported for
    every size. MAD trains on every next token; here only on those that the context determines.

    ```
    position   0   1   2   3   4   5   6   7   8   9   10
    token      c   a   4   a   2   0   a   2   0   c   a
    label                              2   0           4
    target                             4   5           2
    ```

    Chance is a value token of the example picked at random.
    """

    name: ClassVar[str] = "fuzzy_recall"
    title: ClassVar[str] = mark("Fuzzy recall")
    question: ClassVar[str] = mark(
        "Keys and values of several tokens: which value belongs to the key?"
    )
    source: ClassVar[str] = SOURCE
    family: ClassVar[str] = "Recall benchmarks"
    copies: ClassVar[float] = 5.3
    overrides: ClassVar[dict[str, Any]] = {
        "n_layers": 2,
        "d_head": 32,
        "positions": "rope",
        "causal": True,
        "steps": 600,
        "batch_size": 32,
        "evaluate_every": 20,
    }
    full_size: ClassVar[dict[str, Any]] = {"batch_size": 64}
    slice_title: ClassVar[str] = mark("Tokens of the key")
    lengths: ClassVar[tuple[str, ...]] = ("n_pairs",)
    ordered: ClassVar[bool] = True
    first_number: ClassVar[int] = 0

    n_pairs: int = dial(
        4, mark("Pairs"), mark("Keys with their values; each is asked once."), ge=2, le=32
    )
    n_longest: int = dial(
        3,
        mark("Longest"),
        mark("Largest number of tokens in a key or a value; smaller ones occur, too."),
        ge=1,
        le=3,
    )
    n_keys: int = dial(7, mark("Key tokens"), mark("Tokens that keys are made of."), ge=7, le=64)
    n_values: int = dial(
        8, mark("Value tokens"), mark("Tokens that values are made of."), ge=7, le=64
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.n_pairs > self.n_longest * self.n_keys:
            allowed = mark("at most n_longest × n_keys ({most})", most=self.n_longest * self.n_keys)
            raise disagreement("n_pairs", self.n_pairs, allowed, "n_longest", "n_keys")
        return self

    @property
    def _sizes(self) -> list[int]:
        """Sizes of an example's keys, and equally of its values, in tokens, ascending."""
        return sorted(1 + pair % self.n_longest for pair in range(self.n_pairs))

    @property
    def d_vocab(self) -> int:
        return self.n_keys + self.n_values

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def n_ctx(self) -> int:
        return 2 * self.answers_from - 1

    @property
    def answers_from(self) -> int:
        return 2 * sum(self._sizes)

    @property
    def chance(self) -> float:
        n_tokens = sum(self._sizes)
        # The tokens of one value differ from each other, so exactly one of them is right.
        n_of_value = sum(size**2 for size in self._sizes) / n_tokens
        return (1 + (n_tokens - n_of_value) / self.n_values) / n_tokens

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        keys = self._motifs(n_examples, self.n_keys, True, generator)
        values = self._motifs(n_examples, self.n_values, False, generator)
        values = values.where(values == NOTHING, self.n_keys + values)
        pairs = torch.stack([keys, values], 2).flatten(2)  # (b, n_pairs, 2 n_longest)
        first = pairs.flatten(1)
        positions = ((first != NOTHING).cumsum(1) - 1).view_as(pairs)
        order = choose(n_examples, self.n_pairs, self.n_pairs, generator)[:, :, None]
        repeated = pairs.take_along_dim(order, 1)

        is_token = repeated != NOTHING
        second = repeated[is_token].view(n_examples, -1)
        following = second[:, 1:]
        is_value = following >= self.n_keys
        labels = (following - self.n_keys).where(is_value, NOTHING)
        target = positions.take_along_dim(order, 1)[is_token].view_as(second)[:, 1:]
        tokens = torch.cat([first[first != NOTHING].view_as(second), second[:, :-1]], 1)
        return Examples(tokens[:, :, None], labels, target.where(is_value, NOTHING), None)

    def _motifs(
        self, n_examples: int, n_tokens: int, distinct: bool, generator: torch.Generator
    ) -> Tensor:
        """Draw keys or values of mixed sizes, (b, n_pairs, n_longest), padded with `NOTHING`."""
        import torch

        motifs = torch.full((n_examples, self.n_pairs, self.n_longest), NOTHING)
        start = 0
        for size in range(1, self.n_longest + 1):
            n_motifs, n_all = self._sizes.count(size), perm(n_tokens, size)
            if distinct:
                rank = choose_few(n_examples, n_all, n_motifs, generator)
            else:
                rank = torch.randint(n_all, (n_examples, n_motifs), generator=generator)
            motifs[:, start : start + n_motifs, :size] = _ordered_choice(rank, n_tokens, size)
            start += n_motifs
        order = choose(n_examples, self.n_pairs, self.n_pairs, generator)
        return motifs.take_along_dim(order[:, :, None], 1)

    def book(self, tokens: Tensor) -> Tensor:
        return in_order(tokens[:, : self.answers_from])

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels: list[Label] = []
        question: list[str] = []
        after_value = True
        for position, token in enumerate(tokens[:, 0].tolist()):
            is_key = token < self.n_keys
            text = LETTERS[token] if is_key else self.answer_text(token - self.n_keys)
            question = [text] if is_key and after_value else [*question, text]
            after_value = not is_key
            query = f"{' '.join(question)} ?" if position >= self.answers_from else text
            full = tr("key {key}", key=text) if is_key else tr("value {value}", value=text)
            labels.append(Label(text, query, full))
        return labels

    @property
    def slice_names(self) -> tuple[str, ...]:
        return tuple(f"{size}" for size in sorted(set(self._sizes)))

    def slices(self, examples: Examples) -> Tensor:
        import torch

        is_key = examples.tokens[:, :, 0] < self.n_keys
        n_before = is_key.cumsum(1)
        starts = is_key & ~torch.cat([torch.zeros_like(is_key[:, :1]), is_key[:, :-1]], 1)
        before = (n_before - 1).where(starts, 0).cummax(1).values
        group = (n_before - before - 1)[:, self.answers_from :]
        return group.where(examples.labels != NOTHING, NOTHING)


def _ordered_choice(rank: Tensor, n_tokens: int, size: int) -> Tensor:
    """Return the ordered choices of `size` different tokens with these ranks, on a new last axis.

    A rank is a number below n_tokens · (n_tokens − 1) · … whose digits count the unused tokens.
    """
    import torch

    digits = []
    for n_used in range(size):
        digits.append(rank % (n_tokens - n_used))
        rank = rank // (n_tokens - n_used)
    for earlier in reversed(range(size)):
        for later in range(earlier + 1, size):
            digits[later] = digits[later] + (digits[later] >= digits[earlier])
    return torch.stack(digits, -1)
