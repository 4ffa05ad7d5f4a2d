"""What trains is filmed, and the films of jobs can be looked into while they are kept."""

import numpy as np
import pytest
from kinds import SMALL
from waiting import PATIENCE, wait_until

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.inspection.views import inspect
from attnkit.experiment import Experiment
from attnkit.service.answers import drop_oldest
from attnkit.training.film import film_megabytes, filmed_steps
from attnkit.training.recorder import record

pytestmark = pytest.mark.server

ASKED = Inspection("attention")
TWO_SEEDS = Experiment(**{**SMALL, "n_seeds": 2, "steps": 44})


def looked_into(service, job_id, inspection=ASKED):
    """What a service finds."""
    found = service.inspect(job_id, inspection, PATIENCE)
    assert isinstance(found, bytes), found
    return InspectionResult.from_bytes(found)


def fail(service, job_id):
    """As if its training had failed."""
    with service._changed:
        service._queue.update(job_id, state="failed", error="not enough memory")


def alone(experiment, seed):
    """One of its seeds."""
    return experiment.replace(first_seed=seed, n_seeds=1)


def assert_same(found, wanted):
    """The same arrays, bit by bit."""
    assert found.framed.keys() == wanted.framed.keys()
    for name, array in wanted.framed.items():
        np.testing.assert_array_equal(found.framed[name], array, name)


def test_a_finished_job_shows_every_filmed_step(service):
    """With the numbers of the same seed recorded alone."""
    job_id = service.submit(TWO_SEEDS)
    wait_until(service, job_id, lambda job: job.over)
    found = looked_into(service, job_id)
    assert found.header["steps"] == filmed_steps(TWO_SEEDS) == [0, 11, 22, 33, 44]
    assert found.header["film"] == job_id
    film = record(TWO_SEEDS)
    assert_same(found, inspect(film, ASKED))
    assert film.n_bytes / 2**20 == pytest.approx(film_megabytes(TWO_SEEDS))  # as was foretold
    assert service.film(alone(TWO_SEEDS, 0)) == job_id
    wrong = service.inspect(job_id, Inspection("attention", example=99), PATIENCE)
    assert wrong == "example: got 99, allowed 0 to 31"


def test_another_seed_is_trained_for_its_film_and_is_no_result(service):
    """It is trained alone, and the Lab does not find it: it was never stored."""
    experiment = TWO_SEEDS.replace(steps=33)
    one = alone(experiment, 1)
    job = wait_until(service, service.film(one), lambda job: job.over)
    assert not job.kept
    assert service.film(one) == job.id
    assert service.find(one) is service.find(alone(one, 2)) is None
    assert_same(looked_into(service, job.id), inspect(record(experiment, 1), ASKED))


def test_a_running_job_shows_what_has_been_so_far_and_keeps_it_when_stopped(service):
    """When asked, only what is new since a step; once stopped, for whoever sees that job.

    Others get the whole, and what has failed is not tried again.
    """
    experiment = TWO_SEEDS.replace(steps=20_000)
    job_id = service.submit(experiment)
    wait_until(service, job_id, lambda job: job.step > 800)
    first = looked_into(service, job_id).header["steps"][1]
    later = looked_into(service, job_id, Inspection("attention", since=first))
    assert min(later.header["steps"]) > first
    service.stop(job_id)
    wait_until(service, job_id, lambda job: job.settled)
    assert looked_into(service, job_id).header["steps"][0] == 0
    assert service.film(alone(experiment, 0), shown=job_id) == job_id
    whole = service.film(alone(experiment, 0))
    assert whole != job_id
    service.stop(whole)
    fail(service, whole)
    assert service.film(alone(experiment, 0)) == whole
    again = service.submit(alone(experiment, 0), kept=False)
    assert service.film(alone(experiment, 0)) == again
    service.stop(again)


def test_films_are_kept_up_to_a_size():
    """The one that was looked at least recently goes first."""
    kept = {name: record(TWO_SEEDS.replace(steps=11)) for name in "abc"}
    drop_oldest(kept, sum(film.n_bytes for film in kept.values()) - 1)
    assert list(kept) == ["b", "c"]
    drop_oldest(kept, 1, least=1)
    assert list(kept) == ["c"]


def test_a_film_that_is_gone_is_recorded_again(service):
    """By training its seed alone, with the same numbers, in a process in place of one that died.

    It takes seconds because another process has to start.
    """
    experiment = TWO_SEEDS.replace(first_seed=7)
    first = service.submit(experiment)
    wait_until(service, first, lambda job: job.over)
    before = looked_into(service, first)
    service._supervisor.process.end()  # and with it all films
    for _ in range(100):  # until a new process has said that it has no such film
        found = service.inspect(first, ASKED, PATIENCE)
        if found is None:
            break
        assert "died" in found
    assert found is None
    again = service.film(alone(experiment, 7))
    assert again != first
    wait_until(service, again, lambda job: job.over)
    assert_same(looked_into(service, again), before)
