"""Jobs of the training service, the tabs that watch them, and runs that they take over.

A new experiment takes over finished runs of earlier jobs instead of training them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from attnkit.experiment import Experiment
from attnkit.service.protocol import State, Verb
from attnkit.training.joining import can_share_runs, join_results, join_snapshots
from attnkit.training.maker import Maker
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
        n_bytes: Size of the last snapshot and the parameters.
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
    n_bytes: int = 0
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

    @property
    def model_steps_per_second(self) -> float:
        """Optimiser steps of single runs per second of training in this job."""
        return self.trains.n_runs * self.step / self.seconds if self.seconds > 0 else 0.0


def size_of(snapshot: Snapshot) -> int:
    """Return the approximate size of a snapshot's arrays in bytes."""
    arrays = [*snapshot.probe.to_arrays().values(), *snapshot.history.values()]
    return sum(array.nbytes for array in arrays)


def lendable(result: Result) -> dict[str, Any]:
    """Return fields of a finished job, with the parameters if they are small enough to keep."""
    n_bytes = sum(array.nbytes for of_run in result.parameters for array in of_run.values())
    size = size_of(result.snapshot)
    if n_bytes > MAX_LENT_BYTES:
        return {"n_bytes": size}
    return {"n_bytes": size + n_bytes, "parameters": result.parameters}


def ended_job(snapshot: Snapshot, **fields: Any) -> Job:
    """Return a job that is finished from the beginning.

    Args:
        snapshot: Its last snapshot.
        fields: Further fields of `Job`.
    """
    return Job(
        uuid.uuid4().hex[:12],
        snapshot.experiment,
        **{"n_bytes": size_of(snapshot), **fields},
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
    return ended_job(result.snapshot, **fields, **times, **lendable(result))


def superfluous(jobs: Collection[Job]) -> list[str]:
    """Return the ids of ended jobs to forget, those beyond a number and a size.

    The one that was seen last stays, however large it is.
    """
    n_bytes = sum(job.n_bytes for job in jobs)
    over = sorted((job for job in jobs if job.over), key=lambda job: job.seen_at)
    n_over, ids = len(over), []
    for job in over[:-1]:
        if n_over <= MAX_JOBS and n_bytes <= MAX_BYTES:
            break
        ids.append(job.id)
        n_bytes -= job.n_bytes
        n_over -= 1
    return ids


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
