"""The worker of the training process: turns, failures, kept weights and signs of life."""

import queue
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from kinds import SMALL
from waiting import PATIENCE, small, step_of, unending, wait_until
from worker_output import RUN, Frames, work

from attnkit.experiment import Experiment
from attnkit.model.kernel import cache
from attnkit.service import archive, worker
from attnkit.service.book_answers import Weights
from attnkit.service.service import TrainingService
from attnkit.service.worker import Worker, rest_after
from attnkit.training import Training
from attnkit.training.engine import ENGINE

pytestmark = pytest.mark.server


def test_jobs_begin_on_torch_while_the_kernel_is_compiled(tmp_path, monkeypatch):
    """A job keeps its first engine, and jobs after the compilation train on the kernel."""
    cache.ensure_compiled(lambda _: None)
    monkeypatch.delenv(ENGINE, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cold = tmp_path / cache.cache_key()
    cold.mkdir(mode=0o700)
    compiling = cache.FileLock(cold / "lock")  # as if another process were compiling
    compiling.acquire()
    with closing(TrainingService()) as opened:
        first = opened.submit(unending())
        wait_until(opened, first, lambda job: step_of(job) > 0)
        cache._copy(cache.cache_folder(), cold)
        compiling.release()
        engine, deadline = "torch", time.monotonic() + PATIENCE
        for seed in count(1):
            job = opened.submit(small(1, seed))
            engine = wait_until(opened, job, lambda job: job.over).snapshot.engine
            if engine == "kernel":
                break
            assert time.monotonic() < deadline
        before = step_of(opened.look(first))
        later = wait_until(opened, first, lambda job: step_of(job) > before)
        assert later.snapshot.engine == "torch"


@pytest.mark.parametrize("deed", ["begin", "advance", "snapshot", "result"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("out of paper"), "RuntimeError: out of paper"),
        (MemoryError(), "not enough memory: take smaller sizes, or fewer seeds"),
    ],
)
def test_a_job_that_breaks_fails_alone(monkeypatch, deed, error, told):
    """An error in the training, snapshot or result of one job leaves the next one alone."""
    if deed == "begin":
        failed, finished = work('{"steps": 0}', small(5).to_json())
        told = "InvalidExperiment: steps: got 0, allowed"
    else:
        do = getattr(Training, deed)

        def fail_if_short(training, *given):
            if training.experiment.training.steps == 5:
                raise error
            return do(training, *given)

        monkeypatch.setattr(Training, deed, fail_if_short)
        failed, finished = work(small(5).to_json(), small(300).to_json())
    assert failed["state"] == "failed"
    assert failed["error"].startswith(told)
    assert finished["state"] == "finished"


