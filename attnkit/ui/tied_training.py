"""Training of a tied model on the Surgery page, beside the run of the Lab."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from attnkit.analysis.recovery import train_on
from attnkit.experiment.experiment import Experiment, settings
from attnkit.service.jobs import Job
from attnkit.service.server import server_settings
from attnkit.service.service import Refused
from attnkit.ui.lab import Lab
from attnkit.ui.service import FIRST_FRAME_SECONDS, training_service


@dataclass
class TiedTraining:
    """Training of one visitor that ties matrices of a run and goes on.

    Attributes:
        lab: The visitor's Lab.
        run: Experiment of the inspected run, with all its seeds.
        job_id: The job that trains, if one was begun.
        refusal: Reason why the last experiment was refused; shown once.
    """

    lab: Lab
    run: Experiment
    job_id: str | None = None
    refusal: str = ""

    @property
    def job(self) -> Job | None:
        """The job as it is now."""
        return training_service().look(self.job_id, self.lab.watcher) if self.job_id else None

    def plan(self, seed: int, variant: str, text: str) -> Experiment:
        """Return the experiment that ties a variant and trains on, see `train_on`.

        Args:
            seed: Seed of the inspected models.
            variant: Text form of the inspected variant.
            text: Text form of the variant that ties it.

        Raises:
            ValueError: If it cannot be trained on; the message says why.
        """
        return train_on(self.run, seed, variant, text, _most_steps(self.run))

    def begin(self, experiment: Experiment) -> None:
        """Train an experiment; if it is finished or trains for somebody, show that job."""
        service = training_service()
        existing = service.find(experiment, self.lab.watcher)
        if existing is not None and existing.id == self.job_id and not existing.over:
            return
        self.leave()
        if existing is not None and existing.state != "paused":
            self.job_id = existing.id
            return
        try:
            self.job_id = service.submit(experiment, watcher=self.lab.watcher)
        except Refused as error:
            self.refusal = str(error)
            return
        service.wait(self.job_id, 0, FIRST_FRAME_SECONDS, self.lab.watcher)

    def stop(self) -> None:
        """Stop the job and keep its last state; it goes on for others who watch it."""
        if self.job_id and training_service().is_shared(self.job_id, self.lab.watcher):
            self.leave()
        elif self.job_id:
            training_service().stop(self.job_id)

    def leave(self) -> None:
        """Take the job off the screen; it ends unless others or this visitor's Lab watch it."""
        if self.job_id and self.job_id not in (self.lab.job_id, self.lab.filmed_id):
            training_service().turn_away(self.job_id, self.lab.watcher)
        self.job_id, self.refusal = None, ""


def open_tied_training(lab: Lab) -> TiedTraining:
    """Return this visitor's tied training; a new one if the inspected run has changed."""
    job = lab.job
    run = lab.experiment if job is None else job.experiment
    operation: TiedTraining | None = st.session_state.get("operation")
    if operation is not None and operation.run == run and operation.lab is lab:
        return operation
    if operation is not None:
        operation.leave()
    operation = st.session_state.operation = TiedTraining(lab, run)
    return operation


def _most_steps(run: Experiment) -> int:
    """Return the most steps that both the settings and this copy allow."""
    limit = settings(run.task.name)["steps"].high
    return int(min(limit or 1, server_settings().max_steps))
