"""What every task is: a frozen configuration with dials, and a pure generator of examples.

A task knows its vocabulary, its chance level and how to draw and how to read an example.
It knows nothing about models. torch is imported inside the generators only, so that a page
can build and label a task without waiting for torch.

Most examples are a *book*: a set of entries, and questions about it. Examples are split by a hash
of their content into a training side and a held-out side, so that an evaluation never meets one
that was trained on; of a book the order of the entries does not count.

Index letters: `b` example, `i` position, `a` position that may answer, `n` entry.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float, Int, Int64
    from torch import Tensor

HELD_OUT_ONE_IN = 8
"""One book in so many is held out of training and used for evaluation only."""

NOTHING = -1
"""In place of a label: nothing is asked here. In place of a position: there is none."""

_MAX_FRUITLESS = 20
"""Draws without an example of one side before a task is called too small to be split."""

_TOGETHER, _LEAST_TOGETHER, _MOST_TOGETHER = 2**24, 256, 2**15
"""Examples that are drawn at once: so many over the square of their length, within limits, because
generators may compare all positions with all."""

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
        tokens: (b, i, fields) ids below the task's `d_vocab`; a token's embedding is the sum
            over its fields.
        labels: (b, a) class of each answer, below the task's `n_classes`; `NOTHING` at positions
            that are asked nothing, which only `Task.sparse` tasks have.
        target: (b, a) position of the token that holds the answer; `NOTHING` where there is no
            such single one.
        reverse: (b, a) position of the entry that asks for the asker, or None where the
            relation has no other direction.
    """

    tokens: Int64[Tensor, "b i fields"]
    labels: Int64[Tensor, "b a"]
    target: Int64[Tensor, "b a"]
    reverse: Int64[Tensor, "b a"] | None = None

    def take(self, index: Int64[Tensor, " n"]) -> Examples:
        """Return the examples at these places."""
        return Examples(
            self.tokens.index_select(0, index),
            self.labels.index_select(0, index),
            self.target.index_select(0, index),
            None if self.reverse is None else self.reverse.index_select(0, index),
        )

    def to(self, device: torch.device | str) -> Examples:
        """The same on a device."""
        reverse = None if self.reverse is None else self.reverse.to(device)
        return Examples(
            self.tokens.to(device), self.labels.to(device), self.target.to(device), reverse
        )


@dataclass(frozen=True)
class Label:
    """How one token is shown.

    Attributes:
        short: on an axis. asking: beside the row of an answering token. full: in a tooltip.
    """

    short: str
    asking: str
    full: str


