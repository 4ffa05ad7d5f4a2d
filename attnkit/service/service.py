"""The server's side of live training: a queue, the training process, every job's last snapshot.

No Streamlit and no torch here. Pages submit experiments, steer jobs and read their latest state,
and ask for what only the training process can compute: examples of tasks, answers of trained
models. One thread reads what the training process sends, another puts finished results into the
store; a job counts as finished when the store has it. If the training process dies, it is started
again and its unfinished jobs begin anew from their seeds, which gives the same numbers, or, if the
kernel has been compiled in the meantime, numbers that agree within rounding.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from typing import Any

import numpy as np

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.responses import Answers, Example
from attnkit.experiment import Experiment
from attnkit.service.ended_jobs import (
    composed_job,
    ended_job,
    lendable,
    memory_of,
    size_of,
    superfluous,
)
from attnkit.service.finished_runs import Known, find_known
from attnkit.service.job_table import overview
from attnkit.service.jobs import NOBODY, Job, Opening, State, Verb, Watcher, work_of
from attnkit.service.leases import Leases
from attnkit.service.logs import log
from attnkit.service.process import TrainingProcess
from attnkit.service.requests import Questions
from attnkit.service.result_writer import Keeper
from attnkit.service.scheduler import Demand, Outlook, admitted, gives_way, outlooks
from attnkit.service.server import ServerSettings, server_settings
from attnkit.service.store import ResultStore
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

MAX_RESTARTS = 3
"""How often a job in whose turn the training process died is begun anew."""

MAX_SILENT_DEATHS = 4
"""Training processes that may die one after the other without sending anything."""

FIRST_RATE = 1 / 4000
"""Seconds per unit of `Job.work` before anything was trained."""

PAUSED_IN_THE_WAY_SECONDS = 120.0
"""What is paused for longer is stopped when others wait, for it holds memory."""

CHECK_SECONDS = 1.0
"""Between two looks for what nobody watches; and how old an outlook may be."""

CLOSED_SECONDS = 10.0
"""A job whose tab was closed for so long is stopped when others wait; a reload is faster."""

SILENT_CHECKS = 15
"""Checks without a sign of life after which the training process is replaced.

