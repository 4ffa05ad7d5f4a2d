"""Queue of jobs and leases of tabs: which jobs begin, wait or have to end, and when."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.settings import in_words
from attnkit.service.jobs import NOBODY, Job, Watcher, superfluous
from attnkit.service.scheduler import Demand, Outlook, admitted, displaced, outlooks
from attnkit.service.server import ServerSettings
from attnkit.training.engine import Engine
from attnkit.training.pace import training_work
from attnkit.training.snapshot import Snapshot

FIRST_PACE = 0.03
"""Seconds per unit of `training_work` before the training process has measured them."""

MEASURED_STEPS = 20
"""Steps after which the speed of a job is used to estimate its training time."""

PAUSED_IN_THE_WAY_SECONDS = 120.0
"""A job that has been paused for longer is stopped if others wait for its memory."""

CLOSED_SECONDS = 10.0
"""A job whose tabs were closed longer ago is stopped if others wait; reloading a page is faster."""

WATCHED_SECONDS = 15.0
"""Time during which a tab that has looked at a job counts as watching it."""

OUTLOOK_SECONDS = 1.0
"""Largest age of an outlook."""

_CLOSED = mark("because its tab was closed while others waited")

_CROWDED = mark("because the queue was full and your network had the most experiments in it")


class Refused(Exception):
    """The experiment is not trained on this copy, or not now.

    The message says why, in the language of the page that submits it.
    """


@dataclass
class Leases:
    """Times at which tabs last asked for jobs, all in seconds on one clock.

    An open tab keeps watching the jobs that it has looked at, whatever page it shows and however
    rarely a browser lets it look. A tab that is not known to be open has to look again and again.
    `NOBODY` holds a lease as well, but does not count as a watcher.
    """

    _seen: dict[str, dict[Watcher, float]] = field(default_factory=dict)  # by job
    _closed_at: dict[str, float] = field(default_factory=dict)  # by tab; infinite while it is open

    def arrive(self, tab: str) -> None:
        """Note that a tab is open."""
        self._closed_at[tab] = float("inf")

    def leave(self, tab: str, now: float) -> None:
        """Note that a tab is closed, perhaps for a moment only."""
        if tab in self._closed_at:
            self._closed_at[tab] = now

    def has_left(self, tab: str, before: float) -> bool:
        """Return whether a tab was closed before a time."""
        return self._closed_at.get(tab, float("inf")) < before

    def watch(self, job: str, watcher: Watcher, now: float) -> None:
        """Note that a watcher looks at a job."""
        self._seen.setdefault(job, {})[watcher] = now

    def stop_watching(self, job: str, watcher: Watcher) -> None:
        """Remove a watcher from a job, and closed tabs of the same visitor as well."""
        seen = self._seen.get(job, {})
        for other in list(seen):
            closed = self._closed_at.get(other.tab, 0.0) < float("inf")
            if other == watcher or (closed and watcher.visitor == other.visitor != ""):
                del seen[other]

    def watched_until(self, job: str) -> float:
        """Return when a job was last watched; infinite if one of its tabs is open."""
        return max(self._times(job).values(), default=0.0)

    def left_at(self, job: str) -> float:
        """Return when the last tab that watched a job was closed.

        Infinite if one is still open, if a program watches the job, or if nobody ever has.
        """
        seen = self._seen.get(job, {})
        return max((self._closed_at.get(w.tab, float("inf")) for w in seen), default=float("inf"))

    def n_watchers(
        self, job: str, now: float, but: Watcher = NOBODY, within: float = WATCHED_SECONDS
    ) -> int:
        """Return the number of tabs that have watched a job lately.

        Args:
            job: The job.
            now: The present time.
            but: A tab that does not count, nor closed tabs of its visitor.
            within: Seconds within which a tab must have watched the job.
        """
        return sum(
            at > now - within and other not in (NOBODY, but)
            for other, at in self._times(job).items()
            if at == float("inf") or not but.visitor or other.visitor != but.visitor
        )

    def forget(self, job: str) -> None:
        """Forget a job."""
        self._seen.pop(job, None)

    def forget_tabs(self, left_before: float) -> None:
        """Forget tabs that were closed before a time."""
        self._closed_at = {tab: at for tab, at in self._closed_at.items() if at >= left_before}
        for job, seen in self._seen.items():
            times = self._times(job)
            for watcher in [watcher for watcher in seen if times[watcher] < left_before]:
                del seen[watcher]

    def _times(self, job: str) -> dict[Watcher, float]:
        """Return the time until which each watcher has watched a job."""
        return {
            watcher: max(at, self._closed_at.get(watcher.tab, at))
            for watcher, at in self._seen.get(job, {}).items()
        }


class JobQueue:
    """All jobs of a service in the order of submission, with their watchers.

    It decides, and `JobControl` acts. Every call needs the lock of `changed`.

    Args:
        settings: Limits of this copy.
        changed: Notified of every change of a job.

    Attributes:
        jobs: Job id → job.
        leases: Watchers of the jobs.
    """

    def __init__(self, settings: ServerSettings, changed: threading.Condition) -> None:
        self.settings = settings
        self.jobs: dict[str, Job] = {}
        self.leases = Leases()
        self._changed = changed
        self._engine: Engine = "kernel"
        self._pace = FIRST_PACE
        self._pace_on: dict[str, float] = {}  # by the name of the task
        self._outlooks: tuple[float, dict[str, Outlook]] = (0.0, {})

    def add(self, job: Job) -> None:
        """Append a job, and forget ended jobs that exceed the limits."""
        self.jobs[job.id] = job
        self._outlooks = (0.0, {})
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
        """Note that a watcher looks at a job now."""
        job = self.jobs.get(job_id)
        if job is not None:
            now = time.monotonic()
            self.jobs[job_id] = replace(job, seen_at=now)
            self.leases.watch(job_id, watcher, now)

    def forget_old(self) -> None:
        """Forget ended jobs beyond a number and a size."""
        for job_id in superfluous(self.jobs.values()):
            del self.jobs[job_id]
            self.leases.forget(job_id)

    @property
    def n_active(self) -> int:
        """Number of jobs that take turns now."""
        return sum(job.begun and job.active for job in self.jobs.values())

    def make_place(self, job: Job, replaced: str | None = None) -> tuple[str, str] | None:
        """Check that a new job may begin or wait.

        Args:
            job: The new job.
            replaced: Id of the job that the visitor leaves for it, and that therefore does not
                count as the visitor's.

        Returns:
            Id of the job that must be stopped to make a place, and the reason; None if no job
            must be stopped.

        Raises:
            Refused: If the new job may neither begin nor wait.
        """
        problems = self.settings.problems(job.experiment)
        if problems:
            raise Refused("; ".join(in_words(problem.message) for problem in problems))
        now = time.monotonic()
        demand, waiting = self._demand(job, now), self._waiting(now)
        if demand in admitted([*waiting, demand], self._holding(now), self.settings):
            return None
        n_of_visitor = sum(o.visitor == job.visitor and o.id != replaced for o in waiting)
        if job.visitor and n_of_visitor >= self.settings.visitor_waiting:
            raise Refused(
                tr(
                    "you have as many experiments training and waiting in other tabs as this copy "
                    "allows: stop one of them, or wait for its end"
                )
            )
        queued = [other for other in self.jobs.values() if other.queued]
        if len(queued) < self.settings.max_waiting:
            return None
        if len(queued) > len(waiting):
            closed = [other.id for other in queued if self._is_closed(other)]
            return min(closed, key=self.leases.left_at), _CLOSED
        loser = displaced([*waiting, demand])
        if loser is demand:
            raise Refused(
                tr_n(
                    "{n} experiment waits already: try again in a few minutes",
                    "{n} experiments wait already: try again in a few minutes",
                    len(queued),
                )
            )
        return loser.id, _CROWDED

    def ready(self) -> list[str]:
        """Return the ids of waiting jobs that may begin now."""
        now = time.monotonic()
        demands = admitted(self._waiting(now), self._holding(now), self.settings)
        return [demand.id for demand in demands]

    def unwatched(self) -> list[str]:
        """Return the ids of jobs that nobody has watched for longer than their lease.

        Tabs that were closed longer ago than any lease lasts are forgotten.
        """
        now, settings = time.monotonic(), self.settings
        paused, usual = settings.paused_seconds, settings.lease_seconds
        ids = []
        for job in self.jobs.values():
            lease = paused if job.state == "paused" else usual
            ends_by_itself = job.over or job.storing
            if not ends_by_itself and now - self.leases.watched_until(job.id) > lease:
                ids.append(job.id)
        self.leases.forget_tabs(now - max(paused, usual))
        return ids

    def in_the_way(self) -> dict[str, str]:
        """Return the jobs to stop so that others can begin: job id → reason.

        These jobs have been paused for long, or their tabs are closed. If no other job could begin
        without them, the dictionary is empty.
        """
        now = time.monotonic()
        long_ago = now - PAUSED_IN_THE_WAY_SECONDS
        reasons: dict[str, str] = {}
        for job in filter(lambda job: job.trains_on, self.jobs.values()):
            if self._is_closed(job, CLOSED_SECONDS):
                reasons[job.id] = _CLOSED
            elif job.state == "paused" and max(job.paused_at, job.begun_at) < long_ago:
                reasons[job.id] = mark("because others waited for its memory")
        others = [demand for demand in self._holding(now) if demand.id not in reasons]
        return reasons if reasons and admitted(self._waiting(now), others, self.settings) else {}

    def outlook(self, job_id: str) -> Outlook | None:
        """Return the outlook of a job, at most a second old; None if it is over."""
        now = time.monotonic()
        job = self.jobs.get(job_id)
        if job is None or job.over:
            return None
        computed_at, by_id = self._outlooks
        if now - computed_at > OUTLOOK_SECONDS or not by_id:
            by_id = outlooks(self._waiting(now), self._holding(now), self.settings)
            self._outlooks = (now, by_id)
        return by_id.get(job_id)

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

    def _waiting(self, now: float) -> list[Demand]:
        """Return the demands of queued jobs, except those whose tabs are closed at the moment."""
        queued = [job for job in self.jobs.values() if job.queued]
        return [self._demand(job, now) for job in queued if not self._is_closed(job)]

    def _holding(self, now: float) -> list[Demand]:
        """Return the demands of jobs that hold memory of the training process."""
        return [self._demand(job, now) for job in self.jobs.values() if job.trains_on]

    def _is_closed(self, job: Job, seconds: float = 0.0) -> bool:
        """Return whether the last tab that showed a job was closed more than `seconds` ago."""
        return time.monotonic() - self.leases.left_at(job.id) > seconds

    def _demand(self, job: Job, now: float) -> Demand:
        """Return the demand of a job; all demands of one decision need the same `now`."""
        n_steps = job.experiment.training.steps
        left = 1 - job.step / n_steps
        seconds = self.seconds_for(job.trains) * left
        if job.seconds and job.step > MEASURED_STEPS:
            seconds = job.seconds / job.step * n_steps * left
        waited, paused = now - job.submitted_at, job.state == "paused"
        return Demand(job.id, job.visitor, job.megabytes, seconds, waited, paused, job.address)
