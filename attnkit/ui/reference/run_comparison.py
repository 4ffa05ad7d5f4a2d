"""Chosen experiments on the Runs page: replay or comparison, tables and downloads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.analysis.comparison import (
    ABSENT,
    ComparedExperiment,
    Metric,
    differences_between,
    differences_within,
    evaluation_table,
    level_in_words,
    metric_of,
    settings_table,
    summary_table,
    to_json,
    variants_of,
)
from attnkit.figures.kept_runs import plot_overlay, replay
from attnkit.foundation.tables import csv_of_frame
from attnkit.service.server import server_settings
from attnkit.training.summary import whole_percent
from attnkit.ui import components
from attnkit.ui.render_cache import cached_with_snapshot
from attnkit.ui.widgets import download
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

_replay = cached_with_snapshot(replay)

_MEASURES: dict[Metric, str] = {"accuracy": "Accuracy", "loss": "Loss"}

_MOST_PANELS = 12
"""Variants that are chosen when the page opens, at most."""

_MOST_ROWS, _MOST_ROWS_HOSTED = 400_000, 100_000
"""Evaluations in one download, at most: its text is made in the server's memory."""

_WRITING = threading.Lock()
"""Held while the text of a download is made, so that all visitors together make one at a time."""

_MOST_ROWS_IN_FULL = 30
"""Rows of a table that is shown without a scroll bar, at most."""


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
    """Draw what each variant of each experiment reached; accuracies are in percent."""
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
    """Make the text of a download when no other is being made."""
    with _WRITING:
        return text().encode()


def _means_in_words(summary: pd.DataFrame, metric: Metric) -> str:
    """Return the means at the last evaluation, such as "QKV: A 98%, B 51%."."""
    parts = []
    for name, rows in summary.groupby("sharing", sort=False):
        means = [
            f"{letter} {level_in_words(last, metric)}"
            for letter, last in zip(rows["experiment"], rows["last"], strict=True)
        ]
        parts.append(f"{title_of(Variant(str(name)))}: {', '.join(means)}.")
    return " ".join(parts)


def _measure_and_variants(compared: Sequence[ComparedExperiment]) -> tuple[Metric, list[Variant]]:
    """Draw the choice of metric and variants, and return both."""
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
                default=variants[:_MOST_PANELS],
                format_func=title_of,
                selection_mode="multi",
                key="variants_" + "_".join(variants),
            )
            chosen = [variant for variant in variants if variant in picked] or variants
    return metric, chosen


def _differences(
    compared: Sequence[ComparedExperiment], variants: list[Variant], metric: Metric
) -> None:
    """Draw paired differences between variants, and between experiments, folded away."""
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
    """Draw paired differences of some variants; those of accuracies are in percentage points."""
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
    """Draw a table, in full unless it is long; sharings are shown by their titles."""
    if "experiment" in values:
        values = values.assign(sharing=[title_of(Variant(name)) for name in values["sharing"]])
    st.dataframe(
        values,
        hide_index=True,
        height="content" if len(values) <= _MOST_ROWS_IN_FULL else "auto",
        column_config={"experiment": "Experiment", "sharing": "Variant", **columns},
        placeholder="–",
        alt=alt,
    )
