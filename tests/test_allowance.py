"""Memory of the training process: who takes too much fails alone, and what has ended is free."""

import gc
import json
import sys
import weakref
from pathlib import Path

import pytest
import torch
from children import child
from hypothesis import given
from kinds import tiny
from random_experiments import mixed
from searching import briefly

from attnkit.foundation.process import environment_with_package
from attnkit.training import Training
from attnkit.training.cohort import Cohort
from attnkit.training.engine import choose_engine
from attnkit.training.recorder import Recorder

HUNGRY = Path(__file__).parent / "hungry.py"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_job_beyond_its_estimate_fails_alone_and_leftovers_refuse_nobody(seed):
    """Drawn jobs train side by side and one after another, near the limit of their estimates."""
    command = [sys.executable, str(HUNGRY), str(seed)]
    with child(*command, stdout=-1, env=environment_with_package()) as process:
        failed, wrong = json.loads(process.communicate()[0])
    assert sorted(failed) == wrong
    assert set(failed.values()) <= {
        "it needs more memory than estimated; take smaller sizes, or fewer seeds"
    }


def parts_of(training, recorder):
    """Return weak references to all that takes memory in a training."""
    found = [training, recorder, *recorder._film.frames]
    for cohort in training.cohorts:
        found += [cohort, cohort.model, cohort.model.numbers, cohort._data, cohort._optimiser]
        found += [cohort._evaluator, cohort._evaluator.held_out.tokens, cohort.evaluations[-1]]
    return {f"{type(part).__name__} {n}": weakref.ref(part) for n, part in enumerate(found)}


@pytest.mark.parametrize("engine", ["torch", choose_engine(torch.device("cpu"))])
@briefly(10)
@given(experiment=mixed())
def test_a_training_that_is_dropped_is_gone_at_once(engine, experiment):
    """No cycle keeps it until a collection, whatever it trains."""
    gc.collect()
    gc.disable()
    try:
        training = Training(experiment, engine=engine)
        recorder = Recorder(training)
        while not training.finished:
            training.advance(recorder.n_steps_left)
            recorder.record_frame()
            training.snapshot().to_bytes()
        training.result().to_blobs()
        parts = parts_of(training, recorder)
        del training, recorder
        assert [name for name, part in parts.items() if part() is not None] == []
    finally:
        gc.enable()


@pytest.mark.parametrize("broken", ["_train_step", "_evaluate"])
def test_a_training_that_fails_is_gone_at_once(monkeypatch, broken):
    """Its error is not kept either."""
    training, begun = Training(tiny("directed")), []

    def fail(cohort):
        begun.append(weakref.ref(cohort))
        raise MemoryError

    monkeypatch.setattr(Cohort, broken, fail)
    gc.collect()
    gc.disable()
    try:
        parts = parts_of(training, Recorder(training))
        with pytest.raises(MemoryError):
            training.advance(4)
        with pytest.raises(MemoryError):
            Training(tiny("directed")) if broken == "_evaluate" else training.advance(4)
        del training
        assert [name for name, part in parts.items() if part() is not None] == []
        assert [cohort() for cohort in begun] == [None] * len(begun)
    finally:
        gc.enable()
