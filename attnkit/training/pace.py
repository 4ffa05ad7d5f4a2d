"""How long a training takes: its work, counted from its settings, and the pace of this machine.

This module imports torch only to measure the pace, because pages estimate the time of a training.
"""

from __future__ import annotations

import time

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import longer_experiment
from attnkit.foundation.language import tr
from attnkit.foundation.process import n_cores
from attnkit.training.engine import Engine, kernel_knows
from attnkit.variants import Variant

STEP_WORK = 0.005
"""Work of each step or evaluation of one run, besides its multiply-adds, in 10⁹ multiply-adds.

Measured on the tasks' defaults and on variations of them, as is `TORCH_WORK`: the seconds of a
training were 0.6 to 1.9 times what its work predicts.
"""

TORCH_WORK = 4.0
"""Factor by which torch is slower than the kernel; it trains the variants that no kernel knows."""

_BLOCKS, _BLOCK_STEPS = 3, 10
"""Number of timed blocks, and of steps in each. The fastest block counts, because other programs
may have slowed the others down."""


def work_of(experiment: Experiment, variant: Variant, engine: Engine = "kernel") -> float:
    """Return the work of one run of a variant, in 10⁹ multiply-adds.

    A training step counts as three forward passes.
    """
    training, task = experiment.training, experiment.task
    n_evaluations = training.steps / training.evaluate_every + 1
    examples = 3 * training.steps * training.batch_size + n_evaluations * training.n_eval
    billions = examples * task.n_ctx * experiment.costs(variant).multiply_adds / 1e9
    if longer := longer_experiment(experiment):
        tokens = n_evaluations * longer.training.n_eval * longer.task.n_ctx
        billions += tokens * longer.costs(variant).multiply_adds / 1e9
    slower = TORCH_WORK if engine == "kernel" and not kernel_knows(experiment, variant) else 1.0
    return slower * (STEP_WORK * (training.steps + n_evaluations) + billions)


def training_work(experiment: Experiment, engine: Engine = "kernel") -> float:
    """Return the work of one core in the training of an experiment, in 10⁹ multiply-adds."""
    work = sum(work_of(experiment, variant, engine) for variant in experiment.sharing)
    return experiment.n_seeds * work / min(n_cores(), experiment.n_runs)


def measure_pace(
    engine: Engine, experiment: Experiment | None = None, block: int = _BLOCK_STEPS
) -> float:
    """Measure how many seconds a unit of `training_work` takes here.

    Args:
        engine: The engine.
        experiment: The experiment to train; None: one that takes about a second.
        block: Number of steps in a timed block, of which there are `_BLOCKS`.
    """
    from attnkit.training.training import Training

    experiment = experiment or Experiment(task="mqar", sharing=["QKV"], evaluate_every=block)
    training = Training(experiment, "cpu" if engine == "kernel" else "auto", engine)
    training.advance(block)
    fastest = float("inf")
    for _ in range(_BLOCKS):
        began = time.perf_counter()
        training.advance(block)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest / training_work(experiment, engine) * experiment.training.steps / block


def duration_in_words(seconds: float) -> str:
    """Return a time to wait in words, such as "45 s", "3 min" or "2.5 h"."""
    if seconds < 90:
        return tr("{seconds:.0f} s", seconds=max(seconds, 1))
    if seconds < 6000:
        return tr("{minutes:.0f} min", minutes=seconds / 60)
    return tr("{hours:.1f} h", hours=seconds / 3600)
