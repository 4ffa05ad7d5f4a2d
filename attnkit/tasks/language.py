"""Language: predict the next or the hidden characters of a real text, which may be your own.

The text is that of Python's help topics. It ships with the package, so nothing is downloaded and
everybody trains on the same text. A result names the hash of the text.

Many paragraphs belong to several topics. Each is kept once, because otherwise much of the
held-out text would occur in the training text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.corpus import TOPICS, hash_of_text
from attnkit.foundation.documents import read_file
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.names import composed, without_controls
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import (
    HELD_OUT_ONE_IN,
    NOTHING,
    Examples,
    Label,
    Task,
    in_order,
    register_task,
)
from attnkit.tasks.own_data import MOST_BYTES, OwnData, check_present, register_own, wrong_data
from attnkit.tasks.own_files import decoded

if TYPE_CHECKING:
    import torch
    from jaxtyping import Bool, Int32, Int64
    from torch import Tensor

_N_COMMON = 100
"""Number of the commonest characters that have ids of their own; all others share one id."""

_BLOCK = 2000
"""Number of consecutive characters that are on the same side of the split."""

_N_BLOCKS = 16
"""Number of blocks, at least, of a text of one's own."""

FEWEST_CHARACTERS = 2000
"""Smallest number of characters of a text of one's own."""

_SPACE = re.compile(r"[^\S\n]")

RARE, HIDDEN = "□", "■"
"""Symbols that stand for a rare character and for a hidden one."""

_VISIBLE = {" ": "␣", "\n": "⏎"}
"""Visible symbols of white space."""

_DESCRIPTIONS = {
    # Translators: the character between two words.
    " ": mark("space"),
    "\n": mark("line break"),
    RARE: mark("a rare character"),
    # Translators: said of a character that a model has to guess.
    HIDDEN: mark("hidden"),
}
"""Descriptions of characters that have a symbol."""


@dataclass(frozen=True)
class Corpus:
    """A text as ids, split into a training side and a held-out side.

    Attributes:
        text: The whole text.
        hash: Hash of the text, sixteen hexadecimal digits.
        characters: Different characters in the order of their ids; `RARE` is the last if the text
            has rare characters.
        ids: Id of each character of the text.
        held_out: Whether each character is on the held-out side.
        largest_share: Share of the commonest character.
        bigram_entropy: Entropy of a character given the one to its left, in nats.
    """

    text: str
    hash: str
    characters: tuple[str, ...]
    ids: Int64[np.ndarray, " n"]
    held_out: Bool[np.ndarray, " n"]
    largest_share: float
    bigram_entropy: float


