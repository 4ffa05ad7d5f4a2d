"""What one visitor has chosen on the Runs page, and how that follows the link.

The link is `?run=` with the hashes of the chosen experiments, so that a comparison can be shared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

import streamlit as st

from attnkit.analysis.comparison import LETTERS, ComparedExperiment
from attnkit.foundation.settings import as_sentence
from attnkit.service.history import Search, name_of
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, StoredEntry, Unavailable
from attnkit.training.snapshot import Snapshot
from attnkit.ui.address import Linked
from attnkit.ui.owner import is_signed_in

MOST = len(LETTERS)
"""Experiments that are compared at once."""


@dataclass
class Runs(Linked):
    """One visitor's choice of stored experiments.

    Attributes:
        chosen: their hashes, in the order of their letters.
        problems: what went wrong since the page was last drawn, in sentences.
        version: of the table, which is made anew when rows are chosen by something else.
    """

    chosen: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    version: int = 0

    def follow(self, link: str) -> None:
        """Choose what a link names."""
        self.link = _params(link)
        named = list(dict.fromkeys(text.strip() for text in link.split(",") if text.strip()))
        foreign = [text for text in named if not _HASH.fullmatch(text)]
        if foreign:
            self.problems.append(
                f"The link names {_quoted(foreign)}, which is no experiment: 16 digits, 0 to f."
            )
        self._choose([text for text in named if _HASH.fullmatch(text)])
        self.version += 1

    def take_rows(self, hashes: Sequence[str], rows: Sequence[int]) -> None:
        """Choose rows of a table, and keep what is chosen outside of it."""
        ticked = [hashes[row] for row in rows if row < len(hashes)]
        kept = [known for known in self.chosen if known not in hashes or known in ticked]
        self._choose(kept + [new for new in ticked if new not in kept])

    def leave(self, hashes: Sequence[str]) -> None:
        """Choose these no longer."""
        self.chosen = [known for known in self.chosen if known not in hashes]
        self.version += 1

    def key_of_table(self, hashes: Sequence[str]) -> str:
        """The table's key: other rows are another table, for its choice is kept by row number."""
        text = f"{self.version} {' '.join(hashes)}"
        return f"history_{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"

    def write_link(self) -> None:
        """Make the address bar name what is chosen."""
        self.set_link(_params(",".join(self.chosen)))

    def _choose(self, hashes: list[str]) -> None:
        self.chosen = hashes[:MOST]
        if len(hashes) > MOST:
            self.version += 1
            self.problems.append(
                f"At most {MOST} experiments can be compared, but {len(hashes)} were chosen: "
                f"the first {MOST} are."
            )


def _params(link: str) -> dict[str, str]:
    return {"run": link} if link else {}


def open_runs() -> Runs:
    """This visitor's choice, made from the link if there is none yet or the link has changed."""
    link = st.query_params.get("run", "")
    runs: Runs | None = st.session_state.get("runs")
    if runs is None:
        runs = st.session_state.runs = Runs()
        runs.follow(link)
    elif runs.is_called(_params(link), "runs"):
        runs.follow(link)
    st.session_state.page = "runs"
    return runs


def may_change() -> bool:
    """Whether this visitor may rename, pin and delete: on a hosted copy its owner only."""
    return not server_settings().hosted or is_signed_in()


def listed(store: ResultStore, searched: str, most: int) -> list[StoredEntry]:
    """The newest entries, or those that fit a search.

    Titles, which are shown but not stored, are searched in the newest only.

    Raises:
        Unavailable: if the store cannot be read.
    """
    newest = store.entries(limit=most)
    search = Search.of(searched)
    if not search.text:
        return newest
    known = {entry.hash: entry for entry in [*newest, *store.entries(search.text, _SEARCHED)]}
    found = [entry for entry in known.values() if search.fits(entry)]
    return sorted(found, key=lambda entry: entry.created_at, reverse=True)[:most]


def find_chosen(runs: Runs, store: ResultStore, listed: Sequence[StoredEntry]) -> list[StoredEntry]:
    """The entries of what is chosen; what is not there any more is left out and told.

    Raises:
        Unavailable: if the store cannot be read.
    """
    known = {entry.hash: entry for entry in listed}
    missing = [text for text in runs.chosen if text not in known]
    known |= {entry.hash: entry for text in missing for entry in store.entries(text)}
    gone = [text for text in missing if text not in known]
    if gone:
        runs.leave(gone)
        runs.problems.append(f"Not stored here, or no longer: {_quoted(gone)}.")
    return [known[text] for text in runs.chosen]


def compare(
    runs: Runs, store: ResultStore, entries: Sequence[StoredEntry]
) -> list[ComparedExperiment]:
    """What the chosen experiments reached, each under its letter; what cannot be read is told.

    Raises:
        Unavailable: if the store cannot be read.
    """
    found: list[ComparedExperiment] = []
    torn: list[StoredEntry] = []
    for entry in entries:
        snapshot = _snapshot(store, entry)
        if snapshot is None:
            torn.append(entry)
        else:
            found.append(ComparedExperiment(LETTERS[len(found)], name_of(entry), snapshot))
    if torn:
        runs.leave([entry.hash for entry in torn])
        names = _quoted([name_of(entry) for entry in torn])
        runs.problems.append(f"Cannot be read by this copy: {names}. Train it anew in the Lab.")
    return found


def attempt(runs: Runs, change: Callable[[], object]) -> bool:
    """Change the store; if it cannot be changed now, say why."""
    try:
        change()
    except Unavailable as error:
        runs.problems.append(f"Nothing was changed: {as_sentence(str(error))}")
        return False
    return True


@lru_cache(16)
def _kept_snapshot(hash: str, stored_at: datetime, store: ResultStore) -> Snapshot:
    snapshot = store.snapshot(hash)
    if snapshot is None:
        raise LookupError(hash)
    return snapshot


def _snapshot(store: ResultStore, entry: StoredEntry) -> Snapshot | None:
    """Return a stored snapshot; one that was read lately is not read again while it is there."""
    try:
        return _kept_snapshot(entry.hash, entry.created_at, store)
    except LookupError:
        return None


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f"“{text if len(text) <= 60 else text[:57] + '...'}”" for text in texts[:MOST])


_HASH = re.compile("[0-9a-f]{16}")

_SEARCHED = 5000
"""Entries that the store finds by single words and that are looked at more closely."""
