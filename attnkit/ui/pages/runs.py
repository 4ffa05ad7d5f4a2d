"""Runs: every finished experiment that this copy keeps; one is replayed, several are compared.

The link is `?run=` with the hashes of the chosen experiments, so that a comparison can be shared.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.analysis.comparison import (
    ABSENT,
    LETTERS,
    ComparedExperiment,
    Metric,
    comparison_in_words,
    differences_between,
    differences_within,
    evaluation_table,
    in_a_cell,
    last_means,
    level_in_words,
    levels_in_words,
    metric_of,
    settings_table,
    summary_table,
    to_json,
    variants_of,
)
from attnkit.figures.curves import plot_overlay, replay
from attnkit.foundation.settings import as_sentence
from attnkit.foundation.tables import csv_of_frame
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
from attnkit.training.summary import whole_percent
from attnkit.ui import components
from attnkit.ui.address import Linked, LinkList, open_choice
from attnkit.ui.cache import Cache, cached_with_snapshot
from attnkit.ui.lab.guess import stop_before_first_run
from attnkit.ui.lab.lab import lab_link, with_hidden
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import is_signed_in, result_store
from attnkit.ui.widgets import download, key_of_table, selected_rows, warn_once
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

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


def _may_change() -> bool:
    """Return whether this visitor may rename, pin and delete: on a hosted copy, only its owner."""
    return not server_settings().hosted or is_signed_in()


def _list_entries(store: ResultStore, query: str) -> list[StoredEntry]:
    """Return the newest entries, or those that match a search.

    Titles, which are shown but not stored, are searched in the newest entries only.
    """
    newest = store.entries(limit=MOST_LISTED)
    search = Search.of(query)
    if not search.text:
        return newest
    by_words = store.entries(search.text, 5000)
    known = {entry.hash: entry for entry in [*newest, *by_words]}
    matches = [entry for entry in known.values() if search.fits(entry)]
    return sorted(matches, key=lambda entry: entry.created_at, reverse=True)[:MOST_LISTED]


def _what_each_reached(store: ResultStore, entries: Sequence[StoredEntry]) -> dict[str, str]:
    """Return what experiments reached in a few words, by hash.

    A result is read once, and about `_READ_BYTES` of them at a time, so that a page of large ones
    opens soon: those that are missing come when the page is drawn again.
    """
    n_bytes, reached = 0, {}
    for entry in entries:
        key = (entry.hash, entry.created_at)
        text = _REACHED.get(key)
        if text is None and n_bytes < _READ_BYTES:
            n_bytes += entry.n_bytes
            snapshot = store.peek(entry.hash)
            text = _REACHED.put(key, "" if snapshot is None else in_a_cell(snapshot))
        if text is not None:
            reached[entry.hash] = text
    return reached


def compare(
    runs: Runs, store: ResultStore, read: Sequence[StoredEntry]
) -> tuple[list[ComparedExperiment], list[StoredEntry]]:
    """Return the chosen experiments, each with a letter, and their entries.

    Those that are not stored any more, and those that cannot be read, leave the choice.
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
    if not _may_change():  # the menu has been drawn for an owner who has signed out since
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
        _show_store(runs, store)
    except Unavailable as error:
        reason = plain(as_sentence(str(error)))
        st.warning(
            f"The store of finished experiments cannot be read now: {reason} "
            "Training in the Lab works without it.",
            icon=":material/warning:",
        )


def _show_store(runs: Runs, store: ResultStore) -> None:
    concluding, problems = st.container(key="conclusion"), st.container()
    query = st.text_input(
        "Search",
        placeholder="Name, task, variant, or a setting such as head width 5",
        icon=":material/search:",
        max_chars=LONGEST_SEARCH,
        key="runs_search",
        width=420,
    )
    entries = _list_entries(store, query or "")
    compared, chosen = compare(runs, store, entries)
    with concluding:
        st.markdown(plain(conclusion(compared, len(entries), is_search=bool(query))))
    if entries:
        history(runs, entries, _what_each_reached(store, entries))
    elif query:
        st.info(f"Nothing stored has “{plain(query)}” in its name, task or settings.")
    else:
        lab_link("Open the Lab")
    if compared:
        _chosen_list(runs, store, compared, chosen)
        comparison(compared)
        downloads(compared)
        _how_trained(compared, chosen)
    if entries:
        _how_long_kept(store, len(entries))
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


def _chosen_list(
    runs: Runs,
    store: ResultStore,
    compared: Sequence[ComparedExperiment],
    entries: Sequence[StoredEntry],
) -> None:
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
                if _may_change():
                    _change_menu(runs, store, entry)
                st.button(
                    "",
                    icon=":material/close:",
                    type="tertiary",
                    key=f"leave_{entry.hash}",
                    on_click=runs.leave,
                    args=([entry.hash],),
                    help="Compare it no longer.",
                )


def _change_menu(runs: Runs, store: ResultStore, entry: StoredEntry) -> None:
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


