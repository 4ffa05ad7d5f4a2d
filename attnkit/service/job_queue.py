"""The queue of a service: which jobs begin, which wait, and who watches them.

Four rules decide. Each address begins its jobs in the order of their submission. Addresses take
turns: the next job is of the address with the fewest jobs in training. An address has a largest
number of jobs, and a quarter of the memory is kept free for addresses that train nothing, because a
script can open any number of tabs but has one address. What does not fit into memory lets jobs of
other addresses overtake it for a minute.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from attnkit.experiment import Experiment
from attnkit.foundation.language import tr, tr_n
from attnkit.service.jobs import NOBODY, Job, Watcher, superfluous
from attnkit.service.server import ServerSettings
from attnkit.training.engine import Engine
from attnkit.training.pace import training_work
from attnkit.training.snapshot import Snapshot

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
        """Note that a watcher looks at a job. It watches until it turns away from the job."""
        job = self.jobs.get(job_id)
        if job is not None:
            self.jobs[job_id] = replace(job, seen_at=time.monotonic())
            if watcher != NOBODY:
                self._watchers[job_id].add(watcher)

    def stop_watching(self, job_id: str, watcher: Watcher) -> None:
        """Remove a watcher from a job, and closed tabs of the same visitor as well."""
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
        """Forget ended jobs beyond a number and a size."""
        for job_id in superfluous(self.jobs.values()):
            del self.jobs[job_id]
            self._watchers.pop(job_id, None)

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
        if job.id in self._ready([job]):
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

    def ready(self) -> list[str]:
        """Return the ids of waiting jobs that may begin now."""
        return self._ready(())

    def in_the_way(self) -> list[str]:
        """Return the jobs that have been paused for long and whose memory others wait for."""
        now = time.monotonic()
        long_paused = [
            job
            for job in self._holding()
            if job.state == "paused" and now - max(job.paused_at, job.begun_at) > PAUSED_SECONDS
        ]
        return [job.id for job in long_paused] if self._ready((), without=long_paused) else []

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
        place = 1 + [other.id for other in self._in_order(())].index(job_id)
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

    def _in_order(self, new: Sequence[Job]) -> list[Job]:
        """Return the queued jobs and new ones in the order in which they begin."""
        held = Counter(job.address for job in self._holding())
        turns: dict[str, int] = {}
        queued = [*(job for job in self.jobs.values() if job.queued), *new]
        for job in queued:
            turns[job.id] = held[job.address]
            held[job.address] += 1
        return sorted(queued, key=lambda job: turns[job.id])

    def _ready(self, new: Sequence[Job], without: Sequence[Job] = ()) -> list[str]:
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
