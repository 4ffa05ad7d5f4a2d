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
    work,
)
from test_results import same_arrays
from test_store import connected

import attnkit as ak
from attnkit.bench.visitor import Visitor, dashboard
from attnkit.experiment import Experiment
from attnkit.experiment.links import link_params
from attnkit.service import job_control
from attnkit.service import service as live
from attnkit.service.database_engines import FILE
from attnkit.service.server import ServerSettings
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore
from attnkit.tasks import TASKS
from attnkit.training import Training

pytestmark = pytest.mark.server

GONE = "the database cannot be reached"

YEAR = 365 * 86400


@pytest.fixture(scope="module", autouse=True)
def dangerous_tasks():
    """All that is started here knows the task `lethal`, a module of one's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNKIT_MODULES", "lethal")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        import_module("lethal")
        yield
    del TASKS["lethal"], sys.modules["lethal"]


def lethal(**dials):
    """An experiment that may end its process or take its memory."""
    training = {"sharing": "QKV", "n_seeds": 1, "batch_size": 16, "n_eval": 16, "steps": 200}
    return Experiment(task="lethal", **training, **dials)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A service with little memory."""
    settings = ServerSettings(training_megabytes=200)
    store = ResultStore(tmp_path_factory.mktemp("store"))
    with closing(store), closing(TrainingService(settings, store)) as opened:
        yield opened


@pytest.fixture
def service(shared):
    """The service; all that trains ends with the test."""
    yield shared
    for row in shared.overview():
        shared.stop(row["id"])


@pytest.fixture
def keep_in(service, open_store, monkeypatch):
    """Let the service keep results elsewhere for one test; the store of that place."""

    def keep(where):
        store = open_store(where)
        monkeypatch.setattr(service._control.writer, "_store", store)
        return store

    return keep


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
    """Killed at random moments, some right after a report: 4 times, with --long 50 times."""
    moment, told = random.Random(6), set()
    for kill in range(50 if long else 2):
        with serving(tmp_path, 10_000 * kill) as (server, training_process):
            own = {server.stdout.readline().strip() for _ in range(moment.randrange(1, 16))}
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(moment.choice([0, moment.uniform(0, 0.2)]))
            server.kill()
            own.update(server.stdout.read().split("\n")[:-1])  # the last line may be cut off
            assert server.wait() == -signal.SIGKILL
        assert wait_for_end(training_process)
        assert_found(tmp_path, own)
        told |= own
    assert_found(tmp_path, told)
    with connected(tmp_path) as connection:
        assert connection.scalar(text("PRAGMA integrity_check")) == "ok"
        n_stored = connection.scalar(text("SELECT count(*) FROM results"))
    sys.stdout.write(f"{kill + 1} kills, {len(told)} results reported, {n_stored} stored\n")


def test_a_job_that_always_kills_its_process_fails_alone(service, monkeypatch):
    """Those beside it begin anew, are not blamed, and end with the bits that they should have."""
    monkeypatch.setattr(job_control, "MAX_RESTARTS", 1)
    before = service.n_restarts
    experiments = [small(500), lethal(lives=6), small(500, first_seed=1)]
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
    assert_same_bits(ended[0].snapshot, ak.train(small(500), "cpu").snapshot)


def test_an_example_that_kills_the_process_is_asked_for_once(service):
    """However often a page asks; what trains begins anew once, and is not blamed."""
    before = service.n_restarts
    job_id = service.submit(unending())
    wait_until(service, job_id, lambda job: step_of(job) > 0)
    answers = {service.example(lethal(lives=1), PATIENCE) for _ in range(5)}
    assert answers == {"The training process died of this request"}
    job = wait_until(service, job_id, lambda job: job.state == "running" and step_of(job) > 0)
    assert (job.restarts, job.blamed, service.n_restarts - before) == (1, 0, 1)


