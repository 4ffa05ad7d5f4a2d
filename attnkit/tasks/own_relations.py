"""Relations (who, relation, whom) of one's own, how directed they are, and walks along them.

A book follows the rows of the table from one name to the next.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import dial
from attnkit.tasks.base import NOTHING, Examples, Label, Task
from attnkit.tasks.draws import choose, choose_few
from attnkit.tasks.own_data import register_own, wrong_data
from attnkit.tasks.phonebook import chance_of_one_in
from attnkit.tasks.table import ByKey, Table, on_axis, rows_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_TRIES = 32
"""Draws of somebody who is not in a book yet, before everybody is looked at."""

NOBODY = "–"


class Direction(NamedTuple):
    """How directed a table of relations is.

    Attributes:
        n_rows: Number of different relations between two people.
        n_missing: Number of them whose reverse is not in the table under any relation.
        n_different: Number of them whose reverse is in the table, but under another relation only.
        contested: Share of the held-out questions for which symmetric scores cannot tell the right
            entry from another one of the book, 0 … 1: one that points back at the entry that asks,
            or one that names the same whom.
    """

    n_rows: int
    n_missing: int
    n_different: int
    contested: float

    @property
    def share(self) -> float:
        """Share of relations whose reverse is missing or different, 0 … 1."""
        return (self.n_missing + self.n_different) / self.n_rows


@register_own
class Relations(Table):
    """Find the number of the one to whom somebody is related, in a book from one's own table.

    In context, an entry is `who relation whom, number`, and asks for the number of its whom. All
    entries of a book have the same relation, and its numbers are random. A book follows the table
    from one to the next, so that entries have their answers in the book, and others point back at
    them. Training keeps who points at whom, but mixes the names anew, and never makes a held-out
    row. Evaluation has the names of the table; only held-out rows count.

    ```
    position   0                1                 2
    token      Ada boss Cem 31  Ben boss Ada 14   Cem boss – 25
    label      25               31
    target     2                0
    reverse    1
    ```

    By heart, a question is `who relation ?`, and the answer is whom. Chance is the number of a
    random other entry, by heart the commonest answer.
    """

    name: ClassVar[str] = "relations"
    title: ClassVar[str] = mark("Your own relations")
    question: ClassVar[str] = mark("Each entry names another one: what is that one's number?")
    n_columns: ClassVar[int] = 3
    most_allowed: ClassVar[str] = mark("at most {most}, the different names of the table")
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": True, "steps": 600}
    label_legend: ClassVar[str] = mark("who, relation, whom")

    n_entries: int = dial(
        8, mark("Entries"), mark("Entries in a book; each asks once."), ge=4, le=16
    )
    n_values: int = dial(
        32, mark("Numbers"), mark("Different numbers an entry can have."), ge=4, le=64
    )

    @classmethod
    @lru_cache(8)
    def text_form(cls, data: str) -> str:
        text = super().text_form(data)
        _graph(text)
        return text

    @classmethod
    def most_entries(cls, data: str) -> int:
        return len(_graph(data).names)

    @property
    def vocabulary(self) -> str:
        n_names, n_relations = len(_graph(self.data).names), len(_graph(self.data).relations)
        names = tr_n("{n:,} different name", "{n:,} different names", n_names)
        relations = tr_n("{n:,} relation", "{n:,} relations", n_relations)
        return tr("{names} and {relations}", names=names, relations=relations)

    @property
    def n_fields(self) -> int:
        return 1 if self.learn == "by_heart" else 4

    @property
    def d_vocab(self) -> int:
        if self.learn == "by_heart":
            return self.rows.first_questions[-1] + 1
        return self._first_ids[-1] + self.n_values

    @property
    def n_classes(self) -> int:
        return len(self.rows.words(2)) if self.learn == "by_heart" else self.n_values

    @property
    def answers_from(self) -> int:
        return 2 if self.learn == "by_heart" else 0

    @property
    def n_ctx(self) -> int:
        return 3 if self.learn == "by_heart" else self.n_entries

    @property
    def chance(self) -> float:
        if self.learn == "by_heart":
            return self._chance_by_heart
        return chance_of_one_in(self.n_entries - 1, self.n_values)

    @property
    def direction(self) -> Direction:
        """How directed the table is, and how often that matters in a book of `n_entries`."""
        return _direction(self.data, self.n_entries)

    @property
    def plateau(self) -> float | None:
        """Accuracy of a random choice between entries that symmetric scores cannot tell apart.

        None if less than one held-out question in fifty has such entries.
        """
        if self.learn == "by_heart" or self.direction.contested < 0.02:
            return None
        found = float((1 / (1 + _sampled(self.data, self.n_entries))).mean())
        return found + (1 - found) / self.n_values

    @property
    def _first_ids(self) -> tuple[int, int, int, int]:
        """First ids of the fields: who, relation, whom or nobody, number."""
        n, n_relations = len(_graph(self.data).names), len(_graph(self.data).relations)
        return 0, n, n + n_relations, n + n_relations + n + 1

    def _books(self, n_examples: int, generator: torch.Generator) -> Examples:
        graph = _graph(self.data)
        walked = graph.trained.walk(*_lots_of(n_examples, self.n_entries, generator))
        n = len(graph.names)
        who = np.empty_like(walked.who)
        mixed = np.arange(n_examples)
        for _ in range(1000):
            who[mixed] = choose_few(len(mixed), n, self.n_entries, generator).numpy()
            named = _joined((who, walked.relation[:, None], walked.named_in(who)), n)
            mixed = np.flatnonzero(np.isin(named, graph.held_out).any(1))
            if not len(mixed):
                return self._asked(who, walked, walked.target >= 0, generator)
        allowed = mark("a table in which names can be mixed: more names")
        raise wrong_data(tr("too few names"), allowed)

    def _held_out_books(self, n_examples: int, generator: torch.Generator) -> Examples:
        graph = _graph(self.data)
        walked = graph.whole.walk(*_lots_of(n_examples, self.n_entries, generator))
        return self._asked(walked.who, walked, graph.asks_held_out(walked), generator)

    def _asked(
        self, who: np.ndarray, walked: _Walked, counts: np.ndarray, generator: torch.Generator
    ) -> Examples:
        import torch

        n, first = len(_graph(self.data).names), self._first_ids
        whom = walked.named_in(who)
        order = choose(len(who), self.n_entries, self.n_entries, generator)
        place = order.argsort(1)  # of each walked entry in the book
        values = torch.randint(self.n_values, order.shape, generator=generator)
        fields = [who, np.broadcast_to(walked.relation[:, None], who.shape), whom % (n + 1)]
        ids = [
            torch.from_numpy(f + i).gather(1, order) for f, i in zip(fields, first, strict=False)
        ]
        tokens = torch.stack([*ids, first[3] + values], -1)
        asked = torch.from_numpy(counts).gather(1, order)

        def placed(entries: np.ndarray) -> Tensor:
            of_place = torch.from_numpy(entries).gather(1, order)
            return place.gather(1, of_place.clamp(min=0)).where(of_place >= 0, NOTHING)

        target, back = placed(walked.target), placed(walked.back)
        labels = values.gather(1, target.clamp(min=0)).where(asked, NOTHING)
        reverse = None if self.plateau is None else back.where(asked, NOTHING)
        return Examples(tokens, labels, target.where(asked, NOTHING), reverse)

    def _label_book(self, tokens: np.ndarray) -> list[Label]:
        graph, labels = _graph(self.data), []
        for who, relation, whom, value in (tokens - self._first_ids).tolist():
            other = [*graph.names, NOBODY][whom]
            query = f"{graph.names[who]} {graph.relations[relation]} {other}"
            full = f"{query}, {self.answer_text(value)}"
            labels.append(Label(on_axis(graph.names[who]), query, full))
        return labels

    def answer_text(self, answer: int) -> str:
        by_heart = self.learn == "by_heart"
        return super().answer_text(answer) if by_heart else Task.answer_text(self, answer)


class _Graph:
    """A table of relations as numbers, and the books of trained rows and of the whole table."""

    def __init__(self, data: str) -> None:
        rows = rows_of(data)
        for who, relation, whom in rows.cells:
            if who == whom:
                got = tr("the row {row}", row=f"{who}, {relation}, {whom}")
                allowed = mark("two different names in each row: nobody asks for themselves")
                raise wrong_data(got, allowed)
        self.names, self.relations = rows.words(0, 2), rows.words(1)
        ids = {name: i for i, name in enumerate(self.names)}
        whos, _, whoms = zip(*rows.cells, strict=True)
        columns = [ids[w] for w in whos], rows.numbers[:, 1], [ids[w] for w in whoms]
        self.rows = np.stack(columns, 1)
        n, held_out = len(self.names), self.rows[rows.held_out]
        self.held_out = np.sort(_joined(held_out.T, n))
        self.trained = _Side(self.rows[~rows.held_out], held_out[:0], n)
        self.whole = _Side(self.rows, held_out, n)

    def asks_held_out(self, walked: _Walked) -> np.ndarray:
        """Return which entries ask for an answer that a held-out row gives, (b, n)."""
        rows = _joined((walked.who, walked.relation[:, None], walked.whom), len(self.names))
        asks: np.ndarray = np.isin(rows, self.held_out) & (walked.target >= 0)
        return asks


_graph = lru_cache(8)(_Graph)


class _Walked(NamedTuple):
    """Books before their entries are shuffled.

    Attributes:
        who: Person that each entry is about, (b, n); every person once.
        whom: Person that each entry names, (b, n); the number of names stands for nobody.
        relation: Relation of all entries of a book, (b,).
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
        named_by: np.ndarray = self.whom[:, None, :] == self.who[:, :, None]
        return named_by

    @property
    def _backs(self) -> np.ndarray:
        """Which other entries name the one that asks, and are not its target, (b, entry, other)."""
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
        n_alike: np.ndarray = np.where(is_mutual[:, :, 0], 0, self._backs.sum(2) + n_siblings)
        return n_alike

    @property
    def back(self) -> np.ndarray:
        """First entry that names the one that asks and is not its target, or `NOTHING`."""
        return np.where(self._backs.any(2), self._backs.argmax(2), NOTHING)

    def named_in(self, who: np.ndarray) -> np.ndarray:
        """Return whom the entries name if they are about these; −1 for nobody in the book."""
        found = np.take_along_axis(who, self.target.clip(min=0), 1)
        return np.where(self.target >= 0, found, NOTHING)