@lru_cache(4)
def read_corpus(text: str = "") -> Corpus:
    """Return a text as a corpus; without one, Python's help topics, each paragraph once.

    Raises:
        InvalidExperiment: If the file of the help topics is missing or damaged.
    """
    if text:
        return corpus_of(text, min(_BLOCK, -(-len(text) // _N_BLOCKS)))
    topics = TOPICS.read_for(Language.name)
    paragraphs = (paragraph.strip("\n") for paragraph in topics.split("\n\n"))
    return corpus_of("\n\n".join(dict.fromkeys(paragraphs)))


def corpus_of(text: str, n_block: int = _BLOCK) -> Corpus:
    """Return a text as a corpus: number its characters, split its blocks and count its bigrams.

    Args:
        text: The text.
        n_block: Number of consecutive characters that are on the same side of the split.
    """
    codes, index, counts = np.unique(
        np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True, return_counts=True
    )
    common = np.sort(np.argsort(-counts, kind="stable")[:_N_COMMON])
    id_of = np.full(len(codes), len(common))
    id_of[common] = np.arange(len(common))
    ids = id_of[index]
    characters = [chr(code) for code in codes[common]] + [RARE] * (len(codes) > len(common))
    blocks = [text[start : start + n_block] for start in range(0, len(text), n_block)]
    hashes = [int(hash_of_text(block), 16) for block in blocks]
    held_out = [number % HELD_OUT_ONE_IN == 0 for number in hashes]
    if len(blocks) > 1 and not any(held_out):
        held_out[hashes.index(min(hashes))] = True

    n = len(characters)
    pairs = np.bincount(ids[:-1] * n + ids[1:], minlength=n * n).reshape(n, n)
    left = np.broadcast_to(pairs.sum(1, keepdims=True), pairs.shape)
    occurs = pairs > 0
    nats = pairs[occurs] * np.log(left[occurs] / pairs[occurs])
    return Corpus(
        text,
        hash_of_text(text),
        tuple(characters),
        ids,
        np.repeat(held_out, n_block)[: len(text)],
        float(np.bincount(ids).max() / len(ids)),
        float(nats.sum() / pairs.sum()),
    )


@lru_cache(4)
def starts_of(
    n_characters: int, text: str = ""
) -> tuple[Int32[np.ndarray, " t"], Int32[np.ndarray, " h"]]:
    """Return the starts of all windows of `n_characters`, for training and for evaluation.

    No window contains characters of both sides. Held-out windows that also occur in the training
    text are left out.
    """
    corpus = read_corpus(text)
    hashes, n_held_out = _hashes_of(corpus.ids, n_characters), _n_held_out(corpus, n_characters)
    trained = np.flatnonzero(n_held_out == 0).astype(np.int32)
    held_out = np.flatnonzero(n_held_out == n_characters).astype(np.int32)
    in_training, of_held_out = hashes[trained], hashes[held_out]
    in_training.sort()
    # A binary search: np.isin is thirty times slower.
    nearest = in_training[np.searchsorted(in_training, of_held_out).clip(max=len(in_training) - 1)]
    return trained, held_out[nearest != of_held_out]


def _n_held_out(corpus: Corpus, n_characters: int) -> Int32[np.ndarray, " w"]:
    """Return the number of held-out characters of every window."""
    counts = np.zeros(1 + len(corpus.held_out), np.int32)
    np.cumsum(corpus.held_out, out=counts[1:])
    return counts[n_characters:] - counts[:-n_characters]


def _hashes_of(ids: Int64[np.ndarray, " n"], n_characters: int) -> np.ndarray:
    """Return the hash of every window: its characters are digits of a number modulo 2⁶⁴."""
    base = 0x5851F42D4C957F2D
    sums = np.zeros(1 + len(ids), np.uint64)  # of digits times powers
    powers = sums[1:]
    powers[:] = base
    np.multiply.accumulate(powers, out=powers)
    powers *= (ids + 1).view(np.uint64)
    np.add.accumulate(powers, out=powers)
    hashes = sums[n_characters:] - sums[:-n_characters]
    inverses = sums[: len(hashes)]
    inverses[:] = pow(base, -1, 2**64)
    np.multiply.accumulate(inverses, out=inverses)
    hashes *= inverses
    return hashes


@register_task
class Language(Task):
    """Predict the next character at every position of a window, or its hidden characters.

    Chance is the commonest character. The loss to beat is the entropy of a character given its
    left neighbour, counted in the same text. It is used for hidden characters, too, although a
    model may then see more than that neighbour, or not even the neighbour. A hash of their content
    decides which blocks of the text are held out.

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
    title: ClassVar[str] = mark("Language")
    question: ClassVar[str] = mark("Which character comes next, or which one is hidden?")
    source: ClassVar[str] = mark("Python's own help topics, those of Python 3.11")
    family: ClassVar[str] = "Text"
    corpus: ClassVar[bool] = True
    copies: ClassVar[float] = 2.4
    preparing: ClassVar[int] = 8 * 2**20
    answers_from: ClassVar[int] = 0
    simple_model: ClassVar[str] = mark("a bigram model")
    overrides: ClassVar[dict[str, Any]] = {
        "d_model": 48,
        "n_heads": 3,
        "d_head": 16,
        "n_layers": 2,
        "d_mlp": 96,
        "positions": "learned",
        "causal": True,
        "batch_size": 16,
        "steps": 350,
        "evaluate_every": 35,
    }
    full_size: ClassVar[dict[str, Any]] = {
        "length": 64,
        "d_model": 64,
        "n_heads": 4,
        "d_mlp": 128,
    }

    objective: Literal["next", "masked"] = dial(
        "next",
        mark("Objective"),
        mark(
            "Next: each position predicts the next character, for causal models. Masked: some "
            "characters are hidden and must be predicted, for models that see both sides."
        ),
        choice_labels=(mark("next character"), mark("hidden characters")),
    )
    length: int = dial(
        32, mark("Window"), mark("Characters that a model sees at once."), ge=16, le=256
    )
    masked_share: float = dial(
        0.15,
        mark("Hidden share"),
        mark("Share of characters that are hidden if the objective is masked."),
        ge=0.05,
        le=0.5,
        allow_inf_nan=False,
    )

    @property
    def text(self) -> str:
        """Text of one's own; empty for that of the package."""
        return ""

    @property
    def corpus_read(self) -> Corpus:
        """The text, with its characters and its split."""
        return read_corpus(self.text)

    @property
    def ordered(self) -> bool:
        return self.objective == "next"

    @property
    def d_vocab(self) -> int:
        return self.n_classes + (self.objective == "masked")

    @property
    def n_classes(self) -> int:
        return len(self.corpus_read.characters)

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return self.corpus_read.largest_share

    @property
    def loss_to_beat(self) -> float:
        return self.corpus_read.bigram_entropy

    @property
    def fingerprint(self) -> str:
        """Hash of the text: results are comparable only if it is the same."""
        return self.corpus_read.hash

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        starts = np.concatenate(starts_of(self._n_characters, self.text))
        return self._cut(starts, n_examples, generator)

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        return self._cut(starts_of(self._n_characters, self.text)[held_out], n_examples, generator)

    @property
    def _n_characters(self) -> int:
        """Number of characters of an example, including the last answer."""
        return self.length + (self.objective == "next")

    def _cut(
        self, starts: Int32[np.ndarray, " n"], n_examples: int, generator: torch.Generator
    ) -> Examples:
        import torch

        chosen = torch.randint(len(starts), (n_examples, 1), generator=generator)
        ids, positions = torch.from_numpy(self.corpus_read.ids), torch.arange(self._n_characters)
        window = ids[torch.from_numpy(starts)[chosen] + positions]
        tokens, labels = window[:, : self.length], window[:, 1:]
        if self.objective == "masked":
            n_hidden = max(1, round(self.masked_share * self.length))
            random_numbers = torch.rand(tokens.shape, generator=generator)
            places = random_numbers.topk(n_hidden, dim=1, sorted=False).indices
            del random_numbers
            hidden = torch.zeros_like(tokens, dtype=torch.bool).scatter_(1, places, True)
            labels = tokens.masked_fill(~hidden, NOTHING)
            tokens = tokens.masked_fill(hidden, self.n_classes)
        return Examples(tokens[:, :, None], labels, torch.full_like(labels, NOTHING))

    def book(self, tokens: Tensor) -> Tensor:
        """Return the whole window; `draw` ignores it, as the place in the text decides the side."""
        return in_order(tokens)

    def label(self, tokens: np.ndarray) -> list[Label]:
        characters = (*self.corpus_read.characters, HIDDEN)
        labels = []
        for (token,) in tokens.tolist():
            symbol = _symbol(characters[token])
            description = _DESCRIPTIONS.get(characters[token])
            full = f"{symbol} {tr(description)}" if description else symbol
            labels.append(Label(symbol, f"{symbol} ?", full))
        return labels

    def answer_text(self, answer: int) -> str:
        return _symbol(self.corpus_read.characters[answer])


@register_own
class Text(OwnData, Language):
    """Predict the next or the hidden characters of a text of one's own.

    The hundred commonest characters have ids of their own, and all others share one. The text is
    divided into blocks, and a hash of their content decides which ones are held out: about one in
    eight. Windows of held-out text that also occur in the training text are not evaluated.

    ```
    position   0   1   2   3   4
    token      T   h   e   ␣   i
    label      h   e   ␣   i   f
    ```

    Chance and the loss to beat are those of the task `language`, counted in this text.

    Args:
        text: The text.
        **settings: Dials of the task: `objective`, `length`, `masked_share`.

    Raises:
        InvalidExperiment: If the text cannot be used.
    """

    name: ClassVar[str] = "text"
    title: ClassVar[str] = mark("Your own text")
    source: ClassVar[str] = mark("a text of one's own")

    def __init__(self, text: str | None = None, /, **settings: Any) -> None:
        given = settings.pop("data", "") if text is None else text
        if not isinstance(given, str):
            raise wrong_data(type(given).__name__, mark("a text"))
        super().__init__(data=self.text_form(given), **settings)

    @classmethod
    def read(cls, path: str | Path, **settings: Any) -> Self:
        """Return the task on the text of a file.

        Raises:
            OSError: If the file does not exist or cannot be read.
            BadDocument: If it is too large or no text.
            InvalidExperiment: If the text cannot be used.
        """
        return cls(decoded(read_file(path, MOST_BYTES))[0], **settings)

    @model_validator(mode="after")
    def _check(self) -> Self:
        trained, held_out = starts_of(self._n_characters, self.data)
        if not len(trained) or not len(held_out):
            allowed = mark("a shorter window, or a longer text that repeats itself less")
            raise disagreement("length", self.length, allowed, "data")
        return self

    @classmethod
    @lru_cache(8)
    def text_form(cls, data: str) -> str:
        check_present(data)
        if len(data) > MOST_BYTES:
            got = tr("{n:,} characters", n=len(data))
            raise wrong_data(got, mark("at most {most:,}", most=MOST_BYTES))
        text = _SPACE.sub(" ", data.replace("\r\n", "\n").replace("\r", "\n"))
        text = "\n".join(map(without_controls, text.split("\n")))
        text = composed(text.replace(HIDDEN, RARE))
        if len(text) >= FEWEST_CHARACTERS:
            return text
        got = tr_n("{n:,} character", "{n:,} characters", len(text))
        if text:
            raise wrong_data(got, mark("at least {fewest:,}", fewest=FEWEST_CHARACTERS))
        allowed = mark(
            "at least {fewest:,}: use ak.Text(text) or --data FILE", fewest=FEWEST_CHARACTERS
        )
        raise wrong_data(got, allowed)

    @classmethod
    def size_in_words(cls, data: str) -> str:
        return tr_n("text of {n:,} character", "text of {n:,} characters", len(data))

    @property
    def text(self) -> str:
        return self.data

    @property
    def notes(self) -> list[str]:
        corpus = self.corpus_read
        share = corpus.held_out.mean()
        return [
            tr(
                "The text has {n:,} characters, {different} different ones; {share:.0%} of it is "
                "held out: no training example overlaps with it, and accuracy is measured on "
                "nothing else.",
                n=len(corpus.text),
                different=len(corpus.characters),
                share=share,
            )
        ]


def _symbol(character: str) -> str:
    return _VISIBLE.get(character, character)
