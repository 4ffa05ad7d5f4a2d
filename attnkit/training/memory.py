"""Estimate of the memory that a training takes at its peak.

Admission to the training process reads it, so this module imports no torch, and an estimate takes a
few milliseconds. Its factors are fitted to measured peaks (`tests/peaks.py`): of 80 drawn
experiments on both engines, none took more than 1.25 times its estimate.
"""

from __future__ import annotations

from heapq import nlargest

from attnkit.experiment import Experiment
from attnkit.experiment.costs import count_costs
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.process import n_cores
from attnkit.training.engine import Engine, expected_engine, kernel_knows
from attnkit.training.film import film_megabytes
from attnkit.training.metrics import METRICS
from attnkit.training.plans import (
    STEPS_PER_DRAW,
    CohortPlan,
    n_answers,
    n_passing,
    n_recorded,
    n_scores,
    plan_cohorts,
    runs_recorded_together,
)

_FLOAT, _INTEGER = 4, 8
"""Bytes of a parameter or a score, and of a token or a label."""

_BASE = 12 * 2**20
"""Bytes that every training takes: tables, generators, and objects of all cohorts."""

_EVALUATION = 3000
"""Bytes of one evaluation of a cohort beside its numbers: a dozen small arrays by name."""

_COPIES, _GAPS = 8, 1.5
"""Copies of the weights (gradients, two moments, results), and memory that arrays of examples take
with the gaps between them, divided by their size."""


def peak_megabytes(experiment: Experiment, engine: Engine | None = None) -> float:
    """Return the estimated peak of a training's memory in MiB, with the film of its first seed.

    Args:
        experiment: The experiment.
        engine: Engine that trains it on a CPU. None: the one that this copy is expected to use.
    """
    engine = engine or expected_engine()
    task, training = experiment.task, experiment.training
    wirings = {v: [experiment.wiring(v, stage) for stage in v.stages] for v in experiment.sharing}
    example = task.n_ctx * task.n_fields + 3 * n_answers(experiment)
    n_first = min(training.n_eval, MEASURED_TOGETHER)
    together = runs_recorded_together(experiment)

    def passing(plan: CohortPlan) -> float:
        """Return the bytes that a cohort needs for a moment: to draw, to evaluate or to step."""
        of_plan = [wiring for variant in plan.sharing for wiring in wirings[variant]]
        n_seeds, n_runs = len(plan.seeds), min(together, len(plan.sharing) * len(plan.seeds))
        recorded = max(n_recorded(experiment, wiring, n_first) for wiring in of_plan)
        logits = training.n_eval * n_answers(experiment) * task.n_classes
        evaluating, stepping = 2.0 * n_runs * (recorded + logits), 0.0
        if engine != "kernel" or not all(kernel_knows(experiment, v) for v in plan.sharing):
            layer = max(n_passing(experiment, w) for w in of_plan)
            kept = max(n_passing(experiment, w) + max(n_scores(experiment, w)) for w in of_plan)
            evaluating += min(n_runs, n_seeds) * n_first * layer
            stepping = 1.25 * n_seeds * training.batch_size * len(experiment.layer_specs) * kept
        n_drawn = task.copies * task.n_per_draw(training.n_eval, held_out=True) + training.n_eval
        drawing = max(_INTEGER * n_drawn * example, task.preparing)
        return max(_FLOAT * evaluating, _FLOAT * stepping, drawing)

    plans = plan_cohorts(experiment, "cpu", engine)
    n_parameters = sum(
        max(count_costs(wiring, task).parameters for wiring in of_variant)
        for of_variant in wirings.values()
    )
    n_scored = len(experiment.layer_specs) * experiment.n_heads * task.n_ctx**2  # of the probe
    n_evaluations = training.steps // training.evaluate_every + 2
    of_run = _COPIES * n_parameters / len(wirings) + 2 * n_scored + 4 * len(METRICS) * n_evaluations
    drawn_ahead = training.n_train or training.batch_size * STEPS_PER_DRAW
    n_examples = sum(len(plan.seeds) for plan in plans) * (training.n_eval + 0.6 * drawn_ahead)
    n_bytes = (
        _BASE
        + film_megabytes(experiment) * 2**20
        + _FLOAT * experiment.n_runs * of_run
        + _INTEGER * _GAPS * n_examples * example
        + _EVALUATION * n_evaluations * len(plans)
        + sum(nlargest(n_cores(), map(passing, plans)))
    )
    return n_bytes / 2**20
