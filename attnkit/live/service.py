"""The server's side of live training: starts the training process, keeps every job's last snapshot.

No Streamlit and no torch here. Pages submit experiments, steer jobs and read their latest state,
and ask for what only the training process can compute: examples of tasks, answers of trained
models. One thread reads what the training process sends. If that process dies, it is started again
and its unfinished jobs begin anew from their seeds, which gives the same numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from attnkit.experiment import Experiment
from attnkit.live.views import Answers, Example
from attnkit.results import Snapshot
from attnkit.tasks import Task

State = Literal["waiting", "running", "paused", "finished", "stopped", "failed"]

LEASE_SECONDS = 120.0
"""A running job that no page has looked at for so long is stopped."""

PAUSED_LEASE_SECONDS = 1800.0
"""The same for a paused one."""

MAX_JOBS = 64
"""Jobs remembered; the least recently seen ended ones are forgotten first."""

MAX_BYTES = 2**28
"""Of their last snapshots together: beyond that, ended jobs are forgotten in the same order."""

MAX_RESTARTS = 3
"""How often a job is begun anew after the training process died."""

MAX_EXAMPLES = 256
"""Examples remembered, by the settings of their task."""

MAX_SILENT_DEATHS = 4
"""Training processes that may die one after the other without sending anything."""


@dataclass(frozen=True, eq=False)
class Job:
    """A job as it is now: an immutable view.

    Attributes:
        version: counts up with every change, for `TrainingService.wait`.
        sent: commands given after the start. obeyed: those the training process has confirmed;
            until all are, the state is what was asked for.
        restarts: how often the training process died under it.
        error: why it failed, if it did.
        n_bytes: of the last snapshot.
    """

    id: str
    experiment: Experiment
    state: State = "waiting"
    version: int = 0
    snapshot: Snapshot | None = None
    n_bytes: int = 0
    restarts: int = 0
    sent: int = 0
    obeyed: int = 0
    error: str = ""
    seen_at: float = 0.0

    @property
    def active(self) -> bool:
        """Whether it trains, or is about to."""
        return self.state in ("waiting", "running")

    @property
    def settled(self) -> bool:
        """Whether no more snapshots come by themselves."""
        if self.state in ("finished", "failed"):
            return True
        return not self.active and self.obeyed == self.sent

    @property
    def over(self) -> bool:
        """Whether nothing can come any more."""
        return self.state in ("finished", "stopped", "failed")


@dataclass
class _Request:
    """A question to the training process: what came back, or why nothing did."""

    id: str
    blob: bytes | None = None
    error: str = ""

    @property
    def answered(self) -> bool:
        return self.blob is not None or bool(self.error)


class TrainingService:
    """One training process and the jobs it has been given. Safe to use from many threads."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._requests: dict[str, _Request] = {}
        self._examples: dict[Task, _Request | Example | str] = {}
        self._changed = threading.Condition()  # its lock is reentrant
        self._closed = threading.Event()
        self._process = self._start_process()
        self._reader = threading.Thread(target=self._read, name="attnkit-live", daemon=True)
        self._reader.start()

    def submit(self, experiment: Experiment, *, paused: bool = False) -> str:
        """Begin an experiment at step 0 and return the job's id."""
        job = Job(uuid.uuid4().hex[:12], experiment, seen_at=time.monotonic())
        with self._changed:
            self._jobs[job.id] = job
            self._forget_old()
            self._stop_unwatched()
            self._tell_start(job, paused=paused)
        return job.id

    def look(self, job_id: str) -> Job | None:
        """The job as it is now, and a sign that somebody watches it. None if forgotten."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is not None:
                self._jobs[job_id] = replace(job, seen_at=time.monotonic())
            return job

    def find(self, experiment: Experiment) -> Job | None:
        """The newest job of this very experiment that is finished or well under way."""
        with self._changed:
            for job in reversed(self._jobs.values()):
                begun = job.snapshot is not None and job.snapshot.step > 0
                if job.experiment == experiment and job.state in ("running", "finished") and begun:
                    return job
        return None

    def wait(self, job_id: str, beyond_version: int, seconds: float) -> Job | None:
        """Wait, at most so long, for the job to change; return it as it then is."""
        with self._changed:
            self._changed.wait_for(
                lambda: job_id not in self._jobs or self._jobs[job_id].version > beyond_version,
                timeout=seconds,
            )
        return self.look(job_id)

    def example(self, experiment: Experiment, seconds: float = 0.0) -> Example | str | None:
        """One held-out example of an experiment's task; a text that says why there is none.

        None if it has not come within so many seconds: it will be there later.
        """
        task = experiment.task
        with self._changed:
            known = self._examples.get(task)
            if known is None:
                while len(self._examples) >= MAX_EXAMPLES:
                    del self._examples[next(iter(self._examples))]
                known = self._request({"do": "example", "experiment": experiment.to_json()})
                self._examples[task] = known
            if not isinstance(known, _Request):
                return known
            request = known
            self._changed.wait_for(lambda: request.answered, timeout=seconds)
            if not request.answered:
                return None
            found = request.error if request.blob is None else Example.from_bytes(request.blob)
            if self._examples.get(task) is request:  # nobody else who waited was first
                del self._examples[task]
                if request.blob is not None or request.error != _DIED:
                    self._examples[task] = found  # what died may be asked again
            return found

    def ask(self, job_id: str, tokens: np.ndarray, seconds: float = 5.0) -> Answers | str:
        """What a job's models, as they are now, answer to a book; or why they do not.

        Args:
            tokens: (i, fields) entries, then as many questions.
            seconds: how long to wait at most.
        """
        with self._changed:
            command = {"do": "ask", "job": job_id, "tokens": tokens.tolist()}
            request = self._request(command)
            self._changed.wait_for(lambda: request.answered, timeout=seconds)
            self._requests.pop(request.id, None)
        if request.blob is not None:
            return Answers.from_bytes(request.blob)
        return request.error or "The training process is busy: ask again in a moment"

    def pause(self, job_id: str) -> None:
        """Hold the job where it is; `resume` goes on."""
        self._steer(job_id, "pause", "paused")

    def resume(self, job_id: str) -> None:
        """Go on after a pause."""
        self._steer(job_id, "resume", "running")

    def step(self, job_id: str) -> None:
        """Train up to the next evaluation, then pause."""
        self._steer(job_id, "step", "running")

    def stop(self, job_id: str) -> None:
        """End the job for good; its last snapshot stays."""
        self._steer(job_id, "stop", "stopped")

    def close(self) -> None:
        """End the training process and the thread that listens to it."""
        with self._changed:
            self._closed.set()
            _close(self._process.stdin)
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        _close(self._process.stdout)

    @property
    def _closing(self) -> bool:
        return self._closed.is_set()

    @property
    def process_id(self) -> int:
        """Of the training process."""
        return self._process.pid

    def _request(self, command: dict[str, Any]) -> _Request:
        request = _Request(uuid.uuid4().hex[:12])
        self._requests[request.id] = request
        self._tell({**command, "request": request.id})
        return request

    def _steer(self, job_id: str, verb: str, state: State) -> None:
        """Ask for a state: the page shows it at once, the process confirms it."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None or job.over:
                return
            self._update(job_id, state=state, sent=job.sent + 1)
            self._tell({"do": verb, "job": job_id, "number": job.sent + 1})

    def _start_process(self) -> subprocess.Popen[bytes]:
        package_root = str(Path(__file__).parents[2])
        known = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([package_root, known] if known else [package_root])
        return subprocess.Popen(
            [sys.executable, "-m", "attnkit.live.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, whose end it notices by itself
            env={**os.environ, "PYTHONPATH": path},
        )

    def _tell_start(self, job: Job, *, paused: bool = False) -> None:
        text = job.experiment.to_json()
        self._tell({"do": "start", "job": job.id, "experiment": text, "paused": paused})

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it died: the reader starts it again
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        """Take frames until the service is closed; runs in a thread of its own."""
        silent_deaths = 0
        while not self._closing:
            try:
                header, blob = self._read_frame()
                snapshot = Snapshot.from_bytes(blob) if blob and "job" in header else None
            except (OSError, ValueError):  # it died, perhaps in the middle of a frame
                silent_deaths += 1
                self._restart(silent_deaths)
                continue
            silent_deaths = 0
            with self._changed:
                if "request" in header:
                    self._take_reply(header, blob)
                else:
                    self._take(header, snapshot)
                    self._forget_old()
                self._stop_unwatched()

    def _take_reply(self, header: dict[str, Any], blob: bytes) -> None:
        request = self._requests.pop(header["request"], None)
        if request is not None:
            request.error = header.get("error", "")
            request.blob = None if request.error else blob
            self._changed.notify_all()

    def _read_frame(self) -> tuple[dict[str, Any], bytes]:
        """One frame; OSError or ValueError if the process has ended or sends nonsense."""
        stream = self._process.stdout
        assert stream is not None
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise OSError("the training process has ended")
        header: dict[str, Any] = json.loads(line)
        blob = stream.read(header["size"])
        if len(blob) < header["size"]:
            raise OSError("the training process ended in the middle of a frame")
        return header, blob

    def _take(self, header: dict[str, Any], snapshot: Snapshot | None) -> None:
        """Keep what a frame says; its state only if it knows of all commands, or is final."""
        job = self._jobs.get(header["job"])
        if job is None:
            return
        final = header["state"] in ("finished", "failed", "stopped")
        obeyed = job.sent if final else header["obeyed"]
        changes: dict[str, Any] = {"obeyed": obeyed, "error": header.get("error", "")}
        if obeyed == job.sent:
            changes["state"] = header["state"]
        if snapshot is not None:
            changes.update(snapshot=snapshot, n_bytes=header["size"])
        self._update(job.id, **changes)

    def _update(self, job_id: str, **changes: Any) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            self._jobs[job_id] = replace(job, version=job.version + 1, **changes)
            self._changed.notify_all()

    def _restart(self, silent_deaths: int) -> None:
        """Start the process again, later each time it dies at once, and begin its jobs anew."""
        self._process.kill()  # it may be alive and talking nonsense
        self._process.wait()
        if silent_deaths > 1:
            self._closed.wait(min(30.0, 0.5 * 2**silent_deaths))
        with self._changed:
            if self._closing:
                return
            _close(self._process.stdin)
            _close(self._process.stdout)
            self._process = self._start_process()
            for request in self._requests.values():
                request.error = _DIED
            self._requests.clear()
            self._changed.notify_all()
            for job in list(self._jobs.values()):
                if job.over:
                    self._update(job.id, obeyed=job.sent)
                    continue
                if job.restarts >= MAX_RESTARTS or silent_deaths >= MAX_SILENT_DEATHS:
                    self._update(job.id, state="failed", error="the training process died")
                    continue
                paused = job.state == "paused"
                self._update(
                    job.id,
                    restarts=job.restarts + 1,
                    state="paused" if paused else "waiting",
                    sent=0,
                    obeyed=0,
                )
                self._tell_start(job, paused=paused)

    def _stop_unwatched(self) -> None:
        now = time.monotonic()
        for job in list(self._jobs.values()):
            lease = PAUSED_LEASE_SECONDS if job.state == "paused" else LEASE_SECONDS
            if not job.over and now - job.seen_at > lease:
                self._steer(job.id, "stop", "stopped")

    def _forget_old(self) -> None:
        """Forget ended jobs beyond a number and a size; the last that was seen ending stays."""
        n_bytes = sum(job.n_bytes for job in self._jobs.values())
        ended = sorted((job for job in self._jobs.values() if job.over), key=lambda j: j.seen_at)
        for job in ended[:-1]:
            if len(self._jobs) <= MAX_JOBS and n_bytes <= MAX_BYTES:
                return
            del self._jobs[job.id]
            n_bytes -= job.n_bytes


_DIED = "The training process died and began anew: ask again"


def _close(pipe: IO[bytes] | None) -> None:
    """Close a pipe whose other end may be gone."""
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()
