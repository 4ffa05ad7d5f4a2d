"""Live training: jobs in a process of their own, steered and watched, and gone when they must."""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from kinds import SMALL

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.model.kernel import cache
from attnkit.service import ended_jobs, worker
from attnkit.service import service as live
from attnkit.service.book_answers import Weights, answer
from attnkit.service.jobs import Job
from attnkit.service.service import TrainingService
from attnkit.service.worker import SLICE_SECONDS, Worker, rest_after
from attnkit.tasks import TASKS
from attnkit.training import Training, train
from attnkit.training.data import draw_probe
from attnkit.training.engine import ENGINE
from attnkit.variants import Variant

pytestmark = pytest.mark.server

PATIENCE = 120.0
"""Seconds after which a wait has failed; nothing here takes long on an idle machine."""

STILL = 3 * SLICE_SECONDS
"""Seconds without news after which none comes."""

UNENDING = {**SMALL, "steps": 20_000, "batch_size": 256}
"""A job that is still going on whenever a test looks at it."""


def small(steps, first_seed=0):
    """An experiment of two runs."""
    return Experiment(**SMALL, steps=steps, first_seed=first_seed)


def unending(first_seed=0):
    """An experiment of two runs that no test waits for."""
    return Experiment(**UNENDING, first_seed=first_seed)


@pytest.fixture(scope="module")
def service():
    """A service with its training process, for all tests that leave it as it was."""
    with closing(TrainingService()) as opened:
        yield opened


@pytest.fixture
def job(service):
    """A job that goes on until the test ends; its identifier."""
    started = service.submit(unending())
    wait_until(service, started, lambda job: step_of(job) > 0)
    yield started
    service.stop(started)


@pytest.fixture(scope="module")
def reference():
    """What training without any service gives."""
    return train(small(300), "cpu").snapshot


def set_limits(monkeypatch, service, **limits):
    """Give the copy other limits for one test."""
    monkeypatch.setattr(service, "settings", service.settings.model_copy(update=limits))


def step_of(job: Job) -> int:
    """Steps taken, 0 before the first snapshot."""
    return job.snapshot.step if job.snapshot is not None else 0


def wait_until(service: TrainingService, job_id: str, condition) -> Job:
    """The job as soon as it fulfils a condition."""
    deadline = time.monotonic() + PATIENCE
    job = service.look(job_id)
    while not condition(job):
        seconds = deadline - time.monotonic()
        assert seconds > 0, f"still waiting: {job.state} at step {step_of(job)}, {job.error}"
        job = service.wait(job_id, job.version, seconds)
    return job


def wait_until_still(service: TrainingService, job_id: str, state: str) -> Job:
    """The job in a state that it stays in: nothing new comes for longer than a turn lasts."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        job = wait_until(service, job_id, lambda job: job.state == state and job.settled)
        if service.wait(job_id, job.version, STILL).version == job.version:
            return job
    raise AssertionError(f"never still in state {state}")


def wait_for_end(process_id: int) -> bool:
    """Whether any process, not only one of our children, ends in time."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(PATIENCE * 1000))
    finally:
        os.close(descriptor)


def assert_same_bits(snapshot, reference):
    """Two snapshots hold the same numbers."""
    assert snapshot.step == reference.step
    assert np.array_equal(snapshot.eval_steps, reference.eval_steps)
    for name, values in reference.history.items():
        assert np.array_equal(snapshot.history[name], values, equal_nan=True), name
    assert np.array_equal(snapshot.head_symmetry, reference.head_symmetry, equal_nan=True)
    assert np.array_equal(snapshot.probe.pattern, reference.probe.pattern, equal_nan=True)
    assert np.array_equal(snapshot.probe.answers, reference.probe.answers)


def test_the_first_snapshot_is_at_step_0(service):
    """A page can draw the untrained models."""
    job_id = service.submit(unending())
    first = wait_until(service, job_id, lambda job: job.snapshot is not None)
    service.stop(job_id)
    assert first.state == "running"
    assert first.snapshot.step == 0
    assert first.snapshot.eval_steps.tolist() == [0]


