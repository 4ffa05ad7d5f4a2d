"""Faults around one training service: a dying process, little memory, no database, a full disk.

Results that were reported as stored stay whole, the failure of one experiment is its own, and
the service goes on by itself as soon as it can.
"""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool
from waiting import (
    PATIENCE,
    assert_same_bits,
    assert_stored,
    finish,
    small,
    step_of,
    unending,
    wait_until,
    wait_until_still,
)

import attnkit as ak
from attnkit.experiment import Experiment
from attnkit.service import job_control
from attnkit.service import service as live
from attnkit.service.server import ServerSettings
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore
from attnkit.tasks import TASKS

pytestmark = pytest.mark.server

GONE = "the database cannot be reached"

YEAR = 365 * 86400


@pytest.fixture(scope="module", autouse=True)
def dangerous_tasks():
    """Register the task `lethal` in this process and in all that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNKIT_MODULES", "lethal")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        import_module("lethal")
        yield
    del TASKS["lethal"], sys.modules["lethal"]


def lethal(**dials):
    """Return an experiment that may end its process or take its memory."""
    training = {"sharing": "QKV", "n_seeds": 1, "batch_size": 16, "n_eval": 16, "steps": 200}
    return Experiment(task="lethal", **training, **dials)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A service with little memory, for all tests of this module."""
    settings = ServerSettings(training_megabytes=200)
    store = ResultStore(tmp_path_factory.mktemp("store"))
    with closing(store), closing(TrainingService(settings, store)) as opened:
        yield opened


@pytest.fixture
def service(shared):
    """The service, whose jobs are stopped after the test."""
    yield shared
    for row in shared.overview():
        shared.stop(row["id"])


@pytest.fixture
def keep_in(service, open_store, monkeypatch):
    """Return a function that moves the results of the service elsewhere for one test."""

    def keep(where):
        store = open_store(where)
        monkeypatch.setattr(service._control.writer, "_store", store)
        return store

    return keep


# a process that dies


def test_a_job_that_always_kills_its_process_fails_alone(service, monkeypatch):
    """Jobs beside it begin anew and keep their bits.

    It takes more than 5 s, because two processes start one after the other.
    """
    monkeypatch.setattr(job_control, "MAX_RESTARTS", 1)
    before = service.n_restarts
    experiments = [small(300), lethal(lives=6), small(300, first_seed=1)]
    ids = [service.submit(experiment, paused=True) for experiment in experiments]
    for job_id in ids:
        wait_until_still(service, job_id, "paused")
    for job_id in ids:
        service.resume(job_id)
    ended = [wait_until(service, job_id, lambda job: job.over) for job_id in ids]
    assert [job.state for job in ended] == ["finished", "failed", "finished"]
    assert [job.blamed for job in ended] == [0, 1, 0]
    assert service.n_restarts - before == ended[0].restarts == ended[2].restarts == 2
    assert ended[1].error == "the training process died"
    assert_same_bits(ended[0].snapshot, ak.train(small(300), "cpu").snapshot)


def test_an_example_that_kills_the_process_is_asked_for_once(service):
    """An example that kills the process is drawn once, and running jobs are not blamed."""
    before = service.n_restarts
    job_id = service.submit(unending())
    wait_until(service, job_id, lambda job: step_of(job) > 0)
    answers = {service.example(lethal(lives=1), PATIENCE) for _ in range(5)}
    assert answers == {"The training process died while it answered this request"}
    job = wait_until(service, job_id, lambda job: job.state == "running" and step_of(job) > 0)
    assert (job.restarts, job.blamed, service.n_restarts - before) == (1, 0, 1)


@pytest.mark.long
def test_a_process_that_cannot_be_started_again_is_tried_again(service, monkeypatch):
    """Its job finishes."""
    start, refusals = live.TrainingProcess, [OSError()]

    def refuse_first(megabytes):
        if refusals:
            raise refusals.pop()
        return start(megabytes)

    job_id = service.submit(small(500))
    wait_until(service, job_id, lambda job: job.snapshot is not None)
    monkeypatch.setattr(live, "TrainingProcess", refuse_first)
    os.kill(service.process_id, signal.SIGKILL)
    ended = wait_until(service, job_id, lambda job: job.over)
    assert (refusals, ended.state) == ([], "finished")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_job_that_takes_too_much_memory_fails_alone(service):
    """A job that takes too much memory fails with a plain sentence, and no other begins anew."""
    before = service.n_restarts
    other, hungry, another = finish(service, small(300), lethal(appetite=1000), small(300, 1))
    assert hungry.state == "failed"
    assert hungry.error == "not enough memory: take smaller sizes, or fewer seeds"
    assert other.state == another.state == "finished"
    assert service.n_restarts == before