class _Side:
    """Rows (who, relation, whom) that books are walked along, preferred ones first."""

    def __init__(self, rows: np.ndarray, preferred: np.ndarray, n: int) -> None:
        self._n = n
        self._starts = preferred if len(preferred) else rows
        keys = rows[:, 1] * n + rows[:, 0]
        is_preferred = np.isin(_joined(rows.T, n), _joined(preferred.T, n))
        self._named = ByKey(keys, rows[:, 2], is_preferred)
        self._naming = ByKey(rows[:, 1] * n + rows[:, 2], rows[:, 0])
        self._keys, relations = np.sort(keys), np.arange(1 + rows[:, 1].max())
        self._first = np.searchsorted(self._keys, relations * n)
        self._n_rows = np.searchsorted(self._keys, (relations + 1) * n) - self._first

    def walk(self, lot: np.ndarray, spare: np.ndarray) -> _Walked:
        """Draw books that follow the rows, and begin anew where there is nobody to follow.

        A book begins with somebody who names the one of a random row, if anybody does.

        Args:
            lot: Random numbers from 0 to below 1, (b, n, 2).
            spare: More of them, (b, n, `_TRIES`).
        """
        n_examples, n_entries, _ = lot.shape
        chosen = self._starts[(lot[:, 0, 0] * len(self._starts)).astype(np.int64)]
        relation = chosen[:, 1]
        who = np.full((n_examples, n_entries), self._n)
        whom = who.copy()
        naming = self._naming.draw(relation * self._n + chosen[:, 0], lot[:, -1, 0])
        following = np.where(naming == NOTHING, chosen[:, 0], naming)
        for entry in range(n_entries):
            following = self._anew(following, who[:, :entry], relation, spare[:, entry])
            who[:, entry] = following
            keys = relation * self._n + following
            following = self._named.draw(keys, lot[:, entry, 1], self._n)
            if entry == 0:
                following = np.where(naming == NOTHING, following, chosen[:, 0])
            whom[:, entry] = following
        return _Walked(who, whom, relation)

    def _anew(
        self, who: np.ndarray, others: np.ndarray, relation: np.ndarray, lots: np.ndarray
    ) -> np.ndarray:
        """Return those who can be followed, and somebody new in place of all others."""
        who = who.copy()
        wrong = np.flatnonzero((who == self._n) | (who[:, None] == others).any(1))
        for column in range(_TRIES):
            if not len(wrong):
                return who
            lot, of = lots[wrong, column], relation[wrong]
            within = self._first[of] + (lot * self._n_rows[of]).astype(np.int64)
            anybody = np.floor(lot * self._n).astype(np.int64)
            has_rows = column < _TRIES // 2  # then somebody whom no row begins with
            who[wrong] = self._keys[within] % self._n if has_rows else anybody
            wrong = wrong[(who[wrong][:, None] == others[wrong]).any(1)]
        for book in wrong:
            free = np.setdiff1d(np.arange(self._n), others[book])
            who[book] = free[int(lots[book, 0] * len(free))]
        return who


