"""Training of a tied model on the Surgery page, beside the run of the Lab."""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st

from attnkit.analysis.recovery import (
    NEAR,
    Recovery,
    curve_table,
    percent_of,
    recovery_of,
    tied_variant,
)
from attnkit.experiment import Experiment
from attnkit.figures.recovery import plot_recovery
from attnkit.foundation.tables import markdown_table
from attnkit.ui import components
from attnkit.ui.inside.inspected_run import InspectedRun
from attnkit.ui.lab.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service
from attnkit.ui.session import lab_link
from attnkit.ui.watched_job import WatchedJob, status_of
from attnkit.ui.widgets import download
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of


@dataclass
class TiedTraining(WatchedJob):
    """Training of one visitor that ties matrices of a run and then continues.

    Attributes:
        lab: The visitor's Lab.
        run: Experiment of the inspected run, with all its seeds.
        labels: Label of the way to tie, by the variant that is tied during training.
        ended: Results of the trainings that have ended, by the same variants.
    """

    lab: Lab
    run: Experiment
    labels: dict[Variant, str] = field(default_factory=dict)
    ended: dict[Variant, Recovery] = field(default_factory=dict)

    def begin(self, experiment: Experiment, label: str) -> None:
        """Train an experiment; if it is finished or trains for somebody, show that job."""
        self.labels[tied_variant(experiment)] = label
        service = training_service()
        existing = service.find(experiment, self.watcher)
        if existing is not None and existing.id == self.job_id and not existing.over:
            return
        self.leave()
        if existing is not None and existing.state != "paused":
            self.watch(existing.id)
        else:
            self.submit(experiment)

    def recovery(self, tied: Variant) -> Recovery | None:
        """Return what has come of a variant that was tied here; None before it is tied."""
        job = self.job
        if job is not None and job.snapshot is not None:
            shown = tied_variant(job.experiment)
            found = recovery_of(job.snapshot)
            if found is not None and job.over:
                self.ended[shown] = found
            if shown == tied:
                return found
        return self.ended.get(tied)

    def leave(self) -> None:
        """Take the job off the screen; it ends unless others or this visitor's Lab watch it."""
        if self.job_id in (self.lab.job_id, self.lab.filmed_id):
            self.job_id = None
        super().leave()


def open_tied_training(subject: InspectedRun) -> TiedTraining:
    """Return this visitor's tied training; a new one if the inspected run has changed."""
    lab, run = subject.lab, subject.run
    operation: TiedTraining | None = st.session_state.get("operation")
    if operation is None or operation.run != run or operation.lab is not lab:
        if operation is not None:
            operation.leave()
        operation = st.session_state.operation = TiedTraining(lab, run)
    operation.watcher = lab.watcher
    return operation


def show_recovery(operation: TiedTraining) -> None:
    """Draw the fall and the recovery of accuracy in the tied training."""
    job = operation.job
    if job is None:
        return
    label = operation.labels.get(tied_variant(job.experiment), "")
    st.markdown(f"**{plain(label)}**. {status_of(job)}")
    snapshot = job.snapshot
    if snapshot is None:
        return
    recovery = recovery_of(snapshot)
    finding = "Not tied yet: both are one and the same." if recovery is None else recovery.finding
    components.live_figure(
        plot_recovery(snapshot),
        key="recovery",
        alt=f"Accuracy on held-out examples over steps. {finding}",
    )
    with st.container(key="recovery_finding"):
        st.markdown(plain(finding))
    brackets = "; brackets: 95% interval" * (snapshot.experiment.n_seeds > 1)
    st.caption(
        "Accuracy on held-out examples, by training step. Back: within "
        f"{points(NEAR)} of what it was{brackets}."
    )
    if len(operation.ended) > 1:
        with st.container(key="trials"):
            st.markdown(_trials_table(operation))
    if job.over:
        with st.container(horizontal=True, vertical_alignment="center", key="take_away"):
            lab_link("Open it in the Lab", snapshot.experiment.to_params())
            file = f"attnkit-{snapshot.experiment.task.name}-surgery-recovery.csv"
            download("Curves as CSV", curve_table(snapshot), file, key="recovery_csv")


def _trials_table(operation: TiedTraining) -> str:
    """Return a Markdown table of the trainings that have ended, a row for each way to tie."""
    rows = []
    for tied, recovery in operation.ended.items():
        accuracies = (recovery.before, recovery.at_once, recovery.now, recovery.untied_now)
        label = f"{title_of(tied.stages[0])}: {operation.labels.get(tied, tied)}"
        rows.append(map(plain, [label, *map(percent_of, accuracies), str(recovery.steps_since)]))
    header = ("Tied", "Before", "At once", "Later", "Never tied", "Steps")
    return markdown_table(header, rows, "lrrrrr")


def points(share: float) -> str:
    """Return a difference of accuracies in percentage points."""
    return f"{100 * share:g} percentage point{'s' * (share != 0.01)}"
