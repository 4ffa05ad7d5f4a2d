"""Jobs that have ended: how they are made of finished runs, which of them are forgotten."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from typing import Any

from attnkit.experiment import Experiment
from attnkit.service.finished_runs import Known
from attnkit.service.jobs import Job
from attnkit.training.film import film_megabytes
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

MAX_JOBS = 64
"""Ended jobs remembered; the least recently seen are forgotten first."""

MAX_BYTES = 2**28
"""Of all last snapshots together: beyond that, ended jobs are forgotten in the same order."""

MAX_LENT_BYTES = 2**24
"""Parameters that a finished job keeps in memory; beyond that they are read from the store."""


def memory_of(experiment: Experiment) -> float:
    """Megabytes that its training takes, with the film of its first seed."""
    return experiment.megabytes + film_megabytes(experiment)


def size_of(snapshot: Snapshot) -> int:
    """Return about how many bytes a snapshot's arrays have."""
    arrays = [*snapshot.probe.to_arrays().values(), *snapshot.history.values()]
    return sum(array.nbytes for array in arrays)


def lendable(result: Result) -> dict[str, Any]:
    """Fields of a finished job that lend its runs to others, unless they are too large for that."""
    n_bytes = sum(array.nbytes for own in result.parameters for array in own.values())
    size = size_of(result.snapshot)
    if n_bytes > MAX_LENT_BYTES:
        return {"n_bytes": size}
    return {"n_bytes": size + n_bytes, "parameters": result.parameters}


def ended_job(snapshot: Snapshot, **fields: Any) -> Job:
    """A job that is finished from the beginning."""
    now = time.monotonic()
    return Job(
        uuid.uuid4().hex[:12],
        snapshot.experiment,
        **{"n_bytes": size_of(snapshot), **fields},
        state="finished",
        begun=True,
        snapshot=snapshot,
        seen_at=now,
    )


def composed_job(known: Known) -> Job:
    """A finished job made of finished runs of other jobs."""
    result, now = known.join_result(), time.monotonic()
    filmed = known.experiment.replace(n_seeds=1)
    times = {"asked_at": now, "begun_at": now}
    return ended_job(result.snapshot, filmed=filmed, known=known, **times, **lendable(result))


def superfluous(jobs: Collection[Job]) -> list[str]:
    """Return the ended jobs to forget: those beyond a number and a size that nobody has looked at.

    The one that was seen last stays, however large it is.
    """
    n_bytes = sum(job.n_bytes for job in jobs)
    over = sorted((job for job in jobs if job.over), key=lambda job: job.seen_at)
    n_over, found = len(over), []
    for job in over[:-1]:
        if n_over <= MAX_JOBS and n_bytes <= MAX_BYTES:
            break
        found.append(job.id)
        n_bytes -= job.n_bytes
        n_over -= 1
    return found
