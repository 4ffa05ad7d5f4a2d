"""Settings, curves, tables and downloads of the experiments that the Runs page compares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.analysis.comparison import (
    ABSENT,
    LETTERS,
    ComparedExperiment,
    Metric,
    differences_between,
    differences_within,
    evaluation_table,
    n_evaluations,
    settings_table,
    summary_table,
    to_json,
    variants_of,
)
from attnkit.figures.overlay import STYLES, overlay_legend, plot_overlay
from attnkit.service.server import server_settings
from attnkit.ui import components
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

_MEASURES: dict[Metric, str] = {"accuracy": "Accuracy", "loss": "Loss"}

_MOST_PANELS = 12
"""Variants that are shown unasked."""

_MOST_ROWS, _MOST_ROWS_HOSTED = 400_000, 100_000
"""Evaluations in one download: its text is made in the server's memory."""

_WRITING = threading.Lock()
"""One download's text is made at a time, whoever asks."""

_TALLEST = 30
"""Rows of a table that is shown whole."""


def comparison(compared: Sequence[ComparedExperiment]) -> None:
    """Settings, curves and tables of what is chosen."""
    st.subheader("Settings that differ" if len(compared) > 1 else "Settings", anchor=False)
    told = settings_table(compared)
    if not told.empty:
        _table(told, "Settings that differ", {})
    if len(compared) == 1:
        st.caption(f"{'All' if told.empty else 'All others'} are the task's defaults.")
    elif (told == ABSENT).any(axis=None):
        st.caption(f"{ABSENT}: the task has no such setting.")

    metric, variants = _measure_and_variants(compared)
    better = "higher is better" if metric == "accuracy" else "lower is better"
    reached = summary_table(compared, metric)
    reached = reached[reached["sharing"].isin([variant.value for variant in variants])]
    st.subheader(f"{_MEASURES[metric]} on held-out examples, by training step", anchor=False)
    components.live_figure(
        plot_overlay(compared, variants, metric),
        overlay_legend(compared, metric),
        key="overlay",
        alt=f"{_MEASURES[metric]} over steps. At the end: {_told(reached)}",
        faded=False,
    )
    st.caption(f"Lines: means over seeds; bands: 95% intervals (Student's t); {better}.")

    st.subheader("What each reached", anchor=False)
    limits = reached[["low", "high"]].clip(0, 1 if metric == "accuracy" else None)
    reached = reached.assign(**limits)  # no share lies beyond, whatever Student's t says
    _table(reached, "What each experiment reached", _reached_columns(metric))
    st.caption(
        "Last: mean over seeds of the last evaluation, its 95% limits, and the standard deviation "
        "(SD) over seeds. Mean: of all evaluations, so that learning early counts. Best: the best "
        "evaluation of the best seed, an optimistic number that grows with the number of seeds "
        "and evaluations. Steps to 99% accuracy: mean over the solved seeds only. Diverged seeds "
        "are left out of all other columns."
    )
    _differences(compared, variants, metric)


def downloads(compared: Sequence[ComparedExperiment]) -> None:
    """The raw data of what is chosen, whole."""
    st.subheader("Raw data", anchor=False)
    n_rows = n_evaluations(compared)
    most = _MOST_ROWS_HOSTED if server_settings().hosted else _MOST_ROWS
    if n_rows > most:
        st.caption(
            f"{n_rows:,} evaluations are too many for one download (at most {most:,}): "
            "choose fewer experiments."
        )
        return
    first, n = compared[0].experiment.hash, len(compared)
    name = f"attnkit-{first}" + (f"-and-{n - 1}-more" if n > 1 else "")
    with st.container(horizontal=True):
        st.download_button(
            "Every evaluation as CSV",
            lambda: _written(lambda: evaluation_table(compared).to_csv(index=False)),
            f"{name}.csv",
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
            key="csv",
        )
        st.download_button(
            "Settings and runs as JSON",
            lambda: _written(lambda: to_json(compared)),
            f"{name}.json",
            "application/json",
            icon=":material/download:",
            on_click="ignore",
            key="json",
        )
    st.caption(
        f"{n_rows:,} rows: one per experiment, run and evaluation, nothing thinned. Missing "
        "numbers are what a task does not measure, or what followed divergence."
    )


def _written(text: Callable[[], str]) -> bytes:
    with _WRITING:
        return text().encode()


def _told(reached: pd.DataFrame) -> str:
    """The means at the last evaluation, in words: "QKV: A 0.98, B 0.51." and so on."""
    parts = []
    for name, rows in reached.groupby("sharing", sort=False):
        means = [
            f"{letter} {'diverged' if last != last else format(last, '.2f')}"
            for letter, last in zip(rows["experiment"], rows["last"], strict=True)
        ]
        parts.append(f"{title_of(Variant(str(name)))}: {', '.join(means)}.")
    return " ".join(parts)


