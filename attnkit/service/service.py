"""Live training as pages use it: they submit experiments, steer jobs, and read their latest state.

Pages also ask for what only the training process can compute: examples of tasks, answers of trained
models, and inspections. There is no Streamlit here, and no torch.

What trains goes on when its tab sleeps or closes. If the training process dies, its unfinished jobs
begin anew from their seeds. They have the same numbers again or, if the kernel has been compiled in
the meantime, numbers that agree within rounding. A finished result goes to the store, and its job
counts as finished when the store has answered.
"""

from __future__ import annotations

import threading
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
from attnkit.foundation.language import mark, tr
from attnkit.service.jobs import (
    NOBODY,
    FinishedRuns,
    Job,
    JobQueue,
    Outlook,
    Refused,
    Watcher,
    composed_job,
    ended_job,
    find_finished_runs,
    lent,
)
from attnkit.service.logs import log
from attnkit.service.modules import OwnModules
from attnkit.service.process import Requests, Supervisor
from attnkit.service.protocol import (
    Answer,
    Ask,
    Inspect,
    Pace,
    Request,
    Start,
    State,
    Steer,
    Update,
    Verb,
)
from attnkit.service.server import ServerSettings, server_settings
from attnkit.service.store import ResultStore, ResultWriter
from attnkit.training.memory import peak_megabytes
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

__all__ = ["Refused", "TrainingService"]

MAX_RESTARTS = 3
"""A job that causes more deaths of the training process fails."""

MAX_SILENT_DEATHS = 4
"""Number of training processes that may die in a row without any message before all jobs fail."""

OWN_CODE = mark("your own code has computed it, which others who open the result would not have")
"""Reason why a result is not stored: a PyTorch module of one's own computes a variant."""

_STATES: dict[Verb, State] = {
    "pause": "paused",
    "resume": "running",
    "step": "running",
    "stop": "stopped",
}
"""Command → state that it leads to. Pages show it at once, and the training process confirms it."""