def _lots_of(
    n_examples: int, n_entries: int, generator: torch.Generator
) -> tuple[np.ndarray, np.ndarray]:
    import torch

    lots = torch.rand(n_examples, n_entries, 2, generator=generator, dtype=torch.float64)
    spare = torch.rand(n_examples, n_entries, _TRIES, generator=generator)
    return lots.numpy(), spare.double().numpy()


def _joined(rows: np.ndarray | tuple[np.ndarray, ...], n: int) -> np.ndarray:
    """Return rows (who, relation, whom) as single numbers; a whom of −1 or `n` is nobody."""
    who, relation, whom = rows
    joined: np.ndarray = (relation * n + who) * (n + 1) + whom % (n + 1)
    return joined


@lru_cache(32)
def _sampled(data: str, n_entries: int) -> np.ndarray:
    """Return `n_alike` of the held-out questions of many books; without torch, for pages."""
    graph, lots = _graph(data), np.random.default_rng(0).random
    shape = (512, n_entries)
    walked = graph.whole.walk(lots((*shape, 2)), lots((*shape, _TRIES)))
    n_alike: np.ndarray = walked.n_alike[graph.asks_held_out(walked)]
    return n_alike


@lru_cache(32)
def _direction(data: str, n_entries: int) -> Direction:
    rows = {tuple(row) for row in _graph(data).rows.tolist()}
    pairs = {(who, whom) for who, _, whom in rows}
    reversed_at_all = {row for row in rows if (row[2], row[0]) in pairs}
    mutual = {(who, r, whom) for who, r, whom in reversed_at_all if (whom, r, who) in rows}
    different = len(reversed_at_all) - len(mutual)
    missing = len(rows) - len(reversed_at_all)
    contested = float((_sampled(data, n_entries) > 0).mean())
    return Direction(len(rows), missing, different, contested)
