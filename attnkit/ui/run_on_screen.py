"""The run that a visitor's Lab shows: found or begun, paused, stopped and taken off the screen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.service.jobs import NOBODY, Job, Watcher
from attnkit.service.service import Refused
from attnkit.training.joining import can_share_runs
from attnkit.training.snapshot import Snapshot
from attnkit.ui.render_cache import curves_only, with_variants
from attnkit.ui.service import FIRST_FRAME_SECONDS, training_service
from attnkit.ui.task_examples import shipped_example
from attnkit.variants import Variant


@dataclass
class RunOnScreen:
    """The settings of one visitor, and the job that trains them, if there is one.

    Attributes:
        experiment: The last valid settings.
        watcher: This tab, as last known.
        job_id: The job on screen, if one was started or found.
        came_finished: Whether that job was finished already when it came to the screen.
        held: That job as this visitor has paused or stopped it while it goes on for others.
        refusal: Reason why the last submitted experiment was refused; shown once.
        previous: Last snapshot of the job before it on the same task; its curves are drawn in grey.
        filmed_id: The job whose film a page shows, if that is another one.
        quiet: Whether the visitor guesses before results are shown.
        hidden: Controls that a class link hides; they keep their values.
    """

    experiment: Experiment
    watcher: Watcher = NOBODY
    job_id: str | None = None
    came_finished: bool = False
    held: Job | None = None
    refusal: str = ""
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
    def job(self) -> Job | None:
        """The job on screen as it is now."""
        if self.held is not None:
            return self.held
        return training_service().look(self.job_id, self.watcher) if self.job_id else None

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

    def pause(self) -> None:
        """Pause the job on screen; if others watch it, only for this visitor."""
        job = self.job
        if job is None:
            return
        if self._is_shared:
            self.held = replace(job, state="paused", obeyed=job.sent)
        else:
            training_service().pause(job.id)

    def stop(self) -> None:
        """Stop the job on screen and keep its last state; it goes on for others who watch it."""
        job = self.job
        if job is None:
            return
        if self._is_shared:
            self.held = replace(job, state="stopped", obeyed=job.sent)
            training_service().turn_away(job.id, self.watcher)
        else:
            self.held = None
            training_service().stop(job.id)

    def leave_job(self) -> None:
        """Take the job off the screen; it ends if nobody else watches it."""
        if self.job_id:
            training_service().turn_away(self.job_id, self.watcher)
        self.job_id, self.held = None, None

    @property
    def _is_shared(self) -> bool:
        """Whether others watch the job on screen, so that this visitor may not pause it for all."""
        return self.job_id is not None and training_service().is_shared(self.job_id, self.watcher)

    def _begin(
        self, *, paused: bool = False, reuse: bool = False, resumes: Job | None = None
    ) -> None:
        """Submit the experiment and show its job; if it is refused, the screen stays as it is."""
        service = training_service()
        try:
            job_id = service.submit(
                self.experiment, paused=paused, watcher=self.watcher, reuse=reuse, resumes=resumes
            )
        except Refused as error:
            self.refusal = str(error)
            return
        self._show(job_id)
        service.wait(job_id, 0, FIRST_FRAME_SECONDS, self.watcher)

    def _show(self, job_id: str) -> None:
        """Put a job on the screen; the curves of a comparable job before it are drawn in grey."""
        old = self.job
        if old is not None and old.snapshot is not None:
            has_curves = len(old.snapshot.eval_steps) > 1
            same_task = old.experiment.task.name == self.experiment.task.name
            has_other_runs = not can_share_runs(old.experiment, self.experiment)
            if has_curves and same_task and has_other_runs:
                self.previous = curves_only(old.snapshot)
        if job_id != self.job_id:
            self.leave_job()
        self.job_id, self.came_finished, self.held, self.refusal = job_id, False, None, ""

    def _show_found(self, job: Job) -> None:
        """Put a job on the screen that was found, and note whether it was finished already."""
        self._show(job.id)
        self.came_finished = job.state == "finished"
