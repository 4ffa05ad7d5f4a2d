"""What may happen to a running copy: kills, a full disk, a database that is gone, foreign files.

Whatever it is, what was reported as stored is there and whole, one experiment's failure is its
own, and all goes on by itself as soon as it can.
"""

import ast
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest
from idle import IdleProcess
from serving import serving
from sqlalchemy import event, text
from sqlalchemy.pool import Pool
from test_live import (
    PATIENCE,
    assert_same_bits,
    small,
    step_of,
    unending,
    wait_for_end,
    wait_until,
    wait_until_still,
)
from test_results import same_arrays
from test_store import connected

import attnkit as ak
from attnkit.engines import FILE
from attnkit.experiment import Experiment
from attnkit.links import link_params
from attnkit.live import service as live
from attnkit.live.service import TrainingService
from attnkit.server import ServerSettings
from attnkit.store import ResultStore
from attnkit.tasks import TASKS
from attnkit.ui.visitor import Visitor, dashboard

pytestmark = pytest.mark.server

GONE = "the database cannot be reached"

YEAR = 365 * 86400


@pytest.fixture
def serve():
    """Start services on stores, `serve(store, max_active=3)`, that are closed after the test."""
    with contextlib.ExitStack() as opened:

        def serve_one(store=None, **settings):
            own = ServerSettings(**settings)
            return opened.enter_context(closing(TrainingService(own, store)))

        yield serve_one


@contextmanager
def reading(folder):
    """A service on a store that trains nothing: what it finds was stored before."""
    with pytest.MonkeyPatch.context() as patch, closing(ResultStore(folder)) as store:
        patch.setattr(live, "TrainingProcess", IdleProcess)
        with closing(TrainingService(store=store)) as service:
            yield service, store


def finish(service, *experiments):
    """Train, all at once, and return the jobs when they are over."""
    ids = [service.submit(experiment) for experiment in experiments]
    return [wait_until(service, job_id, lambda job: job.over) for job_id in ids]


def assert_stored(service, jobs):
    """Sooner or later the store has the results of all jobs, and nothing is left to say."""
    for job in jobs:
        stored = wait_until(service, job.id, lambda job: job.stored)
        assert (stored.state, stored.unstored) == ("finished", "")


# Kills


def assert_found(folder, hashes):
    """A new service has the results of all hashes, whole."""
    with reading(folder) as (service, store):
        for key in hashes:
            result = store.result(key)
            assert result is not None, key
            found = service.find(result.experiment)
            assert (found.state, found.stored) == ("finished", True)
            assert found.snapshot.step == result.experiment.training.steps
            same_arrays(found.snapshot, result.snapshot)
        assert store.notes == []


def test_what_a_killed_server_reported_is_there(tmp_path, long):
    """Killed at random moments of its writing: 4 times, with --long 50 times."""
    moment, told = random.Random(6), set()
    for kill in range(50 if long else 4):
        with serving(tmp_path, 10_000 * kill) as (server, training_process):
            own = {server.stdout.readline().strip()}
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(moment.uniform(0, 1))
            server.kill()
            own.update(server.stdout.read().split("\n")[:-1])  # the last line may be cut off
            assert server.wait() == -signal.SIGKILL
        assert wait_for_end(training_process)
        assert_found(tmp_path, own)
        told |= own
    assert_found(tmp_path, told)
    with connected(tmp_path) as connection:
        assert connection.scalar(text("PRAGMA integrity_check")) == "ok"
    sys.stdout.write(f"{len(told)} results were reported before {kill + 1} kills\n")


@pytest.fixture
def lethal(monkeypatch):
    """Makes experiments on a task that may end its process: `lethal(lives=20)`."""
    here = Path(__file__).parent
    monkeypatch.setenv("ATTNKIT_MODULES", "lethal")
    monkeypatch.setenv("PYTHONPATH", str(here))
    import_module("lethal")

    def of(steps=200, **dials):
        training = {"sharing": "QKV", "n_seeds": 1, "batch_size": 16, "n_eval": 16}
        return Experiment(task="lethal", steps=steps, **training, **dials)

    yield of
    del TASKS["lethal"], sys.modules["lethal"]