def _how_trained(compared: Sequence[ComparedExperiment], entries: Sequence[StoredEntry]) -> None:
    """Draw what has trained the chosen experiments: equal bits need the same."""
    with st.expander("What trained them, for programmers", key="how_trained"):
        rows = [
            f"- **{one.letter}** `{entry.hash}`: {plain(str(one.snapshot.maker))}, "
            f"attnkit {plain(entry.version)}"
            for one, entry in zip(compared, entries, strict=True)
        ]
        st.markdown("\n".join(rows))


def _how_long_kept(store: ResultStore, n_listed: int) -> None:
    with st.expander("How long experiments are kept", key="how_long_kept"):
        megabytes, limit = store.n_bytes() / 2**20, server_settings().store_megabytes
        note = f" The table has the newest {MOST_LISTED}; search for others."
        st.markdown(
            f"{megabytes:,.1f} of {limit:,} MB are used. When they are full, the experiment that "
            "nobody has opened for longest is deleted. Pinned experiments stay."
            f"{note if n_listed == MOST_LISTED else ''}"
        )


_replay = cached_with_snapshot(replay)

_MEASURES: dict[Metric, str] = {"accuracy": "Accuracy", "loss": "Loss"}

_MOST_ROWS, _MOST_ROWS_HOSTED = 400_000, 100_000
"""Evaluations in one download, at most: its text is made in the server's memory."""

_WRITING = threading.Lock()
"""Held while the text of a download is made, so that all visitors together make one at a time."""


def comparison(compared: Sequence[ComparedExperiment]) -> None:
    """Draw curves and numbers of the chosen experiments; what they add is folded away."""
    settings = settings_table(compared)
    if len(compared) > 1:
        st.subheader("Settings that differ", anchor=False)
        if not settings.empty:
            _table(settings, "Settings that differ", {})
        if (settings == ABSENT).any(axis=None):
            st.caption(f"{ABSENT}: the task has no such setting.")

    metric, variants = _measure_and_variants(compared)
    summary = summary_table(compared, metric)
    summary = summary[summary["sharing"].isin(variants)]
    st.subheader(f"{_MEASURES[metric]} on held-out examples, by training step", anchor=False)
    if len(compared) == 1:
        blob = _replay(compared[0].snapshot, tuple(variants), metric)
        components.component("replay", *components.FILM)(key="replay", data=blob)
    else:
        components.live_figure(
            plot_overlay(compared, variants, metric),
            key="overlay",
            alt=f"{_MEASURES[metric]} over steps. At the end: {_means_in_words(summary, metric)}",
        )
        components.load_plotly()
        better = "higher is better" if metric == "accuracy" else "lower is better"
        st.caption(f"Lines: means over seeds; bands: 95% intervals (Student's t); {better}.")

    _numbers(summary, metric)
    _differences(compared, variants, metric)
    if len(compared) == 1:
        with st.expander("Settings", key="settings"):
            if not settings.empty:
                _table(settings, "Settings", {})
            st.caption(f"{'All' if settings.empty else 'All others'} are the task's defaults.")


def _numbers(summary: pd.DataFrame, metric: Metric) -> None:
    st.subheader("What each reached", anchor=False)
    is_share, shares = metric == "accuracy", ["last", "low", "high", "mean", "best"]
    limits = summary[["low", "high"]].clip(0, 1 if is_share else None)
    summary = summary.assign(**limits)  # limits of Student's t may lie outside of 0 to 1
    if is_share:
        summary[shares] = summary[shares].map(whole_percent)
        summary["sd"] *= 100
    number = partial(st.column_config.NumberColumn, format="%d%%" if is_share else "%.3f")
    columns = {
        "seeds": "Seeds",
        "last": number(f"Last {metric}"),
        "low": number("Low"),
        "high": number("High"),
        "sd": st.column_config.NumberColumn("SD", format="%.1f" if is_share else "%.3f"),
        "mean": number("Mean"),
        "best": number("Best (optimistic)"),
        "solved": "Solved",
        "steps_to_threshold": st.column_config.NumberColumn("Steps to 99%", format="%.0f"),
        "diverged": "Diverged",
    }
    _table(summary, "What each experiment reached", columns)
    with st.expander("What the columns mean", key="columns"):
        st.markdown(
            "- Last: mean over seeds of the last evaluation, its 95% limits (low, high), and the "
            "standard deviation (SD) over seeds.\n"
            "- Mean: mean of all evaluations, so that learning early counts.\n"
            "- Best: the best evaluation of the best seed, an optimistic number that grows with "
            "the number of seeds and evaluations.\n"
            "- Steps to 99%: mean over the solved seeds only.\n"
            "- Diverged: seeds that are left out of all other columns."
        )