# a database that is gone, a full disk


def test_results_wait_for_a_database_that_is_gone(
    service, keep_in, postgres, open_store, monkeypatch, long
):
    """Results wait for a lost database, training goes on, and they are stored on its return."""
    where = postgres.database()
    store = keep_in(where)
    read_keys, read_snapshot = [], store.snapshot
    monkeypatch.setattr(store, "snapshot", lambda key: read_keys.append(key) or read_snapshot(key))
    other = service.submit(unending())
    assert_stored(service, finish(service, small(5)))
    postgres.stop()
    try:
        back = time.monotonic() + (10 if long else 0)
        jobs = finish(service, *(small(5, first_seed) for first_seed in range(1, 4)))
        jobs += finish(service, small(5, 4))
        states = {(job.state, job.stored, job.unstored) for job in jobs}
        assert states == {("finished", False, GONE)}
        assert [service.find(small(5, 9)) for _ in range(5)] == [None] * 5
        assert len(read_keys) == 1  # only the first has waited for the database
        wait_until(service, other, lambda job: time.monotonic() > back)
        reached = step_of(service.look(other))
        wait_until(service, other, lambda job: step_of(job) > reached)
    finally:
        postgres.start()
    assert_stored(service, jobs)
    for job in jobs:
        assert_same_bits(open_store(where).snapshot(job.experiment.hash), job.snapshot)


class PageLimit:
    """A database file that may not grow while it is filled."""

    def __init__(self, folder):
        self.folder, self._most = folder, 10**6

    def __enter__(self):
        event.listen(Pool, "checkout", self._limit)
        return self

    def __exit__(self, *_):
        event.remove(Pool, "checkout", self._limit)

    def _limit(self, connection, *_):
        connection.execute(f"PRAGMA max_page_count = {self._most}")

    def fill(self):
        """Forbid the file to grow."""
        self._most = 1

    def clear(self):
        """Allow the file to grow again."""
        self._most = 10**6


class SmallDisk:
    """A file system of one megabyte."""

    def __init__(self, folder):
        self.folder, self._ballast = folder, folder / "ballast"

    def __enter__(self):
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "attnkit", str(self.folder)]
        subprocess.run(command, check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def fill(self):
        """Write until nothing fits any more."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass

    def clear(self):
        """Remove the ballast."""
        self._ballast.unlink()


@pytest.fixture(params=[pytest.param(PageLimit, marks=pytest.mark.long), SmallDisk])
def disk(request, tmp_path):
    """A disk that a test can fill and clear; only root can mount a small one."""
    if request.param is SmallDisk and os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    with request.param(tmp_path) as made:
        yield made


def test_results_wait_for_room_on_a_full_disk(disk, service, keep_in, open_store):
    """Results are shown as not stored on a full disk, and are stored when there is room."""
    keep_in(disk.folder)
    assert_stored(service, finish(service, small(5)))
    disk.fill()
    jobs = finish(service, small(5, 1), small(5, 2))
    states = {(job.state, job.stored, job.unstored) for job in jobs}
    assert states == {("finished", False, "the disk is full")}
    disk.clear()
    assert_stored(service, jobs)
    for job in jobs:
        assert_same_bits(open_store(disk.folder).snapshot(job.experiment.hash), job.snapshot)


# a clock that jumps


def test_a_jump_of_the_clock_neither_ends_nor_prolongs_a_lease(service, monkeypatch):
    """Jumps of the wall clock leave leases alone: only jobs without viewers end."""
    real = time.time_ns
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


def test_live_training_never_reads_the_clock_on_the_wall():
    """Service and training process read monotonic clocks only, apart from dates of events."""
    folder = Path(live.__file__).parent
    keeping_time = {"gate.py", "logs.py", "store.py"}  # events and results have a date
    files = [path for path in folder.glob("*.py") if path.name not in keeping_time]
    files.append(folder.parent / "training" / "training.py")
    named = {
        ast.unparse(node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute | ast.alias)
    }
    assert {"time.monotonic", "time.perf_counter"} <= named
    assert not {name for name in named if "datetime" in name}
    clocks = {name for name in named if name.startswith("time.")} - {"time.sleep"}
    assert clocks == {"time.monotonic", "time.perf_counter"}
