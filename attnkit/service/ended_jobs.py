"""Jobs that have ended: making one of finished runs, and choosing those to forget."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from typing import Any

from attnkit.experiment import Experiment
from attnkit.service.finished_runs import FinishedRuns
from attnkit.service.jobs import Job
from attnkit.training.film import film_megabytes
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

MAX_JOBS = 64
"""Number of ended jobs that are remembered; the least recently seen are forgotten first."""

MAX_BYTES = 2**28
"""Size of all last snapshots; beyond it, ended jobs are forgotten in the same order."""

MAX_LENT_BYTES = 2**24
"""Size of the parameters that a finished job keeps in memory; larger ones are read from the store
when another experiment takes over its runs."""


def memory_of(experiment: Experiment) -> float:
    """Return the estimated memory of training in megabytes, with the film of the first seed."""
    return experiment.megabytes + film_megabytes(experiment)


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


def composed_job(reused: FinishedRuns) -> Job:
    """Return a finished job made of finished runs of other jobs."""
    result, now = reused.join_result(), time.monotonic()
    filmed = reused.experiment.replace(n_seeds=1)
    times = {"asked_at": now, "begun_at": now}
    return ended_job(result.snapshot, filmed=filmed, reused=reused, **times, **lendable(result))


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
