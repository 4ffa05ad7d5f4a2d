"""The work of a training, the pace of this machine, and what the queue learns of both."""

import threading
from types import SimpleNamespace

import pytest

from attnkit.experiment import Experiment
from attnkit.service.jobs import Job, JobQueue
from attnkit.service.server import ServerSettings
from attnkit.training.pace import TORCH_WORK, measure_pace, training_work

EXPERIMENT = Experiment(task="mqar", n_seeds=2)


def test_work_grows_with_steps_seeds_and_sizes(monkeypatch):
    """Cores share runs, but one run is trained by one core; torch takes longer."""
    work, steps = training_work(EXPERIMENT), EXPERIMENT.training.steps
    assert training_work(EXPERIMENT.replace(n_seeds=4)) == pytest.approx(2 * work)
    assert training_work(EXPERIMENT.replace(steps=2 * steps)) == pytest.approx(2 * work, rel=0.05)
    for wider in ({"d_model": 64}, {"n_layers": 3}, {"length": 48}, {"batch_size": 128}):
        assert training_work(EXPERIMENT.replace(**wider)) > 1.2 * work
    known, unknown = (Experiment(sharing=[name]) for name in ("QKV", "QKV exclusive"))
    one, by_cores = known.replace(n_seeds=1), {}
    for n_cores in (1, 2):
        monkeypatch.setattr("attnkit.training.pace.n_cores", lambda n=n_cores: n)
        by_cores[n_cores] = training_work(one), training_work(one.replace(n_seeds=6))
    assert by_cores[1] == pytest.approx((by_cores[2][0], 2 * by_cores[2][1]))
    slower = training_work(unknown) / training_work(unknown, "torch")
    assert slower == pytest.approx(TORCH_WORK)
    assert training_work(known) == training_work(known, "torch")


def test_the_estimate_follows_the_pace_of_this_machine_and_learns_from_jobs():
    """The estimate for the same task becomes the measured pace; for others it moves towards it."""
    assert 0 < measure_pace("torch") < 60
    queue, other = JobQueue(ServerSettings(), threading.Condition()), Experiment(task="directed")
    queue.set_pace(0.01, "kernel")
    before = queue.seconds_for(EXPERIMENT), queue.seconds_for(other)
    queue.set_pace(0.02, "kernel")
    assert queue.seconds_for(EXPERIMENT) == pytest.approx(2 * before[0])
    queue.set_pace(0.01, "kernel")
    steps = EXPERIMENT.training.steps
    half = SimpleNamespace(step=steps // 2, seconds=2 * before[0])
    queue.learn_pace(Job("name", EXPERIMENT, filmed=EXPERIMENT, begun=True), half)
    assert queue.seconds_for(EXPERIMENT) == pytest.approx(4 * before[0])
    assert before[1] < queue.seconds_for(other) < 4 * before[1]
    larger = EXPERIMENT.replace(steps=3 * steps)
    assert queue.seconds_for(larger) == pytest.approx(12 * before[0], rel=0.05)
