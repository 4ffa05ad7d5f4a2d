"""A visitor's choice of stored experiments on the Runs page, and how it follows the link.

The link is `?run=` with the hashes of the chosen experiments, so that a comparison can be shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from attnkit.analysis.comparison import LETTERS, ComparedExperiment, in_a_cell
from attnkit.foundation.settings import as_sentence
from attnkit.service.history import Search, StoredEntry, name_of
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.training.snapshot import Snapshot
from attnkit.ui.address import Linked, LinkList
from attnkit.ui.cache import Cache
from attnkit.ui.server.owner import is_signed_in

MOST = len(LETTERS)
"""Experiments that can be compared, at most."""


@dataclass
class Runs(Linked):
    """One visitor's choice of stored experiments.

    Attributes:
        chosen: Hashes of the experiments, in the order of their letters.
        problems: Problems since the page was last drawn, in sentences.
        version: Version of the table; a new one begins when rows are chosen outside of it.
    """

    chosen: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    version: int = 0

    def follow(self, params: dict[str, str]) -> None:
        """Choose the experiments of a link."""
        self.link = params
        self._choose(_FIELD.read_all(params, self.problems))
        self.version += 1

    def take_rows(self, hashes: Sequence[str], rows: Sequence[int]) -> None:
        """Choose rows of the table, and keep the experiments that are chosen outside of it."""
        ticked = [hashes[row] for row in rows if row < len(hashes)]
        kept = [hash_ for hash_ in self.chosen if hash_ not in hashes or hash_ in ticked]
        self._choose(kept + [hash_ for hash_ in ticked if hash_ not in kept])

    def leave(self, hashes: Sequence[str]) -> None:
        """Remove experiments from the choice."""
        self.chosen = [hash_ for hash_ in self.chosen if hash_ not in hashes]
        self.version += 1

    def write_link(self) -> None:
        """Write the chosen experiments into the address bar."""
        self.set_link(_FIELD.write_all(self.chosen))

    def _choose(self, hashes: list[str]) -> None:
        self.chosen = hashes[:MOST]
        if len(hashes) > MOST:
            self.version += 1
            self.problems.append(
                f"At most {MOST} experiments can be compared, but {len(hashes)} were chosen: "
                f"the first {MOST} are."
            )


def may_change() -> bool:
    """Return whether this visitor may rename, pin and delete: on a hosted copy, only its owner."""
    return not server_settings().hosted or is_signed_in()


def list_entries(store: ResultStore, query: str, most: int) -> list[StoredEntry]:
    """Return the newest entries, or those that match a search.

    Titles, which are shown but not stored, are searched in the newest entries only.

    Raises:
        Unavailable: If the store cannot be read.
    """
    newest = store.entries(limit=most)
    search = Search.of(query)
    if not search.text:
        return newest
    known = {entry.hash: entry for entry in [*newest, *store.entries(search.text, _SEARCHED)]}
    matches = [entry for entry in known.values() if search.fits(entry)]
    return sorted(matches, key=lambda entry: entry.created_at, reverse=True)[:most]


def what_each_reached(store: ResultStore, entries: Sequence[StoredEntry]) -> dict[str, str]:
    """Return what experiments reached in a few words, by hash.

    A result is read once, and at most `_READ_BYTES` of results at a time, so that a page of large
    ones opens soon: those that are missing come when the page is drawn again.

    Raises:
        Unavailable: If the store cannot be read.
    """
    n_bytes, found = 0, {}
    for entry in entries:
        key = (entry.hash, entry.created_at)
        text = _REACHED.get(key)
        if text is None and n_bytes < _READ_BYTES:
            n_bytes += entry.n_bytes
            snapshot = store.peek(entry.hash)
            text = _REACHED.put(key, "" if snapshot is None else in_a_cell(snapshot))
        if text is not None:
            found[entry.hash] = text
    return found


def find_chosen(runs: Runs, store: ResultStore, read: Sequence[StoredEntry]) -> list[StoredEntry]:
    """Return the chosen entries; those that are not stored any more leave the choice.

    Raises:
        Unavailable: If the store cannot be read.
    """
    known = {entry.hash: entry for entry in read}
    unread = [hash_ for hash_ in runs.chosen if hash_ not in known]
    known |= {entry.hash: entry for hash_ in unread for entry in store.entries(hash_)}
    gone = [hash_ for hash_ in unread if hash_ not in known]
    if gone:
        runs.leave(gone)
        runs.problems.append(f"Not stored here, or no longer: {_quoted(gone)}.")
    return [known[hash_] for hash_ in runs.chosen]


def compare(
    runs: Runs, store: ResultStore, entries: Sequence[StoredEntry]
) -> list[ComparedExperiment]:
    """Return the chosen experiments, each with a letter; unreadable ones leave the choice.

    Raises:
        Unavailable: If the store cannot be read.
    """
    compared: list[ComparedExperiment] = []
    unreadable: list[StoredEntry] = []
    for entry in entries:
        snapshot = _snapshot(store, entry)
        if snapshot is None:
            unreadable.append(entry)
        else:
            letter = LETTERS[len(compared)]
            compared.append(ComparedExperiment(letter, name_of(entry), snapshot))
    if unreadable:
        runs.leave([entry.hash for entry in unreadable])
        names = _quoted([name_of(entry) for entry in unreadable])
        runs.problems.append(f"Cannot be read by this copy: {names}. Train it anew in the Lab.")
    return compared


def attempt(runs: Runs, change: Callable[[], object]) -> bool:
    """Change the store, and return whether that was possible; if not, note why."""
    if not may_change():  # the menu has been drawn for an owner who has signed out since
        runs.problems.append("Nothing was changed: only the owner of this copy may change runs.")
        return False
    try:
        change()
    except Unavailable as error:
        runs.problems.append(f"Nothing was changed: {as_sentence(str(error))}")
        return False
    return True


def _snapshot(store: ResultStore, entry: StoredEntry) -> Snapshot | None:
    """Return a stored snapshot, from the cache if it was read lately; None if it is unreadable."""
    key = (entry.hash, entry.created_at, store)
    snapshot = _SNAPSHOTS.get(key) or store.snapshot(entry.hash)
    return None if snapshot is None else _SNAPSHOTS.put(key, snapshot)


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f"“{text if len(text) <= 60 else text[:57] + '...'}”" for text in texts[:MOST])


_FIELD: LinkList[str] = LinkList(
    "run",
    "",
    lambda text: text if re.fullmatch("[0-9a-f]{16}", text) else None,
    "hashes of experiments, each with 16 digits from 0 to f",
)

_SNAPSHOTS: Cache[Snapshot] = Cache(16)
"""Snapshots that were read lately."""

_REACHED: Cache[str] = Cache(10_000)
"""What experiments reached, by hash and time of storing; empty if this copy cannot read it."""

_READ_BYTES = 2**27
"""Size of the results that are read for one table, after which no further one is begun."""

_SEARCHED = 5000
"""Entries that the store finds by single words and that `Search` then checks, at most."""
