"""Control of jobs: commands to the training process, and the consequences of its messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attnkit.service.ended_jobs import lendable, memory_of, size_of
from attnkit.service.job_queue import JobQueue
from attnkit.service.jobs import Job, Opening, State, Verb
from attnkit.service.logs import log
from attnkit.service.process import TrainingProcess
from attnkit.service.requests import Requests
from attnkit.service.result_writer import ResultWriter
from attnkit.service.server import ServerSettings
from attnkit.service.store import ResultStore
from attnkit.service.supervisor import Frame, Supervisor

MAX_RESTARTS = 3
"""A job that causes more deaths of the training process fails."""

MAX_SILENT_DEATHS = 4
"""Number of training processes that may die in a row without any message before all jobs fail."""

_OPENINGS: dict[Verb, Opening] = {"pause": "pause", "resume": "run", "step": "step"}
"""Last command → what a job does when it begins, or begins anew."""


class JobControl:
    """Acts for the queue: lets jobs begin, passes commands on, and ends jobs.

    If the training process dies, its unfinished jobs begin anew from their seeds. A finished result
    goes to the store, and its job counts as finished when the store has answered.

    Args:
        settings: Limits of this copy.
        store: Store of finished results; None: they are not stored.
        start: Starts a training process.

    Attributes:
        changed: Notified of every change; its lock, which is reentrant, guards all of this.
        queue: The jobs.
        requests: Requests for what only the training process can compute.
        writer: Writer of finished results.
        supervisor: Owner of the training process.
    """

    def __init__(
        self,
        settings: ServerSettings,
        store: ResultStore | None,
        start: Callable[[], TrainingProcess],
    ) -> None:
        self.changed = threading.Condition()
        self.queue = JobQueue(settings, self.changed)
        self.requests = Requests(self.changed, lambda command: self.supervisor.tell(command))
        self.writer = ResultWriter(store, self._note_stored)
        self.supervisor = Supervisor(
            start, self.changed, self._receive, self._recover, self.keep_order
        )
        self.supervisor.begin()

    def close(self) -> None:
        """End the training process and all threads; results not yet stored are tried once more."""
        self.supervisor.close()
        self.writer.close()

    def steer(self, job_id: str, verb: Verb, state: State) -> None:
        """Send a command to a job.

        Args:
            job_id: The job; if it is over, nothing happens.
            verb: The command.
            state: State that the command leads to. Pages show it at once, and the training process
                confirms it later.
        """
        with self.changed:
            job = self.queue.jobs.get(job_id)
            if job is None or job.over or job_id in self.queue.storing:
                return
            opening = _OPENINGS.get(verb, job.opening)
            if job.begun:
                self.queue.update(job_id, state=state, sent=job.sent + 1, opening=opening)
                self.supervisor.tell({"do": verb, "job": job_id, "number": job.sent + 1})
            else:
                state = "waiting" if state == "running" else state
                self.queue.update(job_id, state=state, opening=opening)
            if state == "stopped":
                log("experiment stopped", hash=job.experiment.hash, step=job.step)
                self.admit()

    def stop(self, job_id: str, reason: str = "") -> None:
        """End a job for good; its last snapshot stays.

        Args:
            job_id: The job.
            reason: The reason, if the visitor has not asked for it.
        """
        with self.changed:
            self.steer(job_id, "stop", "stopped")
            if reason:
                self.queue.update(job_id, error=reason)

    def admit(self) -> None:
        """Let those jobs begin whose turn has come."""
        for job_id in self.queue.ready():
            job, now = self.queue.jobs[job_id], time.monotonic()
            self.queue.update(job_id, begun=True, begun_at=now)
            self._start(job_id)
            log("experiment started", hash=job.experiment.hash, waited=now - job.asked_at)

    def keep_order(self) -> None:
        """Let jobs begin, and stop those that nobody watches or that are in the way of others."""
        self.admit()
        for job_id in self.queue.unwatched():
            self.stop(job_id, "because nobody watched it")
        self.queue.forget_tabs()
        self.make_room()

    def make_room(self) -> None:
        """Stop jobs that are in the way of others."""
        for job_id, reason in self.queue.in_the_way().items():
            self.stop(job_id, reason)

    def _start(self, job_id: str) -> None:
        job = self.queue.jobs[job_id]
        self.supervisor.tell(
            {
                "do": "start",
                "job": job.id,
                "address": job.address,
                "experiment": job.experiment.to_json(),
                "missing": None if job.reused is None else job.trains.to_json(),
                "maker": None if job.reused is None else job.reused.maker,
                "resumes": job.resumes,
                "step": job.step if job.resumes else 0,
                "paused": job.opening != "run",
                "seconds": self.queue.settings.job_seconds,
            }
        )
        if job.opening == "step":
            self.steer(job.id, "step", "running")

    def _receive(self, frame: Frame) -> None:
        if "request" in frame.header:
            self.requests.take(frame.header, frame.blob)
            return
        if "pace" in frame.header:
            self.queue.set_pace(frame.header["pace"], frame.header["engine"])
            return
        job = self.queue.jobs.get(frame.header["job"])
        if job is not None:
            self._apply(job, frame)

    def _apply(self, job: Job, frame: Frame) -> None:
        """Update a job; its state only if the message is final or answers the last command."""
        header, snapshot, result = frame.header, frame.snapshot, frame.result
        state: State = header["state"]
        final = state in ("finished", "failed", "stopped")
        obeyed = job.sent if final else header["obeyed"]
        changes: dict[str, Any] = {"obeyed": obeyed, "error": header.get("error", job.error)}
        if snapshot is not None:
            if job.reused is not None and snapshot.experiment == job.experiment:
                # another engine has trained the finished runs, so all runs are trained anew
                job = replace(job, reused=None)
                changes.update(reused=None, megabytes=memory_of(job.experiment))
            self.queue.learn_pace(job, snapshot)
            changes["seconds"] = snapshot.seconds
            if job.reused is not None:
                snapshot = job.reused.join(snapshot)
                result = result and job.reused.join_result(result)
            changes.update(snapshot=snapshot, n_bytes=size_of(snapshot))
        if result is not None:
            changes.update(lendable(result))
        if state == "finished" and result is not None and self.writer.has_store and job.kept:
            self.queue.storing.add(job.id)
            self.writer.write(job.id, *(frame.blobs if job.reused is None else result.to_blobs()))
        elif obeyed == job.sent:
            changes["state"] = state
        self.queue.update(job.id, **changes)
        if final:
            self._note_end(job.id, state)

    def _note_end(self, job_id: str, state: State) -> None:
        job = self.queue.jobs[job_id]
        if state != "stopped" or job.error:  # a visitor's Stop is in the log already
            log(f"experiment {state}", hash=job.experiment.hash, step=job.step, seconds=job.seconds)
        self.queue.forget_old()
        self.admit()

    def _note_stored(self, job_id: str, reason: str, again: bool) -> None:
        """Finish a job whose result the store has taken or, with a reason, has refused."""
        with self.changed:
            self.queue.storing.discard(job_id)
            if reason:
                log("result not stored", reason=reason, again=again)
            self.queue.update(
                job_id, state="finished", stored=not reason, unstored=reason, tried_again=again
            )

    def _recover(self, turn: str, n_silent_deaths: int) -> None:
        """Begin all unfinished jobs anew after the training process died.

        Args:
            turn: Id of the job or request whose turn it was, which is blamed.
            n_silent_deaths: Number of processes that died in a row without any message.
        """
        self.requests.give_up(turn)
        for job in list(self.queue.jobs.values()):
            if job.over:
                self.queue.update(job.id, obeyed=job.sent)
            elif job.begun and job.id not in self.queue.storing:
                blamed = job.id == turn
                if (blamed and job.blamed >= MAX_RESTARTS) or n_silent_deaths >= MAX_SILENT_DEATHS:
                    self.queue.update(job.id, state="failed", error="the training process died")
                    self._note_end(job.id, "failed")
                else:
                    self._begin_anew(job, blamed=blamed)

    def _begin_anew(self, job: Job, *, blamed: bool) -> None:
        paused = job.state == "paused"
        opening = job.opening if job.opening == "step" and not paused else "run"
        self.queue.update(
            job.id,
            restarts=job.restarts + 1,
            blamed=job.blamed + blamed,
            state="paused" if paused else "waiting",
            opening="pause" if paused else opening,
            sent=0,
            obeyed=-1,  # its snapshot is of the dead process until the new one sends its own
        )
        self._start(job.id)
