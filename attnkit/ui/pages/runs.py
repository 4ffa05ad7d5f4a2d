"""Runs: every finished experiment that this copy keeps; one is replayed, several are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import streamlit as st

from attnkit.analysis.comparison import (
    ComparedExperiment,
    comparison_in_words,
    last_means,
    levels_in_words,
    metric_of,
)
from attnkit.foundation.settings import as_sentence
from attnkit.service.history import (
    LONGEST_SEARCH,
    StoredEntry,
    changed_settings,
    history_table,
    name_of,
)
from attnkit.service.server import server_settings
from attnkit.service.store import LONGEST_NAME, ResultStore, Unavailable
from attnkit.ui.address import open_choice
from attnkit.ui.lab.guess import stop_before_first_run
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.reference.run_comparison import comparison, downloads
from attnkit.ui.reference.runs import (
    MOST,
    Runs,
    attempt,
    compare,
    find_chosen,
    list_entries,
    may_change,
    what_each_reached,
)
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import result_store
from attnkit.ui.session import lab_link, with_hidden
from attnkit.ui.widgets import key_of_table, selected_rows, warn_once

MOST_LISTED = 200
"""Experiments in the table, the newest; older ones are found by searching."""

RENAME, DELETE = ":material/edit: Rename", ":material/delete: Delete"
PIN, UNPIN = ":material/keep: Pin", ":material/keep_off: Unpin"


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
    entries = list_entries(store, query or "", MOST_LISTED)
    chosen = find_chosen(runs, store, entries)
    compared = compare(runs, store, chosen)
    chosen = [entry for entry in chosen if entry.hash in runs.chosen]
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