class TrainingService:
    """One training process and its jobs. Safe to use from many threads.

    Args:
        settings: Limits of this copy; None: those of the environment.
        store: Store of finished results; None: they are not stored.
        waiting: Returns a context in which the calling thread waits for the training process.

    Attributes:
        supervisor: Owner of the training process.
    """

    def __init__(
        self,
        settings: ServerSettings | None = None,
        store: ResultStore | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._changed = threading.Condition()  # its lock, which is reentrant, guards all of this
        self._queue = JobQueue(settings or server_settings(), self._changed)
        self._requests = Requests(self._changed, lambda r: self.supervisor.process.send(r))
        self._writer = ResultWriter(store, self._note_stored)
        self._modules = OwnModules()
        self._waiting = waiting
        with self._changed:
            self.supervisor = Supervisor(
                self._changed, self._receive, self._recover, self._keep_order
            )

    def close(self) -> None:
        """End the training process and all threads; results not yet stored are tried once more."""
        self.supervisor.close()
        self._modules.close()
        self._writer.close()

    @property
    def settings(self) -> ServerSettings:
        """Limits of this copy."""
        return self._queue.settings

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
                        self._note_begin(job, watcher.visitor)
                        return job.id
            now = time.monotonic()
            if resumes is not None:
                reused = resumes.reused
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
                resumes="" if resumes is None else resumes.id,
                snapshot=None if resumes is None else resumes.snapshot,
                submitted_at=now,
                seen_at=now,
            )
            job = replace(job, megabytes=peak_megabytes(job.trains))
            try:
                self._queue.check_place(job, replaces)
            except Refused:
                log("experiment refused", **job.public_hash, runs=experiment.n_runs)
                raise
            self._queue.add(job)
            self._queue.watch(job.id, watcher)
            log("experiment submitted", **job.public_hash, runs=experiment.n_runs)
            if not paused:
                self._note_begin(job, watcher.visitor)
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

    def restore(self, experiment: Experiment, watcher: Watcher) -> Job | None:
        """Begin anew what a visitor trained when the server died; None if there is nothing.

        A training that has outlived too many servers fails.
        """
        deaths = self.interrupted(watcher).get(experiment.hash, 0)
        if not deaths:
            return None
        if deaths > MAX_RESTARTS:
            died = mark("the server died each time that it trained")
            return self._remember(
                Job(uuid.uuid4().hex[:12], experiment, state="failed", error=died)
            )
        try:
            with self._changed:
                job_id = self.submit(experiment, watcher=watcher, reuse=True)
                self._queue.update(job_id, restarts=deaths)
                return self._queue.jobs[job_id]
        except Refused:
            return None

    def interrupted(self, watcher: Watcher) -> dict[str, int]:
        """Return how many servers have died during each of a visitor's trainings, by its hash."""
        return self._writer.interrupted(watcher.visitor)

    def note_begin(self, hash: str, watcher: Watcher) -> None:
        """Note that a visitor's trainings in a row, which have one hash, are under way."""
        self._writer.note_begin(hash, watcher.visitor)

    def note_end(self, hash: str) -> None:
        """Note that trainings in a row have ended, however they have ended."""
        self._writer.note_end(hash)

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
        """Return the expected progress of a job; None if it is over."""
        with self._changed:
            return self._queue.outlook(job_id)

    @property
    def n_active(self) -> int:
        """Number of experiments that take turns now."""
        with self._changed:
            return self._queue.n_active

    def overview(self) -> list[dict[str, Any]]:
        """Return one row per job in the order of submission, those that have ended last."""
        with self._changed:
            jobs = sorted(self._queue.jobs.values(), key=lambda job: job.over)
            return [self._row(job) for job in jobs]

    def _row(self, job: Job) -> dict[str, Any]:
        outlook, steps = self._queue.outlook(job.id), job.experiment.training.steps
        waited = (job.begun_at or time.monotonic()) - job.submitted_at
        return {
            "id": job.id,
            "state": "queued" if job.queued and job.active else job.state,
            "place": (outlook.place if outlook else 0) or None,
            "task": job.experiment.task.name,
            "hash": job.public_hash.get("hash", ""),
            "runs": job.experiment.n_runs,
            "done": 100 * job.step / steps,
            "steps": steps,
            "seconds": 0.0 if job.snapshot is None else job.snapshot.seconds,
            "waited": waited if job.submitted_at else 0.0,
            "megabytes": job.megabytes,
            "watchers": len(self._queue.other_watchers(job.id)),
            "restarts": job.restarts,
            "stored": job.stored,
            "address": job.address,
        }

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
        return self._answers(request, seconds)

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
        return self._answers(request, seconds)

    def _answers(self, request: Ask, seconds: float) -> Answers | str:
        answer = self._answer(request, seconds)
        assert answer is not None  # phone books need no film
        return answer if isinstance(answer, str) else Answers.from_bytes(answer)

    def _answer(self, request: Request, seconds: float) -> bytes | str | None:
        with self._waiting():
            return self._requests.answer(request, seconds)

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
        answer = self._answer(request, seconds)
        if answer is None:
            with self._changed:
                self._queue.update(job_id, filmless=True)
        return answer

    def arrive(self, tab: str) -> None:
        """Note that a tab is open."""
        with self._changed:
            self._queue.open_tabs.add(tab)

    def leave(self, tab: str) -> None:
        """Note that a tab is closed, perhaps for a moment only; what it trains goes on."""
        with self._changed:
            self._queue.open_tabs.discard(tab)

    def stop_watching(self, job_id: str, watcher: Watcher) -> None:
        """Note that a tab needs a job no more, and stop the job if nobody else watches it."""
        with self._changed:
            self._queue.stop_watching(job_id, watcher)
            job = self._queue.jobs.get(job_id)
            if not self._queue.other_watchers(job_id):
                self.stop(job_id)
            elif job is not None and job.visitor == watcher.visitor:
                self._queue.update(job_id, visitor="")  # from now on it is a job of the others

    def is_shared(self, job_id: str, watcher: Watcher) -> bool:
        """Return whether other tabs watch a job too, so that `watcher` must not pause it."""
        with self._changed:
            return bool(self._queue.other_watchers(job_id, watcher))

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

    def pause(self, job_id: str) -> None:
        """Pause a job until `resume`."""
        self._steer(job_id, "pause")

    def resume(self, job_id: str) -> None:
        """Continue a paused job as soon as there is a turn for it."""
        self._steer(job_id, "resume")

    def step(self, job_id: str) -> None:
        """Train a job up to its next evaluation, then pause it."""
        self._steer(job_id, "step")

    def stop(self, job_id: str, reason: str = "") -> None:
        """End a job for good; its last snapshot stays.

        Args:
            job_id: The job.
            reason: The reason, if the visitor has not asked for it.
        """
        self._steer(job_id, "stop", reason)

    def stop_address(self, address: str) -> None:
        """End all jobs that were submitted from an address."""
        with self._changed:
            # those that wait first, because otherwise they would begin when the others end
            for job in sorted(self._queue.jobs.values(), key=lambda job: job.begun):
                if job.address == address and not job.over:
                    self.stop(job.id, mark("by the owner of this copy"))

    def load_module(self, file: str, wanted: str) -> Variant:
        """Execute a file of attention of one's own, and return the variant of a class in it.

        Raises:
            ValueError: If this copy is hosted, if the file cannot be read or fails, or if it has no
                such class.
        """
        if self.settings.hosted:
            raise ValueError(
                tr("a copy that many people share takes no code; run attnkit yourself")
            )
        variant, command = self._modules.load(file, wanted)
        with self._changed:
            self.supervisor.process.send(command)
        return variant

    def prepare_modules(self) -> None:
        """Start the process that executes files, which takes seconds, before it is needed."""
        self._modules.start()

    def changed_module(self, variant: Variant) -> tuple[str, str] | None:
        """Return file and class of a variant whose file has changed since it was loaded, or None.

        None is also returned for other variants, and for a file that is gone.
        """
        return self._modules.changed(variant)

    def _steer(self, job_id: str, verb: Verb, reason: str = "") -> None:
        """Send a command to a job; if it is over, nothing happens."""
        with self._changed:
            job = self._queue.jobs.get(job_id)
            if job is None or job.over or job.storing:
                return
            changes: dict[str, Any] = {"state": _STATES[verb], "error": reason or job.error}
            if verb != "stop":
                changes["opening"] = verb
            if job.begun:
                changes["sent"] = job.sent + 1
                self.supervisor.process.send(Steer(job_id, verb, job.sent + 1))
            elif changes["state"] == "running":
                changes["state"] = "waiting"
            self._queue.update(job_id, **changes)
            if verb == "resume":
                self._note_begin(job, job.visitor)
            if verb == "stop":
                self._writer.note_end(job.experiment.hash)
                log("experiment stopped", **job.public_hash, step=job.step)
                self._admit()

    def _admit(self) -> None:
        """Let those jobs begin whose turn has come."""
        for job_id in self._queue.ready():
            job, now = self._queue.jobs[job_id], time.monotonic()
            self._queue.update(job_id, begun=True, begun_at=now)
            self._start(job)
            log("experiment started", **job.public_hash, waited=now - job.submitted_at)

    def _keep_order(self) -> None:
        """Let jobs begin, and stop those that are in the way of others."""
        self._admit()
        for job_id in self._queue.in_the_way():
            self.stop(job_id, mark("because others waited for its memory"))

    def _start(self, job: Job) -> None:
        """Send a job to the training process, with the command that opens it."""
        reused = job.reused
        start = Start(
            job=job.id,
            experiment=job.experiment.to_json(),
            address=job.address,
            seconds=self.settings.job_seconds,
            paused=job.opening != "resume",
            missing="" if reused is None else job.trains.to_json(),
            maker=() if reused is None else reused.maker,
            resumes=job.resumes,
            step=job.step if job.resumes else 0,
        )
        self.supervisor.process.send(start)
        if job.opening == "step":
            self.step(job.id)

    def _receive(
        self, message: Answer | Pace | Update, snapshot: Snapshot | None, result: Result | None
    ) -> None:
        """Handle a message of the training process, with the snapshot and the result it holds."""
        if isinstance(message, Answer):
            self._requests.take(message)
        elif isinstance(message, Pace):
            self._queue.set_pace(message.pace, message.engine)
        elif (job := self._queue.jobs.get(message.job)) is not None:
            self._apply(job, message, snapshot, result)

    def _apply(
        self, job: Job, message: Update, snapshot: Snapshot | None, result: Result | None
    ) -> None:
        """Update a job; its state only if the message is final or answers the last command."""
        state = message.state
        final = state in ("finished", "failed", "stopped")
        obeyed = job.sent if final else message.obeyed
        changes: dict[str, Any] = {"obeyed": obeyed, "error": message.error or job.error}
        blobs = message.snapshot, message.parameters
        if snapshot is not None:
            if job.reused is not None and snapshot.experiment == job.experiment:
                # another engine has trained the finished runs, so all runs are trained anew
                job = replace(job, reused=None)
                changes.update(reused=None, megabytes=peak_megabytes(job.experiment))
            self._queue.learn_pace(job, snapshot)
            changes["seconds"] = snapshot.seconds
            if job.reused is not None:
                snapshot = job.reused.join(snapshot)
                if result is not None:
                    result = job.reused.join_result(result)
                    blobs = result.to_blobs()
            changes["snapshot"] = snapshot
        elif state == "stopped" and job.snapshot is not None:  # it was not built again
            changes["snapshot"] = replace(job.snapshot, status=state)
        if result is not None:
            changes["parameters"] = lent(result)
        is_own = _has_own_code(job.experiment)
        keeps = job.kept and not job.owner and not is_own
        stores = result is not None and self._writer.has_store and keeps
        if result is not None and is_own:
            changes["unstored"] = OWN_CODE
        if stores:
            changes["storing"] = True
            if job.state == "paused":  # the command came too late
                changes["state"] = "running"
        elif obeyed == job.sent:
            changes["state"] = state
        self._queue.update(job.id, **changes)
        if stores:
            self._writer.write(job.id, *blobs)
        if final:
            self._note_end(job, state)

    def _note_end(self, job: Job, state: State) -> None:
        """Log the end of a job, unless it was logged when it was stopped; let others begin."""
        now = self._queue.jobs[job.id]
        if state != job.state:
            log(f"experiment {state}", **job.public_hash, step=now.step, seconds=now.seconds)
        if not now.storing:
            self._writer.note_end(job.experiment.hash)
        self._queue.forget_old()
        self._admit()

    def _note_begin(self, job: Job, visitor: str) -> None:
        """Note that a visitor's training is under way, so that `restore` can begin it anew."""
        if visitor and job.kept and not job.owner and not _has_own_code(job.experiment):
            self._writer.note_begin(job.experiment.hash, visitor)

    def _note_stored(self, job_id: str, reason: str, again: bool) -> None:
        """Finish a job whose result the store has taken or, with a reason, has refused."""
        with self._changed:
            if reason:
                log("result not stored", reason=reason.partition(":")[0], again=again)
            outcome = {"stored": not reason, "unstored": reason, "tried_again": again}
            self._queue.update(job_id, state="finished", storing=False, **outcome)
            if not again and job_id in self._queue.jobs:
                self._writer.note_end(self._queue.jobs[job_id].experiment.hash)

    def _recover(self, turn: tuple[str, ...], n_silent_deaths: int) -> None:
        """Begin all unfinished jobs anew after the training process died.

        Args:
            turn: Ids of the job or requests whose turn it was, which are blamed.
            n_silent_deaths: Number of processes that died in a row without any message.
        """
        self._requests.give_up(turn)
        for command in self._modules.commands:  # before the jobs that need them
            self.supervisor.process.send(command)
        for job in list(self._queue.jobs.values()):
            if job.over:
                self._queue.update(job.id, obeyed=job.sent)
            elif job.trains_on:
                blamed = job.id in turn
                if (blamed and job.blamed >= MAX_RESTARTS) or n_silent_deaths >= MAX_SILENT_DEATHS:
                    error = mark("the training process died")
                    self._queue.update(job.id, state="failed", error=error)
                    self._note_end(job, "failed")
                else:
                    self._begin_anew(job, blamed=blamed)

    def _begin_anew(self, job: Job, *, blamed: bool) -> None:
        paused = job.state == "paused"
        opening: Verb = "pause" if paused else "step" if job.opening == "step" else "resume"
        self._queue.update(
            job.id,
            restarts=job.restarts + 1,
            blamed=job.blamed + blamed,
            state="paused" if paused else "waiting",
            opening=opening,
            sent=0,
            obeyed=-1,  # its snapshot is of the dead process until the new one sends its own
        )
        self._start(self._queue.jobs[job.id])


def _has_own_code(experiment: Experiment) -> bool:
    """Return whether a PyTorch module of the visitor's own computes a variant."""
    return any("module" in variant.given for variant in experiment.sharing)
