"""Fuzzy phone book: questions contain misspelt names, and the nearest entry is the answer."""

from __future__ import annotations

from itertools import combinations
from math import comb
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import Examples, Label, register_task
from attnkit.tasks.draws import choose
from attnkit.tasks.phonebook import Book, entry_label

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int64
    from torch import Tensor


@register_task
class FuzzyPhonebook(Book):
    """Look up misspelt names: the book lists `name number`, then asks for every name once.

    A token has one id for every letter of its name, and a letter has another id at every place,
    so that similar names have similar embeddings. With one wrong letter, any two names of a book
    differ in at least three places: the right entry differs from the question in one place, every
    other entry in two or more. Names are drawn one after another, each uniformly among the names
    that are far enough from the earlier ones. Each question has `n_wrong` wrong letters, at
    random places and uniform among the other letters.

    ```
    position   0        1        2        3        4        5
    token      ANTO 31  BRIM 14  KEVA 25  BRAM ?   KEVO ?   UNTO ?
    label                                 14       25       31
    target                                1        2        0
    ```

    Chance is the number of a random entry.
    """

    name: ClassVar[str] = "fuzzy_phonebook"
    title: ClassVar[str] = mark("Fuzzy phone book")
    place: ClassVar[int] = 30
    question: ClassVar[str] = mark("A name is misspelt: what is the number of the nearest name?")
    source: ClassVar[str] = mark("the answer “similar to Jindrich” on Stack Exchange")
    default_query: ClassVar[str] = "Jintrich"
    """Default query for a visitor's own book in the Lab."""
    copies: ClassVar[float] = 3.8
    overrides: ClassVar[dict[str, Any]] = {"d_head": 32, "self_mask": False, "steps": 600}
    lengths: ClassVar[tuple[str, ...]] = ("n_entries",)

    n_entries: int = dial(
        8, mark("Entries"), mark("Entries in the book; each is asked once."), ge=2, le=16
    )
    n_letters: int = dial(4, mark("Letters"), mark("Letters in a name."), ge=3, le=8)
    n_alphabet: int = dial(16, mark("Alphabet"), mark("Different letters in names."), ge=8, le=26)
    n_wrong: int = dial(
        1, mark("Wrong letters"), mark("Wrong letters in each question."), ge=0, le=3
    )
    n_values: int = dial(
        32, mark("Numbers"), mark("Different numbers an entry can have."), ge=4, le=64
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.distance > self.n_letters:
            max_wrong = (self.n_letters - 1) // 2
            allowed = mark("at most {most}: else another name could be as near", most=max_wrong)
            raise disagreement("n_wrong", self.n_wrong, allowed, "n_letters")
        if self.n_entries > self._max_entries:
            allowed = mark(
                "at most {most}: there are too few names that differ enough",
                most=self._max_entries,
            )
            others = ("n_letters", "n_alphabet", "n_wrong")
            raise disagreement("n_entries", self.n_entries, allowed, *others)
        return self

    @property
    def distance(self) -> int:
        """Minimum number of places in which any two names of a book differ."""
        return 2 * self.n_wrong + 1

    @property
    def _max_entries(self) -> int:
        """Largest number of entries that leaves at least half of all names to the last entry.

        Two entries are always allowed; they leave at least a third of all names to the second.
        """
        too_near = sum(
            comb(self.n_letters, places) * (self.n_alphabet - 1) ** places
            for places in range(self.distance)
        )
        n_names = int(self.n_alphabet**self.n_letters)
        return max(2, n_names // (2 * int(too_near)) + 1)

    @property
    def n_fields(self) -> int:
        return self.n_letters + 1

    @property
    def field_names(self) -> tuple[str, ...]:
        return (*(f"letter {place + 1}" for place in range(self.n_letters)), "number")

    @property
    def d_vocab(self) -> int:
        return self.n_letters * self.n_alphabet + self.n_values + 1

    @property
    def n_classes(self) -> int:
        return self.n_values

    @property
    def answers_from(self) -> int:
        return self.n_entries

    def make_examples(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        n, n_letters = self.n_entries, self.n_letters
        names = self._names(n_examples, generator)
        values = torch.randint(self.n_values, (n_examples, n), generator=generator)
        target = choose(n_examples, n, n, generator)
        queries = names.gather(1, target[:, :, None].expand(-1, -1, n_letters))
        sets = torch.tensor(list(combinations(range(n_letters), self.n_wrong)), dtype=torch.int64)
        wrong = sets[torch.randint(len(sets), (n_examples, n), generator=generator)]
        shifts = torch.randint(1, self.n_alphabet, wrong.shape, generator=generator)
        queries = queries.scatter_add(2, wrong, shifts) % self.n_alphabet
        first = torch.arange(n_letters) * self.n_alphabet
        tokens = torch.full((n_examples, 2 * n, self.n_fields), self.d_vocab - 1)
        tokens[:, :n, :-1] = first + names
        tokens[:, n:, :-1] = first + queries
        tokens[:, :n, -1] = n_letters * self.n_alphabet + values
        return Examples(tokens, values.gather(1, target), target, None)

    def label(self, tokens: np.ndarray) -> list[Label]:
        labels = []
        first = np.arange(self.n_letters) * self.n_alphabet
        for *letters, value in tokens.tolist():
            name = "".join(ascii_uppercase[letter] for letter in letters - first)
            is_blank = value == self.d_vocab - 1
            first_value = self.n_letters * self.n_alphabet
            labels.append(
                entry_label(name, "?" if is_blank else self.answer_text(value - first_value))
            )
        return labels

    def _names(self, n_examples: int, generator: torch.Generator) -> Int64[Tensor, "b n letters"]:
        """Draw the letters of names; redraw each name that is too near an earlier one."""
        import torch

        names = torch.randint(
            self.n_alphabet,
            (self.n_letters, self.n_entries, n_examples),
            generator=generator,
            dtype=torch.uint8,
        )
        rows = torch.arange(n_examples)
        earlier = torch.ones(self.n_entries, self.n_entries, dtype=torch.bool).tril(-1)[..., None]
        while True:
            drawn = names[..., rows]
            n_alike = (drawn[:, :, None] == drawn[:, None]).sum(0, dtype=torch.uint8)
            too_near = ((n_alike > self.n_letters - self.distance) & earlier).any(1)  # (n, rows)
            unfinished = too_near.any(0)
            if not unfinished.any():
                break
            rows, too_near = rows[unfinished], too_near[:, unfinished]
            drawn = drawn[..., unfinished]
            redrawn = torch.randint(
                self.n_alphabet, drawn.shape, generator=generator, dtype=torch.uint8
            )
            names[..., rows] = redrawn.where(too_near, drawn)
        return names.permute(2, 1, 0).long()
