"""How long a training takes: its work, counted from its settings, and the pace of this machine.

This module imports torch only to measure the pace, because pages estimate the time of a training.
"""

from __future__ import annotations

import time

from attnkit.experiment import Experiment
from attnkit.foundation.process import n_cores
from attnkit.training.engine import Engine, kernel_knows
from attnkit.variants import Variant

STEP_WORK = 0.005
"""Work of a step or an evaluation of one run apart from its multiply-adds, in units of 10⁹ of them.

Measured on the tasks' defaults and on variations of them, as is `TORCH_WORK`: the seconds of a
training were 0.6 to 1.9 times what its work predicts.
"""

TORCH_WORK = 4.0
"""Factor by which torch is slower than the kernel; it trains the variants that no kernel knows."""

_BLOCKS, _BLOCK_STEPS = 3, 10
"""Blocks that are timed, and their steps; the fastest counts, as other programs disturb others."""


def work_of(
    experiment: Experiment, variant: Variant, engine: Engine = "kernel"
) -> tuple[float, float]:
    """Return the numbers of steps and evaluations, and of 10⁹ multiply-adds, of one run.

    A training step counts as three forward passes. With the kernel as engine, both numbers are
    larger for variants that torch trains.
    """
    training, task = experiment.training, experiment.task
    n_evaluations = training.steps / training.evaluate_every + 1
    examples = 3 * training.steps * training.batch_size + n_evaluations * training.n_eval
    billions = examples * task.n_ctx * experiment.costs(variant).multiply_adds / 1e9
    slower = TORCH_WORK if engine == "kernel" and not kernel_knows(experiment, variant) else 1.0
    return slower * (training.steps + n_evaluations), slower * billions


def training_work(experiment: Experiment, engine: Engine = "kernel") -> float:
    """Return the work of one core in the training of an experiment, in 10⁹ multiply-adds."""
    work = (work_of(experiment, variant, engine) for variant in experiment.sharing)
    total = experiment.n_seeds * sum(STEP_WORK * steps + billions for steps, billions in work)
    return total / min(n_cores(), experiment.n_runs)


def measure_pace(engine: Engine) -> float:
    """Return the seconds that a unit of `training_work` takes on this machine, within a second."""
    from attnkit.training.training import Training

    experiment = Experiment(task="mqar", sharing=["QKV"], evaluate_every=_BLOCK_STEPS)
    training, block = Training(experiment, engine=engine), _BLOCK_STEPS
    training.advance(block)
    fastest = float("inf")
    for _ in range(_BLOCKS):
        began = time.perf_counter()
        training.advance(block)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest / training_work(experiment, engine) * experiment.training.steps / block