def _measure_and_variants(compared: Sequence[ComparedExperiment]) -> tuple[Metric, list[Variant]]:
    """What is drawn and told."""
    has_level = any(one.experiment.task.loss_to_beat is not None for one in compared)
    usual: Metric = "loss" if has_level else "accuracy"
    known = variants_of(compared)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric: Metric = st.segmented_control(
            "Measure",
            list(_MEASURES),
            format_func=_MEASURES.__getitem__,
            default=usual,
            required=True,
            key=f"measure_{usual}",
        )
        shown = known
        if len(known) > 1:
            names = [variant.value for variant in known]
            picked = st.pills(
                "Variants",
                names,
                default=names[:_MOST_PANELS],
                format_func=lambda name: title_of(Variant(name)),
                selection_mode="multi",
                key="variants_" + "_".join(names),
            )
            shown = [variant for variant in known if variant.value in picked] or known
    return metric, shown


def _differences(
    compared: Sequence[ComparedExperiment], variants: list[Variant], metric: Metric
) -> None:
    """Pairs of variants, pairs of experiments."""
    names = [variant.value for variant in variants]
    shared = [v for v in variants if any(_beside(v, one) for one in compared)]
    if len(variants) > 1 and shared:
        st.subheader("Variants against each other, seed by seed", anchor=False)
        baseline = st.selectbox(
            "Minus",
            [variant.value for variant in shared],
            index=next((i for i, v in enumerate(shared) if v.value == "QKV"), 0),
            format_func=lambda name: title_of(Variant(name)),
            key="minus_variant",
            width=240,
        )
        found = differences_within(compared, Variant(baseline), metric)
        found = found[found["sharing"].isin(names)]
        label = f"{_MEASURES[metric]} minus that of {title_of(Variant(baseline))}"
        _table(found, label, _difference_columns(label))
    if len(compared) > 1:
        st.subheader("Experiments against each other, seed by seed", anchor=False)
        letter = st.selectbox(
            "Minus", [one.letter for one in compared], key="minus_experiment", width=240
        )
        against = next(one for one in compared if one.letter == letter)
        found = differences_between(compared, against, metric)
        found = found[found["sharing"].isin(names)]
        label = f"{_MEASURES[metric]} minus that of {letter}"
        if found.empty:
            st.caption(f"No other experiment has a variant of {letter}.")
        else:
            _table(found, label, _difference_columns(label))
        unpaired = found.loc[found["n_pairs"] == 0, "experiment"].unique()
        if len(unpaired):
            st.caption(
                f"No pairs: {', '.join(unpaired)}. Pairs need a seed that both have, on one task, "
                "where neither diverged."
            )
    if len(compared) > 1 or (len(variants) > 1 and shared):
        st.caption(
            "Mean of the pairs at the last evaluation with 95% limits (Student's t), each by "
            "itself: among twenty such intervals one is expected to miss. Where all pairs agree "
            "the interval has no width, which does not mean that other seeds would agree, too."
        )


def _beside(variant: Variant, one: ComparedExperiment) -> bool:
    return variant in one.experiment.sharing and len(one.experiment.sharing) > 1


def _reached_columns(metric: Metric) -> dict[str, Any]:
    """Headings and formats of the summary."""
    number = partial(st.column_config.NumberColumn, format="%.3f")
    whole = partial(st.column_config.NumberColumn, format="%.0f")
    return {
        "seeds": "Seeds",
        "last": number(f"Last {metric}"),
        "low": number("Low"),
        "high": number("High"),
        "sd": number("SD"),
        "mean": number("Mean"),
        "best": number("Best (optimistic)"),
        "solved": "Solved",
        "steps_to_threshold": whole("Steps to 99%"),
        "diverged": "Diverged",
    }


def _difference_columns(label: str) -> dict[str, Any]:
    """Headings and formats of paired differences."""
    number = partial(st.column_config.NumberColumn, format="%+.3f")
    return {
        "n_pairs": "Pairs",
        "difference": number(label),
        "low": number("Low"),
        "high": number("High"),
    }


def _table(values: Any, alt: str, columns: dict[str, Any]) -> None:
    """A table that is shown whole unless it is long."""
    n_rows = len(values)
    if "experiment" in values:
        values = values.assign(sharing=[title_of(Variant(name)) for name in values["sharing"]])
        values = values.style.map(_letter_color, subset=["experiment"])
    st.dataframe(
        values,
        hide_index=True,
        height="content" if n_rows <= _TALLEST else "auto",
        column_config={"experiment": "Experiment", "sharing": "Variant", **columns},
        placeholder="–",
        alt=alt,
    )


def _letter_color(letter: str) -> str:
    """The colour of an experiment's lines."""
    return f"color: {STYLES[LETTERS.index(letter)][0]}; font-weight: 600"