class Task(BaseModel, ABC):
    """A generator of labelled sequences with dials.

    Class attributes:
        name: as typed. title, question: as shown. source: where it comes from, in a few words.
        family: under which heading it is shown, one of `FAMILIES`. place: among those there.
        overrides: the sizes and the training that suit the task, by the names of `Size` and
            `Training` in `attnkit.experiment`.
        preset: settings, besides the defaults, with which QKV solves it within a minute; empty
            where it does with the defaults.
        corpus: whether it has a fixed stock of examples, so that accuracy on those trained on is
            measured, too.
        slice_title: what `slices` tells apart; empty if nothing.
        label_legend: how a label of two names is read, for example "name: boss"; empty if labels
            speak for themselves.
        simple_model: whose loss `loss_to_beat` is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    source: ClassVar[str]
    family: ClassVar[str]
    place: ClassVar[int] = 50
    overrides: ClassVar[dict[str, Any]] = {}
    preset: ClassVar[dict[str, Any]] = {}
    corpus: ClassVar[bool] = False
    slice_title: ClassVar[str] = ""
    label_legend: ClassVar[str] = ""
    simple_model: ClassVar[str] = "a model that sees no context"

    @property
    def n_fields(self) -> int:
        """Ids per token."""
        return 1

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
        """Sequence length; that of both sides together where there are two."""

    @property
    def n_source(self) -> int:
        """So many first positions are an encoder's, the others a decoder's; 0: there is but one."""
        return 0

    @property
    @abstractmethod
    def answers_from(self) -> int:
        """First position that may answer; all later ones may, too."""

    @property
    def sparse(self) -> bool:
        """Whether some of the positions from `answers_from` on are asked nothing."""
        return False

    @property
    def ordered(self) -> bool:
        """Whether answers lie in what comes later, so that a model must be causal."""
        return False

    @property
    @abstractmethod
    def chance(self) -> float:
        """Expected accuracy of the guess that the task's docstring names."""

    @property
    def loss_floor(self) -> float | None:
        """The lowest mean cross-entropy that can be reached, in nats; None if it is not known."""
        return 0.0

    @property
    def loss_to_beat(self) -> float | None:
        """The loss of a simple model, in nats, that tells whether context is used; None: none."""
        return None

    @property
    def plateau(self) -> float | None:
        """Accuracy of picking at random between an entry and its reverse, if a task has such pairs.

        Holds only for one head, one layer and no MLP; see `Experiment.plateau`.
        """
        return None

    @property
    def earlier(self) -> Task | None:
        """The task on which the embedding is trained before; of the same vocabulary and length."""
        return None

    @abstractmethod
    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        """Draw examples of both sides of the split, independent and alike in distribution."""

    @abstractmethod
    def book(self, tokens: Int[Tensor, "b i fields"]) -> Int[Tensor, "b n fields"]:
        """The part of each example whose content decides the side of the split.

        Its rows are taken as a set; where their order counts, see `in_order`.
        """

    @abstractmethod
    def label(self, tokens: np.ndarray) -> list[Label]:
        """Readable labels of one example's tokens, (i, fields)."""

    def answer_text(self, answer: int) -> str:
        """Readable form of a class."""
        return f"{answer + 10}"

    @property
    def fingerprint(self) -> str:
        """What its examples are made of besides code: a hash of a text, say; empty if nothing."""
        return ""

    @property
    def slice_names(self) -> tuple[str, ...]:
        """Names of the groups of answers that accuracy is reported by."""
        return ()

    def slices(self, examples: Examples) -> Int64[Tensor, "b a"]:
        """The group of every answer by its place in `slice_names`: its place among the answers."""
        import torch

        return torch.arange(examples.labels.shape[1]).expand_as(examples.labels)

    def fixed_embedding(
        self, d_model: int, generator: torch.Generator
    ) -> tuple[Int64[Tensor, " n"], Float[Tensor, "n m"]] | None:
        """Token ids whose embeddings are given and stay as they are, and those; None: none.

        Args:
            generator: one for each seed, the same for all variants.
        """
        return None

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        """Draw examples from one side of the split.

        Args:
            n_examples: how many, b.
            generator: the only source of randomness; advanced by whole draws.
            held_out: the evaluation side if true, the training side otherwise.

        Raises:
            ValueError: if the task has too few different books for that side.
        """
        import torch

        share = 1 / HELD_OUT_ONE_IN if held_out else 1 - 1 / HELD_OUT_ONE_IN
        together = min(max(_TOGETHER // self.n_ctx**2, _LEAST_TOGETHER), _MOST_TOGETHER)
        per_draw = min(int(n_examples / share * 1.1) + 16, together)
        parts: list[Examples] = []
        found = n_fruitless = 0
        while found < n_examples:
            drawn = self.make_examples(per_draw, generator)
            kept = (is_held_out(self.book(drawn.tokens)) == held_out).nonzero().flatten()
            parts.append(drawn.take(kept[: n_examples - found]))
            found += len(kept)
            n_fruitless = 0 if len(kept) else n_fruitless + 1
            if n_fruitless > _MAX_FRUITLESS:
                raise ValueError(f"{self.name}: too few different examples to hold some out")
        if len(parts) == 1:
            return parts[0]
        reverses = [part.reverse for part in parts if part.reverse is not None]
        return Examples(
            torch.cat([part.tokens for part in parts]),
            torch.cat([part.labels for part in parts]),
            torch.cat([part.target for part in parts]),
            torch.cat(reverses) if reverses else None,
        )


FAMILIES = ("Questions people ask", "Recall benchmarks", "Lists", "Text")
"""Headings under which tasks are shown, in this order."""

TASKS: dict[str, type[Task]] = {}
"""All tasks by name."""


def register_task(task: type[Task]) -> type[Task]:
    """Add a task, which then appears in the command line, the Lab and the law tests.

    Raises:
        ValueError: if another task has this name, or something it must say is missing.
    """
    for attribute in ("name", "title", "question", "source", "family"):
        if not isinstance(getattr(task, attribute, None), str):
            raise ValueError(f"{attribute}: {task.__name__} has none, allowed a text")
    if not re.fullmatch("[a-z][a-z0-9_]*", task.name):
        allowed = "small letters, digits and underscores"
        raise ValueError(f"name: got {task.name!r}, allowed {allowed}")
    if task.family not in FAMILIES:
        raise ValueError(f"family: got {task.family!r}, allowed {', '.join(FAMILIES)}")
    known = TASKS.get(task.name)
    if known is not None and known.__qualname__ != task.__qualname__:
        raise ValueError(f"name: {task.name!r} is taken by {known.__name__}")
    TASKS[task.name] = task
    return task


def in_order(tokens: Int64[Tensor, "b n fields"]) -> Int64[Tensor, "b n more"]:
    """Tokens with their positions as one more field, for `Task.book` where order counts."""
    import torch

    at = torch.arange(tokens.shape[1], device=tokens.device)
    return torch.cat([tokens, at[None, :, None].expand(len(tokens), -1, 1)], -1)


def is_held_out(book: Int[Tensor, "b n fields"]) -> Tensor:
    """Which books are held out: a hash of their entries that ignores the entries' order.

    Returns:
        (b,) booleans, true for about one book in `HELD_OUT_ONE_IN`.
    """
    import torch

    powers = torch.tensor([pow(1_000_003, 1 + f, 2**31) for f in range(book.shape[-1])])
    entry = _mix((book * powers).sum(-1) + 0x9E3779B9)
    return _mix(entry.sum(-1)) % HELD_OUT_ONE_IN == 0


def _mix(x: Tensor) -> Tensor:
    """A 64-bit finaliser (multiply and shift, wrapping): one changed bit changes half of all."""
    x = (x ^ (x >> 31)) * 0x5851F42D4C957F2D
    x = (x ^ (x >> 29)) * 0x2545F4914F6CDD1D
    return (x ^ (x >> 32)) & 0x7FFFFFFFFFFFFFFF


def choose(n_rows: int, n_items: int, n_chosen: int, generator: torch.Generator) -> Tensor:
    """Draw without replacement, (n_rows, n_chosen): a uniform ordered choice in every row.

    Items stand in the order of random numbers, which have 24 bits: as whole numbers, with the item
    behind them, they are sorted by numpy in a twentieth of the time of `torch.argsort`.
    """
    import torch

    lots = torch.rand(n_rows, n_items, generator=generator).mul_(2**24).long()
    keys = lots.mul_(n_items).add_(torch.arange(n_items))
    chosen = np.sort(keys.numpy(), axis=1)[:, :n_chosen] % n_items
    return torch.from_numpy(chosen)


def choose_few(n_rows: int, n_items: int, n_chosen: int, generator: torch.Generator) -> Tensor:
    """What `choose` draws, cheaper if few of many: rows with a repetition are drawn anew."""
    import torch

    if n_chosen**2 > 2 * n_items:
        return choose(n_rows, n_items, n_chosen, generator)
    rows = torch.randint(n_items, (n_rows, n_chosen), generator=generator)
    again = torch.arange(n_rows)
    while True:
        ordered = rows[again].sort(1).values
        again = again[(ordered[:, 1:] == ordered[:, :-1]).any(1)]
        if not len(again):
            return rows
        rows[again] = torch.randint(n_items, (len(again), n_chosen), generator=generator)
