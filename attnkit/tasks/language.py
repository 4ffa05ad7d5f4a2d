"""Language: the characters of a real text, one after the other or with some hidden.

The text is what Python's `help` knows by heart, so nothing is downloaded. It differs between
Python's releases: no number that follows from it stands here, and a result names its hash.

Many paragraphs stand in several topics; each is kept once, for otherwise much of what is held out
could be read in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from attnkit.foundation.settings import dial
from attnkit.tasks.base import (
    HELD_OUT_ONE_IN,
    NOTHING,
    Examples,
    Label,
    Task,
    in_order,
    register_task,
)

if TYPE_CHECKING:
    import torch
    from jaxtyping import Bool, Int64
    from torch import Tensor

_N_KEPT = 100
"""So many of the commonest characters are told apart; all others are one."""

_BLOCK = 2000
"""Characters that are on the same side of the split."""

RARE, HIDDEN = "□", "■"
"""In place of a rare character, and of one that is asked."""

_SEEN = {" ": "␣", "\n": "⏎"}
"""How characters that leave no ink are shown."""

_WORDS = {" ": "space", "\n": "line break", RARE: "a rare character", HIDDEN: "hidden"}


@dataclass(frozen=True)
class Corpus:
    """A text, read once.

    Attributes:
        text: all of it. hash: sixteen hexadecimal digits of its content.
        characters: those told apart, by id; `RARE` comes last if there are any.
        ids: one for each character of the text.
        held_out: whether the character is on the held-out side.
        largest_share: of the text, that the commonest character makes up.
        bigram_entropy: of a character, given the one to its left, in nats.
    """

    text: str
    hash: str
    characters: tuple[str, ...]
    ids: Int64[np.ndarray, " n"]
    held_out: Bool[np.ndarray, " n"]
    largest_share: float
    bigram_entropy: float


@lru_cache(1)
def read_corpus() -> Corpus:
    """All of Python's help topics in the order of their keys, each paragraph once."""
    from pydoc_data.topics import topics

    paragraphs = (
        paragraph.strip("\n")
        for _, topic in sorted(topics.items())
        for paragraph in topic.split("\n\n")
    )
    return corpus_of("\n\n".join(dict.fromkeys(paragraphs)))


def corpus_of(text: str) -> Corpus:
    """Number a text's characters, cut it into blocks and count its pairs."""
    codes, place, counts = np.unique(
        np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True, return_counts=True
    )
    kept = np.sort(np.argsort(-counts, kind="stable")[:_N_KEPT])
    id_of = np.full(len(codes), len(kept))
    id_of[kept] = np.arange(len(kept))
    ids = id_of[place]
    characters = [chr(code) for code in codes[kept]] + [RARE] * (len(codes) > len(kept))
    blocks = [text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK)]
    side = [int(_digest(block), 16) % HELD_OUT_ONE_IN == 0 for block in blocks]

    n = len(characters)
    pairs = np.bincount(ids[:-1] * n + ids[1:], minlength=n * n).reshape(n, n)
    left = np.broadcast_to(pairs.sum(1, keepdims=True), pairs.shape)
    seen = pairs > 0
    nats = pairs[seen] * np.log(left[seen] / pairs[seen])
    return Corpus(
        text,
        _digest(text),
        tuple(characters),
        ids,
        np.repeat(side, _BLOCK)[: len(text)],
        float(np.bincount(ids).max() / len(ids)),
        float(nats.sum() / pairs.sum()),
    )


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


@lru_cache(4)
def starts_of(n_characters: int) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " h"]]:
    """Where windows of so many characters may begin, in training and held out.

    None crosses from one side to the other, and a held-out window that can be read in training,
    too, is left out.
    """
    corpus = read_corpus()
    n_held = np.concatenate([[0], np.cumsum(corpus.held_out)])
    within = n_held[n_characters:] - n_held[:-n_characters]
    (trained,) = np.nonzero(within == 0)
    (held_out,) = np.nonzero(within == n_characters)
    hashes = _hashes_of(corpus.ids, n_characters)
    known, asked = np.sort(hashes[trained]), hashes[held_out]
    nearest = known[np.searchsorted(known, asked).clip(max=len(known) - 1)]
    return trained, held_out[nearest != asked]  # np.isin is thirty times slower


def _hashes_of(ids: Int64[np.ndarray, " n"], n_characters: int) -> np.ndarray:
    """A hash of every window: its characters as the digits of a number modulo 2⁶⁴."""
    base = 0x5851F42D4C957F2D
    powers = np.full(len(ids), base, np.uint64).cumprod()
    inverses = np.full(len(ids), pow(base, -1, 2**64), np.uint64).cumprod()
    terms = np.zeros(1 + len(ids), np.uint64)
    terms[1:] = (ids + 1).astype(np.uint64) * powers
    sums = terms.cumsum()
    ends, begins = sums[n_characters:], sums[:-n_characters]
    hashes: np.ndarray = (ends - begins) * inverses[: len(ends)]
    return hashes


