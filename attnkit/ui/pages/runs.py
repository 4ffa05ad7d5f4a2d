"""Runs: every finished experiment that this copy keeps, and comparisons between them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from attnkit.analysis.comparison import ComparedExperiment
from attnkit.figures.overlay import style_of
from attnkit.foundation.settings import as_sentence
from attnkit.service.history import changed_settings, history_table, name_of
from attnkit.service.server import server_settings
from attnkit.service.store import (
    LONGEST_NAME,
    LONGEST_SEARCH,
    ResultStore,
    StoredEntry,
    Unavailable,
)
from attnkit.ui import components
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.run_comparison import comparison, downloads
from attnkit.ui.runs import (
    MOST,
    Runs,
    attempt,
    compare,
    find_chosen,
    list_entries,
    may_change,
    open_runs,
)
from attnkit.ui.session import with_hidden
from attnkit.ui.storage import result_store

MOST_LISTED = 200
"""Experiments in the table, the newest; older ones are found by searching."""

RENAME, DELETE = ":material/edit: Rename", ":material/delete: Delete"
PIN, UNPIN = ":material/keep: Pin", ":material/keep_off: Unpin"


def draw() -> None:
    """Draw the page, as far as the store can be read."""
    require_route()
    st.title("Runs", anchor=False)
    st.markdown("Finished experiments are kept here, and any of them can be compared.")
    runs = open_runs()
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
    """Draw the search, the table of experiments and the comparison of those that are chosen.

    Raises:
        Unavailable: If the store cannot be read.
    """
    problems = st.container()
    query = st.text_input(
        "Search",
        placeholder="Name, task, setting (d_head 5) or hash",
        icon=":material/search:",
        max_chars=LONGEST_SEARCH,
        key="runs_search",
        width=420,
    )
    entries = list_entries(store, query or "", MOST_LISTED)
    chosen = find_chosen(runs, store, entries)
    compared = compare(runs, store, chosen)
    chosen = [entry for entry in chosen if entry.hash in runs.chosen]
    if entries:
        history(runs, entries)
        megabytes, limit = store.n_bytes() / 2**20, server_settings().store_megabytes
        is_cut = len(entries) == MOST_LISTED
        note = f"The newest {MOST_LISTED}; search for others." if is_cut else ""
        st.caption(
            f"{note} {megabytes:,.1f} of {limit:,} MB are used. When they are full, the experiment "
            "that nobody has opened for longest is deleted; pinned experiments stay."
        )
    elif query:
        st.info(f"Nothing stored has “{plain(query)}” in its name, task, settings or hash.")
    else:
        st.info("No experiment has been finished here yet. Train one, and it is kept.")
        st.page_link("pages/lab.py", label="Open the Lab", icon=":material/science:")
    if compared:
        chosen_list(runs, store, compared, chosen)
        comparison(compared)
        downloads(compared)
        components.load_plotly()
    elif entries:
        st.markdown(f"Tick one experiment to see its numbers, or up to {MOST} to compare them.")
    runs.write_link()
    with problems:
        show_problems(runs)


def history(runs: Runs, entries: Sequence[StoredEntry]) -> None:
    """Draw the table of stored experiments, in which experiments are chosen."""
    hashes = [entry.hash for entry in entries]
    key = runs.key_of_table(hashes)
    chosen_rows = [row for row, entry in enumerate(entries) if entry.hash in runs.chosen]
    with st.container(key="history"):
        st.dataframe(
            history_table(entries),
            hide_index=True,
            key=key,
            on_select=lambda: runs.take_rows(hashes, st.session_state[key].selection.rows),
            selection_mode="multi-row",
            selection_default={"selection": {"rows": chosen_rows}},
            column_config={
                "name": st.column_config.TextColumn("Name", width=250),
                "task": st.column_config.TextColumn("Task", width=115),
                "changed": st.column_config.TextColumn(
                    "Changed settings", width=180, help="What differs from the task's defaults."
                ),
                "stored": st.column_config.DatetimeColumn("Finished", width=110, format="distance"),
                "runs": st.column_config.NumberColumn("Runs", width=50, help="Variants × seeds."),
                "steps": st.column_config.NumberColumn("Steps", width=60, format="localized"),
                "seconds": st.column_config.NumberColumn("Seconds", width=70, format="%.0f"),
                "bytes": st.column_config.NumberColumn("Size", width=70, format="bytes"),
                "pinned": st.column_config.CheckboxColumn("Pinned", width=60),
            },
            alt="Finished experiments, newest first",
        )


def chosen_list(
    runs: Runs,
    store: ResultStore,
    compared: Sequence[ComparedExperiment],
    entries: Sequence[StoredEntry],
) -> None:
    """Draw a row for each compared experiment: letter, name, a link to the Lab, and its buttons."""
    with st.container(gap="xxsmall", key="chosen"):
        for experiment, entry in zip(compared, entries, strict=True):
            with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
                square = f'<span style="color:{style_of(experiment)[0]}">■</span>'
                notes = [changed_settings(entry.text), f"by {experiment.snapshot.trained_by}"]
                changed = (
                    f"<small style='opacity: 0.75'>{escape('; '.join(filter(None, notes)))}</small>"
                )
                name = f"{square} <b>{experiment.letter}</b> {escape(experiment.name)} {changed}"
                st.html(name, width="content")
                st.page_link(
                    "pages/lab.py",
                    label="Open in the Lab",
                    icon=":material/science:",
                    query_params=with_hidden({"run": entry.hash}),
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


def show_problems(runs: Runs) -> None:
    """Show once what went wrong."""
    for problem in runs.problems:
        st.warning(plain(problem), icon=":material/warning:")
    runs.problems = []