def test_a_job_ends_finished_with_the_bits_of_train(service, reference):
    """A page shows what the library gives."""
    job = wait_until(service, service.submit(small(300)), lambda job: job.over)
    assert job.state == job.snapshot.status == "finished"
    assert job.restarts == 0
    assert not job.active
    assert_same_bits(job.snapshot, reference)


def test_versions_count_up_and_steps_never_fall(service, job):
    """A page that waits for the next version sees training go forward."""
    seen = [service.look(job)]

    def note(job):
        seen.append(job)
        return len({step_of(job) for job in seen}) > 3

    wait_until(service, job, note)
    assert [job.version for job in seen] == sorted(job.version for job in seen)
    assert [step_of(job) for job in seen] == sorted(step_of(job) for job in seen)


def test_pause_holds_the_step(service, job):
    """Nothing is trained while a job is paused."""
    service.pause(job)
    paused = wait_until_still(service, job, "paused")
    assert 0 < paused.snapshot.step < UNENDING["steps"]
    assert not paused.active
    assert not paused.over


def test_pausing_changes_no_number(service, reference):
    """Paused in the middle and resumed, a job ends with the same bits."""
    job_id = service.submit(small(300), paused=True)
    wait_until_still(service, job_id, "paused")
    for _ in range(3):
        service.step(job_id)
        wait_until_still(service, job_id, "paused")
    assert service.look(job_id).snapshot.step == 33
    service.resume(job_id)
    assert_same_bits(wait_until(service, job_id, lambda job: job.over).snapshot, reference)


def test_a_running_job_goes_on_after_pause_and_resume(service, job):
    """Resume takes up where pause has stopped."""
    service.pause(job)
    held = wait_until_still(service, job, "paused").snapshot.step
    service.resume(job)
    wait_until(service, job, lambda job: job.state == "running" and step_of(job) > held)


def test_a_job_can_begin_paused(service):
    """Reset shows step 0 and waits."""
    job_id = service.submit(small(300), paused=True)
    held = wait_until_still(service, job_id, "paused")
    service.stop(job_id)
    assert held.snapshot.step == 0