def test_a_job_that_always_kills_its_process_fails_alone(serve, lethal, monkeypatch):
    """Those beside it begin anew, are not blamed, and end with the bits that they should have."""
    monkeypatch.setattr(live, "MAX_RESTARTS", 1)
    service = serve()
    experiments = [small(1000), lethal(lives=20), small(1000, first_seed=1)]
    ids = [service.submit(experiment, paused=True) for experiment in experiments]
    for job_id in ids:
        wait_until_still(service, job_id, "paused")
    for job_id in ids:
        service.resume(job_id)
    ended = [wait_until(service, job_id, lambda job: job.over) for job_id in ids]
    assert [job.state for job in ended] == ["finished", "failed", "finished"]
    assert [job.blamed for job in ended] == [0, 1, 0]
    assert service.n_restarts == ended[0].restarts == ended[2].restarts == 2
    assert ended[1].error == "the training process died"
    assert_same_bits(ended[0].snapshot, ak.train(small(1000), "cpu").snapshot)


def test_an_example_that_kills_the_process_is_asked_for_once(serve, lethal):
    """A page asks again and again: it gets an answer, and what trains is neither blamed nor hurt
    again.
    """
    service = serve()
    job_id = service.submit(unending())
    wait_until(service, job_id, lambda job: step_of(job) > 0)
    answers = {service.example(lethal(lives=1), PATIENCE) for _ in range(5)}
    assert answers == {"The training process died of it"}
    job = wait_until(service, job_id, lambda job: job.state == "running" and step_of(job) > 0)
    assert (job.restarts, job.blamed, service.n_restarts) == (1, 0, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_job_that_takes_too_much_memory_fails_alone(serve, lethal):
    """In a plain sentence; nobody else begins anew."""
    service = serve(training_megabytes=200)
    other, hungry, another = finish(service, small(300), lethal(appetite=1000), small(300, 1))
    assert hungry.state == "failed"
    assert hungry.error == "not enough memory: take smaller sizes, or fewer seeds"
    assert other.state == another.state == "finished"
    assert service.n_restarts == 0


# A database that is gone


def test_results_wait_for_a_database_that_is_gone(postgres, open_store, serve, monkeypatch, long):
    """They are shown as finished and not stored; training and looking go on, and so it mends."""
    where = postgres.database()
    store = open_store(where)
    service, asked, ask = serve(store), [], store.snapshot
    monkeypatch.setattr(store, "snapshot", lambda key: asked.append(key) or ask(key))
    other = service.submit(unending())
    assert_stored(service, finish(service, small(5)))
    postgres.stop()
    try:
        back = time.monotonic() + (10 if long else 0)
        jobs = finish(service, *(small(5, first_seed) for first_seed in range(1, 4)))
        jobs += finish(service, small(5, 4))
        told = {(job.state, job.stored, job.unstored) for job in jobs}
        assert told == {("finished", False, GONE)}
        assert [service.find(small(5, 9)) for _ in range(5)] == [None] * 5
        assert len(asked) == 1  # only the first has waited for the database
        wait_until(service, other, lambda job: time.monotonic() > back)
        reached = step_of(service.look(other))
        wait_until(service, other, lambda job: step_of(job) > reached)
    finally:
        postgres.start()
    assert_stored(service, jobs)
    for job in jobs:
        assert_same_bits(open_store(where).snapshot(job.experiment.hash), job.snapshot)


def test_two_replicas_that_finish_the_same_at_once_store_it_once(postgres, open_store, serve):
    """Both say that it is stored, and a third finds it."""
    where, meeting, new = postgres.database(), threading.Barrier(2, timeout=PATIENCE), []

    def meet(store, put):
        def put_together(*blobs):
            meeting.wait()
            new.append(put(*blobs))

        store.put = put_together
        return store

    services = [serve(meet(store, store.put)) for store in (open_store(where), open_store(where))]
    for first_seed in range(3):
        ids = [service.submit(small(5, first_seed)) for service in services]
        for service, job_id in zip(services, ids, strict=True):
            job = wait_until(service, job_id, lambda job: job.over)
            assert_stored(service, [job])
    assert sorted(new) == [False] * 3 + [True] * 3
    with reading(where) as (third, store):
        assert len(store.entries()) == 3
        for first_seed in range(3):
            found = third.find(small(5, first_seed))
            assert found.stored
            assert_same_bits(found.snapshot, ak.train(small(5, first_seed), "cpu").snapshot)


# A full disk


class PageLimit:
    """SQLite finds no page left."""

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
        """From now on the file may not grow."""
        self._most = 1

    def clear(self):
        """It may again."""
        self._most = 10**6


class SmallDisk:
    """A real file system of one megabyte."""

    def __init__(self, folder):
        self.folder, self._ballast = folder, folder / "ballast"

    def __enter__(self):
        self._run("mount", "-t", "tmpfs", "-o", "size=1m", "attnkit", str(self.folder))
        return self

    def __exit__(self, *_):
        self._run("umount", str(self.folder))

    def _run(self, *command):
        subprocess.run(command, check=True)

    def fill(self):
        """Write until nothing fits any more."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass

    def clear(self):
        """Remove what has filled it."""
        self._ballast.unlink()


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture(params=[PageLimit, pytest.param(SmallDisk, marks=ROOT_ONLY)])
def disk(request, tmp_path):
    """A disk that a test can fill, and clear."""
    with request.param(tmp_path) as made:
        yield made


def test_results_wait_for_room_on_a_full_disk(disk, open_store, serve):
    """They are shown as finished and not stored, and are stored as soon as there is room."""
    service = serve(open_store(disk.folder))
    assert_stored(service, finish(service, small(5)))
    disk.fill()
    jobs = finish(service, small(5, 1), small(5, 2))
    told = {(job.state, job.stored, job.unstored) for job in jobs}
    assert told == {("finished", False, "the disk is full")}
    disk.clear()
    assert_stored(service, jobs)
    for job in jobs:
        assert_same_bits(open_store(disk.folder).snapshot(job.experiment.hash), job.snapshot)


# A clock that jumps


@pytest.mark.parametrize("jump", [-2 * YEAR, 2 * YEAR], ids=["back", "forward"])
def test_a_jump_of_the_clock_neither_ends_nor_prolongs_a_lease(
    tmp_path, open_store, serve, monkeypatch, jump
):
    """What is watched goes on, what is not ends; what finishes is stored."""
    real = time.time_ns
    service = serve(open_store(tmp_path))
    watched, abandoned = service.submit(unending(1)), service.submit(unending(2))
    for job_id in (watched, abandoned):
        wait_until(service, job_id, lambda job: step_of(job) > 0)
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump * 10**9)
    monkeypatch.setattr(time, "time", lambda: real() / 1e9 + jump)
    assert_stored(service, finish(service, small(5)))  # to submit looks for what nobody watches
    assert service.find(unending(2)).state == "running"
    monkeypatch.setattr(service, "settings", ServerSettings(lease_seconds=1))
    wait_until(service, watched, lambda _: service.find(unending(2)) is None)
    assert service.look(watched).state == "running"
    assert service.look(abandoned).error == "because nobody watched it"


def test_live_training_never_reads_the_clock_on_the_wall():
    """Neither the server's side nor the training process: only clocks that cannot jump."""
    folder = Path(live.__file__).parent
    files = [*folder.glob("*.py"), folder.parent / "training.py"]
    named = {
        ast.unparse(node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute | ast.alias)
    }
    assert {"time.monotonic", "time.perf_counter"} <= named
    assert not {name for name in named if "datetime" in name}
    clocks = {name for name in named if name.startswith("time.")}
    assert clocks == {"time.monotonic", "time.perf_counter"}


# Pages


LITTER = {
    FILE: b"Dear diary, today I trained a transformer. " * 99,
    f"{FILE}-wal": bytes(range(256)) * 99,
    f"{FILE}.broken-1": b"SQLite format 3\0" + b"\xff" * 999,
    "notes/today.txt": b"mine",
    "v1.json": b"{",
    "weights.safetensors": b"\xff" * 99,
}
"""Corrupt and foreign files of a data folder."""


@pytest.fixture(scope="module")
def littered(tmp_path_factory):
    """A folder full of what is not ours, and a dashboard that keeps its results there."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "notes").mkdir()
    for name, content in LITTER.items():
        (folder / name).write_bytes(content)
    (folder / "nowhere").symlink_to(folder / "nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNKIT_STORE", str(folder))
        with dashboard() as port:
            yield folder, port


def visit(port, experiment):
    """A tab that shows an experiment."""
    return Visitor(port, urlencode(link_params(experiment)), patience=PATIENCE)


def says(visitor, *parts):
    """Whether one line of the page holds all parts."""
    return any(all(part in line for part in parts) for line in visitor.texts())


def test_a_folder_full_of_foreign_files_is_used(littered):
    """The page opens, trains and stores; nothing that is not ours is lost."""
    folder, port = littered
    with visit(port, small(20)) as visitor:
        visitor.press("train")
        visitor.wait_for("the end", lambda: says(visitor, "Finished: "))
        visitor.wait_for("the last tick", lambda: not visitor.ticking)
        assert not says(visitor, "Not stored")
        assert visitor.exceptions == []
    with closing(ResultStore(folder)) as store:
        assert_same_bits(store.snapshot(small(20).hash), ak.train(small(20), "cpu").snapshot)
    kept = {**LITTER, f"{FILE}.broken-2": LITTER[FILE]}
    for name in set(kept) - {FILE, f"{FILE}-wal"}:  # these are the store's own names
        assert (folder / name).read_bytes() == kept[name]


def test_a_visitor_whose_training_process_is_killed_sees_it_begin_anew(littered):
    """The page says so, and the result is the one that it would have been."""
    folder, port = littered
    experiment = small(1500, first_seed=5)
    (server,) = [own for own in psutil.Process().children() if "dashboard.py" in own.cmdline()]
    with visit(port, experiment) as visitor:
        visitor.press("train")
        visitor.wait_for("a curve", lambda: visitor.ticking and visitor.evaluated_to() > 0)
        (training_process,) = server.children()
        training_process.kill()
        anew = "The training process died and began anew."
        visitor.wait_for("a new beginning", lambda: says(visitor, anew))
        visitor.wait_for("the end", lambda: says(visitor, "Finished: ", anew))
        assert visitor.exceptions == []
    with closing(ResultStore(folder)) as store:
        stored, expected = store.result(experiment.hash), ak.train(experiment, "cpu")
    assert_same_bits(stored.snapshot, expected.snapshot)
    assert stored.to_blobs()[1] == expected.to_blobs()[1]


# What is left


def test_nothing_is_left_of_closed_services(tmp_path, monkeypatch, serve):
    """No thread, process, open file or temporary file, whatever they were doing."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    own, left = psutil.Process(), []
    for first_seed in range(5):
        with (
            closing(ResultStore(tmp_path / "data")) as store,
            closing(TrainingService(store=store)) as service,
        ):
            assert_stored(service, finish(service, small(5, first_seed)))
            job_id = service.submit(unending())
            wait_until(service, job_id, lambda job: step_of(job) > 0)
        threads = {thread.name for thread in threading.enumerate()}
        left.append((own.num_fds(), threads, own.children(recursive=True)))
    assert left == left[:1] * 5
    assert not any(name.startswith("attnkit") for name in left[0][1])
    assert list((tmp_path / "temporary").iterdir()) == []
