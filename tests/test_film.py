"""Films: frames at evaluations, few enough, and the same for a seed alone or beside others."""

import numpy as np
import pytest
from filming import experiment_of
from hypothesis import given
from hypothesis import strategies as st
from same import assert_same
from searching import briefly

from attnkit.experiment import Experiment
from attnkit.service.answers import drop_oldest
from attnkit.training import Training, train
from attnkit.training.film import MOST_BYTES, MOST_FRAMES, film_megabytes, filmed_steps
from attnkit.training.recorder import Recorder, record

SETTINGS = {"task": "directed", "sharing": ["QKV", "Q=K", "MQA n_heads=2", "QKV tie=K=V"]}


def test_a_seed_filmed_beside_others_is_the_seed_filmed_alone(seed):
    """Also if it is looked at more often than frames are due; frames are copies."""
    chosen, experiment = seed % 3, experiment_of(**SETTINGS, steps=8)
    training = Training(experiment.replace(n_seeds=3))
    recorder = Recorder(training, chosen)
    while not training.finished:
        training.advance(1)
        recorder.record_frame()
    together = recorder.film
    assert_same(together, record(experiment.replace(n_seeds=3), chosen))
    assert_same(together, record(experiment.replace(first_seed=chosen)))
    first, last = (together.frames[place].parameters[0]["0.W_Q"] for place in (0, -1))
    assert (first != last).any()


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_frames_are_those_of_the_evaluations(monkeypatch, engine):
    """Steps, what was measured, by which engine, and at the end the weights of the result."""
    monkeypatch.setenv("ATTNKIT_ENGINE", engine)
    experiment = experiment_of(**SETTINGS, steps=7)
    film, result = record(experiment), train(experiment)
    assert film.steps == result.snapshot.eval_steps.tolist() == [0, 2, 4, 6, 7]
    for name, history in result.snapshot.history.items():
        np.testing.assert_array_equal(film.metric(name), history)
    np.testing.assert_array_equal(film.head_symmetry[-1], result.snapshot.head_symmetry)
    assert_same(film.frames[-1].parameters, result.parameters)
    assert (film.engine, film.processor, film.versions) == result.snapshot.maker
    assert film.engine == film.at(0).engine == engine


@given(st.integers(1, 3000), st.integers(1, 50))
@briefly(30)
def test_a_film_has_so_many_frames_at_most(steps, every):
    """Evenly chosen among the evaluations, with the first and the last."""
    every = min(every, steps)
    found = filmed_steps(Experiment(steps=steps, evaluate_every=every))
    evaluated = [*range(0, steps, every), steps]
    assert len(found) == min(len(evaluated), MOST_FRAMES)
    assert (found[0], found[-1]) == (0, steps)
    gaps = np.diff([evaluated.index(step) for step in found])
    assert gaps.max() - gaps.min() <= 1


def test_of_large_models_there_are_few_frames():
    """Their weights take so much memory at most, or two frames; it is foretold exactly."""
    large = Experiment(d_model=512, n_heads=8, d_head=64, n_layers=4, d_mlp=512, sharing=["QKV"])
    middle = large.replace(d_model=128, d_mlp=0, n_layers=1)
    assert filmed_steps(large) == [0, 600]
    assert 2 < len(filmed_steps(middle)) < 61
    assert film_megabytes(middle) * 2**20 <= MOST_BYTES
    experiment = experiment_of("directed", sharing=["QKV", "Q=K", "Q=K=V"])
    assert record(experiment).n_bytes == film_megabytes(experiment) * 2**20


def test_films_are_cut_by_steps():
    """After a step, at a step, or thinned; the first and the last frame stay."""
    film = record(experiment_of(**SETTINGS, steps=8))
    assert film.steps == [0, 2, 4, 6, 8]
    assert film.after(4).steps == [6, 8]
    assert film.at(5).steps == film.at(4).steps == [4]
    assert film.after(2).at(0).steps == [4]
    assert film.thinned(3).steps == [0, 4, 8]
    assert film.thinned(1).steps == [0, 8]
    assert film.thinned(5).steps == film.steps


def test_films_are_kept_up_to_a_size():
    """The one that was looked at least recently goes first."""
    kept = {name: record(experiment_of(**SETTINGS)) for name in "abc"}
    drop_oldest(kept, sum(film.n_bytes for film in kept.values()) - 1)
    assert list(kept) == ["b", "c"]
    drop_oldest(kept, 1, least=1)
    assert list(kept) == ["c"]
