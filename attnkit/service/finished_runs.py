"""Finished runs that a new experiment takes over from earlier jobs instead of training them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from attnkit.experiment import Experiment
from attnkit.service.jobs import Job
from attnkit.training.joining import can_share_runs, join_results, join_snapshots
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant


@dataclass(frozen=True, eq=False)
class FinishedRuns:
    """Finished runs of an experiment, all of one engine and kind of processor.

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
    def maker(self) -> tuple[str, str]:
        """Engine and kind of processor."""
        return self.results[0].snapshot.maker

    def join(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot of the whole experiment, given one of the missing variants."""
        snapshots = [snapshot, *(result.snapshot for result in self.results)]
        return join_snapshots(self.experiment, snapshots)

    def join_result(self, *missing: Result) -> Result:
        """Return the result of the whole experiment, given that of the missing variants if any."""
        return join_results(self.experiment, [*missing, *self.results])


def find_finished_runs(
    experiment: Experiment, jobs: Iterable[Job], recall: Callable[[Experiment], Result | None]
) -> FinishedRuns | None:
    """Find finished runs of an experiment.

    Args:
        experiment: The experiment that will be shown or trained.
        jobs: Jobs to search, newest first. All runs are taken from jobs of one engine and kind of
            processor: that of the first job that has any.
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
