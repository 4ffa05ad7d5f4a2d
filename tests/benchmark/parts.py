"""Time of the parts of training, and how fast examples are drawn beside how fast they are used."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from attnkit.experiment import Experiment
from attnkit.foundation.process import n_cores
from attnkit.model.initial import generator_for
from attnkit.training import Training
from benchmark.cases import Case
from benchmark.compare import Rates

_TRIED_SECONDS = 0.3  # about, for each part or turn
_BATCHES = 16  # drawn in one call, as in training
_STEPS = 4  # trained in one call


@dataclass(frozen=True)
class Parts:
    """Microseconds of one thread per run, for five runs of one seed: of each step, and others."""

    case: str
    per_step: dict[str, float]
    others: dict[str, float]


def measure_parts(case: Case) -> Parts:
    """Measure the time of each part in one case."""
    experiment = case.experiment(5)
    training = experiment.training.model_copy(update={"n_eval": 128})
    experiment = experiment.model_copy(update={"training": training})
    in_progress = Training(experiment, "cpu")
    cohort = in_progress.cohorts[0]
    n_runs, n_threads = len(cohort.runs), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        tokens, labels = cohort._data.next()
        per_step = {
            "data": _microseconds(cohort._data.next) / n_runs,
            "gradients": _microseconds(lambda: cohort.model.differentiate(tokens, labels)) / n_runs,
            "Adam": _microseconds(lambda: cohort._optimiser.step(0.0)) / n_runs,
        }
        others = {
            "evaluation": _microseconds(cohort._evaluate) / n_runs,
            "snapshot": _microseconds(in_progress.snapshot) / experiment.n_runs,
        }
    finally:
        torch.set_num_threads(n_threads)
    return Parts(case.name, per_step, others)


def _microseconds(part: Callable[[], object]) -> float:
    """Return the mean time of one call."""
    part()
    turns: list[float] = []
    while sum(turns) < _TRIED_SECONDS or len(turns) < 3:
        started = time.perf_counter()
        part()
        turns.append(time.perf_counter() - started)
    return 1e6 * sum(turns) / len(turns)


def measure_supply(task: str, rounds: int) -> Rates:
    """Measure how many new examples per second are drawn, and how many 25 runs of training use."""
    rare = {"evaluate_every": 1000, "n_eval": 16}  # because evaluations draw no examples
    experiment = Experiment(task=task, n_train=0, steps=20_000, n_seeds=5, **rare)
    training = Training(experiment, "cpu")
    n_batch, drawn_task = experiment.training.batch_size, experiment.task_at(0)
    generators = [generator_for(seed, "supply") for seed in range(n_cores())]
    pool = ThreadPoolExecutor(n_cores(), initializer=torch.set_num_threads, initargs=(1,))

    def draw(generator: torch.Generator) -> None:
        drawn_task.draw(n_batch * _BATCHES, generator, held_out=False)

    rates: dict[str, list[float]] = {"drawn": [], "used": []}
    with pool:
        for _ in range(rounds):
            microseconds = _microseconds(lambda: list(pool.map(draw, generators)))
            rates["drawn"].append(1e6 * len(generators) * n_batch * _BATCHES / microseconds)
            microseconds = _microseconds(lambda: training.advance(_STEPS))
            rates["used"].append(1e6 * experiment.n_seeds * n_batch * _STEPS / microseconds)
    return Rates(rates)
