"""Estimates of memory: near the measured peak of any experiment, and what a hosted copy allows."""

import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from peaks import HOSTED, LEAST_MEGABYTES, draw

from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training.memory import peak_megabytes

MOST_ABOVE, MOST_BELOW = 1.3, 1.5
"""Largest ratio of peak to estimate, and of estimate to peak where the peak is 100 MB or more."""


def measured(*arguments):
    """Measure drawn experiments, in forks of a process of its own; return their peaks."""
    command = [sys.executable, str(Path(__file__).with_name("peaks.py")), *map(str, arguments)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def ratios_of(peaks):
    """Return the ratios of peak to estimate; none is far from 1."""
    assert not [peak for peak in peaks if peak["error"]]
    wrong = [
        peak
        for peak in peaks
        if peak["peak"] > MOST_ABOVE * max(peak["estimate"], LEAST_MEGABYTES)
        or (peak["peak"] > 100 and peak["estimate"] > MOST_BELOW * peak["peak"])
    ]
    assert not wrong
    return sorted(peak["peak"] / peak["estimate"] for peak in peaks)


def test_estimates_are_near_the_peaks(seed):
    """Drawn experiments of any kind, on both engines."""
    ratios_of(measured(4, "--seed", seed, "--most", 150))


@pytest.mark.long
def test_three_hundred_estimates_are_near_the_peaks(seed):
    """Their median is near 1."""
    assert 0.8 < statistics.median(ratios_of(measured(300, "--seed", seed))) < 1.1


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_hosted_copy_trains_all_defaults_and_examples(engine, monkeypatch):
    """A class of thirty trains them in turns, not one after the other."""
    monkeypatch.setenv("ATTNKIT_ENGINE", engine)
    for task in TASKS:
        for experiment in (Experiment(task=task), load_example(task).experiment):
            assert not HOSTED.problems(experiment)
            assert peak_megabytes(experiment) < HOSTED.training_megabytes / 5


def test_estimates_grow_with_the_experiment(seed):
    """More seeds never take less."""
    generator = random.Random(seed)
    for _ in range(10):
        experiment = draw(generator)
        smaller = experiment.replace(n_seeds=1)
        assert peak_megabytes(smaller) <= peak_megabytes(experiment)
