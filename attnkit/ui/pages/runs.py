"""Runs: every finished experiment that this copy keeps; any of them beside each other."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from attnkit.analysis.comparison import ComparedExperiment
from attnkit.figures.overlay import style_of
from attnkit.foundation.settings import ended
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
    attempt,
    compare,
    find_chosen,
    listed,
    may_change,
    open_runs,
)
from attnkit.ui.session import with_hidden
from attnkit.ui.storage import result_store

require_route()

LISTED = 200  # the newest so many; searching finds the others

RENAME, DELETE = ":material/edit: Rename", ":material/delete: Delete"
PIN, UNPIN = ":material/keep: Pin", ":material/keep_off: Unpin"


def history(entries: Sequence[StoredEntry]) -> None:
    """The table of what is stored, in which experiments are chosen."""
    hashes = [entry.hash for entry in entries]
    key = runs.key_of_table(hashes)
    ticked = [row for row, entry in enumerate(entries) if entry.hash in runs.chosen]
    with st.container(key="history"):
        st.dataframe(
            history_table(entries),
            hide_index=True,
            key=key,
            on_select=lambda: runs.take_rows(hashes, st.session_state[key].selection.rows),
            selection_mode="multi-row",
            selection_default={"selection": {"rows": ticked}},
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


def chosen_list(compared: Sequence[ComparedExperiment], entries: Sequence[StoredEntry]) -> None:
    """What is compared: letter, name, the way to the Lab, and what may be done with it."""
    with st.container(gap="xxsmall", key="chosen"):
        for one, entry in zip(compared, entries, strict=True):
            with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
                square = f'<span style="color:{style_of(one)[0]}">■</span>'
                notes = [changed_settings(entry.text), f"by {one.snapshot.trained_by}"]
                changed = (
                    f"<small style='opacity: 0.75'>{escape('; '.join(filter(None, notes)))}</small>"
                )
                name = f"{square} <b>{one.letter}</b> {escape(one.name)} {changed}"
                st.html(name, width="content")
                st.page_link(
                    "pages/lab.py",
                    label="Open in the Lab",
                    icon=":material/science:",
                    query_params=with_hidden({"run": entry.hash}),
                )
                if may_change():
                    changes(entry)
                st.button(
                    "",
                    icon=":material/close:",
                    type="tertiary",
                    key=f"leave_{entry.hash}",
                    on_click=runs.leave,
                    args=([entry.hash],),
                    help="Compare it no longer.",
                )


def changes(entry: StoredEntry) -> None:
    """Rename, pin, delete."""
    options = [RENAME, UNPIN if entry.pinned else PIN, DELETE]
    wanted = st.menu_button("Change", options, type="tertiary", key=f"change_{entry.hash}")
    if wanted == RENAME:
        rename(entry)
    elif wanted == DELETE:
        delete(entry)
    elif wanted in (PIN, UNPIN):
        attempt(runs, lambda: store.pin(entry.hash, wanted == PIN))
        st.rerun()


@st.dialog("Rename")
def rename(entry: StoredEntry) -> None:
    """Ask for a name."""
    st.text_input(
        "Name", entry.name, max_chars=LONGEST_NAME, placeholder=name_of(entry), key="name"
    )
    st.caption("Empty: it is called after its settings.")

    def save() -> None:
        attempt(runs, lambda: store.rename(entry.hash, st.session_state.name))

    if st.button("Save", type="primary", on_click=save, key="save_name"):
        st.rerun()


@st.dialog("Delete this experiment?")
def delete(entry: StoredEntry) -> None:
    """Ask once more."""
    st.html(f"<b>{escape(name_of(entry))}</b>")
    st.markdown("Its curves and its trained models are gone then. Its settings train it anew.")

    def forget() -> None:
        if attempt(runs, lambda: store.delete(entry.hash)):
            runs.leave([entry.hash])

    with st.container(horizontal=True):
        deleted = st.button("Delete", type="primary", on_click=forget, key="confirm_delete")
        if deleted or st.button("Keep", key="keep"):
            st.rerun()


def tell_problems() -> None:
    """What went wrong, once."""
    for problem in runs.problems:
        st.warning(plain(problem), icon=":material/warning:")
    runs.problems = []


def draw() -> None:
    """The page, as far as the store can be read."""
    problems = st.container()
    searched = st.text_input(
        "Search",
        placeholder="Name, task, setting (d_head 5) or hash",
        icon=":material/search:",
        max_chars=LONGEST_SEARCH,
        key="runs_search",
        width=420,
    )
    entries = listed(store, searched or "", LISTED)
    chosen = find_chosen(runs, store, entries)
    compared = compare(runs, store, chosen)
    chosen = [entry for entry in chosen if entry.hash in runs.chosen]
    if entries:
        history(entries)
        size, most = store.n_bytes() / 2**20, server_settings().store_megabytes
        number = f"The newest {LISTED}; search for others." if len(entries) == LISTED else ""
        st.caption(
            f"{number} {size:,.1f} of {most:,} MB are used. When they are full, what nobody has "
            "looked at for longest goes; pinned experiments stay."
        )
    elif searched:
        st.info(f"Nothing stored has “{plain(searched)}” in its name, task, settings or hash.")
    else:
        st.info("No experiment has been finished here yet. Train one, and it is kept.")
        st.page_link("pages/lab.py", label="Open the Lab", icon=":material/science:")
    if compared:
        chosen_list(compared, chosen)
        comparison(compared)
        downloads(compared)
        components.load_plotly()
    elif entries:
        st.markdown(f"Tick one experiment to see its numbers, or up to {MOST} to compare them.")
    runs.write_link()
    with problems:
        tell_problems()


st.title("Runs", anchor=False)
st.markdown("Finished experiments are kept here, and any of them can be compared.")
runs = open_runs()
opened = result_store()
try:
    if isinstance(opened, Unavailable):
        raise opened
    store: ResultStore = opened
    draw()
except Unavailable as error:
    st.warning(
        f"The store of finished experiments cannot be read now: {plain(ended(str(error)))} "
        "Training in the Lab works without it.",
        icon=":material/warning:",
    )
