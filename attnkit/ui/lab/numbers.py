"""Tables, downloads and code of the run that the Lab shows."""

from __future__ import annotations

import json

import streamlit as st

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.export import experiment_code
from attnkit.analysis.inspection.request import Inspection
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


def numbers(lab: Lab, job: Job | None) -> None:
    """Draw tables and downloads of the run on screen; while it trains, only a note."""
    snapshot = lab.shown(job)
    with st.expander("Numbers and downloads"):
        if snapshot is None:
            st.caption("Tables appear when something is trained.")
            st.code(experiment_code(lab.experiment), language="python", wrap_lines=True)
            return
        if moves(job):
            st.caption("Tables appear when training ends or is paused.")
            return
        table = sharing_table(snapshot)
        table = table.assign(
            accuracy_low=table.accuracy_low.clip(lower=0),
            accuracy_high=table.accuracy_high.clip(upper=1),
        )
        st.dataframe(table, hide_index=True, alt="Means over seeds for every variant")
        st.caption(f"Trained in {snapshot.seconds:.1f} s by {plain(snapshot.trained_by)}.")
        st.caption(
            "Means over seeds; low and high are 95% limits (Student's t). `difference` is accuracy "
            "minus that of QKV, seed by seed. Steps to threshold: mean over the solved seeds only; "
            "diverged seeds are left out of all means."
        )
        task = snapshot.experiment.task
        if task.slice_names:
            title = task.slice_title or "group"
            title = f"Accuracy by {title[0].lower()}{title[1:]}"
            st.markdown(f"**{title}**")
            st.dataframe(slice_table(snapshot), hide_index=True, alt=title)
        runs = run_table(snapshot)
        row = st.container(horizontal=True)
        with row:
            settings = json.dumps(snapshot.experiment.settings(), indent=1, ensure_ascii=False)
            name = f"attnkit-{task.name}"
            download("Runs as CSV", csv_of_frame(runs), f"{name}-runs.csv", key="runs_csv")
            download("Experiment as JSON", settings, f"{name}-experiment.json", key="settings_json")
            run = snapshot.experiment
            page_as_file(
                InspectedRun(lab, run.replace(n_seeds=1), run, row),
                Inspection("attention", layer=telling_layer(run.layer_specs)),
                "attention",
                ATTENTION_TITLE,
                label="Attention as HTML",
                help="The page Attention as one file that works without a server: one lookup of "
                f"seed {run.first_seed} at any moment of training, number by number.",
            )
        st.code(experiment_code(snapshot.experiment), language="python", wrap_lines=True)
