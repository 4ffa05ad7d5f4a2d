"""A run that is tied and trained on before a visitor's eyes, beside what the Lab trains."""

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
    """What one visitor has had tied and trained on.

    Attributes:
        lab: the visitor's.
        run: what is looked into, with all its seeds.
        job_id: the job that trains on, if one was begun.
        refusal: why the last one was not taken; said once.
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
        """What would be trained; see `train_on`.

        Raises:
            ValueError: says in words why it cannot be.
        """
        return train_on(self.run, seed, variant, text, _most_steps(self.run))

    def begin(self, experiment: Experiment) -> None:
        """Train it; what is finished already, or trains for somebody, is shown as it is."""
        service = training_service()
        known = service.find(experiment, self.lab.watcher)
        if known is not None and known.id == self.job_id and not known.over:
            return
        self.leave()
        if known is not None and known.state != "paused":
            self.job_id = known.id
            return
        try:
            self.job_id = service.submit(experiment, watcher=self.lab.watcher)
        except Refused as error:
            self.refusal = str(error)
            return
        service.wait(self.job_id, 0, FIRST_FRAME_SECONDS, self.lab.watcher)

    def stop(self) -> None:
        """End it and keep what it reached; if others watch it, it goes on for them alone."""
        if self.job_id and training_service().is_shared(self.job_id, self.lab.watcher):
            self.leave()
        elif self.job_id:
            training_service().stop(self.job_id)

    def leave(self) -> None:
        """Take it off the screen; it ends if nobody else watches it, the Lab neither."""
        if self.job_id and self.job_id not in (self.lab.job_id, self.lab.filmed_id):
            training_service().turn_away(self.job_id, self.lab.watcher)
        self.job_id, self.refusal = None, ""


def open_tied_training(lab: Lab) -> TiedTraining:
    """This visitor's; another one if they look into another run."""
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
    """Of an experiment, whatever its settings allow and this copy does."""
    most = settings(run.task.name)["steps"].high
    return int(min(most or 1, server_settings().max_steps))