def test_step_stops_at_the_next_evaluation(service, job):
    """From anywhere to the next multiple of the cadence."""
    service.pause(job)
    before = wait_until_still(service, job, "paused").snapshot.step
    service.step(job)
    after = wait_until_still(service, job, "paused").snapshot
    assert after.step == (before // 11 + 1) * 11
    assert after.eval_steps[-1] == after.step


def test_step_ends_at_the_last_step(service):
    """The end is an evaluation too, off the cadence or not."""
    job_id = service.submit(small(20), paused=True)
    for _ in range(2):
        service.step(job_id)
        ended = wait_until(service, job_id, lambda job: job.state in ("paused", "finished"))
        wait_until_still(service, job_id, ended.state)
    assert service.look(job_id).state == "finished"
    assert service.look(job_id).snapshot.step == 20


def test_stop_keeps_the_last_snapshot(service, job):
    """What was reached stays on screen, marked as stopped."""
    reached = service.look(job).snapshot.step
    service.stop(job)
    stopped = wait_until(service, job, lambda job: job.settled)
    assert stopped.state == stopped.snapshot.status == "stopped"
    assert reached <= stopped.snapshot.step < UNENDING["steps"]
    assert service.wait(job, stopped.version, STILL).version == stopped.version


def test_a_job_that_is_over_cannot_be_steered(service):
    """Late clicks do nothing."""
    job_id = service.submit(small(5))
    ended = wait_until(service, job_id, lambda job: job.over)
    for steer in (service.pause, service.resume, service.step, service.stop):
        steer(job_id)
    assert service.wait(job_id, ended.version, STILL).version == ended.version
    assert service.look(job_id).state == "finished"


def test_two_jobs_share_the_process(service):
    """They take turns: the second does not wait for the end of the first."""
    both = [service.submit(unending(first_seed)) for first_seed in (0, 1)]
    for _ in range(2):
        reached = [step_of(service.look(job_id)) for job_id in both]
        for job_id, step in zip(both, reached, strict=True):
            wait_until(service, job_id, lambda job, step=step: step_of(job) > step)
    assert [service.look(job_id).state for job_id in both] == ["running", "running"]
    for job_id in both:
        service.stop(job_id)


def test_jobs_beside_each_other_keep_their_bits(service, reference):
    """Neither another job nor when a job's turns come changes a number."""
    other = service.submit(unending(5))
    job_id = service.submit(small(300))
    ended = wait_until(service, job_id, lambda job: job.over)
    service.stop(other)
    assert_same_bits(ended.snapshot, reference)


def test_the_same_experiment_is_trained_once(service):
    """Who asks for what trains already, or stands in the queue, joins it."""
    first = service.submit(unending(7))
    assert service.submit(unending(7)) == first
    wait_until(service, first, lambda job: step_of(job) > 0)
    assert service.submit(unending(7)) == first
    assert service.submit(unending(7), paused=True) != first  # step 0 is for oneself
    service.stop(first)


def test_find_gives_the_newest_job_of_the_same_experiment(service):
    """A second tab with the same link sees the same training, while there is any."""
    ids = [service.submit(unending(7), paused=True) for _ in range(2)]
    for job_id in ids:
        service.resume(job_id)
        wait_until(service, job_id, lambda job: step_of(job) > 0)
    assert service.find(unending(7)).id == ids[1]
    assert service.find(unending(8)) is None
    service.stop(ids[1])
    assert service.find(unending(7)).id == ids[0]
    service.stop(ids[0])
    assert service.find(unending(7)) is None


def test_unknown_jobs_are_harmless(service):
    """A page may hold on to a job that was forgotten."""
    for steer in (service.pause, service.resume, service.step, service.stop):
        steer("unknown")
    assert service.look("unknown") is None
    assert service.wait("unknown", 0, PATIENCE) is None


def test_ended_jobs_are_forgotten_beyond_a_number(service, monkeypatch):
    """Memory is bounded: those that nobody has looked at for longest go first."""
    assert ended_jobs.MAX_JOBS > 2
    monkeypatch.setattr(ended_jobs, "MAX_JOBS", 2)
    ids = []
    for _ in range(4):
        ids.append(service.submit(small(1)))
        wait_until(service, ids[-1], lambda job: job.over)
    assert [service.look(job_id) is None for job_id in ids] == [True, True, False, False]


def test_ended_jobs_are_forgotten_beyond_a_size(service, monkeypatch):
    """The one that ended last stays, however large it is."""
    monkeypatch.setattr(ended_jobs, "MAX_BYTES", 1)
    ids = []
    for _ in range(2):
        ids.append(service.submit(small(1)))
        wait_until(service, ids[-1], lambda job: job.over)
    assert [service.look(job_id) is None for job_id in ids] == [True, False]
    assert service.look(ids[1]).n_bytes > 1


def test_large_snapshots_come_more_rarely():
    """26 MB five times a second would stop the pages."""
    assert rest_after(0) == worker.SNAPSHOT_SECONDS
    assert rest_after(26_000_000) > 6


def test_a_job_nobody_looks_at_is_stopped(service, monkeypatch):
    """A closed tab does not train for ever; a job that is watched goes on."""
    watched, abandoned = service.submit(unending(12)), service.submit(unending(11))
    wait_until(service, abandoned, lambda job: step_of(job) > 0)
    set_limits(monkeypatch, service, lease_seconds=2.0)
    wait_until(service, watched, lambda _: service.find(unending(11)) is None)  # find is no look
    assert service.look(watched).state == "running"
    assert service.look(abandoned).state == "stopped"
    service.stop(watched)


def test_a_paused_job_nobody_looks_at_is_stopped_later(service, monkeypatch):
    """It costs memory only, and whoever has paused it may come back."""
    job_id = service.submit(small(300), paused=True)
    wait_until_still(service, job_id, "paused")
    set_limits(monkeypatch, service, lease_seconds=1e-6)
    service.submit(small(1))
    assert service.look(job_id).state == "paused"
    set_limits(monkeypatch, service, paused_seconds=1e-6)
    service.submit(small(2))
    assert service.look(job_id).state == "stopped"
    assert service.look(job_id).error == "because nobody watched it"


def test_a_job_whose_process_is_killed_ends_with_the_same_bits(service):
    """The process is started again, and lost work is done anew from the seeds."""
    job_id = service.submit(small(1000))
    wait_until(service, job_id, lambda job: job.snapshot is not None)
    killed = service.process_id
    os.kill(killed, signal.SIGKILL)
    ended = wait_until(service, job_id, lambda job: job.over)
    assert ended.restarts == 1
    assert service.process_id != killed
    assert_same_bits(ended.snapshot, train(small(1000), "cpu").snapshot)


def test_a_paused_job_whose_process_is_killed_stays_paused(service):
    """It begins anew, but nobody has asked it to go on."""
    job_id = service.submit(small(300), paused=True)
    wait_until_still(service, job_id, "paused")
    os.kill(service.process_id, signal.SIGKILL)
    wait_until(service, job_id, lambda job: job.restarts == 1)
    held = wait_until_still(service, job_id, "paused")
    service.stop(job_id)
    assert held.snapshot.step == 0


def test_a_process_that_is_stopped_is_replaced(service, monkeypatch):
    """It is there and does not answer: what it trained begins anew and keeps its bits."""
    monkeypatch.setattr(live, "SILENT_CHECKS", 5)
    before = wait_until(service, service.submit(small(5)), lambda job: job.over)
    job_id = service.submit(small(1000))
    wait_until(service, job_id, lambda job: job.snapshot is not None)
    os.kill(service.process_id, signal.SIGSTOP)
    ended = wait_until(service, job_id, lambda job: job.over)
    assert (ended.state, ended.restarts) == ("finished", 1)
    assert_same_bits(ended.snapshot, train(small(1000), "cpu").snapshot)
    assert service.look(before.id).state == "finished"


def test_a_job_whose_process_always_dies_fails(service, monkeypatch):
    """It is not begun anew for ever, and jobs after it are."""
    monkeypatch.setattr(live, "MAX_RESTARTS", 0)
    job_id = service.submit(unending())
    wait_until(service, job_id, lambda job: step_of(job) > 0)
    os.kill(service.process_id, signal.SIGKILL)
    failed = wait_until(service, job_id, lambda job: job.over)
    assert failed.state == "failed"
    assert "died" in failed.error
    after = service.submit(small(5))
    assert wait_until(service, after, lambda job: job.over).state == "finished"


def test_closing_ends_the_process_and_its_thread():
    """Nothing of a service is left, whatever it was doing."""
    threads = set(threading.enumerate())
    service = TrainingService()
    wait_until(service, service.submit(unending()), lambda job: step_of(job) > 0)
    service.close()
    with pytest.raises(ProcessLookupError):
        os.kill(service.process_id, 0)
    for thread in set(threading.enumerate()) - threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def closed_service():
    """A service that was closed before its process was ready."""
    service = TrainingService()
    service.close()
    return service


def test_closing_twice_is_harmless(closed_service):
    """A server may be shut down more than once."""
    closed_service.close()


def test_a_closed_service_takes_commands_in_silence(closed_service):
    """Pages may be drawn while the server shuts down."""
    job_id = closed_service.submit(small(5))
    closed_service.pause(job_id)
    assert not closed_service.look(job_id).over


RUN = {"paused": False, "seconds": 3600.0, "address": ""}
"""How a job is started."""


class Frames:
    """A worker's output in memory; stops the worker after so many frames of finished jobs."""

    def __init__(self, commands, n_finished):
        self.headers = []
        self._commands = commands
        self._left = n_finished

    def write(self, frame):
        """Take one frame."""
        self.headers.append(json.loads(frame.split(b"\n", 1)[0]))
        self._left -= self.headers[-1].get("state") == "finished"
        if self._left == 0:
            self._commands.put(None)

    def flush(self):
        """Nothing is held back."""


def work(*experiments):
    """The last header that a worker sends for each of some jobs, the last of which finishes."""
    commands = queue.Queue()
    for name, text in enumerate(experiments):
        commands.put({"do": "start", "job": str(name), "experiment": text, **RUN})
    frames = Frames(commands, 1)
    Worker(frames).run(commands)
    jobs = [header for header in frames.headers if "job" in header]
    return list({header["job"]: header for header in jobs}.values())


def test_jobs_begin_on_torch_while_the_kernel_is_compiled(tmp_path, monkeypatch):
    """A job keeps the engine that it began with; one that begins later trains on the kernel."""
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


def test_a_job_that_cannot_begin_fails_alone():
    """The page hears why, and the next job is trained."""
    failed, finished = work('{"steps": 0}', small(5).to_json())
    assert failed["state"] == "failed"
    assert failed["error"].startswith("InvalidExperiment: steps: got 0, allowed")
    assert finished["state"] == "finished"


def test_a_job_that_breaks_fails_alone(monkeypatch):
    """An error in the middle of one training leaves the others alone."""
    advance = Training.advance

    def break_if_long(training, n_steps):
        if training.experiment.training.steps == 50:
            raise RuntimeError("out of memory")
        advance(training, n_steps)

    monkeypatch.setattr(Training, "advance", break_if_long)
    failed, finished = work(small(50).to_json(), small(5).to_json())
    assert failed["state"] == "failed"
    assert failed["error"] == "RuntimeError: out of memory"
    assert finished["state"] == "finished"


def test_the_training_process_ends_when_its_input_does():
    """It needs no signal."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "attnkit.service.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[1],
    )
    worker.stdin.close()
    assert worker.wait(PATIENCE) == 0


def test_no_training_process_outlives_a_killed_server():
    """The server gets no chance to clean up, and its training process ends by itself."""
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from attnkit.service.service import TrainingService\n"
            "from attnkit.experiment import Experiment\n"
            "service = TrainingService()\n"
            f"job = service.submit(Experiment(**{UNENDING!r}))\n"
            "while service.wait(job, 0, 1).snapshot is None: pass\n"
            "print(service.process_id, flush=True)\n"
            "while True: service.wait(job, 10**9, 60)\n",
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    with server:
        worker = int(server.stdout.readline())
        server.kill()
    assert wait_for_end(worker)


# examples and questions


def the_example(service, experiment):
    """An experiment's example, as soon as it is there."""
    found = service.example(experiment, PATIENCE)
    assert found is not None
    return found


@pytest.mark.parametrize("task", TASKS)
def test_an_example_is_the_one_that_the_maps_show(service, task):
    """Of every task, drawn in the training process."""
    experiment = Experiment(task=task)
    found = the_example(service, experiment)
    drawn = draw_probe(experiment.task)
    np.testing.assert_array_equal(found.tokens, drawn.tokens[0])
    np.testing.assert_array_equal(found.labels, drawn.labels[0])
    np.testing.assert_array_equal(found.target, drawn.target[0])
    reverse = -1 if drawn.reverse is None else drawn.reverse[0].numpy()
    np.testing.assert_array_equal(found.reverse, np.broadcast_to(reverse, found.target.shape))


def test_an_example_is_drawn_once_for_all_settings_that_leave_the_task(service):
    """Steps and widths do not count, dials of the task do."""
    first = the_example(service, small(5))
    assert service.example(small(7, first_seed=3)) is first
    assert the_example(service, small(5).replace(n_values=9)) is not first


def test_an_example_comes_while_a_job_trains(service, job):
    """Between two turns."""
    assert len(the_example(service, unending().replace(n_values=8)).tokens) == 5
    assert service.look(job).state == "running"


def test_what_cannot_be_drawn_is_told():
    """In one line, and the worker goes on."""
    commands = queue.Queue()
    for text in ('{"steps": 0}', small(5).to_json()):
        commands.put({"do": "example", "request": text, "experiment": text})
    commands.put({"do": "start", "job": "j", "experiment": small(5).to_json(), **RUN})
    frames = Frames(commands, 1)
    Worker(frames).run(commands)
    failed, drawn = (header for header in frames.headers if "request" in header)
    assert failed["error"].startswith("steps: got 0, allowed")
    assert failed["size"] == 0
    assert drawn["size"] > 0


BOOK = np.array([[n, 32 + n] for n in range(5)] + [[n, 64] for n in range(5)])
"""Five entries of the phone book, each asked once."""


@pytest.fixture(scope="module")
def solved(service):
    """A phone book that was learnt; the job is over."""
    settings = {"sharing": ["QKV", "Q=K"], "n_seeds": 2, "steps": 250}
    job_id = service.submit(Experiment(task="phonebook", **settings))
    wait_until(service, job_id, lambda job: job.over)
    return job_id


def test_trained_models_answer_a_book_of_another_size(service, solved):
    """After the end of their training, every variant and seed."""
    answers = service.ask(solved, BOOK, PATIENCE)
    assert answers.step == 250
    assert len(answers.variants) == 2
    for own in answers.variants:
        assert own.refusal == ""
        assert own.answers.tolist() == [[0, 1, 2, 3, 4]] * 2
        assert own.attention.shape == (2, 1, 5, 5)
        assert (own.attention[:, 0].argmax(-1) == np.arange(5)).all()


@pytest.mark.parametrize("task", [name for name, kind in TASKS.items() if is_phone_book(kind())])
def test_the_models_of_a_shipped_example_answer_a_book(task):
    """Their weights are shipped for its first seed, and are those that the example shows."""
    example = load_example(task)
    answers = answer(Weights.shipped(task), example.probe.tokens)
    given = np.concatenate([own.answers for own in answers.variants])
    np.testing.assert_array_equal(given, example.probe.answers[:: example.experiment.n_seeds])
    assert answers.step == example.experiment.training.steps


def test_the_training_process_answers_for_a_shipped_example(service):
    """Nothing needs to be trained before."""
    for own in service.ask_example("phonebook", BOOK, PATIENCE).variants:
        assert own.answers.tolist() == [[0, 1, 2, 3, 4]]


def test_answers_are_those_of_the_cohorts(service):
    """The same weights, the same numbers: a probe of the trained size is answered alike."""
    experiment = Experiment(
        task="phonebook", sharing=["Q=K", "QKV n_heads=2", "QKV tie=K=V"], n_seeds=2, steps=20
    )
    job_id = service.submit(experiment)
    snapshot = wait_until(service, job_id, lambda job: job.over).snapshot
    answers = service.ask(job_id, snapshot.probe.tokens, PATIENCE)
    given = np.concatenate([own.answers for own in answers.variants])
    np.testing.assert_array_equal(given, snapshot.probe.answers)
    plain = experiment.runs.index((Variant("Q=K"), 1))
    np.testing.assert_allclose(
        answers.variants[experiment.sharing.index(Variant("Q=K"))].attention[1, 0],
        snapshot.probe.pattern[plain, 0, 0, 8:, :8],
        atol=2e-3,
    )


def test_a_job_can_be_asked_while_it_trains(service):
    """It answers as it is at that step, and goes on."""
    job_id = service.submit(Experiment(task="phonebook", sharing=["QKV"], n_seeds=1, steps=20_000))
    job = wait_until(service, job_id, lambda job: step_of(job) > 0)
    assert service.ask(job_id, BOOK, PATIENCE).step >= job.snapshot.step
    assert service.look(job_id).state == "running"
    service.stop(job_id)


@pytest.mark.parametrize("positions", ["learned", "relative"])
def test_learned_positions_allow_no_other_size(service, positions):
    """Which is said of the variant, and the trained size is answered."""
    experiment = Experiment(
        task="phonebook", sharing=["QKV"], n_seeds=1, steps=5, positions=positions
    )
    job_id = service.submit(experiment)
    probe = wait_until(service, job_id, lambda job: job.over).snapshot.probe
    (refused,) = service.ask(job_id, BOOK, PATIENCE).variants
    assert refused.refusal.startswith("It answers books of 8 entries only: how it tells positions")
    assert service.ask(job_id, probe.tokens, PATIENCE).variants[0].refusal == ""


@pytest.mark.parametrize("words", ["positions=learned", "positions=relative"])
def test_a_variant_s_own_positions_are_why_it_is_refused(words):
    """Also where costs are equal."""
    experiment = Experiment(
        task="phonebook", sharing=["QKV", f"QKV {words}"], n_seeds=1, steps=1, equal="kv_cache"
    )
    _, refused = answer(Weights.of(Training(experiment)), BOOK).variants
    assert "how it tells positions apart" in refused.refusal


def test_a_book_that_the_task_does_not_allow_is_told(service, solved):
    """Field, value, what is allowed."""
    answer = service.ask(solved, BOOK[[0, 5]], PATIENCE)
    assert answer.startswith("n_entries: got 1, allowed a whole number from 2")


def test_weights_that_are_gone_are_told(service):
    """In a plain sentence that says what to do."""
    assert service.ask("nobody", BOOK, PATIENCE) == (
        "The weights of this run are not kept any more: train it again"
    )


def test_only_the_weights_of_the_last_jobs_are_kept(monkeypatch):
    """Memory is bounded by their size."""
    book = Experiment(task="phonebook", **{**SMALL, "steps": 5})
    commands = queue.Queue()
    for name in "abc":
        text = book.to_json()
        commands.put({"do": "start", "job": name, "experiment": text, **RUN})
    size = Weights.of(Training(book)).n_bytes
    monkeypatch.setattr(worker, "KEPT_BYTES", 2 * size)
    frames = Frames(commands, 3)
    own = Worker(frames)
    own.run(commands)
    ended = [header["job"] for header in frames.headers if header.get("state") == "finished"]
    assert list(own._ended) == ended[1:]
    monkeypatch.setattr(worker, "KEPT_BYTES", 1)
    commands.put({"do": "start", "job": "d", "experiment": text, **RUN})
    own._output = Frames(commands, 1)
    own.run(commands)
    assert not own._ended


def test_weights_are_kept_of_tasks_that_can_be_asked_only():
    """Others would push them out."""
    commands = queue.Queue()
    commands.put({"do": "start", "job": "a", "experiment": small(5).to_json(), **RUN})
    own = Worker(Frames(commands, 1))
    own.run(commands)
    assert not own._ended


def test_many_may_wait_for_an_example_of_a_process_that_dies():
    """Each of them gets an answer."""
    experiment = small(5).replace(n_values=11)
    with closing(TrainingService()) as service:
        the_example(service, small(5))
        os.kill(service.process_id, signal.SIGSTOP)
        found = []
        waiting = [
            threading.Thread(target=lambda: found.append(service.example(experiment, PATIENCE)))
            for _ in range(3)
        ]
        for thread in waiting:
            thread.start()
        os.kill(service.process_id, signal.SIGKILL)
        for thread in waiting:
            thread.join(PATIENCE)
        assert len(found) == 3
        assert len(the_example(service, experiment).tokens) == 5


def test_questions_to_a_process_that_dies_are_told():
    """Nobody waits for ever, and the next question is answered."""
    with closing(TrainingService()) as service:
        the_example(service, small(5))
        os.kill(service.process_id, signal.SIGSTOP)
        asked = []
        asking = threading.Thread(target=lambda: asked.append(service.ask("x", BOOK, PATIENCE)))
        asking.start()
        service.example(small(5).replace(n_values=8))
        os.kill(service.process_id, signal.SIGKILL)
        asking.join(PATIENCE)
        assert asked == ["The training process died and began anew: ask again"]
        service.example(small(5).replace(n_values=8), PATIENCE)
        assert len(the_example(service, small(5).replace(n_values=8)).tokens) == 5


def test_signs_of_life_come_in_the_middle_of_a_step(monkeypatch):
    """A thread of its own sends them: a process that is busy for long is not replaced."""
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
    own = Worker(Output(commands, 1))
    thread = threading.Thread(target=own.beat, daemon=True)
    thread.start()
    commands.put({"do": "start", "job": "a", "experiment": small(1).to_json(), **RUN})
    own.run(commands)
    assert len(beats) == 3


def test_addresses_take_turns_however_many_jobs_they_have():
    """Three of one address have together what one of another has."""
    commands, turns = queue.Queue(), []
    own = Worker(Frames(commands, 99))
    steps = dict.fromkeys("abcd", 0)
    for name in steps:
        address = "home" if name == "d" else "script"
        given = {"do": "start", "job": name, "experiment": unending(0).to_json()}
        own._obey({**given, **RUN, "address": address})
    for _ in range(40):
        name = own._next(own._active)
        turns.append(name)
        job = own._jobs[name]
        job.served += 1
        own._served[job.address] += 1
    assert [turns.count(name) for name in "abcd"] == [7, 7, 6, 20]
    own._obey({"do": "pause", "job": "d", "number": 1})
    own._obey({"do": "resume", "job": "d", "number": 2})
    assert turns.count("d") == own._served["home"]
