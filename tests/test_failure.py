"""Failed trainings are called failed, with the setting to change; no variant is blamed."""

import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny
from searching import times

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.reasons import headline, reason
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training import Training
from attnkit.training.camera import record
from attnkit.training.failure import LEAST_LEARNED, failure_of
from attnkit.training.summary import finding

QUICK = ("phonebook", "directed", "mutual", "dual_role", "neighbours")
"""Tasks whose default experiment trains within seconds."""

ABOUT_TRAINING = {"failed", "diverged", "too fast"}
"""Kinds of reasons that name the training and not a variant's matrices."""


def drawn_trainings(n):
    """Draw tasks, learning rates and seeds; the first rates are 0.3 and 1."""
    random = np.random.default_rng(38)
    rates = [0.3, 1.0, *10 ** random.uniform(np.log10(0.3), 0, n - 2)]
    return [
        (str(random.choice(QUICK)), float(rate), int(random.integers(10_000))) for rate in rates
    ]


@pytest.mark.parametrize(("task", "rate", "seed"), drawn_trainings(times(2)))
def test_no_run_at_a_ruinous_learning_rate_is_blamed_on_sharing(task, rate, seed):
    """Every reason is about the training, and names the learning rate."""
    experiment = Experiment(
        task=task, learning_rate=rate, n_seeds=1, first_seed=seed, sharing=["QKV", "Q=K", "K=V"]
    )
    training = Training(experiment, "cpu")
    training.advance(experiment.training.steps)
    snapshot = training.snapshot("finished")
    told = [headline(snapshot, seed), *(reason(snapshot, v, seed) for v in experiment.sharing)]
    for each in filter(None, told):
        assert each.kind in ABOUT_TRAINING
        assert "learning rate" in each.in_words(experiment, seed)
    assert told[0] is not None
    if told[0].kind == "failed":
        assert "“Learning rate”" in told[0].advice
        assert "Not solved" not in finding(snapshot)


def test_no_finished_example_counts_as_a_failed_training():
    """The default experiment of every task says something about sharing."""
    assert [task for task in TASKS if failure_of(load_example(task)) is not None] == []


def test_a_training_has_failed_only_if_no_run_of_it_has_learnt():
    """Random accuracies and losses, also NaN: one run that has learnt is enough."""
    random = np.random.default_rng(4)
    for _ in range(200):
        names = ["QKV", "Q=K", "K=V", "QKV kv_rank=2 n_heads=2", "Q=K=V"]
        sharing = [name for name in names if random.random() < 0.6] or ["Q=K"]
        experiment = tiny("phonebook", sharing=sharing, n_seeds=2)
        least = experiment.task.chance + LEAST_LEARNED * (1 - experiment.task.chance)
        levels = [0.0, experiment.task.chance, least - 1e-3, least + 1e-3, 1.0, np.nan]
        odds = np.array([3, 3, 3, 0.2, 0.2, 3]) if random.random() < 0.8 else np.eye(6)[5]
        last = random.choice(levels, (len(experiment.sharing), 2), p=odds / odds.sum())
        lost = np.where(np.isnan(last), experiment.training.steps, -1)
        snapshot = finished(experiment, [np.zeros_like(last), last], diverged_at=lost)
        failure = failure_of(snapshot)
        diverged = np.isnan(last).all()
        comparable = "QKV" in sharing or diverged
        assert (failure is not None) == (comparable and not (last >= least).any())
        if failure is not None:
            assert headline(snapshot, 0).kind == "failed"
            running = dataclasses.replace(snapshot, status="running")
            assert (failure_of(running) is not None) == diverged


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"learning_rate": 0.3}, "Lower “Learning rate” (default 0.005)"),
        ({"learning_rate": 0.001, "steps": 600}, "Raise “Learning rate” (default 0.005)"),
        ({"steps": 8}, "Raise “Steps” (default 600)"),
        ({"steps": 700}, "Raise “Steps” (default 600), or make the task easier"),
    ],
)
def test_the_advice_names_a_setting_as_the_screen_does_and_its_default(given, advice):
    """It is the learning rate if that is not the default, else the steps."""
    experiment = tiny("phonebook", sharing=["QKV"], n_seeds=1, **given)
    assert failure_of(finished(experiment, [[[0.0]]] * 2)).advice.startswith(advice)


def test_the_pages_that_look_into_a_failed_training_say_so():
    """Their header has the same sentence; before the end of training it has none."""
    experiment = tiny("phonebook", sharing=["QKV", "Q=K"], n_seeds=1, learning_rate=1.0)
    film = record(experiment)
    begun = dataclasses.replace(film, frames=film.frames[:-1])
    for view in ("attention", "symmetry", "similarity"):
        assert inspect(begun, Inspection(view)).header["failure"] == ""
        assert "Lower “Learning rate”" in inspect(film, Inspection(view)).header["failure"]
