"""Base class of tasks, their registry, and the random choices that their generators share.

A task is a frozen configuration with dials and a pure generator of examples. It knows its
vocabulary, its chance level, and how to draw and display an example. It knows nothing about
models. torch is imported inside the generators only, so that a page can build and label a task
without waiting for torch.

Most examples are a *book*, which is a set of entries, followed by questions about it. A hash of
its content puts each example on the training side or on the held-out side, so that no evaluation
contains an example that was trained on. The order of a book's entries does not count.

Index letters: `b` example, `i` position, `a` answer position, `n` entry.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from attnkit.foundation.language import mark
from attnkit.foundation.registry import name_taken, origin_of
from attnkit.foundation.settings import disagreement

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float, Int, Int64
    from torch import Tensor

HELD_OUT_ONE_IN = 8
"""One book in `HELD_OUT_ONE_IN` is held out of training and used for evaluation only."""

NOTHING = -1
"""Label of a position without a question, and target of an answer that no single token holds."""

_MAX_FRUITLESS = 20
"""Draws in a row without an example of the requested side before `Task.draw` gives up."""

_MAX_PAIRS, _MIN_DRAWN, _MAX_DRAWN = 2**24, 256, 2**15
"""Limits on the examples drawn at once, and on their pairs of positions, which may be compared."""
_ROWS = 2**10  # examples of which random numbers or hashes are in memory at once

NAMES: tuple[str, ...] = tuple(
    """Ada Ben Cem Dia Eli Fay Gil Hana Ivo Jin Kai Lea Max Nia Oto Pia Quin Rea Sam Tia Uma
    Vic Wim Xia Yan Zoe Abe Bea Coy Dov Eva Fox Gus Hal Ida Jon Kit Liv Mia Ned Ola Pam Raj
    Sol Tom Una Val Wes Yuki Zed Amir Bo Cleo Dag Edo Finn Gwen Hugo Ines Jade Kurt Lars Mona
    Nils""".split()
)
"""64 short names for the people in a book."""


@dataclass(frozen=True)
class Examples:
    """A batch of labelled sequences.

    Attributes:
        tokens: Ids below the task's `d_vocab`, (b, i, fields). A token's embedding is the sum
            over its fields.
        labels: Class of each answer, below the task's `n_classes`, (b, a). `NOTHING` at positions
            without a question.
        target: Position of the token that holds the answer, (b, a). `NOTHING` where no single
            token does.
        reverse: Position of the entry whose target is this query position, (b, a). None if the
            task's relation has no reverse.
    """

    tokens: Int64[Tensor, "b i fields"]
    labels: Int64[Tensor, "b a"]
    target: Int64[Tensor, "b a"]
    reverse: Int64[Tensor, "b a"] | None = None

    def take(self, index: Int64[Tensor, " n"]) -> Examples:
        """Return the examples at these indices."""
        return Examples(
            self.tokens.index_select(0, index),
            self.labels.index_select(0, index),
            self.target.index_select(0, index),
            None if self.reverse is None else self.reverse.index_select(0, index),
        )

    def to(self, device: torch.device | str) -> Examples:
        """Return the examples on a device."""
        reverse = None if self.reverse is None else self.reverse.to(device)
        return Examples(
            self.tokens.to(device), self.labels.to(device), self.target.to(device), reverse
        )


@dataclass(frozen=True)
class Label:
    """Texts that display one token.

    Attributes:
        short: Text on an axis.
        query: Text beside the row of a query position.
        full: Text in a tooltip.
    """

    short: str
    query: str
    full: str


class Task(BaseModel, ABC):
    """A generator of labelled sequences with dials.

    Class attributes:
        name: Name in links and on the command line.
        title: Name on screen.
        question: What the task asks, as a question on screen.
        source: Origin of the task in a few words.
        family: Heading under which it is listed, one of `FAMILIES`.
        place: Rank within its family; small ranks come first.
        overrides: Settings that suit the task: sizes, training, and the number of seeds.
        full_size: Settings in which the task's published or recorded experiment differs from the
            default, which is smaller so that nobody waits; empty if the default is that experiment.
        corpus: Whether its examples are a fixed set, so that accuracy on the training examples is
            measured, too.
        asks_trained: Whether it asks what it trains on, as a table does that is learnt by heart.
        slice_title: Property by which `slices` groups the answers; empty if there are no groups.
        label_legend: How to read a label of two names, for example "name: boss"; empty if labels
            need no explanation.
        simple_model: The model whose loss is `loss_to_beat`.
        first_number: Number that displays class 0, if classes are displayed as numbers.
        at_most: Settings of the task that must not exceed another one: name → name of the other.
        lengths: Settings that a longer test multiplies; empty if there is no longer test.
        copies: Number of copies of the examples in memory while they are made; for estimates.
        preparing: Bytes in memory while the first examples are prepared; for estimates.

    Texts are in English; what shows them translates them, and marked ones have translations.
    Labels are in the reader's language already.
    Attributes that are the same at all settings can be class attributes, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    source: ClassVar[str]
    family: ClassVar[str]
    place: ClassVar[int] = 50
    overrides: ClassVar[dict[str, Any]] = {}
    full_size: ClassVar[dict[str, Any]] = {}
    corpus: ClassVar[bool] = False
    asks_trained: ClassVar[bool] = False
    slice_title: ClassVar[str] = ""
    label_legend: ClassVar[str] = ""
    simple_model: ClassVar[str] = mark("a model that sees no context")
    at_most: ClassVar[dict[str, str]] = {}
    lengths: ClassVar[tuple[str, ...]] = ()
    copies: ClassVar[float] = 2.5
    preparing: ClassVar[int] = 0
    first_number: ClassVar[int] = 10

    @model_validator(mode="after")
    def _check_at_most(self) -> Self:
        for name, other in self.at_most.items():
            value, most = getattr(self, name), getattr(self, other)
            if value > most:
                allowed = mark("at most {setting} ({most})", setting=other, most=most)
                raise disagreement(name, value, allowed, other)
        return self

    @property
    def n_fields(self) -> int:
        """Number of ids per token."""
        return 1

    @property
    def field_names(self) -> tuple[str, ...]:
        """Name of every field of a token on screen, such as name and number."""
        if self.n_fields == 1:
            return ("symbol",)
        return tuple(f"field {number + 1}" for number in range(self.n_fields))

    @property
    @abstractmethod
    def d_vocab(self) -> int:
        """Number of token ids over all fields."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Number of possible answers."""

    @property
    @abstractmethod
    def n_ctx(self) -> int:
        """Sequence length, of encoder and decoder together if there are two."""

    @property
    def n_source(self) -> int:
        """Number of positions that an encoder reads, before those of a decoder; 0: no encoder."""
        return 0

    @property
    @abstractmethod
    def answers_from(self) -> int:
        """First answer position; all later positions are answer positions, too."""

    @property
    def ordered(self) -> bool:
        """Whether later tokens contain the answers, so that the model must be causal."""
        return False

    @property
    @abstractmethod
    def chance(self) -> float:
        """Expected accuracy of the guess that the task's docstring describes."""

    @property
    def loss_to_beat(self) -> float | None:
        """Loss of `simple_model` in nats, or None; a model with a lower loss uses the context."""
        return None

    @property
    def plateau(self) -> float | None:
        """Accuracy of a random choice between an entry and its reverse; None without such pairs.

        Holds only for one head, one layer and no MLP; see `Experiment.plateau`.
        """
        return None

    @property
    def most_right(self) -> float:
        """Largest share of answers that can be right; below 1 if a question has several answers."""
        return 1.0

    @property
    def earlier(self) -> Task | None:
        """Task of equal vocabulary and length on which the embedding is trained first, or None."""
        return None

    @abstractmethod
    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        """Draw independent, identically distributed examples from both sides of the split."""

    @abstractmethod
    def book(self, tokens: Int[Tensor, "b i fields"]) -> Int[Tensor, "b n fields"]:
        """Return the part of each example whose content decides its side of the split.

        The order of the rows does not count; add it with `in_order` where it should.
        """

    @abstractmethod
    def label(self, tokens: np.ndarray) -> list[Label]:
        """Return the labels of the tokens of one example, (i, fields)."""

    def answer_text(self, answer: int) -> str:
        """Return the text that displays a class."""
        return f"{answer + self.first_number}"

    @property
    def fingerprint(self) -> str:
        """Hash of the data that examples are cut from, such as a text; empty without such data."""
        return ""

    @property
    def slice_names(self) -> tuple[str, ...]:
        """Names of the groups of answers for which accuracy is reported separately."""
        return ()

    def slices(self, examples: Examples) -> Int64[Tensor, "b a"]:
        """Return the group of every answer as an index into `slice_names`.

        By default each answer position is a group.
        """
        import torch

        return torch.arange(examples.labels.shape[1]).expand_as(examples.labels)

    def fixed_embedding(
        self, d_model: int, generator: torch.Generator
    ) -> tuple[Int64[Tensor, " n"], Float[Tensor, "n m"]] | None:
        """Return the token ids whose embeddings are fixed, and these embeddings; None if none are.

        Args:
            generator: Generator of the seed, in the same state for all variants.
        """
        return None

    def n_per_draw(self, n_examples: int, *, held_out: bool) -> int:
        """Return how many examples are made at once, from both sides, to draw `n_examples`."""
        share = 1 / HELD_OUT_ONE_IN if held_out else 1 - 1 / HELD_OUT_ONE_IN
        most = min(max(_MAX_PAIRS // self.n_ctx**2, _MIN_DRAWN), _MAX_DRAWN)
        return min(int(n_examples / share * 1.1) + 16, most)

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        """Draw examples from one side of the split.

        Args:
            n_examples: Number of examples, b.
            generator: The only source of randomness. Examples of the other side that were drawn
                on the way are discarded.
            held_out: Whether to draw from the evaluation side, not from the training side.

        Raises:
            ValueError: If the task has too few different books for that side.
        """
        import torch

        per_draw = self.n_per_draw(n_examples, held_out=held_out)
        found: dict[str, torch.Tensor] = {}
        n_found = n_fruitless = 0
        while n_found < n_examples:
            drawn = self.make_examples(per_draw, generator)
            parts = drawn.tokens.split(_ROWS)
            on_side = torch.cat([is_held_out(self.book(part)) for part in parts]) == held_out
            index = on_side.nonzero().flatten()[: n_examples - n_found]
            stop = n_found + len(index)
            for name, values in vars(drawn).items():
                if values is not None:
                    if not n_found:
                        found[name] = values.new_empty((n_examples, *values.shape[1:]))
                    torch.index_select(values, 0, index, out=found[name][n_found:stop])
            n_found, n_fruitless = stop, 0 if len(index) else n_fruitless + 1
            del drawn, values, parts  # before more are made
            if n_fruitless > _MAX_FRUITLESS:
                raise ValueError(f"{self.name}: too few different examples to hold some out")
        return Examples(**found)


FAMILIES = (
    mark("Questions people ask"),
    mark("Recall benchmarks"),
    mark("Lists"),
    mark("Text"),
)
"""Headings under which tasks are listed, in this order."""

TASKS: dict[str, type[Task]] = {}
"""All tasks by name."""


def register_task(task: type[Task]) -> type[Task]:
    """Register a task, which then appears in the command line, the Lab and the law tests.

    Raises:
        ValueError: If another task has this name, or if a class attribute is missing or invalid.
    """
    for attribute in ("name", "title", "question", "source", "family"):
        if not isinstance(getattr(task, attribute, None), str):
            raise ValueError(f"{attribute}: {task.__name__} has none, allowed a text")
    if not re.fullmatch("[a-z][a-z0-9_]*", task.name):
        allowed = "small letters, digits and underscores"
        raise ValueError(f"name: got {task.name!r}, allowed {allowed}")
    if task.family not in FAMILIES:
        raise ValueError(f"family: got {task.family!r}, allowed {', '.join(FAMILIES)}")
    registered = TASKS.get(task.name)
    if registered is not None and origin_of(registered) != origin_of(task):
        raise name_taken("name", task.name, origin_of(registered), origin_of(task))
    TASKS[task.name] = task
    return task


def in_order(tokens: Int64[Tensor, "b n fields"]) -> Int64[Tensor, "b n more"]:
    """Return tokens with their positions as one more field, for `Task.book` if order counts."""
    import torch

    positions = torch.arange(tokens.shape[1], device=tokens.device)
    return torch.cat([tokens, positions[None, :, None].expand(len(tokens), -1, 1)], -1)


def is_held_out(book: Int[Tensor, "b n fields"]) -> Tensor:
    """Return which books are held out, by a hash that ignores the order of their entries.

    Returns:
        Booleans, (b,), true for about one book in `HELD_OUT_ONE_IN`.
    """
    import torch

    powers = torch.tensor([pow(1_000_003, 1 + f, 2**31) for f in range(book.shape[-1])])
    entry = _mix((book * powers).sum(-1) + 0x9E3779B9)
    return _mix(entry.sum(-1)) % HELD_OUT_ONE_IN == 0


def _mix(x: Tensor) -> Tensor:
    """Scramble 64-bit integers with a finaliser: one changed bit changes about half of all."""
    x = (x ^ (x >> 31)) * 0x5851F42D4C957F2D
    x = (x ^ (x >> 29)) * 0x2545F4914F6CDD1D
    return (x ^ (x >> 32)) & 0x7FFFFFFFFFFFFFFF
