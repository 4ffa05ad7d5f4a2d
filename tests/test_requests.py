"""Requests to the training process: examples of tasks, and answers of trained models to a book."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from threaded import ThreadProcess, in_threads
from waiting import PATIENCE, small, the_example, wait_until

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.service.answers import Weights, answer
from attnkit.service.jobs import Watcher
from attnkit.service.process import OF_ADDRESS, OF_VISITOR, Requests
from attnkit.service.protocol import Answer, Inspect, Withdraw
from attnkit.service.service import TrainingService
from attnkit.tasks import TASKS
from attnkit.training import Training
from attnkit.training.data import draw_probe
from attnkit.variants import Variant

__all__ = ["in_threads"]

BOOK = np.array([[n, 32 + n] for n in range(5)] + [[n, 64] for n in range(5)])
"""Five entries of the phone book, each queried once."""


@pytest.fixture(scope="module")
def service(in_threads):
    """A service whose process is a thread."""
    with closing(TrainingService()) as opened:
        yield opened


def answer_all(weights, tokens):
    """Return the answers of all variants of one training."""
    variants = weights.experiment.sharing
    return answer([weights] * len(variants), variants, tokens)


def test_an_example_is_the_one_that_the_maps_show(service):
    """Every task's is drawn once for all settings that leave the task as it is."""
    for task in TASKS:
        experiment = Experiment(task=task)
        found, drawn = the_example(service, experiment), draw_probe(experiment.task)
        np.testing.assert_array_equal(found.tokens, drawn.tokens[0], task)
        np.testing.assert_array_equal(found.labels, drawn.labels[0], task)
        np.testing.assert_array_equal(found.target, drawn.target[0], task)
        reverse = -1 if drawn.reverse is None else drawn.reverse[0].numpy()
        np.testing.assert_array_equal(found.reverse, np.broadcast_to(reverse, found.target.shape))
    first = the_example(service, small(5))
    assert service.example(small(7, first_seed=3)) is first
    assert the_example(service, small(5).replace(n_values=9)) is not first


def test_the_models_of_a_shipped_example_answer_books_of_any_size(service):
    """They give the answers of its first seed, and look at the entry that they read."""
    for task in (name for name, kind in TASKS.items() if is_phone_book(kind())):
        example = load_example(task)
        answers = answer_all(Weights.shipped(task), example.probe.tokens)
        given = np.concatenate([variant.answers for variant in answers.variants])
        np.testing.assert_array_equal(given, example.probe.answers[:: example.experiment.n_seeds])
        assert answers.step == example.experiment.training.steps
    qkv, *others = service.ask_example("phonebook", BOOK, PATIENCE).variants
    assert qkv.attention[0, 0].argmax(-1).tolist() == [0, 1, 2, 3, 4]
    for variant in (qkv, *others):
        assert (variant.refusal, variant.answers.tolist()) == ("", [[0, 1, 2, 3, 4]])


def test_answers_are_those_of_the_job_and_what_cannot_be_answered_is_told(service):
    """To a probe they are those that the training has recorded; a job can be asked while it trains.

    A wrong book is told by field, value and range; weights that are gone with what to do.
    """
    experiment = Experiment(
        task="phonebook", sharing=["Q=K", "QKV n_heads=2", "QKV tie=K=V"], n_seeds=2, steps=20
    )
    job_id = service.submit(experiment)
    probe = wait_until(service, job_id, lambda job: job.over).snapshot.probe
    answers = service.ask(job_id, probe.tokens, PATIENCE)
    given = np.concatenate([variant.answers for variant in answers.variants])
    np.testing.assert_array_equal(given, probe.answers)
    run = experiment.runs.index((Variant("Q=K"), 1))
    np.testing.assert_allclose(
        answers.variants[experiment.sharing.index(Variant("Q=K"))].attention[1, 0],
        probe.pattern[run, 0, 0, 8:, :8],
        atol=2e-3,
    )
    assert service.ask(job_id, BOOK, PATIENCE).variants[0].attention.shape == (2, 1, 5, 5)
    assert service.ask(job_id, BOOK[[0, 5]], PATIENCE).startswith("n_entries: got 1, allowed")
    assert "weights" in service.ask("nobody", BOOK, PATIENCE)
    job_id = service.submit(experiment.replace(steps=20_000))
    job = wait_until(service, job_id, lambda job: job.step > 0)
    assert service.ask(job_id, BOOK, PATIENCE).step >= job.snapshot.step
    assert service.job(job_id).state == "running"
    service.stop(job_id)


def test_learned_positions_allow_no_other_size():
    """Their refusal says so, also where costs are made equal; the trained size is answered."""
    sharing = ["QKV", "QKV positions=learned", "QKV positions=relative"]
    experiment = Experiment(task="phonebook", sharing=sharing, n_seeds=1, steps=1, equal="kv_cache")
    training = Training(experiment)
    weights, probe = Weights.of(training), training.snapshot("finished").probe
    answered, *refused = answer_all(weights, BOOK).variants
    assert answered.refusal == ""
    assert all("books of 8 entries" in one.refusal for one in refused)
    assert not any(one.refusal for one in answer_all(weights, probe.tokens).variants)


def test_whoever_waits_for_a_process_that_dies_gets_an_answer(service, in_threads, monkeypatch):
    """Examples are drawn by the next process; a question is told to be asked again."""
    lacking, kept = small(5).replace(n_values=13), []
    the_example(service, small(5))
    with monkeypatch.context() as patch:
        patch.setattr(ThreadProcess, "send", lambda _, command: kept.append(command))
        pool = ThreadPoolExecutor(3)
        found = [pool.submit(service.example, lacking, PATIENCE) for _ in range(2)]
        told = pool.submit(service.ask, "x", BOOK, PATIENCE)
        while len(kept) < 2:
            time.sleep(0.001)
    in_threads[-1].kill()
    assert all(one.result(PATIENCE) is not None for one in found)
    assert "died" in told.result(PATIENCE)
    pool.shutdown()
    assert len(the_example(service, lacking).tokens) == 5


def test_one_browser_does_not_crowd_out_others_nor_one_address():
    """Each has a largest number of requests under way, and more of them are told to ask again."""
    sent = []
    asked = Requests(threading.Condition(), sent.append)
    senders = [("class", "flood")] * 20 + [("class", f"pupil {n}") for n in range(90)]
    for number, (address, visitor) in enumerate([*senders, ("home", "y")]):
        sizes = {"n_values": 4 + number % 60, "n_names": 16 + number // 60}  # an example for each
        experiment = Experiment(task="phonebook", **sizes)
        assert asked.example(experiment, 0.0, Watcher("", visitor, address)) is None
    senders = Counter((request.address, request.visitor) for request in sent)
    assert senders["class", "flood"] == OF_VISITOR
    assert senders["home", "y"] == senders["class", "pupil 50"] == 1
    assert len(sent) == OF_ADDRESS + 1


def test_what_comes_too_late_is_withdrawn():
    """The page is told that the process is busy, and an answer that comes late is dropped."""
    request, sent = Inspect(request="late", address="home", inspection={}), []
    asked = Requests(threading.Condition(), sent.append)
    assert "busy" in asked.answer(request, 0.0)
    assert sent == [request, Withdraw("late")]
    asked.take(Answer(("late",), b"too late"))
