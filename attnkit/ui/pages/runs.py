"""Runs: every finished experiment that this copy keeps; one is replayed, several are compared.

The link is `?run=` with the hashes of the chosen experiments, so that a comparison can be shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import streamlit as st

from attnkit.analysis.comparison import (
    LETTERS,
    ComparedExperiment,
    comparison_in_words,
    in_a_cell,
    last_means,
    levels_in_words,
    metric_of,
)
from attnkit.foundation.settings import as_sentence
from attnkit.service.history import (
    LONGEST_SEARCH,
    Search,
    StoredEntry,
    changed_settings,
    history_table,
    name_of,
)
from attnkit.service.server import server_settings
from attnkit.service.store import LONGEST_NAME, ResultStore, Unavailable
from attnkit.training.snapshot import Snapshot
from attnkit.ui.address import Linked, LinkList, open_choice
from attnkit.ui.cache import Cache
from attnkit.ui.lab.guess import stop_before_first_run
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.reference.run_comparison import comparison, downloads
from attnkit.ui.routing import require_route
from attnkit.ui.server.owner import is_signed_in
from attnkit.ui.server.service import result_store
from attnkit.ui.session import lab_link, with_hidden
from attnkit.ui.widgets import key_of_table, selected_rows, warn_once

MOST = len(LETTERS)
"""Experiments that can be compared, at most."""

MOST_LISTED = 200
"""Experiments in the table, the newest; older ones are found by searching."""

RENAME, DELETE = ":material/edit: Rename", ":material/delete: Delete"
PIN, UNPIN = ":material/keep: Pin", ":material/keep_off: Unpin"

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


def list_entries(store: ResultStore, query: str) -> list[StoredEntry]:
    """Return the newest entries, or those that match a search.

    Titles, which are shown but not stored, are searched in the newest entries only.

    Raises:
        Unavailable: If the store cannot be read.
    """
    newest = store.entries(limit=MOST_LISTED)
    search = Search.of(query)
    if not search.text:
        return newest
    known = {entry.hash: entry for entry in [*newest, *store.entries(search.text, _SEARCHED)]}
    matches = [entry for entry in known.values() if search.fits(entry)]
    return sorted(matches, key=lambda entry: entry.created_at, reverse=True)[:MOST_LISTED]


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


def compare(
    runs: Runs, store: ResultStore, read: Sequence[StoredEntry]
) -> tuple[list[ComparedExperiment], list[StoredEntry]]:
    """Return the chosen experiments, each with a letter, and their entries.

    Those that are not stored any more, and those that cannot be read, leave the choice.

    Raises:
        Unavailable: If the store cannot be read.
    """
    known = {entry.hash: entry for entry in read}
    unread = [hash_ for hash_ in runs.chosen if hash_ not in known]
    known |= {entry.hash: entry for hash_ in unread for entry in store.entries(hash_)}
    gone = [hash_ for hash_ in unread if hash_ not in known]
    compared, entries, unreadable = list[ComparedExperiment](), list[StoredEntry](), []
    for entry in (known[hash_] for hash_ in runs.chosen if hash_ in known):
        key = (entry.hash, entry.created_at, store)
        snapshot = _SNAPSHOTS.get(key) or store.snapshot(entry.hash)
        if snapshot is None:
            unreadable.append(entry)
            continue
        letter, name = LETTERS[len(compared)], name_of(entry)
        compared.append(ComparedExperiment(letter, name, _SNAPSHOTS.put(key, snapshot)))
        entries.append(entry)
    if gone or unreadable:
        runs.leave([*gone, *(entry.hash for entry in unreadable)])
    if gone:
        runs.problems.append(f"Not stored here, or no longer: {_quoted(gone)}.")
    if unreadable:
        names = _quoted([name_of(entry) for entry in unreadable])
        runs.problems.append(f"Cannot be read by this copy: {names}. Train it anew in the Lab.")
    return compared, entries


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


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f"“{text if len(text) <= 60 else text[:57] + '...'}”" for text in texts[:MOST])


def draw() -> None:
    """Draw the page, as far as the store can be read."""
    require_route()
    st.title("Runs", anchor=False)
    runs = open_choice("runs", "runs", Runs)
    stop_before_first_run()
    store = result_store()
    try:
        if isinstance(store, Unavailable):
            raise store
        show_store(runs, store)
    except Unavailable as error:
        reason = plain(as_sentence(str(error)))
        st.warning(
            f"The store of finished experiments cannot be read now: {reason} "
            "Training in the Lab works without it.",
            icon=":material/warning:",
        )


def show_store(runs: Runs, store: ResultStore) -> None:
    """Draw the conclusion, the table of experiments, and those that are chosen.

    Raises:
        Unavailable: If the store cannot be read.
    """
    concluding, problems = st.container(key="conclusion"), st.container()
    query = st.text_input(
        "Search",
        placeholder="Name, task, variant, or a setting such as head width 5",
        icon=":material/search:",
        max_chars=LONGEST_SEARCH,
        key="runs_search",
        width=420,
    )
    entries = list_entries(store, query or "")
    compared, chosen = compare(runs, store, entries)
    with concluding:
        st.markdown(plain(conclusion(compared, len(entries), is_search=bool(query))))
    if entries:
        history(runs, entries, what_each_reached(store, entries))
    elif query:
        st.info(f"Nothing stored has “{plain(query)}” in its name, task or settings.")
    else:
        lab_link("Open the Lab")
    if compared:
        chosen_list(runs, store, compared, chosen)
        comparison(compared)
        downloads(compared)
        how_trained(compared, chosen)
    if entries:
        how_long_kept(store, len(entries))
    runs.write_link()
    with problems:
        warn_once(runs.problems)


def conclusion(compared: Sequence[ComparedExperiment], n_listed: int, *, is_search: bool) -> str:
    """Return one sentence: what the chosen experiments show, or else what can be chosen."""
    if len(compared) > 1:
        return comparison_in_words(compared)
    if compared:
        snapshot = compared[0].snapshot
        metric = metric_of([snapshot])
        variants = snapshot.experiment.sharing
        lead = f"{snapshot.experiment.task.title}: "
        return levels_in_words(variants, last_means(snapshot, metric).tolist(), metric, lead)
    if not n_listed:
        nothing = "No experiment has been finished here yet: train one in the Lab, and it is kept."
        return "No experiment fits the search." if is_search else nothing
    which = f"{n_listed} experiments {'fit the search' if is_search else 'are kept here'}"
    if n_listed == 1:
        which = f"1 experiment {'fits the search' if is_search else 'is kept here'}"
    elif n_listed == MOST_LISTED:
        which = f"The newest {MOST_LISTED} experiments are listed"
    return f"{which}: tick one to replay its learning, or up to {MOST} to compare them."


def history(runs: Runs, entries: Sequence[StoredEntry], reached: Mapping[str, str]) -> None:
    """Draw the table of stored experiments, in which experiments are chosen."""
    hashes = [entry.hash for entry in entries]
    key = key_of_table("history", runs.version, hashes)
    chosen_rows = [row for row, entry in enumerate(entries) if entry.hash in runs.chosen]
    with st.container(key="history"):
        st.dataframe(
            history_table(entries, reached),
            hide_index=True,
            key=key,
            on_select=lambda: runs.take_rows(hashes, selected_rows(key, len(hashes))),
            selection_mode="multi-row",
            selection_default={"selection": {"rows": chosen_rows}},
            column_config={
                "name": st.column_config.TextColumn("Name", width=250),
                "reached": st.column_config.TextColumn(
                    "Accuracy", width=230, help="Mean over seeds at the end of training."
                ),
                "changed": st.column_config.TextColumn(
                    "Changed settings", width=180, help="What differs from the task's defaults."
                ),
                "stored": st.column_config.DatetimeColumn("Finished", width=110, format="distance"),
                "runs": st.column_config.NumberColumn("Runs", width=50, help="Variants × seeds."),
                "steps": st.column_config.NumberColumn("Steps", width=60, format="localized"),
                "seconds": st.column_config.NumberColumn("Trained in", width=80, format="%.0f s"),
                "bytes": st.column_config.NumberColumn("Size", width=70, format="bytes"),
                "pinned": st.column_config.CheckboxColumn("Pinned", width=60),
                "task": st.column_config.TextColumn("Task", width=115),
            },
            placeholder="–",
            alt="Finished experiments, newest first",
        )


def chosen_list(
    runs: Runs,
    store: ResultStore,
    compared: Sequence[ComparedExperiment],
    entries: Sequence[StoredEntry],
) -> None:
    """Draw a row for each compared experiment: letter, name, links and buttons."""
    with st.container(gap="xxsmall", key="chosen"):
        for experiment, entry in zip(compared, entries, strict=True):
            with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
                settings = escape(changed_settings(entry.text))
                changed = f" <small style='opacity: 0.75'>{settings}</small>" if settings else ""
                name = f"<b>{experiment.letter}</b> {escape(experiment.name)}{changed}"
                st.html(name, width="content")
                lab_link("Open in the Lab", {"run": entry.hash})
                page_link(
                    "attention",
                    "Replay its attention",
                    icon=":material/grid_on:",
                    query_params=with_hidden({"run": entry.hash}),
                    help_text="Trains one seed again, with the same numbers, to film its "
                    "attention.",
                )
                if may_change():
                    change_menu(runs, store, entry)
                st.button(
                    "",
                    icon=":material/close:",
                    type="tertiary",
                    key=f"leave_{entry.hash}",
                    on_click=runs.leave,
                    args=([entry.hash],),
                    help="Compare it no longer.",
                )


def change_menu(runs: Runs, store: ResultStore, entry: StoredEntry) -> None:
    """Draw the menu that renames, pins or deletes a stored experiment."""
    options = [RENAME, UNPIN if entry.pinned else PIN, DELETE]
    pressed = st.menu_button("Change", options, type="tertiary", key=f"change_{entry.hash}")
    if pressed == RENAME:
        rename(runs, store, entry)
    elif pressed == DELETE:
        delete(runs, store, entry)
    elif pressed in (PIN, UNPIN):
        attempt(runs, lambda: store.pin(entry.hash, pressed == PIN))
        st.rerun()


@st.dialog("Rename")
def rename(runs: Runs, store: ResultStore, entry: StoredEntry) -> None:
    """Ask for a new name."""
    st.text_input(
        "Name", entry.name, max_chars=LONGEST_NAME, placeholder=name_of(entry), key="name"
    )
    st.caption("Empty: it is called after its settings.")

    def save() -> None:
        attempt(runs, lambda: store.rename(entry.hash, st.session_state.name))

    if st.button("Save", type="primary", on_click=save, key="save_name"):
        st.rerun()


@st.dialog("Delete this experiment?")
def delete(runs: Runs, store: ResultStore, entry: StoredEntry) -> None:
    """Ask for a confirmation, then delete."""
    st.html(f"<b>{escape(name_of(entry))}</b>")
    st.markdown("Its curves and its trained models are gone then. Its settings train it anew.")

    def forget() -> None:
        if attempt(runs, lambda: store.delete(entry.hash)):
            runs.leave([entry.hash])

    with st.container(horizontal=True):
        deleted = st.button("Delete", type="primary", on_click=forget, key="confirm_delete")
        if deleted or st.button("Keep", key="keep"):
            st.rerun()


def how_trained(compared: Sequence[ComparedExperiment], entries: Sequence[StoredEntry]) -> None:
    """Draw what has trained the chosen experiments: equal bits need the same."""
    with st.expander("What trained them, for programmers", key="how_trained"):
        rows = [
            f"- **{one.letter}** `{entry.hash}`: {plain(str(one.snapshot.maker))}, "
            f"attnkit {plain(entry.version)}"
            for one, entry in zip(compared, entries, strict=True)
        ]
        st.markdown("\n".join(rows))


def how_long_kept(store: ResultStore, n_listed: int) -> None:
    """Draw the space that is used in the store, and the rule by which runs are deleted.

    Raises:
        Unavailable: If the store cannot be read.
    """
    with st.expander("How long experiments are kept", key="how_long_kept"):
        megabytes, limit = store.n_bytes() / 2**20, server_settings().store_megabytes
        note = f" The table has the newest {MOST_LISTED}; search for others."
        st.markdown(
            f"{megabytes:,.1f} of {limit:,} MB are used. When they are full, the experiment that "
            "nobody has opened for longest is deleted. Pinned experiments stay."
            f"{note if n_listed == MOST_LISTED else ''}"
        )
