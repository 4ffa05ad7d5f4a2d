"""Control of jobs: commands to the training process, and the consequences of its messages."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from attnkit.foundation.language import mark, tr
from attnkit.service.job_queue import JobQueue
from attnkit.service.jobs import Job, lendable, size_of
from attnkit.service.logs import log
from attnkit.service.modules import OwnModules
from attnkit.service.process import Supervisor
from attnkit.service.protocol import Answer, Pace, Start, State, Steer, Update, Verb
from attnkit.service.requests import Requests
from attnkit.service.server import ServerSettings
from attnkit.service.store import ResultStore
from attnkit.service.writer import ResultWriter
from attnkit.training.memory import peak_megabytes
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

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


class JobControl:
    """Lets jobs of a queue begin, steers them, and ends them. Safe to use from many threads.

    If the training process dies, its unfinished jobs begin anew from their seeds. A finished result
    goes to the store, and its job counts as finished when the store has answered.

    Args:
        settings: Limits of this copy.
        store: Store of finished results; None: they are not stored.
    """

    def __init__(self, settings: ServerSettings, store: ResultStore | None) -> None:
        self._changed = threading.Condition()  # its lock, which is reentrant, guards all of this
        self._queue = JobQueue(settings, self._changed)
        self._requests = Requests(self._changed, lambda r: self._supervisor.process.send(r))
        self._writer = ResultWriter(store, self._note_stored)
        self._modules = OwnModules()
        with self._changed:
            self._supervisor = Supervisor(
                self._changed,
                self._receive,
                self._recover,
                self._keep_order,
            )

    def close(self) -> None:
        """End the training process and all threads; results not yet stored are tried once more."""
        self._supervisor.close()
        self._modules.close()
        self._writer.close()

    @property
    def settings(self) -> ServerSettings:
        """Limits of this copy."""
        return self._queue.settings

    @property
    def process_id(self) -> int:
        """Id of the training process."""
        return self._supervisor.process.id

    @property
    def n_restarts(self) -> int:
        """Number of times that the training process has died and was started again."""
        return self._supervisor.n_restarts

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
            self._supervisor.process.send(command)
        return variant

    def prepare_modules(self) -> None:
        """Start the process that executes files, which takes seconds, before it is needed."""
        self._modules.start()

    def changed_module(self, variant: Variant) -> tuple[str, str] | None:
        """Return file and class of a variant whose file has changed since it was loaded, or None.

        None is also returned for other variants, and for a file that is gone.
        """
        return self._modules.changed(variant)

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
                self._supervisor.process.send(Steer(job_id, verb, job.sent + 1))
            elif changes["state"] == "running":
                changes["state"] = "waiting"
            self._queue.update(job_id, **changes)
            if verb == "stop":
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
        """Let jobs begin, and stop those that nobody watches or that are in the way of others."""
        self._admit()
        for job_id in self._queue.unwatched():
            self.stop(job_id, mark("because nobody watched it"))
        for job_id, reason in self._queue.in_the_way().items():
            self.stop(job_id, reason)

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
        self._supervisor.process.send(start)
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
            changes.update(snapshot=snapshot, n_bytes=size_of(snapshot))
        elif state == "stopped" and job.snapshot is not None:  # it was not built again
            changes["snapshot"] = replace(job.snapshot, status=state)
        if result is not None:
            changes.update(lendable(result))
        is_own = any("module" in variant.given for variant in job.experiment.sharing)
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
        self._queue.forget_old()
        self._admit()

    def _note_stored(self, job_id: str, reason: str, again: bool) -> None:
        """Finish a job whose result the store has taken or, with a reason, has refused."""
        with self._changed:
            if reason:
                log("result not stored", reason=reason, again=again)
            outcome = {"stored": not reason, "unstored": reason, "tried_again": again}
            self._queue.update(job_id, state="finished", storing=False, **outcome)

    def _recover(self, turn: tuple[str, ...], n_silent_deaths: int) -> None:
        """Begin all unfinished jobs anew after the training process died.

        Args:
            turn: Ids of the job or requests whose turn it was, which are blamed.
            n_silent_deaths: Number of processes that died in a row without any message.
        """
        self._requests.give_up(turn)
        for command in self._modules.commands:  # before the jobs that need them
            self._supervisor.process.send(command)
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
