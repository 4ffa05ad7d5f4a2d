"""Two tasks of MAD: recall among noise and selective copying. `fuzzy_recall` has a third."""

from __future__ import annotations

from functools import lru_cache
from string import ascii_letters
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NOTHING, Examples, Label, Task, in_order, register_task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SOURCE = "MAD, arXiv 2403.17844"
"""Origin of the tasks of MAD."""

LETTERS = ascii_letters + "αβγδεζηθικλμ"
"""Letters that stand for keys on screen; numbers stand for values."""


@register_task
class NoisyRecall(Task):
    """Recall values in a stream of `key value` pairs and noise: an earlier key has the same value.

    As in MAD, keys are drawn with replacement, and every example has other values for them.
    A share of the pairs is replaced by two noise tokens. The last pair repeats an earlier one. The
    answer is due at the key, before its value. MAD's sizes are 8 keys, 8 values, 16 noise tokens,
    20% noise, 64 pairs. Unlike in MAD, the first pair is never noise, and a model is trained only
    on values that the context determines, not on every next token.

    ```
    position   0   1   2   3   4   5   6   7   8   9   10
    token      b   3   c   0   ~5  ~2  b   3   a   1   c
    label                              3               0
    target                             1               3
    ```

    There is no target if the key occurred more than once before. Chance is the value of a random
    earlier pair.
    """

    name: ClassVar[str] = "noisy_recall"
    title: ClassVar[str] = mark("Recall among noise")
    question: ClassVar[str] = mark("A key comes back in a noisy stream: what is its value?")
    source: ClassVar[str] = SOURCE
    family: ClassVar[str] = "Recall benchmarks"
    copies: ClassVar[float] = 5.0
    overrides: ClassVar[dict[str, Any]] = {
        "n_layers": 2,
        "positions": "learned",
        "causal": True,
        "d_head": 32,
        "steps": 500,
        "evaluate_every": 20,
    }
    slice_title: ClassVar[str] = mark("Earlier occurrences of the key")
    lengths: ClassVar[tuple[str, ...]] = ("n_pairs",)
    answers_from: ClassVar[int] = 2
    ordered: ClassVar[bool] = True
    first_number: ClassVar[int] = 0

    n_pairs: int = dial(
        12, mark("Pairs"), mark("Pairs in the stream, noise included."), ge=4, le=128
    )
    n_keys: int = dial(8, mark("Keys"), mark("Different keys."), ge=4, le=64)
    n_values: int = dial(8, mark("Values"), mark("Different values a key can have."), ge=4, le=64)
    n_noise: int = dial(16, mark("Noise tokens"), mark("Different noise tokens."), ge=1, le=64)
    noise_share: float = dial(
        0.2,
        mark("Noise"),
        mark("Share of the pairs that are noise."),
        ge=0.0,
        le=0.8,
        allow_inf_nan=False,
    )

    @property
    def d_vocab(self) -> int:
        return self.n_keys + self.n_values + self.n_noise

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def n_ctx(self) -> int:
        return 2 * self.n_pairs - 1

    @property
    def chance(self) -> float:
        same_key = _share_of_same_key(self.n_pairs, self.n_keys, self.noise_share)
        return same_key + (1 - same_key) / self.n_values

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        first_noise = self.n_keys + self.n_values
        shape = (n_examples, self.n_pairs - 1)
        keys = torch.randint(self.n_keys, shape, generator=generator)
        values = torch.randint(self.n_values, (n_examples, self.n_keys), generator=generator)
        noise = torch.rand(shape, generator=generator) < self.noise_share
        noise[:, 0] = False
        noise_tokens = torch.randint(self.n_noise, (*shape, 2), generator=generator) + first_noise

        occurs = torch.zeros_like(values).scatter_add(1, keys, (~noise).long()) > 0
        random_numbers = torch.rand(values.shape, generator=generator)
        last = random_numbers.masked_fill(~occurs, -1).argmax(1, keepdim=True)

        stream = torch.stack([keys, self.n_keys + values.gather(1, keys)], dim=-1)
        stream = torch.where(noise[:, :, None], noise_tokens, stream).flatten(1)
        tokens = torch.cat([stream, last], 1)
        times, before = self._same_key_before(tokens)
        answers = values.gather(1, torch.cat([keys, last], 1))
        labels = torch.full((n_examples, self.n_ctx - 2), NOTHING)
        target = labels.clone()
        labels[:, ::2] = answers[:, 1:].where(times > 0, NOTHING)
        target[:, ::2] = (2 * before + 1).where(times == 1, NOTHING)
        return Examples(tokens[:, :, None], labels, target, None)

    def _same_key_before(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many earlier pairs have the key of pair i + 1, and the first of them, (b, i).

        Where none has it, the first pair is returned.
        """
        import torch

        keys = tokens[:, ::2]
        # Every noise pair gets a number of its own, so that no two of them are equal.
        keys = keys.where(keys < self.n_keys, -1 - torch.arange(self.n_pairs))
        times, first = torch.zeros_like(keys[:, 1:]), torch.zeros_like(keys[:, 1:])
        for j in range(self.n_pairs - 2, -1, -1):  # pairs of pairs would take much memory
            is_same = keys[:, j + 1 :] == keys[:, j, None]
            times[:, j:] += is_same
            first[:, j:].masked_fill_(is_same, j)
        return times, first

    def book(self, tokens: Tensor) -> Tensor:
        """Return the value of every key; noise, order and repetitions do not count."""
        import torch

        pairs = tokens[:, :-1, 0].unflatten(1, (-1, 2))
        table = torch.full((len(tokens), self.n_keys + 1), NOTHING)
        table = table.scatter(1, pairs[:, :, 0].clamp(max=self.n_keys), pairs[:, :, 1])
        return in_order(table[:, : self.n_keys, None])

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        for token in tokens[:, 0].tolist():
            if token < self.n_keys:
                key = LETTERS[token]
                labels.append(Label(key, f"{key} ?", tr("key {key}", key=key)))
            elif token < self.n_keys + self.n_values:
                value = self.answer_text(token - self.n_keys)
                labels.append(Label(value, value, tr("value {value}", value=value)))
            else:
                noise = f"~{token - self.n_keys - self.n_values}"
                labels.append(Label(noise, noise, tr("noise {noise}", noise=noise)))
        return labels

    @property
    def slice_names(self) -> tuple[str, ...]:
        return (mark("once"), mark("twice"), mark("more often"))

    def slices(self, examples: Examples) -> Tensor:
        import torch

        group = torch.full_like(examples.labels, NOTHING)
        group[:, ::2] = self._same_key_before(examples.tokens[:, :, 0])[0].clamp(max=3) - 1
        return group


@lru_cache(256)
def _share_of_same_key(n_pairs: int, n_keys: int, noise_share: float) -> float:
    """Return the probability that a random earlier pair has the key of the question.

    Follows the distribution of the number of different keys so far, which is 1 after one pair.
    """
    n_seen = np.arange(n_keys + 1)
    probability = (n_seen == 1).astype(float)
    new_key = (1 - noise_share) * (1 - n_seen / n_keys)
    n_questions = n_same = 0.0
    for _ in range(n_pairs - 2):
        n_questions += (1 - noise_share) * float(probability @ n_seen) / n_keys
        n_same += (1 - noise_share) / n_keys
        increased = np.roll(probability * new_key, 1)
        probability = probability * (1 - new_key) + increased
    n_same += float(probability[1:] @ (1 / n_seen[1:]))
    return n_same / (n_questions + 1)


@register_task
class SelectiveCopy(Task):
    """Copy tokens that are spread among blanks: after a mark, answer with the tokens in order.

    As in MAD, tokens are drawn with replacement, and each blank stands before a uniform random
    token, so that the last token stands just before the mark. MAD's sizes are vocabulary 16,
    length 256, 16 tokens.

    ```
    position   0   1   2   3   4   5   6   7   8   9
    token      ·   7   3   ·   ·   7   >   ·   ·   ·
    label                                  7   3   7
    target                                 1   2   5
    ```

    Chance is a random one of the tokens.
    """

    name: ClassVar[str] = "selective_copy"
    title: ClassVar[str] = mark("Selective copying")
    question: ClassVar[str] = mark("Tokens stand among blanks: which are they, in order?")
    source: ClassVar[str] = SOURCE
    family: ClassVar[str] = "Recall benchmarks"
    overrides: ClassVar[dict[str, Any]] = {
        "n_layers": 2,
        "positions": "learned",
        "causal": True,
        "d_head": 32,
        "steps": 800,
        "evaluate_every": 20,
    }
    slice_title: ClassVar[str] = mark("Place among the tokens")
    lengths: ClassVar[tuple[str, ...]] = ("n_copied", "length")
    first_number: ClassVar[int] = 0

    n_tokens: int = dial(
        16, mark("Vocabulary"), mark("Token ids, including the blank and the mark."), ge=8, le=128
    )
    n_copied: int = dial(4, mark("Tokens"), mark("Tokens to copy in order."), ge=4, le=96)
    length: int = dial(
        16,
        mark("Length"),
        mark("Length of the sequence; at least two for every token to copy, and two more."),
        ge=10,
        le=512,
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.length < 2 * self.n_copied + 2:
            least = 2 * self.n_copied + 2
            allowed = mark("at least {least}, two for every token and two more", least=least)
            raise disagreement("length", self.length, allowed, "n_copied")
        return self

    @property
    def d_vocab(self) -> int:
        return self.n_tokens

    @property
    def n_classes(self) -> int:
        return self.n_tokens - 2

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def answers_from(self) -> int:
        return self.length - self.n_copied

    @property
    def chance(self) -> float:
        return 1 / self.n_copied + (1 - 1 / self.n_copied) / self.n_classes

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        blank, mark = self.n_classes, self.n_classes + 1
        shape = (n_examples, self.n_copied)
        labels = torch.randint(self.n_classes, shape, generator=generator)
        n_blanks = self.answers_from - 1 - self.n_copied
        before = torch.randint(self.n_copied, (n_examples, n_blanks), generator=generator)
        blanks = torch.zeros_like(labels).scatter_add(1, before, torch.ones_like(before))
        target = blanks.cumsum(1) + torch.arange(self.n_copied)
        tokens = torch.full((n_examples, self.length), blank).scatter(1, target, labels)
        tokens[:, self.answers_from - 1] = mark
        return Examples(tokens[:, :, None], labels, target, None)

    def book(self, tokens: Tensor) -> Tensor:
        """Return the tokens to copy, each with its rank; their positions do not count."""
        import torch

        stream = tokens[:, : self.answers_from, 0]
        is_token = stream < self.n_classes
        return torch.stack([stream, is_token.cumsum(1) * is_token], -1)

    def label(self, tokens: np.ndarray) -> list[Label]:
        special = {
            self.n_classes: Label("·", "·", tr("blank")),
            # Translators: the sign “>”, after which a model must answer.
            self.n_classes + 1: Label(">", ">", tr("mark")),
        }
        stream = [
            special.get(token) or Label(f"{token}", f"{token}", f"{token}")
            for token in tokens[: self.answers_from, 0].tolist()
        ]
        queries = [tr("token {number} ?", number=rank) for rank in range(1, self.n_copied + 1)]
        return stream + [Label("·", query, query) for query in queries]

    @property
    def slice_names(self) -> tuple[str, ...]:
        return (
            mark("first quarter"),
            mark("second quarter"),
            mark("third quarter"),
            mark("last quarter"),
        )

    def slices(self, examples: Examples) -> Tensor:
        import torch

        group = torch.arange(self.n_copied) * 4 // self.n_copied
        return group.expand_as(examples.labels)
