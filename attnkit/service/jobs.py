"""Jobs of the training service: what they are, which begin, which wait, and who watches them.

Four rules decide. Each address begins its jobs in the order of their submission. Addresses take
turns: the next job is of the address with the fewest jobs in training. An address has a largest
number of jobs, and a quarter of the memory is kept free for addresses that train nothing, because a
script can open any number of tabs but has one address. What does not fit into memory lets jobs of
other addresses overtake it for a minute.

A new experiment takes over finished runs of earlier jobs instead of training them.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from attnkit.experiment import Experiment
from attnkit.foundation.language import tr, tr_n
from attnkit.service.protocol import State, Verb
from attnkit.service.server import ServerSettings
from attnkit.training.engine import Engine
from attnkit.training.joining import can_share_runs, join_results, join_snapshots
from attnkit.training.maker import Maker
from attnkit.training.pace import training_work
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

MAX_JOBS = 64
"""Number of ended jobs that are remembered; the least recently seen are forgotten first."""

MAX_BYTES = 2**28
"""Size of all last snapshots; beyond it, ended jobs are forgotten in the same order."""

MAX_LENT_BYTES = 2**24
"""Size of the parameters that a finished job keeps in memory; larger ones are read from the store
when another experiment takes over its runs."""

FIRST_PACE = 0.03
"""Seconds per unit of `training_work` before the training process has measured them."""

MEASURED_STEPS = 20
"""Steps after which the speed of a job is used to estimate its training time."""

PAUSED_SECONDS = 120.0
"""A job that has been paused for longer is stopped if others wait for its memory."""

OVERTAKE_SECONDS = 60.0
"""Waiting time during which other jobs may overtake one that is too large to begin now."""

PART_OF_ONE_ADDRESS = 0.75
"""Part of the memory beyond which only addresses that train nothing may begin a job."""


@dataclass(frozen=True)
class Watcher:
    """A tab that submits or watches jobs, with the visitor and the address that limits apply to.

    Attributes:
        tab: Id of the session.
        visitor: Id of the browser; empty if limits of a visitor do not apply.
        address: Address that the browser connects from; empty if limits of an address do not apply.
            It may change, so two watchers with the same tab and visitor are equal.
    """

    tab: str = ""
    visitor: str = ""
    address: str = field(default="", compare=False)


NOBODY = Watcher()
"""A program without a tab, to which no limits of visitors and addresses apply."""


@dataclass(frozen=True, eq=False)
class FinishedRuns:
    """Finished runs of an experiment, all of one maker.

    Attributes:
        experiment: The experiment that takes them over.
        results: Finished results that contain the runs.
        trainers: Variant → id of the job that has trained it and may still have its film.
    """

    experiment: Experiment
    results: list[Result]
    trainers: dict[Variant, str]

    @cached_property
    def missing(self) -> Experiment | None:
        """The experiment of the variants that have no finished runs; None if all have."""
        missing = [v for v in self.experiment.sharing if v not in self.trainers]
        return self.experiment.replace(sharing=missing) if missing else None

    @property
    def maker(self) -> Maker:
        """Engine, kind of processor and versions."""
        return self.results[0].snapshot.maker

    def join(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot of the whole experiment, given one of the missing variants."""
        snapshots = [snapshot, *(result.snapshot for result in self.results)]
        return join_snapshots(self.experiment, snapshots)

    def join_result(self, *missing: Result) -> Result:
        """Return the result of the whole experiment, given that of the missing variants if any."""
        return join_results(self.experiment, [*missing, *self.results])