def downloads(compared: Sequence[ComparedExperiment]) -> None:
    """Draw the downloads of all raw data of the chosen experiments."""
    st.subheader("Raw data", anchor=False)
    n_rows = sum(len(one.snapshot.eval_steps) * one.experiment.n_runs for one in compared)
    limit = _MOST_ROWS_HOSTED if server_settings().hosted else _MOST_ROWS
    if n_rows > limit:
        st.caption(
            f"{n_rows:,} evaluations are too many for one download (at most {limit:,}): "
            "choose fewer experiments."
        )
        return
    tasks = dict.fromkeys(each.experiment.task.name for each in compared)
    name = f"attnkit-runs-{'-'.join(tasks)}"
    with st.container(horizontal=True):
        csv = partial(_encoded, lambda: csv_of_frame(evaluation_table(compared)))
        download("Every evaluation as CSV", csv, f"{name}-evaluations.csv", key="csv")
        json = partial(_encoded, lambda: to_json(compared))
        download("Settings and runs as JSON", json, f"{name}.json", key="json")
    st.caption(
        f"{n_rows:,} rows: one per experiment, run and evaluation, nothing thinned. A number "
        "is missing if the task does not have that measure, or if the run had diverged."
    )


def _encoded(text: Callable[[], str]) -> bytes:
    with _WRITING:
        return text().encode()


def _means_in_words(summary: pd.DataFrame, metric: Metric) -> str:
    parts = []
    for name, rows in summary.groupby("sharing", sort=False):
        means = [
            f"{letter} {level_in_words(last, metric)}"
            for letter, last in zip(rows["experiment"], rows["last"], strict=True)
        ]
        parts.append(f"{title_of(Variant(str(name)))}: {', '.join(means)}.")
    return " ".join(parts)


def _measure_and_variants(compared: Sequence[ComparedExperiment]) -> tuple[Metric, list[Variant]]:
    default = metric_of([one.snapshot for one in compared])
    variants = variants_of(compared)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric: Metric = (
            st.segmented_control(
                "Measure",
                list(_MEASURES),
                format_func=_MEASURES.__getitem__,
                default=default,
                required=True,
                key=f"measure_{default}",
            )
            or default
        )
        chosen = variants
        if len(variants) > 1:
            picked = st.pills(
                "Variants",
                variants,
                default=variants[:12],
                format_func=title_of,
                selection_mode="multi",
                key="variants_" + "_".join(variants),
            )
            chosen = [variant for variant in variants if variant in picked] or variants
    return metric, chosen


def _differences(
    compared: Sequence[ComparedExperiment], variants: list[Variant], metric: Metric
) -> None:
    beside = [c.experiment.sharing for c in compared if len(c.experiment.sharing) > 1]
    baselines = [v for v in variants if any(v in sharing for sharing in beside)]
    has_others = len(variants) > 1 and bool(baselines)
    if len(compared) == 1 and not has_others:
        return
    with st.expander("Differences, seed by seed", key="differences"):
        if has_others:
            st.subheader("Variants against each other", anchor=False)
            first = baselines.index(Variant("QKV")) if Variant("QKV") in baselines else 0
            baseline = st.selectbox(
                "Minus", baselines, first, title_of, key="minus_variant", width=240
            )
            differences = differences_within(compared, baseline, metric)
            _difference_table(differences, variants, title_of(baseline), metric)
        if len(compared) > 1:
            st.subheader("Experiments against each other", anchor=False)
            letters = [one.letter for one in compared]
            letter = st.selectbox("Minus", letters, key="minus_experiment", width=240)
            differences = differences_between(compared, compared[letters.index(letter)], metric)
            differences = differences[differences["sharing"].isin(variants)]
            _difference_table(differences, variants, letter, metric)
            if differences.empty:
                st.caption(f"No other experiment has a variant of {letter}.")
            unpaired = differences.loc[differences["n_pairs"] == 0, "experiment"].unique()
            if len(unpaired):
                st.caption(
                    f"No pairs: {', '.join(unpaired)}. Pairs need a seed that both have, on one "
                    "task, where neither diverged."
                )
        st.caption(
            "Mean of the pairs at the last evaluation with 95% limits (Student's t), each by "
            "itself: among twenty such intervals one is expected to miss. Where all pairs agree "
            "the interval has no width, which does not mean that other seeds would agree, too."
        )


def _difference_table(
    differences: pd.DataFrame, variants: Sequence[Variant], reference: str, metric: Metric
) -> None:
    is_share, columns = metric == "accuracy", ["difference", "low", "high"]
    shown = differences[differences["sharing"].isin(variants)].copy()
    shown[columns] *= 100 if is_share else 1
    label = f"{_MEASURES[metric]} minus that of {reference}"
    number = partial(st.column_config.NumberColumn, format="%+.1f" if is_share else "%+.3f")
    difference = number(f"{label}, in points" if is_share else label)
    titles = {"n_pairs": "Pairs", "difference": difference}
    if not shown.empty:
        _table(shown, label, {**titles, "low": number("Low"), "high": number("High")})


def _table(values: pd.DataFrame, alt: str, columns: dict[str, Any]) -> None:
    if "experiment" in values:
        values = values.assign(sharing=[title_of(Variant(name)) for name in values["sharing"]])
    st.dataframe(
        values,
        hide_index=True,
        height="content" if len(values) <= 30 else "auto",
        column_config={"experiment": "Experiment", "sharing": "Variant", **columns},
        placeholder="–",
        alt=alt,
    )
