"""Live training as pages use it: they submit experiments, steer jobs, and read their latest state.

Pages also ask for what only the training process can compute: examples of tasks, answers of trained
models, and inspections. There is no Streamlit here, and no torch.

A job that begins anew after the training process died has the same numbers again or, if the kernel
has been compiled in the meantime, numbers that agree within rounding.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.responses import Answers, Example
from attnkit.experiment import Experiment
from attnkit.service.control import JobControl
from attnkit.service.job_queue import Refused
from attnkit.service.jobs import (
    NOBODY,
    FinishedRuns,
    Job,
    Watcher,
    composed_job,
    ended_job,
    find_finished_runs,
)
from attnkit.service.logs import log
from attnkit.service.protocol import Ask, Inspect, Request
from attnkit.service.scheduler import Outlook
from attnkit.service.server import ServerSettings, server_settings
from attnkit.service.store import ResultStore
from attnkit.training.memory import peak_megabytes

__all__ = ["Refused", "TrainingService"]

LEFT_SECONDS = 3.0
"""Seconds after the closing of a tab until its requests are withdrawn; reloading takes less."""


class TrainingService(JobControl):
    """One training process and its jobs. Safe to use from many threads.

    Args:
        settings: Limits of this copy; None: those of the environment.
        store: Store of finished results; None: they are not stored.
        waiting: Returns a context in which the calling thread waits for the training process.
    """

    def __init__(
        self,
        settings: ServerSettings | None = None,
        store: ResultStore | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(settings or server_settings(), store)
        self._waiting = waiting

    def submit(
        self,
        experiment: Experiment,
        *,
        paused: bool = False,
        kept: bool = True,
        watcher: Watcher = NOBODY,
        reuse: bool = False,
        resumes: Job | None = None,
        replaces: str | None = None,
    ) -> str:
        """Submit an experiment and return the id of its job.

        If the same experiment trains already, its job is returned, because the numbers are equal.

        Args:
            experiment: The experiment to train.
            paused: Whether the job pauses at step 0. It then is a new job in any case.
            kept: Whether the result is stored.
            watcher: The tab that submits it.
            reuse: Whether to take over finished runs of some variants and train only the others.
            resumes: A stopped job to continue; without its state, it is trained that far again.
            replaces: Id of the job that the tab leaves, and that no longer counts as its own.

        Raises:
            Refused: If this copy does not train it, or its queue is full.
        """
        owner = self.settings.owner_of(experiment, watcher.visitor)
        reused = self._find_finished_runs(experiment, watcher) if reuse else None
        if reused is not None and reused.missing is None:
            return self._remember(composed_job(reused, owner)).id
        with self._changed:
            if not paused:
                for job in self._newest_first(watcher):
                    if job.experiment == experiment and job.active and job.kept >= kept:
                        self._queue.watch(job.id, watcher)
                        return job.id
            now = time.monotonic()
            job = Job(
                uuid.uuid4().hex[:12],
                experiment,
                filmed=experiment.replace(n_seeds=1),
                visitor=watcher.visitor,
                owner=owner,
                address=watcher.address,
                state="paused" if paused else "waiting",
                opening="pause" if paused else "resume",
                kept=kept,
                reused=reused,
                submitted_at=now,
                seen_at=now,
            )
            if resumes is not None:
                job = replace(
                    job, resumes=resumes.id, reused=resumes.reused, snapshot=resumes.snapshot
                )
            job = replace(job, megabytes=peak_megabytes(job.trains))
            try:
                displaced = self._queue.make_place(job, replaces)
            except Refused:
                log("experiment refused", **job.public_hash, runs=experiment.n_runs)
                raise
            if displaced is not None:
                self.stop(*displaced)
            self._queue.add(job)
            self._queue.watch(job.id, watcher)
            log("experiment submitted", **job.public_hash, runs=experiment.n_runs)
            self._keep_order()
        return job.id

    def job(self, job_id: str, watcher: Watcher = NOBODY) -> Job | None:
        """Return the present state of a job, and note that a tab watches it; None if forgotten."""
        with self._changed:
            self._queue.watch(job_id, watcher)
            return self._queue.jobs.get(job_id)

    def wait(
        self, job_id: str, beyond_version: int, seconds: float, watcher: Watcher = NOBODY
    ) -> Job | None:
        """Wait until a job has a later version or the time is up; return it as `job` does."""
        jobs = self._queue.jobs
        with self._waiting(), self._changed:
            self._changed.wait_for(
                lambda: job_id not in jobs or jobs[job_id].version > beyond_version,
                timeout=seconds,
            )
        return self.job(job_id, watcher)

    def find(self, experiment: Experiment, watcher: Watcher = NOBODY) -> Job | None:
        """Return the newest job of an experiment that is finished or has trained some steps.

        If there is none, a finished job is made of the stored result, or of finished runs of other
        jobs if these have all variants.

        Args:
            experiment: The experiment.
            watcher: The tab that asks. Jobs of its own visitor are returned even if they wait or
                are paused; those that are for another visitor only are not.
        """
        with self._changed:
            for job in self._newest_first(watcher):
                begun = job.state == "finished" or (job.state == "running" and job.step > 0)
                of_visitor = job.visitor == watcher.visitor != "" and not job.over
                if job.kept and job.experiment == experiment and (begun or of_visitor):
                    return job
        snapshot = self._writer.recall(experiment)
        if snapshot is not None:
            return self._remember(ended_job(snapshot, stored=True))
        reused = self._find_finished_runs(experiment, watcher)
        if reused is None or reused.missing is not None:
            return None
        owner = self.settings.owner_of(experiment, watcher.visitor)
        return self._remember(composed_job(reused, owner))

    def estimate(
        self, experiment: Experiment, watcher: Watcher = NOBODY, *, reuse: bool = True
    ) -> float:
        """Return the estimated training time in seconds if nothing else trains.

        It follows from the experiment's work and the measured pace of this machine. Finished runs
        do not count if they are to be taken over (`reuse`).
        """
        if reuse and (reused := self._find_finished_runs(experiment, watcher)) is not None:
            return self._queue.seconds_for(reused.missing) if reused.missing else 0.0
        return self._queue.seconds_for(experiment)

    def outlook(self, job_id: str) -> Outlook | None:
        """Return the outlook of a job, at most a second old; None if it is over."""
        with self._changed:
            return self._queue.outlook(job_id)

    @property
    def n_active(self) -> int:
        """Number of experiments that take turns now."""
        with self._changed:
            return self._queue.n_active

    def others_train(self, address: str) -> bool:
        """Return whether an experiment of another address takes turns; this never waits."""
        jobs = tuple(self._queue.jobs.values())
        return any(job.address != address for job in jobs if job.active and not job.queued)

    def overview(self) -> list[dict[str, Any]]:
        """Return one row per job in the order of submission, those that have ended last."""
        with self._changed:
            queue, now = self._queue, time.monotonic()
            rows = [
                {
                    "id": job.id,
                    "hash": job.public_hash.get("hash", ""),
                    "task": job.experiment.task.name,
                    "address": job.address,
                    "state": "queued" if job.queued and job.active else job.state,
                    "place": outlook.place if (outlook := queue.outlook(job.id)) else 0,
                    "runs": job.experiment.n_runs,
                    "step": job.step,
                    "steps": job.experiment.training.steps,
                    "seconds": 0.0 if job.snapshot is None else job.snapshot.seconds,
                    "waited": (job.begun_at or now) - job.submitted_at if job.submitted_at else 0.0,
                    "megabytes": job.megabytes,
                    "watchers": queue.leases.n_watchers(job.id, now),
                    "restarts": job.restarts,
                    "stored": job.stored,
                }
                for job in queue.jobs.values()
            ]
        return sorted(rows, key=lambda row: row["state"] in ("finished", "stopped", "failed"))

    def example(
        self, experiment: Experiment, seconds: float = 0.0, watcher: Watcher = NOBODY
    ) -> Example | str | None:
        """Return one held-out example of an experiment's task.

        A text says why there is none. If it has not come after `seconds`, None is returned; it then
        comes later and is remembered.
        """
        example = self._requests.example(experiment, 0.0, watcher)
        if example is None and seconds:
            with self._waiting():
                example = self._requests.example(experiment, seconds, watcher)
        return example

    def ask(
        self, job_id: str, tokens: np.ndarray, seconds: float = 5.0, watcher: Watcher = NOBODY
    ) -> Answers | str:
        """Return the answers of a job's models, as they are now, to a phone book.

        Args:
            job_id: The job.
            tokens: (i, fields) entries, followed by as many questions.
            seconds: Longest wait; then, or after an error, a text says why there are no answers.
            watcher: The tab that asks.
        """
        request = Ask(**self._models_of(job_id, watcher), tokens=tokens.tolist())
        return self._answers(request, seconds, watcher)

    def ask_example(
        self, task: str, tokens: np.ndarray, seconds: float = 5.0, watcher: Watcher = NOBODY
    ) -> Answers | str:
        """Return the answers of the models that ship with a phone book task, as `ask` does."""
        request = Ask(
            example=task,
            tokens=tokens.tolist(),
            address=watcher.address,
            visitor=watcher.visitor,
        )
        return self._answers(request, seconds, watcher)

    def _answers(self, request: Ask, seconds: float, watcher: Watcher) -> Answers | str:
        answer = self._answer(request, seconds, watcher)
        assert answer is not None  # phone books need no film
        return answer if isinstance(answer, str) else Answers.from_bytes(answer)

    def _answer(self, request: Request, seconds: float, watcher: Watcher) -> bytes | str | None:
        """Return an answer; its request is withdrawn soon after the tab is closed."""
        leases = self._queue.leases
        with self._waiting():
            return self._requests.answer(
                request,
                seconds,
                lambda: not leases.has_left(watcher.tab, time.monotonic() - LEFT_SECONDS),
            )

    def film(
        self,
        experiment: Experiment,
        shown: str | None = None,
        watcher: Watcher = NOBODY,
        replaces: str | None = None,
    ) -> str:
        """Return the id of the job whose film shows an experiment of one seed.

        A job with more seeds serves as well if its first seed is this one, because the numbers are
        equal. If there is no such job, one is submitted. A failed job is not tried again here:
        `submit` does that.

        Args:
            experiment: An experiment of one seed.
            shown: Id of the job on the visitor's page, which serves even if paused or stopped.
            watcher: The tab that asks.
            replaces: As in `submit`.

        Raises:
            Refused: If this copy does not train it, or its queue is full.
        """
        with self._changed:
            shown_job = self._queue.jobs.get(shown or "")
            for job in [*([shown_job] if shown_job else []), *self._newest_first(watcher)]:
                if job.filmed != experiment or job.filmless:
                    continue
                held = job.begun and job.state in ("paused", "stopped")
                serves = job.active or job.state in ("finished", "failed")
                if serves or (held and job is shown_job):
                    self._queue.watch(job.id, watcher)
                    return job.id
            return self.submit(experiment, kept=False, watcher=watcher, replaces=replaces)

    def inspect(
        self,
        job_id: str,
        inspection: Inspection,
        seconds: float = 30.0,
        watcher: Watcher = NOBODY,
    ) -> bytes | str | None:
        """Inspect the models in the film of a job.

        Args:
            job_id: The job.
            inspection: The inspection.
            seconds: Longest wait.
            watcher: The tab that asks.

        Returns:
            The bytes of an `InspectionResult`; a text that says why there are none; None if the
            training process has dropped the film, which `film` trains again.
        """
        request = Inspect(**self._models_of(job_id, watcher), inspection=inspection.to_dict())
        answer = self._answer(request, seconds, watcher)
        if answer is None:
            with self._changed:
                self._queue.update(job_id, filmless=True)
        return answer

    def arrive(self, tab: str) -> None:
        """Note that a tab is open: the jobs that it has shown go on, whatever page it shows."""
        with self._changed:
            self._queue.leases.arrive(tab)

    def leave(self, tab: str) -> None:
        """Note that a tab is closed, perhaps for a moment only."""
        with self._changed:
            self._queue.leases.leave(tab, time.monotonic())

    def stop_watching(self, job_id: str, watcher: Watcher) -> None:
        """Note that a tab needs a job no more, and stop the job if nobody else watches it."""
        with self._changed:
            leases = self._queue.leases
            leases.stop_watching(job_id, watcher)
            lease = self.settings.lease_seconds
            job = self._queue.jobs.get(job_id)
            if not leases.n_watchers(job_id, time.monotonic(), within=lease):
                self.stop(job_id)
            elif job is not None and job.visitor == watcher.visitor:
                self._queue.update(job_id, visitor="")  # from now on it is a job of the others

    def is_shared(self, job_id: str, watcher: Watcher) -> bool:
        """Return whether other tabs watch a job too, so that `watcher` must not pause it."""
        with self._changed:
            return self._queue.leases.n_watchers(job_id, time.monotonic(), but=watcher) > 0

    def _newest_first(self, watcher: Watcher) -> Iterator[Job]:
        """Yield the jobs that a tab may find."""
        return filter(lambda job: job.is_for(watcher), reversed(self._queue.jobs.values()))

    def _find_finished_runs(self, experiment: Experiment, watcher: Watcher) -> FinishedRuns | None:
        with self._changed:
            jobs = list(self._newest_first(watcher))
        return find_finished_runs(experiment, jobs, self._writer.recall_result)

    def _remember(self, job: Job) -> Job:
        """Add a job that is finished already."""
        with self._changed:
            self._queue.add(job)
        return job

    def _models_of(self, job_id: str, watcher: Watcher) -> dict[str, Any]:
        """Return fields of a request that name its sender and the jobs with the weights."""
        fields = {"job": job_id, "address": watcher.address, "visitor": watcher.visitor}
        with self._changed:
            job = self._queue.jobs.get(job_id)
            if job is None:
                return {**fields, "trainers": (job_id,)}
            experiment = job.filmed or job.experiment
            trainers = tuple(job.trainers[variant] for variant in experiment.sharing)
            return {**fields, "trainers": trainers, "experiment": experiment.to_json()}