@dataclass(frozen=True, eq=False)
class Job:
    """One submitted experiment in its present state, immutable.

    Times are seconds on the clock of `time.monotonic`; 0 if it has not happened.

    Attributes:
        filmed: The experiment of the one seed that the film shows.
        visitor: Visitor who submitted it; empty if limits of a visitor do not apply.
        owner: The only visitor who may find it; empty if it is for all.
        address: Address from which it was submitted.
        state: Requested state until the training process has obeyed all commands, then its state.
        opening: What it does when it begins: "resume" trains, "pause" pauses at once, and "step"
            pauses at the next evaluation.
        megabytes: Estimated memory.
        begun: Whether the training process has received it; before that it is queued.
        version: Number of changes so far, for `TrainingService.wait`.
        reused: Finished runs of other jobs that it takes over; None if it trains all its runs.
        resumes: Id of the stopped job that it continues; empty if it begins at step 0.
        parameters: Parameters of every run of a finished job; None if they are too large to keep.
        seconds: Training time of this job.
        restarts: Number of times that it began anew because the training process died.
        blamed: How often the training process died in this job's turn.
        sent: Number of commands sent after the start.
        obeyed: Number of commands that the training process has obeyed; −1 if a new one has not
            sent anything yet.
        error: Reason why it failed, or was stopped by others than its visitor.
        kept: Whether its result is stored; not if it is trained for its film only.
        filmless: Whether the training process has dropped its film.
        storing: Whether it is finished and its result is on its way into the store.
        stored: Whether the store has the result.
        unstored: Reason why the store does not have it.
        tried_again: Whether storing will be tried again.
        submitted_at: Time of submission.
        begun_at: Time when it began.
        paused_at: Time when it was last paused.
        seen_at: Time when a tab last asked for it.
    """

    id: str
    experiment: Experiment
    filmed: Experiment | None = None
    visitor: str = ""
    owner: str = ""
    address: str = ""
    state: State = "waiting"
    opening: Verb = "resume"
    megabytes: float = 0.0
    begun: bool = False
    version: int = 0
    snapshot: Snapshot | None = None
    reused: FinishedRuns | None = None
    resumes: str = ""
    parameters: list[dict[str, np.ndarray]] | None = None
    seconds: float = 0.0
    restarts: int = 0
    blamed: int = 0
    sent: int = 0
    obeyed: int = 0
    error: str = ""
    kept: bool = True
    filmless: bool = False
    storing: bool = False
    stored: bool = False
    unstored: str = ""
    tried_again: bool = False
    submitted_at: float = 0.0
    begun_at: float = 0.0
    paused_at: float = 0.0
    seen_at: float = 0.0

    def is_for(self, watcher: Watcher) -> bool:
        """Return whether a tab may find the job."""
        return self.owner in ("", watcher.visitor)

    @property
    def public_hash(self) -> dict[str, str]:
        """The hash of the experiment as a field of the log; none if it is one visitor's only."""
        return {} if self.owner else {"hash": self.experiment.hash}

    @property
    def active(self) -> bool:
        """Whether the job trains or waits to train."""
        return self.state in ("waiting", "running")

    @property
    def queued(self) -> bool:
        """Whether the job has not begun, because others are first."""
        return not self.begun and not self.over

    @property
    def settled(self) -> bool:
        """Whether no more snapshots come without a command."""
        if self.state in ("finished", "failed"):
            return True
        if self.active or self.obeyed != self.sent:
            return False
        return self.state == "stopped" or self.snapshot is not None  # a paused job sends step 0

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state in ("finished", "stopped", "failed")

    @property
    def trains_on(self) -> bool:
        """Whether the training process holds the job, paused or not, and the job has not ended."""
        return self.begun and not self.over and not self.storing

    @property
    def step(self) -> int:
        """Number of steps in the last snapshot."""
        return 0 if self.snapshot is None else self.snapshot.step

    @property
    def trains(self) -> Experiment:
        """The experiment that this job trains, without variants whose runs it takes over."""
        missing = None if self.reused is None else self.reused.missing
        return missing or self.experiment

    @property
    def trainers(self) -> dict[Variant, str]:
        """Variant → id of the job that has trained it."""
        others = {} if self.reused is None else self.reused.trainers
        return {variant: others.get(variant, self.id) for variant in self.experiment.sharing}

    @property
    def result(self) -> Result | None:
        """The finished result; None if its parameters are not in memory."""
        if self.snapshot is None or self.parameters is None:
            return None
        return Result(self.snapshot, self.parameters)

    @cached_property
    def n_bytes(self) -> int:
        """Approximate size of the last snapshot and the parameters."""
        arrays = [array for of_run in self.parameters or () for array in of_run.values()]
        if self.snapshot is not None:
            arrays += [*self.snapshot.probe.to_arrays().values(), *self.snapshot.history.values()]
        return sum(array.nbytes for array in arrays)

    @property
    def model_steps_per_second(self) -> float:
        """Optimiser steps of single runs per second of training in this job."""
        return self.trains.n_runs * self.step / self.seconds if self.seconds > 0 else 0.0


