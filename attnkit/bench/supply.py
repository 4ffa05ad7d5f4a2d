"""How much faster generators draw examples than training uses them up."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import torch

from attnkit.bench.compare import ROUNDS, Rates
from attnkit.experiment import Experiment
from attnkit.foundation.process import n_cores
from attnkit.model.initial import generator_for
from attnkit.training import Training

_TURN_SECONDS = 0.3
"""About how long a turn takes."""

_BATCHES = 16
"""Batches that are drawn in one call, as in training."""

_RARELY = 1000
"""Steps between evaluations: they draw nothing."""


def measure_supply(task: str, rounds: int = ROUNDS) -> Rates:
    """Examples per second that are drawn, and that five sharings × five seeds are trained on.

    Both use all cores, in turns. The task is at its defaults, but every step has new examples.
    """
    experiment = Experiment(
        task=task, n_train=0, steps=20_000, evaluate_every=_RARELY, n_eval=16, n_seeds=5
    )
    training = Training(experiment, "cpu")
    n_batch, asked = experiment.training.batch_size, experiment.task_at(0)
    seeds = list(range(n_cores()))
    generators = [generator_for(seed, "supply") for seed in seeds]

    def draw(seed: int) -> None:
        asked.draw(n_batch * _BATCHES, generators[seed], held_out=False)

    def train(n_steps: int) -> float:
        training.advance(n_steps)
        return n_steps * len(experiment.seeds) * n_batch

    rates: dict[str, list[float]] = {"drawn": [], "used": []}
    with ThreadPoolExecutor(n_cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(draw, seeds))
        train(2)
        started = time.perf_counter()
        train(2)
        n_steps = max(2, round(2 * _TURN_SECONDS / (time.perf_counter() - started)))
        for _ in range(rounds):
            started, n_drawn = time.perf_counter(), 0
            while time.perf_counter() - started < _TURN_SECONDS:
                list(pool.map(draw, seeds))
                n_drawn += len(seeds) * n_batch * _BATCHES
            rates["drawn"].append(n_drawn / (time.perf_counter() - started))
            started = time.perf_counter()
            n_used = train(n_steps)
            rates["used"].append(n_used / (time.perf_counter() - started))
    return Rates(rates)
