"""Experiments that tests train to the end, until they are stored."""

from waiting import wait_until


def finish(service, *experiments):
    """Train all experiments at once, and return the jobs when they are over."""
    ids = [service.submit(experiment) for experiment in experiments]
    return [wait_until(service, job_id, lambda job: job.over) for job_id in ids]


def assert_stored(service, jobs):
    """Wait until the results of all jobs are stored without a problem."""
    for job in jobs:
        stored = wait_until(service, job.id, lambda job: job.stored)
        assert (stored.state, stored.unstored) == ("finished", "")
