"""Speed of drawing examples, compared with the speed at which training uses them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import torch

from attnkit.experiment import Experiment
from attnkit.foundation.process import n_cores
from attnkit.model.initial import generator_for
from attnkit.training import Training
from benchmark.compare import ROUNDS, Rates

_TURN_SECONDS = 0.3
_BATCHES = 16  # drawn in one call, as in training
_EVALUATE_EVERY = 1000  # few, because evaluations draw no examples


def measure_supply(task: str, rounds: int = ROUNDS) -> Rates:
    """Measure how many new examples per second are drawn, and how many 25 runs of training use."""
    experiment = Experiment(
        task=task, n_train=0, steps=20_000, evaluate_every=_EVALUATE_EVERY, n_eval=16, n_seeds=5
    )
    training = Training(experiment, "cpu")
    n_batch, drawn_task = experiment.training.batch_size, experiment.task_at(0)
    seeds = list(range(n_cores()))
    generators = [generator_for(seed, "supply") for seed in seeds]

    def draw(seed: int) -> None:
        drawn_task.draw(n_batch * _BATCHES, generators[seed], held_out=False)

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