def test_the_training_process_ends_when_its_input_does():
    """The training process ends with its input, without a signal."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "attnkit.service.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[1],
    )
    worker.stdin.close()
    assert worker.wait(PATIENCE) == 0


def test_large_snapshots_come_more_rarely():
    """A large snapshot is followed by a longer rest, so that pages stay responsive."""
    assert rest_after(0) == worker.SNAPSHOT_SECONDS
    assert rest_after(26_000_000) > 6


def test_what_cannot_be_drawn_is_told_and_the_pace_of_the_engine():
    """The worker goes on; the pace is asked for before any job."""
    commands = queue.Queue()
    commands.put({"do": "pace"})
    for text in ('{"steps": 0}', small(5).to_json()):
        commands.put({"do": "example", "request": text, "experiment": text})
    commands.put({"do": "start", "job": "j", "experiment": small(5).to_json(), **RUN})
    frames = Frames(commands, 1)
    Worker(frames).run(commands)
    assert frames.headers[0]["pace"] > 0
    assert frames.headers[0]["engine"] == "torch"
    failed, drawn = (header for header in frames.headers if "request" in header)
    assert failed["error"].startswith("steps: got 0, allowed")
    assert failed["size"] == 0
    assert drawn["size"] > 0


def test_only_the_weights_of_the_last_jobs_are_kept(monkeypatch):
    """Kept weights are bounded by their size; those of the oldest jobs are dropped."""
    book = Experiment(task="phonebook", **{**SMALL, "steps": 5})
    commands = queue.Queue()
    for name in "abc":
        text = book.to_json()
        commands.put({"do": "start", "job": name, "experiment": text, **RUN})
    size = Weights.of(Training(book)).n_bytes
    monkeypatch.setattr(archive, "KEPT_BYTES", 2 * size)
    frames = Frames(commands, 3)
    in_memory = Worker(frames)
    in_memory.run(commands)
    ended = [header["job"] for header in frames.headers if header.get("state") == "finished"]
    assert list(in_memory._archive.weights) == ended[1:]
    monkeypatch.setattr(archive, "KEPT_BYTES", 1)
    commands.put({"do": "start", "job": "d", "experiment": text, **RUN})
    in_memory._output = Frames(commands, 1)
    in_memory.run(commands)
    assert not in_memory._archive.weights


def test_weights_above_the_limit_are_not_kept_and_drop_no_others(monkeypatch):
    """A job that is too large by itself leaves the weights of smaller jobs where they are."""
    book = Experiment(task="phonebook", **{**SMALL, "steps": 5})
    monkeypatch.setattr(archive, "KEPT_BYTES", Weights.of(Training(book)).n_bytes)
    commands = queue.Queue()
    in_memory = Worker(Frames(commands, 1))
    commands.put({"do": "start", "job": "small", "experiment": book.to_json(), **RUN})
    in_memory.run(commands)
    larger = book.replace(n_seeds=book.n_seeds + 1).to_json()
    commands.put({"do": "start", "job": "large", "experiment": larger, **RUN})
    in_memory._output = Frames(commands, 1)
    in_memory.run(commands)
    assert list(in_memory._archive.weights) == ["small"]
    assert "large" in in_memory._archive.films


def test_weights_of_all_seeds_are_kept_of_every_task():
    """Inspections that compare seeds need them after the job has ended."""
    experiment = small(5).replace(n_seeds=2)
    commands = queue.Queue()
    commands.put({"do": "start", "job": "a", "experiment": experiment.to_json(), **RUN})
    in_memory = Worker(Frames(commands, 1))
    in_memory.run(commands)
    kept = in_memory._archive.weights["a"]
    assert kept.experiment == experiment
    assert [len(kept.of_variant(variant)) for variant in experiment.sharing] == [2, 2]


def test_signs_of_life_come_in_the_middle_of_a_step(monkeypatch):
    """A thread sends signs of life in the middle of a long step."""
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.001)
    commands, beats, busy = queue.Queue(), [], threading.Event()

    class Output(Frames):
        def write(self, frame):
            if b"beat" in frame and busy.is_set():
                beats.append(frame)
                if len(beats) == 3:
                    busy.clear()
                    raise BrokenPipeError  # the server is gone: no more of them
            elif b"beat" not in frame:
                super().write(frame)

    def advance(training, n_steps, advance=Training.advance):
        busy.set()
        thread.join(PATIENCE)
        return advance(training, n_steps)

    monkeypatch.setattr(Training, "advance", advance)
    in_memory = Worker(Output(commands, 1))
    thread = threading.Thread(target=in_memory.beat, daemon=True)
    thread.start()
    commands.put({"do": "start", "job": "a", "experiment": small(1).to_json(), **RUN})
    in_memory.run(commands)
    assert len(beats) == 3


def test_addresses_take_turns_however_many_jobs_they_have():
    """Three jobs of one address get together as many turns as one job of another."""
    commands, turns = queue.Queue(), []
    in_memory = Worker(Frames(commands, 99))
    steps = dict.fromkeys("abcd", 0)
    for name in steps:
        address = "home" if name == "d" else "script"
        given = {"do": "start", "job": name, "experiment": unending(0).to_json()}
        in_memory._obey({**given, **RUN, "address": address})
    for _ in range(40):
        name = in_memory._next(in_memory._active)
        turns.append(name)
        job = in_memory._jobs[name]
        job.served += 1
        in_memory._served[job.address] += 1
    assert [turns.count(name) for name in "abcd"] == [7, 7, 6, 20]
    in_memory._obey({"do": "pause", "job": "d", "number": 1})
    in_memory._obey({"do": "resume", "job": "d", "number": 2})
    assert turns.count("d") == in_memory._served["home"]
