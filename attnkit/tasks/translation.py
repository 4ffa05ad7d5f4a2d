"""Translation: an encoder reads the source, and a decoder writes the translation.

The decoder is trained with teacher forcing: its first token is a start, every other token is the
right word before, and the label is the next word.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from attnkit.foundation.corpus import TRANSLATED_NAMES, hash_of_text
from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import dial
from attnkit.tasks.base import (
    NAMES,
    NOTHING,
    Examples,
    Label,
    Task,
    in_order,
    is_held_out,
    register_task,
)
from attnkit.tasks.draws import choose

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Language = Literal["German", "French", "Spanish", "Italian", "Dutch", "Swedish"]


# Translators: the first token of a decoder, before the first word of a translation.
START = mark("start")
"""Text of the first token of a decoder."""


@register_task
class Dictionary(Task):
    """Translate names into numbers in order; a name has the same number in all sentences.

    A sentence is a random choice of names without repetition. With Ada 31, Ben 14, Cem 25:

    ```
    position   0    1    2      3      4   5
    token      Cem  Ada  Ben    start  25  31
    label                       25     31  14
    target                      0      1   2
    ```

    In reversed order, the labels would be 14, 31, 25. Chance is the number of a random name of the
    sentence.
    """

    name: ClassVar[str] = "dictionary"
    title: ClassVar[str] = mark("Dictionary")
    question: ClassVar[str] = mark(
        "Each name has the same number everywhere: which number is next?"
    )
    family: ClassVar[str] = "Questions people ask"
    source: ClassVar[str] = mark("the question “K should be the same with V” on Stack Exchange")
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "positions": "learned", "steps": 300}
    slice_title: ClassVar[str] = mark("Place")
    at_most: ClassVar[dict[str, str]] = {"n_words": "n_vocab"}
    lengths: ClassVar[tuple[str, ...]] = ("n_words",)

    n_words: int = dial(8, mark("Words"), mark("Names in a sentence."), ge=2, le=16)
    n_vocab: int = dial(32, mark("Dictionary"), mark("Names that have a number."), ge=8, le=64)
    order: Literal["same", "reversed"] = dial(
        "same",
        mark("Order"),
        mark("Order of the numbers, compared with the names."),
        choice_labels=(mark("same"), mark("reversed")),
    )

    @property
    def d_vocab(self) -> int:
        return 2 * self.n_vocab + 1

    @property
    def n_classes(self) -> int:
        return self.n_vocab

    @property
    def n_ctx(self) -> int:
        return 2 * self.n_words

    @property
    def n_source(self) -> int:
        return self.n_words

    @property
    def answers_from(self) -> int:
        return self.n_source

    @property
    def slice_names(self) -> tuple[str, ...]:
        return tuple(f"{number}" for number in range(1, self.n_words + 1))

    @property
    def chance(self) -> float:
        return 1 / self.n_words

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        source = choose(n_examples, self.n_vocab, self.n_words, generator)
        position = torch.arange(self.n_words)
        target = position if self.order == "same" else position.flip(0)
        labels = torch.tensor(_dictionary(self.n_vocab))[source[:, target]]
        start = torch.full((n_examples, 1), self.d_vocab - 1)
        tokens = torch.cat([source, start, self.n_vocab + labels[:, :-1]], 1)[:, :, None]
        return Examples(tokens, labels, target.repeat(n_examples, 1))

    def book(self, tokens: Tensor) -> Tensor:
        return in_order(tokens[:, : self.n_source])

    def label(self, tokens: np.ndarray) -> list[Label]:
        return [self._label(token) for token in tokens[:, 0].tolist()]

    def _label(self, token: int) -> Label:
        if token < self.n_vocab:
            number = self.answer_text(_dictionary(self.n_vocab)[token])
            return Label(NAMES[token], NAMES[token], f"{NAMES[token]} ({number})")
        is_start = token == self.d_vocab - 1
        text = tr(START) if is_start else self.answer_text(token - self.n_vocab)
        return Label(text, f"{text} →", text)


@register_task
class Translation(Task):
    """Translate English names of countries, languages and currencies, letter by letter.

    The names come from Unicode's locale data and ship with the package, so that everybody trains on
    the same ones. Names longer than `max_length` in either language and names with two translations
    are left out. Each side's letters have ids
    of their own. The source is padded with blanks, and positions after the end have no question.
    With `max_length` 5, a pair would be:

    ```
    position   0  1  2  3  4    5      6  7  8  9    10
    token      C  u  b  a  ·    start  K  u  b  a    ·
    label                       K      u  b  a  end
    ```

    No position holds the answer, so there is no target. A hash of the English name decides the
    side of the split. Examples are drawn in passes over all pairs of one side. Chance is the share
    of the commonest answer.
    """

    name: ClassVar[str] = "translation"
    title: ClassVar[str] = mark("Translation")
    question: ClassVar[str] = mark("“Sweden” becomes “Schweden”: which letter is next?")
    family: ClassVar[str] = "Text"
    source: ClassVar[str] = mark("the question “K should be the same with V” on Stack Exchange")
    corpus: ClassVar[bool] = True
    copies: ClassVar[float] = 1.5
    slice_title: ClassVar[str] = mark("Translation")
    overrides: ClassVar[dict[str, Any]] = {
        "n_heads": 2,
        "d_head": 16,
        "positions": "learned",
        "steps": 400,
        "evaluate_every": 20,
    }

    language: Language = dial(
        "German",
        mark("Language"),
        mark("Language of the translations."),
        choice_labels=(
            mark("German"),
            mark("French"),
            mark("Spanish"),
            mark("Italian"),
            mark("Dutch"),
            mark("Swedish"),
        ),
    )
    max_length: int = dial(12, mark("Longest"), mark("Letters of the longest name."), ge=8, le=24)

    @property
    def d_vocab(self) -> int:
        return len(self._stock.english) + 1 + len(self._stock.foreign) + 2

    @property
    def n_classes(self) -> int:
        return len(self._stock.foreign) + 1

    @property
    def n_ctx(self) -> int:
        return 2 * self.max_length + 1

    @property
    def n_source(self) -> int:
        return self.max_length

    @property
    def answers_from(self) -> int:
        return self.n_source

    @property
    def chance(self) -> float:
        counts = np.bincount(self._stock.labels[self._stock.labels != NOTHING])
        return float(counts.max() / counts.sum())

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All pairs (English name, translation), on both sides of the split."""
        return self._stock.pairs

    @property
    def _stock(self) -> _Stock:
        return _stock(self.language, self.max_length)

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        return self._take(torch.randint(len(self.pairs), (n_examples,), generator=generator))

    def draw(self, n_examples: int, generator: torch.Generator, *, held_out: bool) -> Examples:
        import torch

        tokens = torch.from_numpy(self._stock.tokens)
        side = (is_held_out(self.book(tokens)) == held_out).nonzero()[:, 0]
        n_passes = -(-n_examples // len(side))
        order = choose(n_passes, len(side), len(side), generator).flatten()
        return self._take(side[order[:n_examples]])

    def book(self, tokens: Tensor) -> Tensor:
        return in_order(tokens[:, : self.n_source])

    def answer_text(self, answer: int) -> str:
        letters = self._stock.foreign
        return _readable(letters[answer]) if answer < len(letters) else tr("end")

    def label(self, tokens: np.ndarray) -> list[Label]:
        return [self._label(token) for token in tokens[:, 0].tolist()]

    @property
    def fingerprint(self) -> str:
        return hash_of_text("\n".join("\t".join(pair) for pair in self.pairs))

    @property
    def slice_names(self) -> tuple[str, ...]:
        # Translators: translations that are the same word as in English, and all others.
        return (mark("as in English"), mark("other"))

    def slices(self, examples: Examples) -> Tensor:
        import torch

        english = {letter: token for token, letter in enumerate(self._stock.english)}
        n_letters = len(self._stock.english)
        as_source = [english.get(letter, NOTHING) for letter in self._stock.foreign]
        as_source.append(n_letters)  # the end (last class) and `NOTHING` (-1) become blanks
        source = examples.tokens[:, : self.n_source, 0]
        written = torch.tensor(as_source, device=source.device)[examples.labels]
        other = (written[:, :-1] != source).any(1).long()
        return other[:, None].expand_as(examples.labels)

    def _take(self, index: Tensor) -> Examples:
        import torch

        tokens, labels = map(torch.from_numpy, (self._stock.tokens, self._stock.labels))
        labels = labels[index]
        return Examples(tokens[index], labels, torch.full_like(labels, NOTHING))

    def _label(self, token: int) -> Label:
        letters = self._stock.english
        if token < len(letters):
            text = _readable(letters[token])
            return Label(text, text, text)
        token -= len(letters) + 1
        blank = token < 0 or token == self.n_classes
        text = (
            "·" if blank else tr(START) if token == self.n_classes - 1 else self.answer_text(token)
        )
        return Label(text, f"{text} →", text)


@dataclass(frozen=True)
class _Stock:
    """All pairs of a language as ids.

    Ids are, in this order, English letters, a blank, foreign letters, the start, the decoder's
    blank.

    Attributes:
        pairs: English names and their translations.
        english: Letters of the English names in the order of their ids.
        foreign: Letters of the translations in the order of their ids.
        tokens: Tokens of all pairs, (pair, i, 1).
        labels: Foreign letters, then the end, then `NOTHING`, (pair, a).
    """

    pairs: tuple[tuple[str, str], ...]
    english: str
    foreign: str
    tokens: np.ndarray
    labels: np.ndarray


@cache
def _stock(language: Language, max_length: int) -> _Stock:
    pairs = [pair for pair in _names(language) if max(map(len, pair)) <= max_length]
    english, foreign = ("".join(sorted({*"".join(side)})) for side in zip(*pairs, strict=True))
    first = len(english) + 1
    tokens = np.full((len(pairs), 2 * max_length + 1, 1), first + len(foreign) + 1)
    labels = np.full((len(pairs), max_length + 1), NOTHING)
    tokens[:, :max_length] = len(english)
    tokens[:, max_length] = first + len(foreign)
    for row, (source, translated) in enumerate(pairs):
        letters = [foreign.index(letter) for letter in translated]
        tokens[row, : len(source), 0] = [english.index(letter) for letter in source]
        tokens[row, max_length + 1 :][: len(letters), 0] = np.add(letters, first)
        labels[row, : len(letters) + 1] = [*letters, len(foreign)]
    return _Stock(tuple(pairs), english, foreign, tokens, labels)


@cache
def _names(language: Language) -> list[tuple[str, str]]:
    """Return the sorted pairs (English name, translation) of all names with one translation.

    Raises:
        InvalidExperiment: If the file of the names is missing or damaged.
    """
    languages, *things = TRANSLATED_NAMES.read_for(Translation.name).split("\n")
    column = languages.split("\t").index(language)
    rows = (thing.split("\t") for thing in things)
    pairs = {(row[0], row[column]) for row in rows if row[column]}
    n_translations = Counter(name for name, _ in pairs)
    return sorted(pair for pair in pairs if n_translations[pair[0]] == 1)


@cache
def _dictionary(n_vocab: int) -> tuple[int, ...]:
    """Return the number of every name: a fixed permutation."""

    def digest(number: int) -> bytes:
        return hashlib.blake2b(f"dictionary {number}".encode()).digest()

    return tuple(sorted(range(n_vocab), key=digest))


def _readable(letter: str) -> str:
    return "␣" if letter.isspace() else letter
