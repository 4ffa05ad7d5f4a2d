"""Memory: estimates are near the peaks, and what has ended is free."""

import gc
import json
import statistics
import subprocess
import sys
import weakref
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_experiments import mixed
from searching import briefly

from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.service.server import ServerSettings
from attnkit.tasks import TASKS
from attnkit.training import Training
from attnkit.training.cohort import Cohort
from attnkit.training.engine import choose_engine
from attnkit.training.loops import Recorder
from attnkit.training.memory import peak_megabytes

HOSTED = ServerSettings.of({"ATTNKIT_HOSTED": "true"})


@pytest.mark.server
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are measured on Linux only")
@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("part", range(3))
def test_estimates_are_near_the_peaks(part):
    """On both engines, for drawn experiments that a hosted copy trains; the median is near 1."""
    command = [sys.executable, str(Path(__file__).with_name("peaks.py")), "30", str(part)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    peaks = [json.loads(line) for line in lines.splitlines()]
    for one in peaks:
        assert one["peak"] <= 1.3 * max(one["estimate"], 20), one
        assert one["peak"] <= 100 or one["estimate"] <= 2 * one["peak"], one
    assert 0.55 < statistics.median(one["peak"] / one["estimate"] for one in peaks) < 1.15


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_hosted_copy_trains_all_defaults_and_examples(engine, monkeypatch):
    """A class of thirty trains them in turns; more seeds and parameters take more."""
    monkeypatch.setenv("ATTNKIT_ENGINE", engine)
    for task in TASKS:
        default = Experiment(task=task)
        for experiment in (default, load_example(task).experiment):
            assert not HOSTED.problems(experiment)
            assert peak_megabytes(experiment) < HOSTED.training_megabytes / 5
        more = default.replace(n_seeds=2 * default.n_seeds)
        assert 1.1 < peak_megabytes(more) / peak_megabytes(default) < 2.3
    for larger in ({"d_model": 256}, {"n_layers": 4}, {"n_entries": 16}, {"d_mlp": 512}):
        assert peak_megabytes(Experiment(**larger)) > 1.2 * peak_megabytes(Experiment()), larger


@briefly(20)
@given(experiment=mixed())
def test_an_estimate_holds_the_arrays_of_a_training(experiment):
    """Weights, gradients and two moments of every run, and the examples; not many times as much."""
    training = Training(experiment, engine="torch")
    n_bytes = sum(
        4 * cohort.model.numbers.nbytes + cohort._evaluator.held_out.tokens.nbytes
        for cohort in training.cohorts
    )
    estimates = [peak_megabytes(experiment, engine) for engine in ("torch", "kernel")]
    assert n_bytes / 2**20 < min(estimates)
    assert max(estimates) < 60 + 60 * n_bytes / 2**20


def parts_of(training, recorder):
    """Return weak references to all that takes memory in a training."""
    found = [training, recorder, *recorder._film.frames]
    for cohort in training.cohorts:
        found += [cohort, cohort.model, cohort.model.numbers, cohort._data, cohort._optimiser]
        found += [cohort._evaluator, cohort._evaluator.held_out.tokens, cohort.evaluations[-1]]
    return {f"{type(part).__name__} {n}": weakref.ref(part) for n, part in enumerate(found)}


@pytest.mark.parametrize("engine", ["torch", choose_engine(torch.device("cpu"))])
@briefly(4)
@given(experiment=mixed(), fails=st.booleans())
def test_a_training_that_is_dropped_is_gone_at_once(engine, experiment, fails):
    """No cycle keeps it until a collection, whatever it trains; an error is not kept either."""
    gc.collect()
    gc.disable()
    try:
        training = Training(experiment, engine=engine)
        recorder = Recorder(training)
        while not training.finished and not fails:
            training.advance(recorder.n_steps_left)
            recorder.record_frame()
            training.snapshot().to_bytes()
        if fails:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Cohort, "_evaluate", Mock(side_effect=MemoryError))
                with pytest.raises(MemoryError):
                    training.advance(10**6)
        else:
            training.result().to_blobs()
        parts = parts_of(training, recorder)
        del training, recorder
        assert [name for name, part in parts.items() if part() is not None] == []
    finally:
        gc.enable()
