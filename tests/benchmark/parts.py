"""Time of the parts of training: data, gradients, optimiser, evaluation and snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnkit.training import Training
from benchmark.cases import Case

_TRIED_SECONDS = 0.3  # about, for each part


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
    n_runs = len(cohort.runs)
    n_threads = torch.get_num_threads()
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
