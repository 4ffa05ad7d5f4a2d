"""Pairs (key, value) of one's own: a phone book of any names and any answers."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import dial
from attnkit.tasks.base import Examples, Label
from attnkit.tasks.book import entry_label
from attnkit.tasks.draws import choose, choose_few
from attnkit.tasks.own_data import register_own
from attnkit.tasks.table import BLANK, Table, on_axis, rows_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register_own
class Pairs(Table):
    """Look up the value of a key in a book of pairs from one's own table, or by heart.

    In context, a book lists `key value` and then asks for every key once. Training pairs keys with
    random values of the table, but never as in a held-out row. Evaluation uses rows of the table
    as they are, with as many held-out rows in a book as possible; only these count.

    ```
    position   0             1           2         3
    token      France Paris  Italy Rome  Italy ?   France ?
    label                                Rome      Paris
    target                               1         0
    ```

    By heart, the same question stands alone: `Italy`, then `?`. Chance is the value of a random
    entry or the commonest value, whichever is right more often.
    """

    name: ClassVar[str] = "pairs"
    title: ClassVar[str] = mark("Your own pairs")
    question: ClassVar[str] = mark("Each key is asked once: what is its value?")
    n_columns: ClassVar[int] = 2
    most_allowed: ClassVar[str] = mark("at most {most}, the different keys of the table")
    overrides: ClassVar[dict[str, Any]] = {"d_head": 8, "self_mask": False, "steps": 600}

    n_entries: int = dial(
        8, mark("Entries"), mark("Entries in a book; each is asked once."), ge=2, le=32
    )

    @property
    def _n_words(self) -> tuple[int, int]:
        return len(self.rows.words(0)), len(self.rows.words(1))

    @property
    def vocabulary(self) -> str:
        n_keys, n_values = self._n_words
        # Translators: for example "12 different keys and 3 different values".
        return tr(
            "{keys} and {values}",
            keys=tr_n("{n:,} different key", "{n:,} different keys", n_keys),
            values=tr_n("{n:,} different value", "{n:,} different values", n_values),
        )

    @property
    def n_fields(self) -> int:
        return 1 if self.learn == "by_heart" else 2

    @property
    def d_vocab(self) -> int:
        return self._n_words[0] + 1 + (0 if self.learn == "by_heart" else self._n_words[1])

    @property
    def n_classes(self) -> int:
        return self._n_words[1]

    @property
    def answers_from(self) -> int:
        return 1 if self.learn == "by_heart" else self.n_entries

    @property
    def n_ctx(self) -> int:
        return 2 * self.answers_from

    @property
    def chance(self) -> float:
        if self.learn == "by_heart":
            return self._chance_by_heart
        of_commonest = self.rows.share_of_commonest
        of_entry = 1 / self.n_entries + (1 - 1 / self.n_entries) * _index(self.data).share_of_entry
        return max(of_commonest, of_entry)

    def _books(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        n_keys, n_values = self._n_words
        held_out = torch.from_numpy(_index(self.data).held_out)
        keys = choose_few(n_examples, n_keys, self.n_entries, generator)
        values = torch.randint(n_values, keys.shape, generator=generator)
        while True:
            wrong = torch.isin(keys * n_values + values, held_out)
            if not wrong.any():
                return self._asked(keys, values, torch.ones_like(wrong), generator)
            values[wrong] = torch.randint(n_values, (int(wrong.sum()),), generator=generator)

    def _held_out_books(self, n_examples: int, generator: torch.Generator) -> Examples:
        import torch

        index, n_values = _index(self.data), self._n_words[1]
        first, others = index.keys_held_out, index.keys_trained
        n_first = min(len(first), self.n_entries)
        chosen = first[choose(n_examples, len(first), n_first, generator).numpy()]
        if n_first < self.n_entries:
            rest = choose(n_examples, len(others), self.n_entries - n_first, generator)
            chosen = np.concatenate([chosen, others[rest.numpy()]], 1)
        shuffled = choose(n_examples, self.n_entries, self.n_entries, generator)
        keys = torch.from_numpy(chosen).gather(1, shuffled)
        lots = torch.rand(keys.shape, generator=generator, dtype=torch.float64)
        pairs = torch.from_numpy(index.drawn(keys.numpy(), lots.numpy()))
        is_held_out = torch.isin(pairs, torch.from_numpy(index.held_out))
        return self._asked(keys, pairs % n_values, is_held_out, generator)

    def _asked(
        self, keys: Tensor, values: Tensor, counts: Tensor, generator: torch.Generator
    ) -> Examples:
        """Return books that ask every key once, with labels where the pair counts."""
        import torch

        n_keys, n_values = self._n_words
        target = choose(len(keys), self.n_entries, self.n_entries, generator)
        blank = torch.full_like(keys, n_keys + n_values)
        entries = torch.stack([keys, n_keys + values], -1)
        questions = torch.stack([keys.gather(1, target), blank], -1)
        asked = counts.gather(1, target)
        labels = values.gather(1, target).where(asked, -1)
        return Examples(torch.cat([entries, questions], 1), labels, target.where(asked, -1))

    def _label_book(self, tokens: np.ndarray) -> list[Label]:
        keys, values = self.rows.words(0), [*self.rows.words(1), BLANK]
        labels = []
        for key, value in (tokens - [0, len(keys)]).tolist():
            made = entry_label(keys[key], values[value])
            labels.append(Label(on_axis(made.short), made.query, made.full))
        return labels


class _Index:
    """The pairs of a table as numbers: key × number of values + value.

    Attributes:
        held_out: Pairs that are held out, sorted.
        keys_held_out: Keys with held-out pairs.
        keys_trained: All other keys.
        share_of_entry: How often the value of a random row is right for a held-out pair.
    """

    def __init__(self, data: str) -> None:
        rows = rows_of(data)
        keys, values = rows.words(0), rows.words(1)
        self.pairs = rows.numbers @ (len(values), 1)
        self.held_out = np.sort(self.pairs[rows.held_out])
        self.keys_held_out = np.unique(self.held_out // len(values))
        self.keys_trained = np.setdiff1d(np.arange(len(keys)), self.keys_held_out)
        order = np.lexsort([~rows.held_out, self.pairs // len(values)])  # held-out ones first
        self._sorted = self.pairs[order]
        key_of = self._sorted // len(values)
        self._first = np.searchsorted(key_of, np.arange(len(keys)))
        n_held_out = np.bincount(self.held_out // len(values), minlength=len(keys))
        self._n = np.where(n_held_out > 0, n_held_out, np.bincount(key_of, minlength=len(keys)))

        n_rows = Counter(value for _, value in rows.cells)
        asked = [n_rows[value] for _, value in itertools.compress(rows.cells, rows.held_out)]
        self.share_of_entry = sum(asked) / len(asked) / len(rows.cells)

    def drawn(self, keys: np.ndarray, lots: np.ndarray) -> np.ndarray:
        """Return a random pair of every key, a held-out one where the key has any."""
        place = self._first[keys] + np.floor(lots * self._n[keys]).astype(np.int64)
        drawn: np.ndarray = self._sorted[place]
        return drawn


_index = lru_cache(8)(_Index)
