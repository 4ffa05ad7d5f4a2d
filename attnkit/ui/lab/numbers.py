"""Tables, downloads and code of the run that the Lab shows."""

from __future__ import annotations

import json

import streamlit as st

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.export import experiment_code
from attnkit.analysis.inspection.request import Inspection
from attnkit.foundation.language import mark, tr
from attnkit.foundation.tables import csv_of_frame
from attnkit.service.jobs import Job
from attnkit.training.summary import run_table
from attnkit.ui.inside.inspected_run import ATTENTION_TITLE, InspectedRun
from attnkit.ui.inside.takeaway import page_as_file
from attnkit.ui.lab.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.render_cache import sharing_table, slice_table
from attnkit.ui.watched_job import moves
from attnkit.ui.widgets import download

_BY_SLICES = {
    "": mark("Accuracy by group"),
    "Neighbour": mark("Accuracy by neighbour"),
    "Place": mark("Accuracy by place"),
    "Translation": mark("Accuracy by translation"),
    "Hops": mark("Accuracy by hops"),
    "Earlier occurrences of the key": mark("Accuracy by earlier occurrences of the key"),
    "Tokens of the key": mark("Accuracy by tokens of the key"),
    "Tokens from the key to its query": mark("Accuracy by tokens from the key to its query"),
    "Place among the tokens": mark("Accuracy by place among the tokens"),
}
"""Titles of the table of slices, by the property that groups the answers of a task."""


def numbers(lab: Lab, job: Job | None) -> None:
    """Draw tables and downloads of the run on screen; while it trains, only a note."""
    snapshot = lab.shown(job)
    with st.expander(tr("Numbers and downloads")):
        if snapshot is None:
            st.caption(tr("Tables appear when something is trained."))
            st.code(experiment_code(lab.experiment), language="python", wrap_lines=True)
            return
        if moves(job):
            st.caption(tr("Tables appear when training ends or is paused."))
            return
        table = sharing_table(snapshot)
        table = table.assign(
            accuracy_low=table.accuracy_low.clip(lower=0),
            accuracy_high=table.accuracy_high.clip(upper=1),
        )
        st.dataframe(table, hide_index=True, alt=tr("Means over seeds for every variant"))
        st.caption(
            tr(
                "Trained in {seconds:.1f} s by {engine}.",
                seconds=snapshot.seconds,
                engine=plain(snapshot.trained_by),
            )
        )
        st.caption(
            tr(
                "Means over seeds; low and high are 95% limits (Student's t). `difference` is "
                "accuracy minus that of QKV, seed by seed. Steps to threshold: mean over the "
                "solved seeds only; diverged seeds are left out of all means."
            )
        )
        task = snapshot.experiment.task
        if task.slice_names:
            title = _title_of_slices(task.slice_title)
            st.markdown(f"**{title}**")
            groups = slice_table(snapshot).rename(columns=tr)
            st.dataframe(groups, hide_index=True, alt=title)
        runs = run_table(snapshot)
        row = st.container(horizontal=True)
        with row:
            settings = json.dumps(snapshot.experiment.settings(), indent=1, ensure_ascii=False)
            name = f"attnkit-{task.name}"
            download(tr("Runs as CSV"), csv_of_frame(runs), f"{name}-runs.csv", key="runs_csv")
            download(
                tr("Experiment as JSON"), settings, f"{name}-experiment.json", key="settings_json"
            )
            run = snapshot.experiment
            page_as_file(
                InspectedRun(lab, run.replace(n_seeds=1), run, row),
                Inspection("attention", layer=telling_layer(run.layer_specs)),
                "attention",
                ATTENTION_TITLE,
                label=tr("Attention as HTML"),
                help=tr(
                    "The page Attention as one file that works without a server: one lookup of "
                    "seed {seed} at any moment of training, number by number.",
                    seed=run.first_seed,
                ),
            )
        st.code(experiment_code(snapshot.experiment), language="python", wrap_lines=True)


def _title_of_slices(slice_title: str) -> str:
    """Return the title of the table of slices; a plugin's task may name any property."""
    if slice_title in _BY_SLICES:
        return tr(_BY_SLICES[slice_title])
    return tr("Accuracy by {group}", group=f"{slice_title[:1].lower()}{slice_title[1:]}")