def test_a_process_that_cannot_be_started_again_is_tried_again(service, monkeypatch):
    """There may be no memory for it at that moment; what it should train is not lost."""
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
    assert refusals == []
    assert ended.state == "finished"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_job_that_takes_too_much_memory_fails_alone(service):
    """In a plain sentence; nobody else begins anew."""
    before = service.n_restarts
    other, hungry, another = finish(service, small(300), lethal(appetite=1000), small(300, 1))
    assert hungry.state == "failed"
    assert hungry.error == "not enough memory: take smaller sizes, or fewer seeds"
    assert other.state == another.state == "finished"
    assert service.n_restarts == before


@pytest.mark.parametrize("deed", ["advance", "snapshot", "result"])
def test_a_job_for_which_no_memory_is_left_fails_alone(monkeypatch, deed):
    """Whatever it was about to do: train, tell where it is, or hand over its weights."""
    do = getattr(Training, deed)

    def fail_if_short(training, *given):
        if training.experiment.training.steps == 5:
            raise MemoryError
        return do(training, *given)

    monkeypatch.setattr(Training, deed, fail_if_short)
    failed, finished = work(small(5).to_json(), small(300).to_json())
    assert failed["state"] == "failed"
    assert failed["error"] == "not enough memory: take smaller sizes, or fewer seeds"
    assert finished["state"] == "finished"


# A database that is gone


def test_results_wait_for_a_database_that_is_gone(
    service, keep_in, postgres, open_store, monkeypatch, long
):
    """They are shown as finished and not stored; training and looking go on, and so it mends."""
    where = postgres.database()
    store = keep_in(where)
    asked, ask = [], store.snapshot
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


def test_two_replicas_that_finish_the_same_at_once_store_it_once(postgres, open_store):
    """Both say that it is stored, and a third finds it."""
    where, meeting, new = postgres.database(), threading.Barrier(2, timeout=PATIENCE), []

    def meet(store, put):
        def put_together(*blobs):
            meeting.wait()
            new.append(put(*blobs))

        store.put = put_together
        return store

    stores = [open_store(where) for _ in range(2)]
    with contextlib.ExitStack() as opened:
        services = [
            opened.enter_context(closing(TrainingService(store=meet(store, store.put))))
            for store in stores
        ]
        for first_seed in range(3):
            ids = [service.submit(small(5, first_seed)) for service in services]
            for service, job_id in zip(services, ids, strict=True):
                assert_stored(service, [wait_until(service, job_id, lambda job: job.over)])
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
        self._run("umount", "--lazy", str(self.folder))

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


def test_results_wait_for_room_on_a_full_disk(disk, service, keep_in, open_store):
    """They are shown as finished and not stored, and are stored as soon as there is room."""
    keep_in(disk.folder)
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


def test_a_jump_of_the_clock_neither_ends_nor_prolongs_a_lease(service, monkeypatch):
    """What is watched goes on, what is not ends; what finishes is stored."""
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
    """Neither the server's side nor the training process: only clocks that cannot jump."""
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
    (server,) = [own for own in psutil.Process().children() if str(port) in own.cmdline()]
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


def what_is_there():
    """Threads, processes and the number of open files."""
    own = psutil.Process()
    return set(threading.enumerate()), own.children(recursive=True), own.num_fds()


def test_nothing_is_left_of_closed_services(tmp_path, monkeypatch, long):
    """No thread, process, open file or temporary file, whatever they were doing."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = what_is_there()
    with contextlib.ExitStack() as opened:
        store = opened.enter_context(closing(ResultStore(tmp_path / "data")))
        services = [
            opened.enter_context(closing(TrainingService(store=store)))
            for _ in range(5 if long else 3)
        ]
        for first_seed, service in enumerate(services):
            assert_stored(service, finish(service, small(5, first_seed)))
        for service in services:
            job_id = service.submit(unending())
            wait_until(service, job_id, lambda job: step_of(job) > 0)
    assert what_is_there() == before
    assert list((tmp_path / "temporary").iterdir()) == []
