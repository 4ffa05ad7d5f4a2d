"""The worker of the training process: turns, failures, kept weights, signs of life."""

import io
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from kinds import SMALL
from threaded import MemoryWorker
from waiting import PATIENCE, small, unending

from attnkit.experiment import Experiment
from attnkit.service import answers, protocol, worker
from attnkit.service.answers import Weights
from attnkit.service.worker import rest_after
from attnkit.training import Training


def test_jobs_begin_on_torch_while_the_kernel_is_compiled(monkeypatch):
    """A job keeps its first engine, and jobs after the compilation train on the kernel.

    The whole program runs in a thread; its pipes are queues.
    """
    compiled, ended = threading.Event(), threading.Event()
    commands, replies = queue.SimpleQueue(), queue.SimpleQueue()

    def ready(device, engine=None):
        return engine or (compiled.wait(PATIENCE) and "kernel")

    def write(message):
        if ended.is_set():
            raise BrokenPipeError  # the end of the heart beats
        replies.put(protocol.read(io.BytesIO(message)))

    def start(name, experiment):
        commands.put(protocol.encode(protocol.Start(job=name, experiment=experiment.to_json())))

    def engine_of(name):
        while getattr(reply := replies.get(timeout=PATIENCE), "job", "") != name:
            pass
        return reply.decode()[0].engine

    stream = SimpleNamespace(fileno=lambda: 1, write=write, flush=lambda: None)
    stdin = SimpleNamespace(buffer=SimpleNamespace(readline=commands.get))
    names = ("fdopen", "dup", "dup2", "nice")
    system = {"os": SimpleNamespace(**dict.fromkeys(names, lambda *_: stream))}
    system["sys"] = SimpleNamespace(stdin=stdin, stdout=stream, stderr=stream, argv=["worker"])
    system |= {"prepare_for_training": lambda: None, "measure_pace": lambda engine: 1.0}
    system |= {"is_ready": lambda engine: False, "ready_engine": ready}
    for name, value in system.items():
        monkeypatch.setattr(worker, name, value)
    with ThreadPoolExecutor(1) as pool:
        program = pool.submit(worker.main)
        try:
            start("first", unending())
            assert engine_of("first") == "torch"
            compiled.set()
            while getattr(replies.get(timeout=PATIENCE), "engine", "") != "kernel":
                pass
            start("second", unending(1))
            assert engine_of("second") == "kernel"
            assert engine_of("first") == "torch"
        finally:
            commands.put(b"")
            program.result()
            ended.set()


BREAKS = {
    "begin": (None, "steps: got 0, allowed"),
    "advance": (RuntimeError("out of paper"), "RuntimeError: out of paper"),
    "snapshot": (MemoryError(), "it needs more memory than estimated; take smaller sizes, or"),
    "result": (
        RuntimeError("[enforce fail] can't allocate memory: 9 bytes"),
        "it needs more memory than estimated; take smaller sizes, or",
    ),
}


@pytest.mark.parametrize("deed", BREAKS)
def test_a_job_that_breaks_fails_alone(monkeypatch, deed):
    """An error in the training, snapshot or result of one job leaves the next one alone."""
    error, told = BREAKS[deed]
    broken = protocol.Start(job="broken", experiment='{"steps": 0}')
    if error is not None:
        do, broken = getattr(Training, deed), ("broken", small(5))

        def fail_if_short(training, *given):
            if training.experiment.training.steps == 5:
                raise error
            return do(training, *given)

        monkeypatch.setattr(Training, deed, fail_if_short)
    updates = MemoryWorker().work(broken, ("whole", small(33))).of(protocol.Update)
    last = {update.job: update for update in updates}
    assert last["broken"].state == "failed"
    assert last["broken"].error.startswith(told)
    assert last["whole"].state == "finished"


def test_large_snapshots_come_more_rarely():
    """A large snapshot is followed by a longer rest, so that pages stay responsive."""
    assert rest_after(0) == worker.SNAPSHOT_SECONDS
    assert rest_after(26_000_000) > 6


def test_what_cannot_be_drawn_is_told_and_the_pace_of_the_engine():
    """The worker goes on; the pace is asked for before any job."""
    texts = ('{"steps": 0}', small(5).to_json())
    examples = [protocol.DrawExample(experiment=text) for text in texts]
    told = MemoryWorker().work(protocol.MeasurePace(), *examples, ("j", small(5)))
    (pace,) = told.of(protocol.Pace)
    assert pace.pace > 0
    assert pace.engine == "torch"
    failed, drawn = told.of(protocol.Answer)
    assert failed.error.startswith("steps: got 0, allowed")
    assert (failed.blob, drawn.error) == (b"", "")
    assert len(drawn.blob) > 0
    assert told.messages[-1].state == "finished"


def test_only_the_weights_of_the_last_jobs_are_kept(monkeypatch):
    """Kept weights are bounded by their size; those of the oldest jobs are dropped.

    A job that is too large by itself drops no others. Weights of all seeds are kept.
    """
    book = Experiment(task="phonebook", **{**SMALL, "steps": 5})
    monkeypatch.setattr(answers, "KEPT_BYTES", 2 * Weights.of(Training(book)).n_bytes)
    in_memory = MemoryWorker().work(*((name, book) for name in "abc"))
    ended = [update.job for update in in_memory.of(protocol.Update) if update.state == "finished"]
    kept = in_memory._archive
    assert list(kept.weights) == ended[1:]
    in_memory.work(("two seeds", book.replace(n_seeds=2)), ("large", book.replace(n_seeds=3)))
    assert list(kept.weights) == ["two seeds"]
    assert kept.films.keys() == {*"abc", "two seeds", "large"}
    weights = kept.weights["two seeds"]
    assert [len(weights.of_variant(v)) for v in weights.experiment.sharing] == [2, 2]


def test_signs_of_life_come_in_the_middle_of_a_step(monkeypatch):
    """A thread sends signs of life in the middle of a long step."""
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.001)
    beats, busy = [], threading.Event()

    class Beating(MemoryWorker):
        def write(self, message):
            super().write(message)
            if isinstance(self.messages[-1], protocol.Beat) and busy.is_set():
                beats.append(message)
                if len(beats) == 3:
                    busy.clear()
                    raise BrokenPipeError  # the server is gone: no more of them

    def advance(training, n_steps, advance=Training.advance):
        busy.set()
        thread.join(PATIENCE)
        return advance(training, n_steps)

    monkeypatch.setattr(Training, "advance", advance)
    in_memory = Beating()
    thread = threading.Thread(target=in_memory.beat, daemon=True)
    thread.start()
    in_memory.work(("a", small(1)))
    assert len(beats) == 3