def lent(result: Result) -> list[dict[str, np.ndarray]] | None:
    """Return the parameters of a finished job, or None if they are too large to keep."""
    n_bytes = sum(array.nbytes for of_run in result.parameters for array in of_run.values())
    return result.parameters if n_bytes <= MAX_LENT_BYTES else None


def ended_job(snapshot: Snapshot, **fields: Any) -> Job:
    """Return a job that is finished from the beginning.

    Args:
        snapshot: Its last snapshot.
        fields: Further fields of `Job`.
    """
    return Job(
        uuid.uuid4().hex[:12],
        snapshot.experiment,
        **fields,
        state="finished",
        begun=True,
        snapshot=snapshot,
        seen_at=time.monotonic(),
    )


def composed_job(reused: FinishedRuns, owner: str) -> Job:
    """Return a finished job made of finished runs of other jobs, see `Job.owner`."""
    result, now = reused.join_result(), time.monotonic()
    filmed = reused.experiment.replace(n_seeds=1)
    times = {"submitted_at": now, "begun_at": now}
    fields: dict[str, Any] = {"filmed": filmed, "reused": reused, "owner": owner}
    return ended_job(result.snapshot, **fields, **times, parameters=lent(result))


def find_finished_runs(
    experiment: Experiment, jobs: Iterable[Job], recall: Callable[[Experiment], Result | None]
) -> FinishedRuns | None:
    """Find finished runs of an experiment.

    Args:
        experiment: The experiment that will be shown or trained.
        jobs: Jobs to search, newest first. All runs are taken from jobs of one maker: that of
            the first job that has any.
        recall: Returns the stored result of a job whose parameters are not in memory.

    Returns:
        The runs, or None if there are none.
    """
    results: list[Result] = []
    trainers: dict[Variant, str] = {}
    for job in jobs:
        snapshot = job.snapshot
        if job.state != "finished" or snapshot is None or not job.kept:
            continue
        new = [v for v in snapshot.experiment.sharing if v in experiment.sharing]
        new = [variant for variant in new if variant not in trainers]
        if not new or not can_share_runs(experiment, snapshot.experiment):
            continue
        if results and results[0].snapshot.maker != snapshot.maker:
            continue
        result = job.result or recall(job.experiment)
        if result is None or result.snapshot.maker != snapshot.maker:
            continue
        results.append(result)
        trainers |= {variant: job.trainers[variant] for variant in new}
    return FinishedRuns(experiment, results, trainers) if results else None


class Refused(Exception):
    """The experiment is not trained on this copy, or not now.

    The message says why, in the language of the page that submits it.
    """


@dataclass(frozen=True)
class Outlook:
    """Expected progress of one job.

    Attributes:
        place: Place in the queue, from 1; 0 if it has begun.
        n_active: Number of jobs that train in turns now.
        begins: Seconds until it begins; infinite if unknown.
        ends: Seconds until it is finished; infinite if unknown.
    """

    place: int
    n_active: int
    begins: float
    ends: float


