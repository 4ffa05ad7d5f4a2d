"""Relations (who, relation, whom) of one's own, and how directed they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import dial, disagreement
from attnkit.tasks.base import NOTHING, Examples, Label
from attnkit.tasks.book import chance_of_one_in
from attnkit.tasks.draws import choose, choose_few
from attnkit.tasks.own_data import register_own, wrong_data
from attnkit.tasks.relation_walks import TRIES, Side, Walked, joined, lots_of
from attnkit.tasks.table import Table, on_axis
from attnkit.tasks.table_rows import rows_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_N_SAMPLED = 512
"""Number of held-out books in which entries with equal symmetric scores are counted."""

NOBODY = "–"


@dataclass(frozen=True)
class Direction:
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
    source: ClassVar[str] = mark("a table of one's own")
    n_columns: ClassVar[int] = 3
    overrides: ClassVar[dict[str, Any]] = {"d_head": 16, "self_mask": True, "steps": 600}
    label_legend: ClassVar[str] = mark("who, relation, whom")

    n_entries: int = dial(
        8, mark("Entries"), mark("Entries in a book; each asks once."), ge=4, le=16
    )
    n_values: int = dial(
        32, mark("Numbers"), mark("Different numbers an entry can have."), ge=4, le=64
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        most = self.most_entries(self.data)
        if self.learn == "in_context" and self.n_entries > most:
            allowed = mark("at most {most}, the different names of the table", most=most)
            raise disagreement("n_entries", self.n_entries, allowed, "data", "learn")
        return self

    @classmethod
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
            return sum(map(len, self._question_words)) + 1
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
            return self.rows.share_of_commonest
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
        found = _evenly_right(self.data, self.n_entries)
        return found + (1 - found) / self.n_values

    @property
    def _first_ids(self) -> tuple[int, int, int, int]:
        """First ids of the fields: who, relation, whom or nobody, number."""
        n, n_relations = len(_graph(self.data).names), len(_graph(self.data).relations)
        return 0, n, n + n_relations, n + n_relations + n + 1

    def _books(self, n_examples: int, generator: torch.Generator) -> Examples:
        graph = _graph(self.data)
        walked = graph.trained.walk(*lots_of(n_examples, self.n_entries, generator))
        n = len(graph.names)
        who = np.empty_like(walked.who)
        mixed = np.arange(n_examples)
        for _ in range(1000):
            who[mixed] = choose_few(len(mixed), n, self.n_entries, generator).numpy()
            named = graph.rows_of(who, walked.relation, walked.named_in(who))
            mixed = np.flatnonzero(np.isin(named, graph.held_out).any(1))
            if not len(mixed):
                return self._asked(who, walked, walked.target >= 0, generator)
        allowed = mark("a table in which names can be mixed: more names")
        raise wrong_data(tr("too few names"), allowed)

    def _held_out_books(self, n_examples: int, generator: torch.Generator) -> Examples:
        graph = _graph(self.data)
        walked = graph.whole.walk(*lots_of(n_examples, self.n_entries, generator))
        rows = graph.rows_of(walked.who, walked.relation, walked.whom)
        counts = np.isin(rows, graph.held_out) & (walked.target >= 0)
        return self._asked(walked.who, walked, counts, generator)

    def _asked(
        self, who: np.ndarray, walked: Walked, counts: np.ndarray, generator: torch.Generator
    ) -> Examples:
        """Return books in random order, with labels where the relation counts."""
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
        target, back = (_placed(entries, order, place) for entries in (walked.target, walked.back))
        labels = values.gather(1, target.clamp(min=0)).where(asked, NOTHING)
        reverse = None if self.plateau is None else back.where(asked, NOTHING)
        return Examples(tokens, labels, target.where(asked, NOTHING), reverse)

    def label(self, tokens: np.ndarray) -> list[Label]:
        if self.learn == "by_heart":
            return self._label_by_heart(tokens)
        graph, labels = _graph(self.data), []
        for who, relation, whom, value in (tokens - self._first_ids).tolist():
            other = [*graph.names, NOBODY][whom]
            query = f"{graph.names[who]} {graph.relations[relation]} {other}"
            full = f"{query}, {super().answer_text(value)}"
            labels.append(Label(on_axis(graph.names[who]), query, full))
        return labels

    def answer_text(self, answer: int) -> str:
        by_heart = self.learn == "by_heart"
        return self.rows.words(2)[answer] if by_heart else super().answer_text(answer)


def _placed(entries: np.ndarray, order: Tensor, place: Tensor) -> Tensor:
    """Return entries of a walk, by their places in the shuffled book; `NOTHING` stays."""
    import torch

    of_place = torch.from_numpy(entries).gather(1, order)
    return place.gather(1, of_place.clamp(min=0)).where(of_place >= 0, NOTHING)


class _Graph:
    """A table of relations as numbers.

    Attributes:
        names: Different names of both columns.
        relations: Different relations.
        held_out: Held-out rows as single numbers, sorted.
        trained: Books of the rows that are trained on.
        whole: Books of all rows, held-out ones first.
    """

    def __init__(self, data: str) -> None:
        rows = rows_of(data, 3)
        self.names, self.relations = rows.words(0, 2), rows.words(1)
        names, relations = ({w: i for i, w in enumerate(x)} for x in (self.names, self.relations))
        self.rows = np.array([(names[a], relations[r], names[b]) for a, r, b in rows.cells])
        n, held_out = len(names), self.rows[rows.held_out]
        self.held_out = np.sort(joined(held_out, n))
        self.trained = Side(self.rows[~rows.held_out], held_out[:0], n)
        self.whole = Side(self.rows, held_out, n)

    def rows_of(self, who: np.ndarray, relation: np.ndarray, whom: np.ndarray) -> np.ndarray:
        """Return the rows of the entries of books as single numbers, (b, n)."""
        n = len(self.names)
        found: np.ndarray = (relation[:, None] * n + who) * (n + 1) + whom % (n + 1)
        return found


@lru_cache(8)
def _graph(data: str) -> _Graph:
    rows = rows_of(data, 3).cells
    for who, relation, whom in rows:
        if who == whom:
            got = tr("the row {row}", row=f"{who}, {relation}, {whom}")
            allowed = mark("two different names in each row: nobody asks for themselves")
            raise wrong_data(got, allowed)
    return _Graph(data)


@lru_cache(32)
def _sampled(data: str, n_entries: int) -> np.ndarray:
    """Return `Walked.n_alike` of the held-out questions of many books; without torch, for pages."""
    graph, lots = _graph(data), np.random.default_rng(0).random
    shape = (_N_SAMPLED, n_entries)
    walked = graph.whole.walk(lots((*shape, 2)), lots((*shape, TRIES)))
    rows = graph.rows_of(walked.who, walked.relation, walked.whom)
    counts = np.isin(rows, graph.held_out) & (walked.target >= 0)
    n_alike: np.ndarray = walked.n_alike[counts]
    return n_alike


def _evenly_right(data: str, n_entries: int) -> float:
    """Return how often a random choice between the target and its like is right."""
    return float((1 / (1 + _sampled(data, n_entries))).mean())


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