@register_task
class Language(Task):
    """A window of text: what is the next character, at every place? Or: what is hidden?

    Chance: the commonest character every time. Loss to beat: a character's entropy given its left
    neighbour, as counted in this very text; also for hidden characters, although a model may see
    more than that neighbour then, or not even that. Held out are blocks of the text, chosen by a
    hash of their content.

    ```
    position   0   1   2   3   4
    token      T   h   e   ␣   i
    label      h   e   ␣   i   f
    ```

    With the objective `masked` the same window is

    ```
    position   0   1   2   3   4
    token      T   ■   e   ␣   i
    label          h
    ```
    """

    name: ClassVar[str] = "language"
    title: ClassVar[str] = "Language"
    question: ClassVar[str] = "Which character comes next, or which one is hidden?"
    source: ClassVar[str] = "Python's own help texts, pydoc_data.topics"
    family: ClassVar[str] = "Text"
    corpus: ClassVar[bool] = True
    simple_model: ClassVar[str] = "a bigram model"
    overrides: ClassVar[dict[str, Any]] = {
        "d_model": 64,
        "n_heads": 4,
        "d_head": 16,
        "n_layers": 2,
        "d_mlp": 128,
        "positions": "learned",
        "causal": True,
        "batch_size": 16,
        "steps": 350,
        "evaluate_every": 25,
    }

    objective: Literal["next", "masked"] = dial(
        "next",
        "Objective",
        "Next: each place answers the next character, for causal models. Masked: some are hidden, "
        "for models that see both sides.",
        choice_labels=("next character", "hidden characters"),
    )
    length: int = dial(64, "Window", "Characters a model sees at once.", ge=16, le=256)
    masked_share: float = dial(
        0.15,
        "Hidden share",
        "Of the characters, where the objective is masked.",
        ge=0.05,
        le=0.5,
        allow_inf_nan=False,
    )

    @property
    def sparse(self) -> bool:
        return self.objective == "masked"

    @property
    def ordered(self) -> bool:
        return self.objective == "next"

    @property
    def d_vocab(self) -> int:
        return self.n_classes + (self.objective == "masked")

    @property
    def n_classes(self) -> int:
        return len(read_corpus().characters)

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def answers_from(self) -> int:
        return 0

    @property
    def chance(self) -> float:
        return read_corpus().largest_share

    @property
    def loss_floor(self) -> None:
        return None

    @property
    def loss_to_beat(self) -> float:
        return read_corpus().bigram_entropy

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the text's content, which numbers are compared by."""
        return read_corpus().hash

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        return self._cut(np.concatenate(starts_of(self._n_shown)), n_examples, generator)

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        return self._cut(starts_of(self._n_shown)[held_out], n_examples, generator)

    @property
    def _n_shown(self) -> int:
        """Characters of an example, the last answer included."""
        return self.length + (self.objective == "next")

    def _cut(
        self, starts: Int64[np.ndarray, " n"], n_examples: int, generator: torch.Generator
    ) -> Examples:
        import torch

        chosen = torch.randint(len(starts), (n_examples, 1), generator=generator)
        places = torch.from_numpy(starts)[chosen] + torch.arange(self._n_shown)
        window = torch.from_numpy(read_corpus().ids)[places]
        tokens, labels = window[:, : self.length], window[:, 1:]
        if self.objective == "masked":
            n_hidden = max(1, round(self.masked_share * self.length))
            lots = torch.rand(tokens.shape, generator=generator)
            hidden = torch.zeros_like(tokens, dtype=torch.bool)
            hidden.scatter_(1, lots.topk(n_hidden, dim=1, sorted=False).indices, True)
            labels = tokens.masked_fill(~hidden, NOTHING)
            tokens = tokens.masked_fill(hidden, self.n_classes)
        return Examples(tokens[:, :, None], labels, torch.full_like(labels, NOTHING))

    def book(self, tokens: Tensor) -> Tensor:
        """A window is its own book; the side is decided by its place in the text, see `draw`."""
        return in_order(tokens)

    def label(self, tokens: np.ndarray) -> list[Label]:
        characters = (*read_corpus().characters, HIDDEN)
        labels = []
        for (token,) in tokens.tolist():
            shown = _shown(characters[token])
            word = _WORDS.get(characters[token])
            labels.append(Label(shown, f"{shown} ?", f"{shown} {word}" if word else shown))
        return labels

    def answer_text(self, answer: int) -> str:
        return _shown(read_corpus().characters[answer])


def _shown(character: str) -> str:
    return _SEEN.get(character, character)
