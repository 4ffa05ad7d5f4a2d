"""Faults of whole servers and training processes: kills, memory, leftovers after closing."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from importlib import import_module
from pathlib import Path

import psutil
import pytest
from children import child
from sqlalchemy import text
from storing import connected
from waiting import (
    PATIENCE,
    assert_same_bits,
    assert_stored,
    finish,
    small,
    unending,
    wait_until,
)

import attnkit as ak
from attnkit.experiment import Experiment
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore
from attnkit.tasks import TASKS

pytestmark = pytest.mark.server

HERE = Path(__file__).parent

SERVER = """
import sys
from collections import deque
from itertools import count
from waiting import small
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore

service, waiting = TrainingService(store=ResultStore(sys.argv[1])), deque()
print(service.supervisor.process.id, flush=True)
for seed in count(int(sys.argv[2])):
    waiting.append(service.submit(small(1, seed)))
    if len(waiting) == 4:
        job = service.job(waiting.popleft())
        while not (job.state == "finished" and job.stored):
            job = service.wait(job.id, job.version, 60)
        print(job.experiment.hash, flush=True)
"""
"""A server without pages that trains tiny experiments for ever, four at once. It writes the number
of its training process, then every experiment's hash when it is reported as stored."""


@pytest.mark.parametrize("kills", [1, pytest.param(12, marks=pytest.mark.long(seconds=60))])
def test_what_a_killed_server_reported_is_there(tmp_path, seed, kills):
    """Results that a server reported are whole after kills at moments drawn from the seed.

    The next server begins with what is stored, and no training process outlives its server.
    """
    moment, reported = random.Random(seed), set()
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    piped = {"stdout": subprocess.PIPE, "text": True, "cwd": HERE}
    for kill in range(kills):
        with child(*command, f"{10_000 * kill}", **piped) as server:
            training_process = int(server.stdout.readline())
            n_read = moment.randrange(1, 6 if kills == 1 else 16)
            reported |= {server.stdout.readline().strip() for _ in range(n_read)}
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(moment.choice([0, moment.uniform(0, 0.2)]))
            server.kill()
            reported |= set(server.stdout.read().split("\n")[:-1])  # the last may be cut off
            assert server.wait() == -signal.SIGKILL
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(training_process).wait(PATIENCE)
        with closing(ResultStore(tmp_path)) as store:
            for key in reported:
                result = store.result(key)
                assert result is not None, f"seed {seed}, kill {kill}: {key}"
                assert result.snapshot.step == result.experiment.training.steps
            assert store.notes == []
    with connected(tmp_path) as connection:
        assert connection.scalar(text("PRAGMA integrity_check")) == "ok"


def open_resources():
    """Return threads, child processes and the number of open files; the browser has its own."""
    process, ours = psutil.Process(), set()
    for one in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            ours |= {one} if not one.name().startswith(("chrom", "node")) else set()
    return set(threading.enumerate()), ours, process.num_fds()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_what_takes_too_much_memory_or_ends_the_process_fails_alone(tmp_path, monkeypatch, seed):
    """A run that trains beside a failing one goes on, or begins anew, and keeps its bits.

    A closed service leaves neither thread, process, open file nor temporary file.
    """
    monkeypatch.setenv("ATTNKIT_MODULES", "lethal")
    monkeypatch.setenv("ATTNKIT_TRAINING_MEGABYTES", "200")  # the training process reads it
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    import_module("lethal")  # forgotten after the test
    for known in (TASKS, sys.modules):
        monkeypatch.setitem(known, "lethal", known.pop("lethal"))
    common = {"task": "lethal", "sharing": "QKV", "n_seeds": 1, "batch_size": 16, "n_eval": 16}
    hungry, deadly = Experiment(**common, appetite=1000), Experiment(**common, deadly=1)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    beside, moment = small(1500, first_seed=5), random.Random(seed).randrange(1, 400)
    expected = ak.train(beside, "cpu")  # whose threads stay
    before = open_resources()
    with (
        closing(ResultStore(tmp_path / "data")) as store,
        closing(TrainingService(store=store)) as service,
    ):
        jobs = finish(service, hungry, small(30), hungry.replace(first_seed=1))
        assert [job.state for job in jobs] == ["failed", "finished", "failed"]
        assert "more memory" in jobs[0].error
        assert service.supervisor.n_restarts == 0
        job_id = service.submit(beside)
        wait_until(service, job_id, lambda job: job.step >= moment)
        assert "died" in service.example(deadly, PATIENCE)
        job = wait_until(service, job_id, lambda job: job.over)
        assert (job.restarts, job.blamed, service.supervisor.n_restarts) == (1, 0, 1)
        assert_stored(service, [job])
        stored = store.result(beside.hash)
        assert_same_bits(stored.snapshot, expected.snapshot)
        assert stored.to_blobs()[1] == expected.to_blobs()[1]
        wait_until(service, service.submit(unending()), lambda job: job.step > 0)
    assert open_resources() == before
    assert list((tmp_path / "temporary").iterdir()) == []
