"""Jobs of a training service that tests begin, wait for and compare."""

import sys
import time

from kinds import SMALL
from same import assert_same

from attnkit.experiment import Experiment
from attnkit.service.jobs import Job
from attnkit.service.service import TrainingService
from attnkit.service.worker import SLICE_SECONDS

PATIENCE = 120.0
"""Seconds after which a wait has failed; no job of these tests takes long."""

STILL = 3 * SLICE_SECONDS
"""Seconds without a new version after which a job counts as still."""

UNENDING = {**SMALL, "steps": 20_000, "batch_size": 256}
"""Settings of a job that goes on for longer than any test."""


def end_pages_service():
    """End the training service of all pages, if there is one; the next page starts another."""
    if "attnkit.ui.server.service" in sys.modules:
        sys.modules["attnkit.ui.server.service"].training_service.clear()


def small(steps, first_seed=0):
    """Return an experiment of two runs."""
    return Experiment(**SMALL, steps=steps, first_seed=first_seed)


def unending(first_seed=0):
    """Return an experiment of two runs that no test waits for."""
    return Experiment(**UNENDING, first_seed=first_seed)


def wait_until(service: TrainingService, job_id: str, condition) -> Job:
    """Return the job as soon as it fulfils a condition."""
    deadline = time.monotonic() + PATIENCE
    job = service.job(job_id)
    while not condition(job):
        seconds = deadline - time.monotonic()
        assert seconds > 0, f"still waiting: {job.state} at step {job.step}, {job.error}"
        job = service.wait(job_id, job.version, seconds)
    return job


def wait_until_still(service: TrainingService, job_id: str, state: str) -> Job:
    """Return the job in a state that it keeps for longer than a turn lasts."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        job = wait_until(service, job_id, lambda job: job.state == state and job.settled)
        if service.wait(job_id, job.version, STILL).version == job.version:
            return job
    raise AssertionError(f"never still in state {state}")


def the_example(service, experiment):
    """Return an experiment's example as soon as it is drawn."""
    found = service.example(experiment, PATIENCE)
    assert found is not None
    return found


def assert_same_bits(snapshot, reference):
    """Check that two snapshots hold the same, besides the time that they took."""
    assert_same(snapshot, reference, "seconds")


def finish(service, *experiments):
    """Train all experiments at once, and return the jobs when they are over."""
    ids = [service.submit(experiment) for experiment in experiments]
    return [wait_until(service, job_id, lambda job: job.over) for job_id in ids]


def assert_stored(service, jobs):
    """Wait until the results of all jobs are stored without a problem."""
    for job in jobs:
        stored = wait_until(service, job.id, lambda job: job.stored)
        assert (stored.state, stored.unstored) == ("finished", "")
