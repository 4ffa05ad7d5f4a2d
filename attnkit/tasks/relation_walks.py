"""Walks along the relations of a table, from one name to the next; each makes a book."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnkit.tasks.base import NOTHING

if TYPE_CHECKING:
    import torch

TRIES = 32
"""Draws of somebody who is not in a book yet, before everybody is looked at."""


@dataclass(frozen=True, eq=False)
class Walked:
    """Books before their entries are shuffled, (b, n) unless stated.

    Attributes:
        who: Who each entry is about; everybody once.
        whom: To whom, or the number of names for nobody.
        relation: Relation of all entries, (b,).
    """

    who: np.ndarray
    whom: np.ndarray
    relation: np.ndarray

    @property
    def target(self) -> np.ndarray:
        """Entry about whom each entry names, or `NOTHING`."""
        same = self.whom[:, :, None] == self.who[:, None, :]  # (b, entry, other)
        return np.where(same.any(2), same.argmax(2), NOTHING)

    @property
    def _named_by(self) -> np.ndarray:
        """Which other entries name the one that asks, (b, entry, other)."""
        named_by: np.ndarray = self.whom[:, None, :] == self.who[:, :, None]
        return named_by

    @property
    def backs(self) -> np.ndarray:
        """Which other entries name the one that asks, and are not its target, (b, n, n)."""
        backs: np.ndarray = self._named_by & (self.whom[:, :, None] != self.who[:, None, :])
        return backs

    @property
    def n_alike(self) -> np.ndarray:
        """Number of other entries with the same symmetric score as the target, (b, n).

        A symmetric score of two entries grows with every name that they have in common, wherever
        it stands. The target has one name in common with the entry that asks, or two if it names
        that one, which no other entry has.
        """
        siblings = self.whom[:, :, None] == self.whom[:, None, :]
        n_siblings = siblings.sum(2) - 1
        is_mutual = np.take_along_axis(self._named_by, self.target.clip(min=0)[:, :, None], 2)
        n_alike: np.ndarray = np.where(is_mutual[:, :, 0], 0, self.backs.sum(2) + n_siblings)
        return n_alike

    @property
    def back(self) -> np.ndarray:
        """First entry of `backs`, or `NOTHING`."""
        return np.where(self.backs.any(2), self.backs.argmax(2), NOTHING)

    def named_in(self, who: np.ndarray) -> np.ndarray:
        """Return whom the entries name if they are about these; −1 for nobody in the book."""
        found = np.take_along_axis(who, self.target.clip(min=0), 1)
        return np.where(self.target >= 0, found, NOTHING)


class Side:
    """Rows that books are walked along.

    Args:
        rows: Rows (who, relation, whom) as numbers.
        preferred: Rows that are taken first where they can be.
        n: Number of names.
    """

    def __init__(self, rows: np.ndarray, preferred: np.ndarray, n: int) -> None:
        self._n = n
        self._starts = preferred if len(preferred) else rows
        keys = rows[:, 1] * n + rows[:, 0]
        is_preferred = np.isin(joined(rows, n), joined(preferred, n))
        order = np.lexsort([~is_preferred, keys])
        self._whom, self._keys = rows[order, 2], keys[order]
        self._is_preferred = is_preferred[order].astype(np.int64)
        self._sums = np.concatenate([[0], np.cumsum(self._is_preferred)])
        relations = np.arange(1 + rows[:, 1].max())
        self._first = np.searchsorted(self._keys, relations * n)
        self._n_rows = np.searchsorted(self._keys, (relations + 1) * n) - self._first
        named = rows[:, 1] * n + rows[:, 2]
        by_named = np.argsort(named, kind="stable")
        self._who, self._named = rows[by_named, 0], named[by_named]

    def walk(self, lot: np.ndarray, spare: np.ndarray) -> Walked:
        """Draw books that follow the rows, and begin anew where there is nobody to follow.

        A book begins with somebody who names the one of a random row, if anybody does.

        Args:
            lot: Random numbers from 0 to below 1, (b, n, 2).
            spare: More of them, (b, n, `TRIES`).
        """
        n_examples, n_entries, _ = lot.shape
        chosen = self._starts[(lot[:, 0, 0] * len(self._starts)).astype(np.int64)]
        relation = chosen[:, 1]
        who = np.full((n_examples, n_entries), self._n)
        whom = who.copy()
        following, is_named = self._before(chosen, lot[:, -1, 0])
        for entry in range(n_entries):
            following = self._anew(following, who[:, :entry], relation, spare[:, entry])
            who[:, entry] = following
            following = self._row(following, relation, lot[:, entry, 1])
            if entry == 0:
                following = np.where(is_named, chosen[:, 0], following)
            whom[:, entry] = following
        return Walked(who, whom, relation)

    def _before(self, rows: np.ndarray, lots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return somebody who names the who of each row, or that one; and whether somebody does."""
        keys = rows[:, 1] * self._n + rows[:, 0]
        low, high = (np.searchsorted(self._named, keys, side) for side in ("left", "right"))
        place = low + np.floor(lots * (high - low)).astype(np.int64)
        found = self._who[place.clip(max=len(self._who) - 1)]
        return np.where(high > low, found, rows[:, 0]), high > low

    def _row(self, who: np.ndarray, relation: np.ndarray, lots: np.ndarray) -> np.ndarray:
        """Return whom a random row of each names, a preferred one where there is any."""
        keys = relation * self._n + who
        low, high = (np.searchsorted(self._keys, keys, side) for side in ("left", "right"))
        n_preferred = self._sums[high] - self._sums[low]
        n_rows = np.where(n_preferred > 0, n_preferred, high - low)
        place = low + np.floor(lots * n_rows).astype(np.int64)
        return np.where(n_rows > 0, self._whom[place.clip(max=len(self._whom) - 1)], self._n)

    def _anew(
        self, who: np.ndarray, others: np.ndarray, relation: np.ndarray, lots: np.ndarray
    ) -> np.ndarray:
        """Return those who can be followed, and somebody new in place of all others."""
        who = who.copy()
        wrong = np.flatnonzero((who == self._n) | (who[:, None] == others).any(1))
        for column in range(TRIES):
            if not len(wrong):
                return who
            lot, of = lots[wrong, column], relation[wrong]
            within = self._first[of] + (lot * self._n_rows[of]).astype(np.int64)
            anybody = np.floor(lot * self._n).astype(np.int64)
            has_rows = column < TRIES // 2  # then somebody whom no row begins with
            who[wrong] = self._keys[within] % self._n if has_rows else anybody
            wrong = wrong[(who[wrong][:, None] == others[wrong]).any(1)]
        for book in wrong:
            free = np.setdiff1d(np.arange(self._n), others[book])
            who[book] = free[int(lots[book, 0] * len(free))]
        return who


def lots_of(
    n_examples: int, n_entries: int, generator: torch.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the random numbers of a walk."""
    import torch

    lots = torch.rand(n_examples, n_entries, 2, generator=generator, dtype=torch.float64)
    spare = torch.rand(n_examples, n_entries, TRIES, generator=generator)
    return lots.numpy(), spare.double().numpy()


def joined(rows: np.ndarray, n: int) -> np.ndarray:
    """Return rows as single numbers."""
    joined: np.ndarray = (rows[:, 1] * n + rows[:, 0]) * (n + 1) + rows[:, 2]
    return joined
