"""Faults around one training service: no database, a full disk, jumps of the clock.

Results that were reported as stored stay whole, the failure of one experiment is its own, and the
service goes on by itself as soon as it can. Processes that die are in
test_job_control.py and test_worker.py.
"""

import contextlib
import os
import subprocess
import time
from contextlib import closing

import pytest
from threaded import in_threads
from waiting import (
    assert_same_bits,
    assert_stored,
    finish,
    small,
    step_of,
    unending,
    wait_until,
)

from attnkit.service.server import ServerSettings
from attnkit.service.service import TrainingService

__all__ = ["in_threads"]

GONE = "the database cannot be reached"
YEAR = 365 * 86400


@pytest.fixture
def opened(in_threads, open_store):
    """Open services that are closed after the test: `opened(where)`."""
    with contextlib.ExitStack() as services:

        def open_one(where):
            service = TrainingService(ServerSettings(), open_store(where))
            return services.enter_context(closing(service))

        yield open_one


# a database that is gone, a full disk


@pytest.mark.server
def test_results_wait_for_a_database_that_is_gone(opened, postgres, open_store, monkeypatch):
    """Results wait for a lost database, training goes on, and they are stored on its return."""
    where = postgres.database()
    service = opened(where)
    store = service._control.writer._store
    read_keys, read_snapshot = [], store.snapshot
    monkeypatch.setattr(store, "snapshot", lambda key: read_keys.append(key) or read_snapshot(key))
    other = service.submit(unending())
    assert_stored(service, finish(service, small(5)))
    postgres.stop()
    try:
        jobs = finish(service, *(small(5, first_seed) for first_seed in range(1, 5)))
        states = {(job.state, job.stored, job.unstored) for job in jobs}
        assert states == {("finished", False, GONE)}
        assert [service.find(small(5, 9)) for _ in range(5)] == [None] * 5
        assert len(read_keys) == 1  # only the first has waited for the database
        reached = step_of(service.look(other))
        wait_until(service, other, lambda job: step_of(job) > reached)
    finally:
        postgres.start()
    assert_stored(service, jobs)
    for job in jobs:
        assert_same_bits(open_store(where).snapshot(job.experiment.hash), job.snapshot)


@contextlib.contextmanager
def small_disk(folder):
    """A file system of one megabyte."""
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "attnkit", str(folder)]
    subprocess.run(command, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_results_wait_for_room_on_a_full_disk(tmp_path, opened, open_store):
    """Results are shown as not stored on a full disk, and are stored when there is room."""
    with small_disk(tmp_path):
        service = opened(tmp_path)
        assert_stored(service, finish(service, small(5)))
        ballast = tmp_path / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass
        jobs = finish(service, small(5, 1), small(5, 2))
        states = {(job.state, job.stored, job.unstored) for job in jobs}
        assert states == {("finished", False, "the disk is full")}
        ballast.unlink()
        assert_stored(service, jobs)
        for job in jobs:
            assert_same_bits(open_store(tmp_path).snapshot(job.experiment.hash), job.snapshot)


# a clock that jumps


def test_a_jump_of_the_clock_neither_ends_nor_prolongs_a_lease(tmp_path, opened, monkeypatch):
    """Jumps of the wall clock leave leases alone: only jobs without viewers end."""
    service, real = opened(tmp_path), time.time_ns
    watched, abandoned = service.submit(unending(1)), service.submit(unending(2))
    for job_id in (watched, abandoned):
        wait_until(service, job_id, lambda job: step_of(job) > 0)
    for jump in (2 * YEAR, -2 * YEAR):
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: real() + jump * 10**9)
        monkeypatch.setattr(time, "time", lambda jump=jump: real() / 1e9 + jump)
        (job,) = finish(service, small(5, jump > 0))  # asking looks for what nobody watches
        assert_stored(service, [job])
        assert service.find(unending(2)).state == "running"
    monkeypatch.setattr(service._queue, "settings", ServerSettings(lease_seconds=1))
    wait_until(service, watched, lambda _: service.find(unending(2)) is None)
    assert service.look(watched).state == "running"
    assert service.look(abandoned).error == "because nobody watched it"