They are counted, not timed: while a whole machine is suspended, no check takes place either.
"""

STARTING_CHECKS = 120
"""The same for a process from which nothing has come: it imports torch, perhaps from a slow disk.
"""


class Refused(Exception):
    """An experiment that this copy does not train now; the text says why and what to do."""


class TrainingService:
    """One training process and the jobs it has been given. Safe to use from many threads.

    Args:
        settings: of this copy; None: those of the environment.
        store: where finished results are kept; None: nowhere.
    """

    def __init__(
        self, settings: ServerSettings | None = None, store: ResultStore | None = None
    ) -> None:
        self.settings = settings or server_settings()
        self.n_restarts = 0
        self._jobs: dict[str, Job] = {}
        self._leases = Leases()
        self._outlooks: tuple[float, dict[str, Outlook]] = (0.0, {})
        self._rate = FIRST_RATE
        self._storing: set[str] = set()  # finished, and on their way into the store
        self._filmless: set[str] = set()  # jobs whose film is not kept any more
        self._silent_checks = 0  # since the last frame
        self._heard = False  # whether a frame has come of this training process
        self._turn = ""  # the job or question whose turn it is
        self._changed = threading.Condition()  # its lock is reentrant
        self._closed = threading.Event()
        self._questions = Questions(self._changed, lambda command: self._process.tell(command))
        self._keeper = Keeper(store, self._note_stored)
        self._process = TrainingProcess(self.settings.training_megabytes)
        self._threads = [
            threading.Thread(target=work, name=f"attnkit-{name}", daemon=True)
            for name, work in (("live", self._read), ("leases", self._keep_order))
        ]
        for thread in self._threads:
            thread.start()

    # Jobs

    def submit(
        self,
        experiment: Experiment,
        *,
        paused: bool = False,
        kept: bool = True,
        watcher: Watcher = NOBODY,
        reuse: bool = False,
        resumes: Job | None = None,
    ) -> str:
        """Ask for an experiment and return the job's id.

        If the very same trains already, that job is returned: the numbers are the same.

        Args:
            paused: hold it at its first step, in a job of its own.
            kept: whether the result goes into the store.
            watcher: who asks.
            reuse: Take over runs of other variants that are finished, and train only the others.
            resumes: A stopped job of this experiment, to go on where it was stopped. If the
                training process does not hold it any more, it is trained to that step again.

        Raises:
            Refused: if this copy does not train it, or has no more places.
        """
        known = self._find_known(experiment) if reuse else None
        if known is not None and known.missing is None:
            return self._remember(composed_job(known)).id
        with self._changed:
            if not paused:
                for job in reversed(self._jobs.values()):
                    if job.experiment == experiment and job.active and job.kept >= kept:
                        self._watch(job.id, watcher)
                        return job.id
            now = time.monotonic()
            job = Job(
                uuid.uuid4().hex[:12],
                experiment,
                filmed=experiment.replace(n_seeds=1),
                visitor=watcher.visitor,
                address=watcher.address,
                state="paused" if paused else "waiting",
                opening="pause" if paused else "run",
                kept=kept,
                known=known,
                asked_at=now,
                seen_at=now,
            )
            if resumes is not None:
                job = replace(
                    job, resumes=resumes.id, known=resumes.known, snapshot=resumes.snapshot
                )
            job = replace(job, megabytes=memory_of(job.trains))
            try:
                self._refuse(job)
            except Refused:
                log("experiment refused", hash=experiment.hash, runs=experiment.n_runs)
                raise
            self._outlooks = (0.0, {})
            self._jobs[job.id] = job
            self._watch(job.id, watcher)
            self._forget_old()
            log("experiment submitted", hash=experiment.hash, runs=experiment.n_runs)
            self._admit()
            self._stop_unwatched()
            self._make_room()
        return job.id

    def look(self, job_id: str, watcher: Watcher = NOBODY) -> Job | None:
        """The job as it is now, and a sign that somebody watches it. None if forgotten."""
        with self._changed:
            self._watch(job_id, watcher)
            return self._jobs.get(job_id)

    def find(self, experiment: Experiment, watcher: Watcher = NOBODY) -> Job | None:
        """The newest job of this very experiment that is finished or well under way.

        If none is remembered, a finished job is made of the stored result, or of finished runs of
        other jobs if these have all its variants.

        Args:
            watcher: who asks; finds what they have asked for also if it waits or is paused.
        """
        with self._changed:
            for job in reversed(self._jobs.values()):
                begun = job.state == "finished" or (job.state == "running" and job.step > 0)
                own = job.visitor == watcher.visitor != "" and not job.over
                if job.kept and job.experiment == experiment and (begun or own):
                    return job
        snapshot = self._keeper.recall(experiment)
        if snapshot is not None:
            return self._remember(ended_job(snapshot, stored=True))
        known = self._find_known(experiment)
        if known is None or known.missing is not None:
            return None
        return self._remember(composed_job(known))

    def estimate(self, experiment: Experiment) -> float:
        """Return about how many seconds training takes, if nothing else trains.

        Runs of other variants that are finished take none.
        """
        known = self._find_known(experiment)
        trains = experiment if known is None else known.missing
        return 0.0 if trains is None else self._rate * work_of(trains)

    def _find_known(self, experiment: Experiment) -> Known | None:
        with self._changed:
            jobs = list(reversed(self._jobs.values()))
        return find_known(experiment, jobs, self._keeper.recall_result)

    def _remember(self, job: Job) -> Job:
        """Keep a job that is finished already."""
        with self._changed:
            self._jobs[job.id] = job
            self._forget_old()
        return job

    def wait(
        self, job_id: str, beyond_version: int, seconds: float, watcher: Watcher = NOBODY
    ) -> Job | None:
        """Wait, at most so long, for the job to change; return it as it then is."""
        with self._changed:
            self._changed.wait_for(
                lambda: job_id not in self._jobs or self._jobs[job_id].version > beyond_version,
                timeout=seconds,
            )
        return self.look(job_id, watcher)

    def example(self, experiment: Experiment, seconds: float = 0.0) -> Example | str | None:
        """One held-out example of an experiment's task; a text that says why there is none.

        None if it has not come within so many seconds: it will be there later.
        """
        return self._questions.example(experiment, seconds)

    def ask(self, job_id: str, tokens: np.ndarray, seconds: float = 5.0) -> Answers | str:
        """What a job's models, as they are now, answer to a book; or why they do not.

        Args:
            tokens: (i, fields) entries, then as many questions.
            seconds: how long to wait at most.
        """
        return self._questions.ask(self._models_of(job_id), tokens, seconds)

    def ask_example(self, task: str, tokens: np.ndarray, seconds: float = 5.0) -> Answers | str:
        """Return what the models of a task's shipped example answer to a book, or why they do not.

        Args:
            task: The name of a phone book.
            tokens: (i, fields) entries, then as many questions.
            seconds: How long to wait at most.
        """
        return self._questions.ask({"example": task}, tokens, seconds)

    def film(
        self, experiment: Experiment, shown: str | None = None, watcher: Watcher = NOBODY
    ) -> str:
        """The job whose film shows an experiment of one seed; it is trained if there is none.

        That of more seeds, the first of which is this one, serves as well: the numbers are equal.
        One that has failed is not tried again: `submit` does that.

        Args:
            shown: the job that the visitor sees: it serves also if it is paused or was stopped.

        Raises:
            Refused: if this copy does not train it, or has no more places.
        """
        with self._changed:
            known = self._jobs.get(shown or "")
            for job in [*([known] if known else []), *reversed(self._jobs.values())]:
                if job.filmed != experiment or job.id in self._filmless:
                    continue
                held = job.begun and job.state in ("paused", "stopped")
                if job.active or job.state in ("finished", "failed") or (held and job is known):
                    self._watch(job.id, watcher)
                    return job.id
            return self.submit(experiment, kept=False, watcher=watcher)

    def inspect(
        self, job_id: str, inspection: Inspection, seconds: float = 30.0
    ) -> bytes | str | None:
        """Look inside the models of a job's film.

        Args:
            seconds: how long to wait at most.

        Returns:
            The bytes of an `InspectionResult`; a text that says why there are none; None if the
            film is not kept any more: `film` gets it back.
        """
        found = self._questions.inspect(self._models_of(job_id), inspection.to_dict(), seconds)
        if found is None:
            with self._changed:
                self._filmless |= {job_id} & self._jobs.keys()
        return found

    def _models_of(self, job_id: str) -> dict[str, Any]:
        """Name the jobs that have the weights of a job's variants, as questions do."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None or job.known is None or job.filmed is None:
                return {"job": job_id}
            trainers = [job.trainers[variant] for variant in job.experiment.sharing]
            return {"job": job_id, "trainers": trainers, "experiment": job.filmed.to_json()}

    def outlook(self, job_id: str) -> Outlook | None:
        """What a job that is not over may expect; at most a second old."""
        with self._changed:
            now = time.monotonic()
            job = self._jobs.get(job_id)
            if job is None or job.over:
                return None
            if now - self._outlooks[0] > CHECK_SECONDS or not self._outlooks[1]:
                found = outlooks(self._waiting(), self._holding(), self.settings)
                self._outlooks = (now, found)
            return self._outlooks[1].get(job_id)

    @property
    def n_active(self) -> int:
        """Experiments that take turns now."""
        with self._changed:
            return sum(job.begun and job.active for job in self._jobs.values())

    def overview(self) -> list[dict[str, Any]]:
        """One row per job that is not over, in the order of asking, then those that ended."""
        with self._changed:
            outlooks = {job_id: self.outlook(job_id) for job_id in self._jobs}
            return overview(self._jobs.values(), outlooks, self._leases, time.monotonic())

    # Watchers

    def arrive(self, tab: str) -> None:
        """A tab is there: what it has looked at goes on, whatever page it shows."""
        with self._changed:
            self._leases.arrive(tab)

    def leave(self, tab: str) -> None:
        """A tab is gone, perhaps for a moment only."""
        with self._changed:
            self._leases.leave(tab, time.monotonic())

    def turn_away(self, job_id: str, watcher: Watcher) -> None:
        """A tab does not care for a job any more; one that nobody else watches is stopped."""
        with self._changed:
            self._leases.turn_away(job_id, watcher)
            lease = self.settings.lease_seconds
            if not self._leases.n_watchers(job_id, time.monotonic(), within=lease):
                self.stop(job_id)
            elif (job := self._jobs.get(job_id)) is not None and job.visitor == watcher.visitor:
                self._update(job_id, visitor="")  # from now on it is the others'

    def is_shared(self, job_id: str, watcher: Watcher) -> bool:
        """Whether others watch a job too, so that one alone may not hold it."""
        with self._changed:
            return self._leases.n_watchers(job_id, time.monotonic(), but=watcher) > 0

    def pause(self, job_id: str) -> None:
        """Hold the job where it is; `resume` goes on."""
        self._steer(job_id, "pause", "paused")

    def resume(self, job_id: str) -> None:
        """Go on after a pause, when there is a turn for it."""
        self._steer(job_id, "resume", "running")

    def step(self, job_id: str) -> None:
        """Train up to the next evaluation, then pause."""
        self._steer(job_id, "step", "running")

    def stop(self, job_id: str) -> None:
        """End the job for good; its last snapshot stays."""
        self._steer(job_id, "stop", "stopped")

    def stop_address(self, address: str) -> None:
        """End all jobs that were asked for from an address."""
        with self._changed:
            # those that wait first: otherwise they would begin as the others end
            for job in sorted(self._jobs.values(), key=lambda job: job.begun):
                if job.address == address and not job.over:
                    self.stop(job.id)
                    self._update(job.id, error="by the owner of this copy")

    def close(self) -> None:
        """End the training process and all threads; what waits for the store is tried once more."""
        with self._changed:
            self._closed.set()
            self._process.hang_up()
        self._process.end(seconds=5)
        for thread in self._threads:
            thread.join()
        self._process.close()
        self._keeper.close()

    @property
    def process_id(self) -> int:
        """Of the training process."""
        return self._process.id

    def _steer(self, job_id: str, verb: Verb, state: State) -> None:
        """Ask for a state: the page shows it at once, the process confirms it."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None or job.over or job_id in self._storing:
                return
            opening = _OPENINGS.get(verb, job.opening)
            if job.begun:
                self._update(job_id, state=state, sent=job.sent + 1, opening=opening)
                self._process.tell({"do": verb, "job": job_id, "number": job.sent + 1})
            else:
                state = "waiting" if state == "running" else state
                self._update(job_id, state=state, opening=opening)
            if state == "stopped":
                log("experiment stopped", hash=job.experiment.hash, step=job.step)
                self._admit()

    # The queue

    def _refuse(self, job: Job) -> None:
        """Raise Refused unless the job may train, or wait."""
        problems = self.settings.problems(job.experiment)
        if problems:
            raise Refused("; ".join(map(str, problems)))
        claim, waiting = self._claim(job), self._waiting()
        if claim in admitted([*waiting, claim], self._holding(), self.settings):
            return
        own = sum(other.visitor == job.visitor for other in waiting) if job.visitor else 0
        if job.visitor and own >= self.settings.visitor_waiting:
            raise Refused(
                "you have as many experiments training and waiting in other tabs as this copy "
                "allows: stop one of them, or wait for its end"
            )
        n_queued = sum(job.queued for job in self._jobs.values())
        if n_queued < self.settings.max_waiting:
            return
        if n_queued > len(waiting):  # what nobody waits for any more
            gone = [job.id for job in self._jobs.values() if job.queued and self._is_closed(job)]
            loser, why = min(gone, key=self._leases.left_at), _CLOSED
        else:
            loser, why = gives_way([*waiting, claim]).id, _CROWDED
        if loser == claim.id:
            raise Refused(f"{n_queued} experiments wait already: try again in a few minutes")
        self.stop(loser)
        self._update(loser, error=why)

    def _admit(self) -> None:
        """Let those begin whose turn has come."""
        for claim in admitted(self._waiting(), self._holding(), self.settings):
            job, now = self._jobs[claim.id], time.monotonic()
            self._update(job.id, begun=True, begun_at=now)
            self._tell_start(self._jobs[job.id])
            waited = now - job.asked_at
            log("experiment started", hash=job.experiment.hash, waited=waited)

    def _waiting(self) -> list[Demand]:
        """Claims of jobs that wait, but for those whose tab is closed, perhaps for a moment."""
        queued = [job for job in self._jobs.values() if job.queued]
        return [self._claim(job) for job in queued if not self._is_closed(job)]

    def _is_closed(self, job: Job, seconds: float = 0.0) -> bool:
        """Whether all tabs that care for a job were closed more than so many seconds ago."""
        return time.monotonic() - self._leases.left_at(job.id) > seconds

    def _holding(self) -> list[Demand]:
        return [
            self._claim(job)
            for job in self._jobs.values()
            if job.begun and not job.over and job.id not in self._storing
        ]

    def _claim(self, job: Job) -> Demand:
        left = 1 - job.step / job.experiment.training.steps
        seconds = self._rate * job.work * left
        if job.seconds and job.step > _TELLING_STEPS:
            seconds = job.seconds / job.step * job.experiment.training.steps * left
        waited = time.monotonic() - job.asked_at
        paused = job.state == "paused"
        return Demand(job.id, job.visitor, job.megabytes, seconds, waited, paused, job.address)

    def _tell_start(self, job: Job) -> None:
        self._process.tell(
            {
                "do": "start",
                "job": job.id,
                "address": job.address,
                "experiment": job.experiment.to_json(),
                "missing": None if job.known is None else job.trains.to_json(),
                "maker": None if job.known is None else job.known.maker,
                "resumes": job.resumes,
                "step": job.step if job.resumes else 0,
                "paused": job.opening != "run",
                "seconds": self.settings.job_seconds,
            }
        )
        if job.opening == "step":
            self._steer(job.id, "step", "running")

    # What the training process sends

    def _read(self) -> None:
        """Take frames until the service is closed; runs in a thread of its own."""
        silent_deaths = 0
        while not self._closed.is_set():
            try:
                header, blob = self._process.read()
                snapshot = result = None
                if "job" in header and blob:
                    snapshot = Snapshot.from_bytes(blob[: header["snapshot"]])
                    if header["state"] == "finished":
                        result = Result.from_blobs(snapshot, blob[header["snapshot"] :])
            except Exception:  # it died, perhaps in the middle of a frame, or talks nonsense
                silent_deaths += 1
                self._restart(silent_deaths)
                continue
            silent_deaths = 0
            with self._changed:
                self._silent_checks, self._heard = 0, True
                if "request" in header:
                    self._questions.take(header, blob)
                elif "turn" in header:
                    self._turn = header["turn"]
                elif "beat" not in header:
                    self._take(header, blob, snapshot, result)

    def _take(
        self,
        header: dict[str, Any],
        blob: bytes,
        snapshot: Snapshot | None,
        result: Result | None,
    ) -> None:
        """Keep what a frame says; its state only if it knows of all commands, or is final."""
        job = self._jobs.get(header["job"])
        if job is None:
            return
        state: State = header["state"]
        final = state in ("finished", "failed", "stopped")
        obeyed = job.sent if final else header["obeyed"]
        changes: dict[str, Any] = {"obeyed": obeyed, "error": header.get("error", job.error)}
        if snapshot is not None:
            if job.known is not None and snapshot.experiment == job.experiment:
                # the training process has another engine than the known runs: it trains them anew
                job = replace(job, known=None)
                changes.update(known=None, megabytes=memory_of(job.experiment))
            self._learn_rate(job, snapshot)
            changes["seconds"] = snapshot.seconds
            if job.known is not None:
                snapshot = job.known.join(snapshot)
                result = result and job.known.join_result(result)
            changes.update(snapshot=snapshot, n_bytes=size_of(snapshot))
        if result is not None:
            changes.update(lendable(result))
        if state == "finished" and result is not None and self._keeper.stores and job.kept:
            self._storing.add(job.id)
            blobs = blob[: header["snapshot"]], blob[header["snapshot"] :]
            self._keeper.keep(job.id, *(blobs if job.known is None else result.to_blobs()))
        elif obeyed == job.sent:
            changes["state"] = state
        self._update(job.id, **changes)
        if final:
            self._note_end(self._jobs[job.id], state)

    def _note_end(self, job: Job, state: State) -> None:
        if state != "stopped" or job.error:  # who pressed Stop has been noted
            log(f"experiment {state}", hash=job.experiment.hash, step=job.step, seconds=job.seconds)
        self._forget_old()
        self._admit()

    def _note_stored(self, job_id: str, reason: str, again: bool) -> None:
        """The store has taken a result, or has said why not."""
        with self._changed:
            self._storing.discard(job_id)
            if reason:
                log("result not stored", reason=reason, again=again)
            self._update(
                job_id, state="finished", stored=not reason, unstored=reason, tried_again=again
            )

    def _learn_rate(self, job: Job, snapshot: Snapshot) -> None:
        done = job.work * snapshot.step / job.experiment.training.steps
        if snapshot.step > _TELLING_STEPS and done:
            self._rate += 0.2 * (snapshot.seconds / done - self._rate)

    def _update(self, job_id: str, **changes: Any) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            if changes.get("state") == "paused" != job.state:
                changes["paused_at"] = time.monotonic()
            self._jobs[job_id] = replace(job, version=job.version + 1, **changes)
            self._changed.notify_all()

    def _restart(self, silent_deaths: int) -> None:
        """Start the process again, later each time it dies at once, and begin its jobs anew."""
        self._process.end()  # it may be alive and talking nonsense
        if silent_deaths > 1:
            self._closed.wait(min(30.0, 0.5 * 2**silent_deaths))
        with self._changed:
            if self._closed.is_set():
                return
            self.n_restarts += 1
            log("training process died", restarts=self.n_restarts)
            self._process.close()
            self._silent_checks, self._heard = 0, False
            try:
                self._process = TrainingProcess(self.settings.training_megabytes)
            except (OSError, RuntimeError):  # no memory for it; to read of none tries again
                return
            turn, self._turn = self._turn, ""
            self._questions.give_up(turn)
            for job in list(self._jobs.values()):
                if job.over:
                    self._update(job.id, obeyed=job.sent)
                elif job.begun and job.id not in self._storing:
                    self._begin_anew(job, blamed=job.id == turn, hopeless=silent_deaths)

    def _begin_anew(self, job: Job, *, blamed: bool, hopeless: int) -> None:
        """After a death of the process, for which the job in whose turn it died is blamed."""
        if (blamed and job.blamed >= MAX_RESTARTS) or hopeless >= MAX_SILENT_DEATHS:
            self._update(job.id, state="failed", error="the training process died")
            self._note_end(self._jobs[job.id], "failed")
            return
        paused = job.state == "paused"
        opening = job.opening if job.opening == "step" and not paused else "run"
        self._update(
            job.id,
            restarts=job.restarts + 1,
            blamed=job.blamed + blamed,
            state="paused" if paused else "waiting",
            opening="pause" if paused else opening,
            sent=0,
            obeyed=0,
        )
        self._tell_start(self._jobs[job.id])

    # Leases and memory

    def _keep_order(self) -> None:
        """Replace a silent process, end what nobody watches, and admit who waits, in a thread."""
        while not self._closed.wait(CHECK_SECONDS):
            with self._changed:
                self._end_silent_process()
                self._admit()
                self._stop_unwatched()
                self._make_room()

    def _end_silent_process(self) -> None:
        """Kill a training process that is there and gives no sign of life, as one that is stopped.

        Whoever reads from it then starts another one, as after any other death.
        """
        self._silent_checks += 1
        if self._silent_checks == (SILENT_CHECKS if self._heard else STARTING_CHECKS):
            log("training process silent", seconds=self._silent_checks * CHECK_SECONDS)
            self._process.kill()

    def _watch(self, job_id: str, watcher: Watcher) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            now = time.monotonic()
            self._jobs[job_id] = replace(job, seen_at=now)
            self._leases.look(job_id, watcher, now)

    def _stop_unwatched(self) -> None:
        now = time.monotonic()
        settings = self.settings
        for job in list(self._jobs.values()):
            paused = job.state == "paused"
            lease = settings.paused_seconds if paused else settings.lease_seconds
            ends_by_itself = job.over or job.id in self._storing
            if not ends_by_itself and now - self._leases.watched_until(job.id) > lease:
                self.stop(job.id)
                self._update(job.id, error="because nobody watched it")
        long_ago = now - max(settings.paused_seconds, settings.lease_seconds)
        self._leases.forget_tabs(long_ago)

    def _make_room(self) -> None:
        """Stop what has long been paused or closed, if somebody who waits can begin then."""
        long_ago = time.monotonic() - PAUSED_IN_THE_WAY_SECONDS
        held: dict[str, str] = {}
        for job in self._jobs.values():
            if job.begun and not job.over and job.id not in self._storing:
                if self._is_closed(job, CLOSED_SECONDS):
                    held[job.id] = _CLOSED
                elif job.state == "paused" and max(job.paused_at, job.begun_at) < long_ago:
                    held[job.id] = "because others waited for its memory"
        others = [claim for claim in self._holding() if claim.id not in held]
        if held and admitted(self._waiting(), others, self.settings):
            for job_id, why in held.items():
                self.stop(job_id)
                self._update(job_id, error=why)

    def _forget_old(self) -> None:
        """Forget ended jobs beyond a number and a size; the last that was seen ending stays."""
        for job_id in superfluous(self._jobs.values()):
            del self._jobs[job_id]
            self._filmless.discard(job_id)
            self._leases.forget(job_id)


_CLOSED = "because its tab was closed while others waited"

_CROWDED = "because the queue was full and your network had the most experiments in it"

_TELLING_STEPS = 20
"""Steps after which a job's own speed tells how long it will take."""

_OPENINGS: dict[Verb, Opening] = {"pause": "pause", "resume": "run", "step": "step"}
"""How a job begins, or begins anew, that was steered so last."""