class JobQueue:
    """All jobs of a service in the order of submission, with their watchers.

    It decides, and `TrainingService` acts. Every call needs the lock of `changed`.

    Args:
        settings: Limits of this copy.
        changed: Notified of every change of a job.

    Attributes:
        jobs: Job id → job.
        open_tabs: Tabs that are connected.
    """

    def __init__(self, settings: ServerSettings, changed: threading.Condition) -> None:
        self.settings = settings
        self.jobs: dict[str, Job] = {}
        self.open_tabs: set[str] = set()
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)  # by job
        self._changed = changed
        self._engine: Engine = "kernel"
        self._pace = FIRST_PACE
        self._pace_on: dict[str, float] = {}  # by the name of the task

    # jobs and their watchers

    def add(self, job: Job) -> None:
        """Append a job, and forget ended jobs that exceed the limits."""
        self.jobs[job.id] = job
        self.forget_old()

    def update(self, job_id: str, **changes: Any) -> None:
        """Change fields of a job, if it is not forgotten, and wake those who wait for a change."""
        job = self.jobs.get(job_id)
        if job is not None:
            if changes.get("state") == "paused" != job.state:
                changes["paused_at"] = time.monotonic()
            self.jobs[job_id] = replace(job, version=job.version + 1, **changes)
            self._changed.notify_all()

    def watch(self, job_id: str, watcher: Watcher) -> None:
        """Note that a watcher looks at a job; it watches until it turns away or the job ends."""
        job = self.jobs.get(job_id)
        if job is not None:
            self.jobs[job_id] = replace(job, seen_at=time.monotonic())
            if job.over:  # any number of tabs may come and go
                self._watchers.pop(job_id, None)
            elif watcher != NOBODY:
                self._watchers[job_id].add(watcher)

    def stop_watching(self, job_id: str, watcher: Watcher) -> None:
        """Remove a watcher from a job, and closed tabs of the same visitor as well."""
        if job_id in self._watchers:
            self._watchers[job_id] = self.other_watchers(job_id, watcher)

    def other_watchers(self, job_id: str, watcher: Watcher = NOBODY) -> set[Watcher]:
        """Return who else watches a job; closed tabs of the same visitor do not count."""
        return {
            other
            for other in self._watchers.get(job_id, ())
            if other != watcher
            and (other.tab in self.open_tabs or not watcher.visitor == other.visitor != "")
        }

    def forget_old(self) -> None:
        """Forget ended jobs beyond a number and a size; the one that was seen last stays."""
        n_bytes = sum(job.n_bytes for job in self.jobs.values())
        over = sorted((job for job in self.jobs.values() if job.over), key=lambda job: job.seen_at)
        for n_forgotten, job in enumerate(over[:-1]):
            if len(over) - n_forgotten <= MAX_JOBS and n_bytes <= MAX_BYTES:
                break
            n_bytes -= job.n_bytes
            del self.jobs[job.id]
            self._watchers.pop(job.id, None)

    @property
    def n_active(self) -> int:
        """Number of jobs that take turns now."""
        return sum(job.begun and job.active for job in self.jobs.values())

    # rules

    def check_place(self, job: Job, replaced: str | None = None) -> None:
        """Check that a new job may begin or wait.

        Args:
            job: The new job.
            replaced: Id of the job that the visitor leaves for it, and that therefore does not
                count as the visitor's.

        Raises:
            Refused: If it may neither begin nor wait.
        """
        problems = self.settings.problems(job.experiment)
        if problems:
            raise Refused("; ".join(tr(problem.message) for problem in problems))
        if job.id in self.ready([job]):
            return
        queued = [other for other in self.jobs.values() if other.queued]
        of_visitor = [other for other in queued if self._visitor_of(other) == job.visitor]
        n_of_visitor = sum(other.id != replaced for other in of_visitor)
        if job.visitor and n_of_visitor >= self.settings.visitor_waiting:
            raise Refused(
                tr(
                    "you have as many experiments training and waiting in other tabs as this copy "
                    "allows: stop one of them, or wait for its end"
                )
            )
        waiting = Counter([job.address, *(other.address for other in queued)])
        most = self.settings.max_waiting  # in all; an address may have its part of them
        if len(queued) >= most and waiting[job.address] > most / len(waiting):
            raise Refused(
                tr_n(
                    "{n} experiment waits already: try again in a few minutes",
                    "{n} experiments wait already: try again in a few minutes",
                    len(queued),
                )
            )

    def in_the_way(self) -> list[str]:
        """Return the jobs that have been paused for long and whose memory others wait for."""
        now = time.monotonic()
        long_paused = [
            job
            for job in self._holding()
            if job.state == "paused" and now - max(job.paused_at, job.begun_at) > PAUSED_SECONDS
        ]
        return [job.id for job in long_paused] if self.ready(without=long_paused) else []

    def outlook(self, job_id: str) -> Outlook | None:
        """Return the outlook of a job if no other is submitted; None if it is over.

        A job in the queue is expected to begin when as many others have ended as are before it.
        """
        job = self.jobs.get(job_id)
        if job is None or job.over:
            return None
        active = [other for other in self.jobs.values() if other.begun and other.active]
        of_address = Counter(other.address for other in active)

        def seconds_of(one: Job) -> float:
            n_turns = max(1, of_address[one.address]) * max(1, len(of_address))
            return self._seconds_left(one) * n_turns

        if not job.queued:
            return Outlook(0, len(active), 0.0, seconds_of(job))
        place = 1 + [other.id for other in self._in_order()].index(job_id)
        ends = sorted(map(seconds_of, active))
        if not ends:  # paused jobs are in the way; nobody knows for how long
            return Outlook(place, 0, float("inf"), float("inf"))
        rounds, last = divmod(place - 1, len(ends))
        begins = rounds * ends[-1] + ends[last]
        return Outlook(place, len(active), begins, begins + seconds_of(job))

    def _visitor_of(self, job: Job) -> str:
        """Return the visitor as whose job it counts; nobody's if all tabs that show it are closed.

        It then goes on within the limits of its address, and its visitor may train something else.
        """
        tabs = {watcher.tab for watcher in self._watchers.get(job.id, ())}
        return "" if tabs and not tabs & self.open_tabs else job.visitor

    def _holding(self) -> list[Job]:
        """Return the jobs that hold memory of the training process."""
        return [job for job in self.jobs.values() if job.trains_on]

    def _in_order(self, new: Sequence[Job] = ()) -> list[Job]:
        """Return the queued jobs and new ones in the order in which they begin."""
        held = Counter(job.address for job in self._holding())
        turns: dict[str, int] = {}
        queued = [*(job for job in self.jobs.values() if job.queued), *new]
        for job in queued:
            turns[job.id] = held[job.address]
            held[job.address] += 1
        return sorted(queued, key=lambda job: turns[job.id])

    def ready(self, new: Sequence[Job] = (), without: Sequence[Job] = ()) -> list[str]:
        """Return the ids of the jobs that may begin now, among them new ones.

        Args:
            new: Jobs that are not in the queue yet.
            without: Jobs that count as ended.
        """
        holding = [job for job in self._holding() if job not in without]
        of_visitor = Counter(map(self._visitor_of, holding))
        ids: list[str] = []
        stuck: set[str] = set()  # addresses whose next job has no room
        for job in self._in_order(new):
            has_enough = of_visitor[job.visitor] >= self.settings.visitor_active
            if job.address in stuck or (job.visitor and has_enough):
                continue  # nobody else waits for a visitor's second job
            if self._has_room(job, holding):
                ids.append(job.id)
                holding.append(job)
                of_visitor[job.visitor] += 1
                continue
            stuck.add(job.address)
            is_first = all(other.address != job.address for other in holding)
            if is_first and time.monotonic() - job.submitted_at > OVERTAKE_SECONDS:
                break
        return ids

    def _has_room(self, job: Job, holding: list[Job]) -> bool:
        """Return whether a job may begin beside others; one larger than all memory begins alone."""
        settings = self.settings
        of_address = [other for other in holding if other.address == job.address]
        n_active = sum(other.state != "paused" for other in of_address)
        megabytes = job.megabytes + sum(other.megabytes for other in holding)
        part = PART_OF_ONE_ADDRESS if of_address and job.address else 1.0
        return not holding or (
            n_active < settings.max_active
            and len(of_address) < settings.max_active + settings.max_waiting
            and megabytes <= part * settings.training_megabytes
        )

    # training times

    def seconds_for(self, experiment: Experiment) -> float:
        """Return the estimated training time of an experiment if nothing else trains."""
        usual = median([self._pace, *self._pace_on.values()])
        pace = self._pace_on.get(experiment.task.name, usual)
        return pace * training_work(experiment, self._engine)

    def set_pace(self, pace: float, engine: Engine) -> None:
        """Take over the seconds per unit of work that an engine has needed on this machine."""
        self._pace, self._engine = pace, engine
        self._pace_on.clear()

    def learn_pace(self, job: Job, snapshot: Snapshot) -> None:
        """Estimate later experiments on a job's task by its training time."""
        done = snapshot.step / job.experiment.training.steps
        if snapshot.step > MEASURED_STEPS:
            work = training_work(job.trains, self._engine)
            self._pace_on[job.experiment.task.name] = snapshot.seconds / done / work

    def _seconds_left(self, job: Job) -> float:
        """Return the estimated training time that a job has left if nothing else trains."""
        n_steps = job.experiment.training.steps
        left = 1 - job.step / n_steps
        if job.seconds and job.step > MEASURED_STEPS:
            return job.seconds / job.step * n_steps * left
        return self.seconds_for(job.trains) * left
