"""Faults of whole servers: kills, and leftovers after closing."""

import contextlib
import random
import signal
import subprocess
import tempfile
import threading
from contextlib import closing
from urllib.parse import urlencode

import psutil
import pytest
from serving import serving
from sqlalchemy import text
from storing import connected
from waiting import (
    PATIENCE,
    assert_same_bits,
    assert_stored,
    finish,
    small,
    step_of,
    unending,
    wait_for_end,
    wait_until,
)

import attnkit as ak
from attnkit.bench.visitor import Visitor, dashboard
from attnkit.experiment.links import link_params
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore

pytestmark = pytest.mark.server


def test_what_a_killed_server_reported_is_there(tmp_path, long, seed):
    """Results that a server reported are whole after kills at moments drawn from the seed.

    The server and its training process start anew for each kill: one by day, fifty at night.
    """
    moment, reported = random.Random(seed), set()
    for kill in range(50 if long else 1):
        with serving(tmp_path, 10_000 * kill) as (server, training_process):
            n_read = moment.randrange(1, 16 if long else 6)
            reported |= {server.stdout.readline().strip() for _ in range(n_read)}
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(moment.choice([0, moment.uniform(0, 0.2)]))
            server.kill()
            reported |= set(server.stdout.read().split("\n")[:-1])  # the last may be cut off
            assert server.wait() == -signal.SIGKILL
        assert wait_for_end(training_process)  # it does not outlive its server
        with closing(ResultStore(tmp_path)) as store:
            for key in reported:
                result = store.result(key)
                assert result is not None, f"seed {seed}, kill {kill}: {key}"
                assert result.snapshot.step == result.experiment.training.steps
            assert store.notes == []
    with connected(tmp_path) as connection:
        assert connection.scalar(text("PRAGMA integrity_check")) == "ok"


def test_a_visitor_whose_training_process_is_killed_sees_it_begin_anew(tmp_path, seed):
    """And gets the same result, whose bits are stored.

    A server starts, and two training processes; the kill comes at a step drawn from the seed.
    """
    experiment, moment = small(1500, first_seed=5), random.Random(seed).randrange(1, 400)
    link, anew = urlencode(link_params(experiment)), "The training process died and began anew."

    def tells(*parts):
        return any(all(part in line for part in parts) for line in visitor.texts())

    with (
        dashboard(environment={"ATTNKIT_STORE": str(tmp_path)}) as port,
        Visitor(port, link, patience=PATIENCE) as visitor,
    ):
        (server,) = [child for child in psutil.Process().children() if str(port) in child.cmdline()]
        visitor.press("train")
        visitor.wait_for("a curve", lambda: visitor.ticking and visitor.evaluated_to() >= moment)
        (training_process,) = server.children()
        training_process.kill()
        visitor.wait_for("a new beginning", lambda: tells(anew))
        visitor.wait_for("the end", lambda: tells("Finished: ", anew))
        visitor.wait_for("the last tick", lambda: not visitor.ticking)
        assert not tells("Not stored")
        assert visitor.exceptions == []
    with closing(ResultStore(tmp_path)) as store:
        stored, expected = store.result(experiment.hash), ak.train(experiment, "cpu")
    assert_same_bits(stored.snapshot, expected.snapshot)
    assert stored.to_blobs()[1] == expected.to_blobs()[1]


def open_resources():
    """Return threads, child processes and the number of open files; the browser has its own."""
    process, ours = psutil.Process(), set()
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if not child.name().startswith(("chrom", "node")):
                ours.add(child)
    return set(threading.enumerate()), ours, process.num_fds()


def test_nothing_is_left_of_a_closed_service(tmp_path, monkeypatch):
    """Neither thread, process, open file nor temporary file, though it trains when it is closed."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = open_resources()
    with (
        closing(ResultStore(tmp_path / "data")) as store,
        closing(TrainingService(store=store)) as service,
    ):
        assert_stored(service, finish(service, small(5)))
        wait_until(service, service.submit(unending()), lambda job: step_of(job) > 0)
    assert open_resources() == before
    assert list((tmp_path / "temporary").iterdir()) == []
