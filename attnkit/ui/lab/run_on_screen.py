"""The run that a visitor's Lab shows: a job of their settings, or the shipped example."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.service.jobs import Job
from attnkit.training.joining import can_share_runs
from attnkit.training.snapshot import Snapshot
from attnkit.ui.lab.task_examples import shipped_example
from attnkit.ui.render_cache import curves_only, with_variants
from attnkit.ui.watched_job import WatchedJob
from attnkit.variants import Variant


@dataclass
class RunOnScreen(WatchedJob):
    """The settings of one visitor, and the job that trains them, if there is one.

    Attributes:
        experiment: The last valid settings.
        came_finished: Whether the job was finished already when it came to the screen.
        previous: Last snapshot of the job before it on the same task; its curves are drawn in grey.
        filmed_id: The job whose film a page shows, if that is another one.
        quiet: Whether the visitor guesses before results are shown.
        hidden: Controls that a class link hides; they keep their values.
    """

    experiment: Experiment
    came_finished: bool = False
    previous: Snapshot | None = None
    filmed_id: str | None = None
    quiet: bool = False
    hidden: tuple[str, ...] = ()

    @property
    def opens_untrained(self) -> bool:
        """Whether no finished run is shown in place of a training that the visitor can watch.

        A class sees how the models learn, and visitors in the quiet mode guess before they see the
        result.
        """
        return self.quiet or bool(self.hidden)

    @property
    def watched(self) -> set[str]:
        """The jobs that go on for this visitor, whatever page they are on."""
        trainings = (st.session_state.get(key) for key in ("operation", "reruns", "live_sweep"))
        further = [getattr(training, "job_id", None) for training in trainings]
        return {job_id for job_id in (self.job_id, self.filmed_id, *further) if job_id}

    @property
    def example(self) -> Snapshot | None:
        """The shipped example of the task that is set up; None if there is none."""
        return shipped_example(self.experiment.task.name)

    def shown(self, job: Job | None) -> Snapshot | None:
        """Return the snapshot to draw: that of the job, or else the shipped example.

        It has the chosen variants only, as far as their runs are known. A job with other settings
        is shown as it was trained. An example with other settings is not shown, and none is shown
        if the visitor is to see the training first (see `opens_untrained`).
        """
        example = None if self.opens_untrained else self.example
        snapshot = example if job is None else job.snapshot
        if snapshot is None:
            return None
        if not can_share_runs(snapshot.experiment, self.experiment):
            return None if job is None else snapshot
        known = [v for v in self.experiment.sharing if v in snapshot.experiment.sharing]
        return with_variants(snapshot, tuple(known)) if known else None

    def lacking(self, trained: Experiment) -> list[Variant]:
        """Return the chosen variants that an experiment with the same settings has not trained."""
        return [v for v in self.experiment.sharing if v not in trained.sharing]

    @property
    def is_finished(self) -> bool:
        """Whether the run on screen, or else the shipped example of the settings, is finished."""
        job = self.job
        if job is not None:
            return job.state == "finished"
        example = self.shown(None)
        return example is not None and example.experiment == self.experiment

    @property
    def is_trained(self) -> bool:
        """Whether the settings have a run to look into: finished, in training or in the queue.

        A failed run counts, too: the pages that look into it then show the error.
        """
        job = self.job
        return self.is_finished or (job is not None and (job.begun or not job.over))

    @property
    def n_new(self) -> int | None:
        """Number of variants to train beside those on screen; None if all have to be trained."""
        job = self.job
        if job is None or job.state != "finished" or self.opens_untrained:
            return None
        if not can_share_runs(job.experiment, self.experiment):
            return None
        return len(self.lacking(job.experiment))

    def watch(self, job_id: str) -> None:
        """Put a job on the screen; the curves of a comparable job before it are drawn in grey."""
        old = self.job
        if old is not None and old.snapshot is not None:
            has_curves = len(old.snapshot.eval_steps) > 1
            same_task = old.experiment.task.name == self.experiment.task.name
            has_other_runs = not can_share_runs(old.experiment, self.experiment)
            if has_curves and same_task and has_other_runs:
                self.previous = curves_only(old.snapshot)
        super().watch(job_id)
        self.came_finished = False

    def show_found(self, job: Job) -> None:
        """Put a job on the screen that was found, and note whether it was finished already."""
        self.watch(job.id)
        self.came_finished = job.state == "finished"
