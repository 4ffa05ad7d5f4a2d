"""Faults of whole servers: kills, foreign files, leftovers after closing."""

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
from attnkit.service.database_engines import FILE
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore

pytestmark = pytest.mark.server


def assert_whole(folder, hashes):
    """Check that a store holds the whole results of all hashes."""
    with closing(ResultStore(folder)) as store:
        for key in hashes:
            result = store.result(key)
            assert result is not None, key
            assert result.snapshot.step == result.experiment.training.steps
        assert store.notes == []


def test_what_a_killed_server_reported_is_there(tmp_path, long, seed):
    """Results that a server reported are whole after kills at moments drawn from the seed.

    The server and its training process start anew for each kill: one by day, fifty at night.
    """
    moment, reported = random.Random(seed), set()
    for kill in range(50 if long else 1):
        with serving(tmp_path, 10_000 * kill) as (server, training_process):
            n_read = moment.randrange(1, 16 if long else 6)
            reported_now = {server.stdout.readline().strip() for _ in range(n_read)}
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(moment.choice([0, moment.uniform(0, 0.2)]))
            server.kill()
            whole_lines = server.stdout.read().split("\n")[:-1]  # the last one may be cut off
            reported_now.update(whole_lines)
            assert server.wait() == -signal.SIGKILL
        assert wait_for_end(training_process)  # it does not outlive its server
        assert_whole(tmp_path, reported_now)
        reported |= reported_now
    assert_whole(tmp_path, reported)
    with connected(tmp_path) as connection:
        assert connection.scalar(text("PRAGMA integrity_check")) == "ok"


LITTER = {
    FILE: b"Dear diary, today I trained a transformer. " * 99,
    f"{FILE}-wal": bytes(range(256)) * 99,
    f"{FILE}.broken-1": b"SQLite format 3\0" + b"\xff" * 999,
    "notes/today.txt": b"mine",
    "weights.safetensors": b"\xff" * 99,
}
"""Corrupt and foreign files of a data folder."""


@pytest.fixture(scope="module")
def littered(tmp_path_factory):
    """A folder of foreign files, and the port of a dashboard that keeps its results there."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "notes").mkdir()
    for name, content in LITTER.items():
        (folder / name).write_bytes(content)
    (folder / "nowhere").symlink_to(folder / "nothing")
    with dashboard(environment={"ATTNKIT_STORE": str(folder)}) as port:
        yield folder, port


def has_line(visitor, *parts):
    """Return whether one line of the page holds all parts."""
    return any(all(part in line for part in parts) for line in visitor.texts())


def test_a_visitor_whose_training_process_is_killed_sees_it_begin_anew(littered, seed):
    """And gets the same result, in a folder full of foreign files, none of which is lost.

    A server starts, and two training processes; the kill comes at a step drawn from the seed.
    """
    folder, port = littered
    experiment, moment = small(1500, first_seed=5), random.Random(seed).randrange(1, 400)
    (server,) = [child for child in psutil.Process().children() if str(port) in child.cmdline()]
    with Visitor(port, urlencode(link_params(experiment)), patience=PATIENCE) as visitor:
        visitor.press("train")
        visitor.wait_for("a curve", lambda: visitor.ticking and visitor.evaluated_to() >= moment)
        (training_process,) = server.children()
        training_process.kill()
        anew = "The training process died and began anew."
        visitor.wait_for("a new beginning", lambda: has_line(visitor, anew))
        visitor.wait_for("the end", lambda: has_line(visitor, "Finished: ", anew))
        visitor.wait_for("the last tick", lambda: not visitor.ticking)
        assert not has_line(visitor, "Not stored")
        assert visitor.exceptions == []
    with closing(ResultStore(folder)) as store:
        stored, expected = store.result(experiment.hash), ak.train(experiment, "cpu")
    assert_same_bits(stored.snapshot, expected.snapshot)
    assert stored.to_blobs()[1] == expected.to_blobs()[1]
    kept = {**LITTER, f"{FILE}.broken-2": LITTER[FILE]}
    for name in set(kept) - {FILE, f"{FILE}-wal"}:  # these are the store's own names
        assert (folder / name).read_bytes() == kept[name]


def open_resources():
    """Return threads, child processes and the number of open files; the browser has its own."""
    process = psutil.Process()
    ours = {child for child in process.children(recursive=True) if not _is_of_browser(child)}
    return set(threading.enumerate()), ours, process.num_fds()


def _is_of_browser(process):
    try:
        return process.name().startswith(("chrom", "node"))
    except psutil.NoSuchProcess:
        return True


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
