"""The table of jobs that the owner of a copy sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attnkit.service.jobs import Job
from attnkit.service.leases import Leases
from attnkit.service.scheduler import Outlook


def overview(
    jobs: Iterable[Job], outlooks: Mapping[str, Outlook | None], leases: Leases, now: float
) -> list[dict[str, Any]]:
    """Return one row per job, those that have ended last.

    Args:
        jobs: All jobs in the order of submission.
        outlooks: Job id → its outlook.
        leases: Watchers of the jobs.
        now: Time on the clock of `time.monotonic`.
    """
    rows = [
        {
            "id": job.id,
            "hash": job.experiment.hash,
            "task": job.experiment.task.name,
            "address": job.address,
            "state": "queued" if job.queued and job.active else job.state,
            "place": outlook.place if (outlook := outlooks.get(job.id)) else 0,
            "runs": job.experiment.n_runs,
            "step": job.step,
            "steps": job.experiment.training.steps,
            "seconds": 0.0 if job.snapshot is None else job.snapshot.seconds,
            "waited": (job.begun_at or now) - job.asked_at if job.asked_at else 0.0,
            "megabytes": job.megabytes,
            "watchers": leases.n_watchers(job.id, now),
            "restarts": job.restarts,
            "stored": job.stored,
        }
        for job in jobs
    ]
    return sorted(rows, key=lambda row: row["state"] in ("finished", "stopped", "failed"))
