"""Estimate of the memory that a training takes at its peak.

The estimate follows the computation: what every cohort keeps, the most that the cohorts of all
cores need for a moment, and what snapshots and results copy. Admission to the training process
reads it, so this module imports no torch, and an estimate takes a few milliseconds.

Index letters in comments as in `attnkit.model.reference`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest

from attnkit.experiment import Experiment
from attnkit.experiment.costs import count_costs
from attnkit.experiment.longer_test import longer_experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.process import n_cores
from attnkit.tasks.base import HELD_OUT_ONE_IN
from attnkit.training.engine import Engine, expected_engine, kernel_knows
from attnkit.training.film import film_megabytes
from attnkit.training.metrics import METRICS
from attnkit.training.plans import (
    STEPS_PER_DRAW,
    CohortPlan,
    n_adjusting,
    n_answers,
    n_passing,
    n_recorded,
    n_rows,
    n_scores,
    plan_cohorts,
    runs_recorded_together,
    width_of,
)
from attnkit.variants import Variant, Wiring

_FLOAT, _HALF, _SHORT, _INTEGER = 4, 2, 4, 8
"""Bytes of a parameter or a score, of a score of the probe, and of a token or a label, to train
and to evaluate on."""

_EVALUATION = 3000
"""Bytes of one evaluation of a cohort beside its numbers: a dozen small arrays by name."""

_KEPT_WEIGHTS = 2**26
"""Bytes up to which the weights of an ended training are copied, for inspections."""

_BASE = 3 * 2**20
"""Bytes that every training takes: tables, generators, and objects of all cohorts."""

_GAPS = 1.5
"""Memory that arrays of torch take with the gaps between them, divided by their size; measured: 1.1
to 2.3. glibc fills a gap with a smaller aligned array only."""


def peak_megabytes(experiment: Experiment, engine: Engine | None = None) -> float:
    """Return the estimated peak of a training's memory in MiB, with the film of its first seed.

    Args:
        experiment: The experiment.
        engine: Engine that trains it on a CPU. None: the one that this copy is expected to use.
    """
    return _Training(experiment, engine or expected_engine()).peak / 2**20


@dataclass(frozen=True, eq=False)
class _Training:
    """A training in progress, of which bytes are counted."""

    experiment: Experiment
    engine: Engine

    @property
    def peak(self) -> float:
        """Bytes at the peak."""
        plans = plan_cohorts(self.experiment, "cpu", self.engine)
        cohorts = [_Cohort(self, plan) for plan in plans]
        weights = sum(cohort.weights for cohort in cohorts)
        kept: float = _BASE + sum(cohort.kept for cohort in cohorts)
        kept += film_megabytes(self.experiment) * 2**20
        passing = _of_all_cores(cohort.passing for cohort in cohorts)
        passing = max(passing, *(cohort.drawing_set for cohort in cohorts))
        # A snapshot has the probe's scores and patterns; each is copied twice to become bytes.
        probe = 2 * _HALF * self.experiment.n_runs * self._n_probed
        joining = probe + _of_all_cores(4 * _FLOAT * c.n_runs * self._n_probed for c in cohorts)
        history = 4 * _FLOAT * len(METRICS) * self.n_evaluations * self.experiment.n_runs
        snapshot = history + max(3 * probe, joining)
        # A result has the weights, too; they are copied, and kept for inspections.
        copies = 3 + (weights <= _KEPT_WEIGHTS)
        result = history + probe + copies * weights
        return kept + max(passing, snapshot, result)

    @property
    def n_evaluations(self) -> int:
        """Number of evaluations."""
        training = self.experiment.training
        return training.steps // training.evaluate_every + 2

    @property
    def _n_probed(self) -> int:
        """Scores of one run on the probe, padded to all positions."""
        experiment = self.experiment
        return len(experiment.layer_specs) * experiment.n_heads * experiment.task.n_ctx**2

    @cached_property
    def n_together(self) -> int:
        """Number of runs that are evaluated together."""
        tested = (self.experiment, longer_experiment(self.experiment))
        return min(runs_recorded_together(experiment) for experiment in tested if experiment)

    @cached_property
    def wirings(self) -> dict[Variant, list[Wiring]]:
        """Wirings of every variant, one for each of its stages."""
        return {
            variant: [self.experiment.wiring(variant, stage) for stage in variant.stages]
            for variant in self.experiment.sharing
        }

    @cached_property
    def n_parameters(self) -> dict[Variant, int]:
        """Parameters of one run of every variant, at its largest stage."""
        task = self.experiment.task
        return {
            variant: max(count_costs(wiring, task).parameters for wiring in wirings)
            for variant, wirings in self.wirings.items()
        }


class _Cohort:
    """A cohort of a training, of which bytes are counted.

    Attributes:
        n_runs: Number of its runs.
        weights: Bytes of the parameters of all runs.
        kept: Bytes that it keeps while it trains.
        passing: Largest number of bytes that it needs for a moment in addition.
        drawing_set: Bytes that it needs while its training set is drawn, when no other one is.
    """

    def __init__(self, training: _Training, plan: CohortPlan) -> None:
        experiment = training.experiment
        self._training, self._plan, self._experiment = training, plan, experiment
        self._task, self._settings = experiment.task, experiment.training
        self._n_seeds = len(plan.seeds)
        self._n_answers = n_answers(experiment)
        n_tokens = self._task.n_ctx * self._task.n_fields
        self._example = n_tokens + self._n_answers  # integers
        has_reverse = self._task.plateau is not None
        self._whole_example = self._example + (1 + has_reverse) * self._n_answers
        self._on_kernel = training.engine == "kernel" and all(
            kernel_knows(experiment, variant) for variant in plan.sharing
        )
        longer = longer_experiment(experiment)
        self._longer = _Cohort(_Training(longer, training.engine), plan) if longer else None
        self.n_runs = len(plan.sharing) * self._n_seeds
        n_numbers = sum(training.n_parameters[variant] for variant in plan.sharing)
        self.weights = _FLOAT * self._n_seeds * n_numbers
        self.kept = self._kept()
        training_set = self._settings.n_train or self._settings.batch_size * STEPS_PER_DRAW
        self.drawing_set = self._drawing(training_set, held_out=False)
        passing = [self._drawing(self._settings.n_eval, held_out=True)]
        if self._longer is not None:
            passing.append(self._longer._drawing(self._longer._settings.n_eval, held_out=True))
        if not self._settings.n_train or self._settings.earlier_steps:  # drawn by every cohort
            passing.append(self.drawing_set)
        self.passing = max(*passing, self._renewing(), self._evaluating(), self._stepping())

    def _kept(self) -> int:
        task, settings = self._task, self._settings
        # Parameters, gradient and two moments of Adam; a frozen embedding has a mask.
        kept = (4 + bool(settings.earlier_steps)) * self.weights
        n_shown = min(settings.n_eval, MEASURED_TOGETHER)
        per_seed = _INTEGER * settings.n_eval * self._whole_example
        if self._longer is not None:
            per_seed += _INTEGER * self._longer._settings.n_eval * self._longer._whole_example
        if settings.n_train or task.corpus:  # accuracy on training examples is measured, too
            per_seed += _INTEGER * n_shown * self._whole_example
        n_drawn = settings.n_train or settings.batch_size * STEPS_PER_DRAW
        per_seed += _SHORT * n_drawn * self._example + _INTEGER * settings.n_train
        maps = len(self._experiment.layer_specs) * self._experiment.n_heads
        numbers = self.n_runs * (len(METRICS) + maps + len(task.slice_names))
        evaluations = self._training.n_evaluations * (_EVALUATION + _FLOAT * numbers)
        return kept + int(_GAPS * self._n_seeds * per_seed) + evaluations

    def _drawing(self, n_examples: int, *, held_out: bool) -> float:
        """Bytes while a task draws examples of one seed."""
        n_made = self._task.n_per_draw(n_examples, held_out=held_out)
        n_whole = self._task.copies * n_made
        if self._task.corpus:  # no other side is made
            n_whole = self._task.copies * n_examples
        elif n_made < n_examples * (HELD_OUT_ONE_IN if held_out else 1):  # made in several parts
            n_whole += n_examples
        else:
            n_whole = max(n_whole, n_made + n_examples)
        return max(_INTEGER * n_whole * self._whole_example, self._task.preparing)

    def _renewing(self) -> int:
        """Bytes while a model is made anew: when roles are tied, or after an earlier task."""
        tied = any(len(variant.stages) > 1 for variant in self._plan.sharing)
        return 4 * self.weights if tied or self._settings.earlier_steps else 0

    def _stepping(self) -> int:
        """Bytes of one training step."""
        batch = _INTEGER * self._n_seeds * self._settings.batch_size * self._example
        if self._on_kernel:
            return batch + max(_FLOAT * self._n_scratch(w) for w in self._wirings())
        return batch + max(
            self.weights, *(_FLOAT * self._n_differentiated(w) for w in self._wirings())
        )

    def _evaluating(self) -> int:
        """Bytes of the evaluation of the runs that are measured together."""
        settings = self._settings
        n_first = min(settings.n_eval, MEASURED_TOGETHER)
        n_runs = min(self._training.n_together, self.n_runs)
        n_seeds = min(n_runs, self._n_seeds)
        logits = n_runs * settings.n_eval * self._n_answers * self._task.n_classes
        longer = 0 if self._longer is None else self._longer._answering(n_runs, n_seeds)
        most = 0
        for wiring in self._wirings():
            of_run = n_recorded(self._experiment, wiring, n_first)
            if self._on_kernel:
                computing = self._n_scratch(wiring) + (n_seeds > 1) * n_seeds * of_run
            else:
                computing = n_seeds * n_first * n_passing(self._experiment, wiring)
            joining = n_runs * of_run if n_runs > n_seeds else 0
            measuring = 3 * n_runs * n_first * max(n_scores(self._experiment, wiring))
            passing = max(computing, joining, measuring, logits, longer)
            most = max(most, n_runs * of_run + int(_GAPS * passing))
        labels = 6 * n_runs * settings.n_eval * self._n_answers
        return _FLOAT * (logits + most) + _INTEGER * labels

    def _answering(self, n_runs: int, n_seeds: int) -> int:
        """Numbers in memory while runs answer the held-out examples and nothing is recorded."""
        n_eval = self._settings.n_eval
        logits = 2 * n_runs * n_eval * self._n_answers * self._task.n_classes
        if self._on_kernel:
            return logits + max(map(self._n_scratch, self._wirings()))
        of_example = max(
            n_passing(self._experiment, w) + max(n_scores(self._experiment, w))
            for w in self._wirings()
        )
        return logits + n_seeds * n_eval * of_example

    def _wirings(self) -> Iterable[Wiring]:
        return (w for variant in self._plan.sharing for w in self._training.wirings[variant])

    def _n_scratch(self, wiring: Wiring) -> int:
        """Numbers of the kernel's scratch memory: matrices transposed, and rows of a chunk."""
        sizes, n_ctx = wiring.sizes, self._task.n_ctx
        rows = max(64, n_ctx)
        per_token = 6 * sizes.d_model + 8 * width_of(wiring) + 2 * sizes.d_mlp
        layers = len(self._experiment.layer_specs) * (per_token + sizes.n_heads * (n_ctx + 16))
        matrices = count_costs(wiring, self._task).parameters
        return matrices + rows * (layers + 12 * sizes.d_model + self._task.n_classes)

    def _n_differentiated(self, wiring: Wiring) -> int:
        """Numbers that torch keeps of one variant's step, and needs while it goes back."""
        sizes, specs, n_ctx = wiring.sizes, self._experiment.layer_specs, self._task.n_ctx
        width, patterns = width_of(wiring), n_scores(self._experiment, wiring)
        n_queries = [spec.n_queries for spec in specs]
        if not self._task.n_source:  # only answering positions have queries in the last layer
            n_queries[-1] = self._n_answers
            patterns[-1] = patterns[-1] * self._n_answers // n_ctx
        rows, stream = n_rows(self._experiment), n_ctx * sizes.d_model
        mlp = (sizes.d_mlp > 0) * rows * sizes.d_model
        of_layer = (4 + 4 * sizes.standard) * stream + 3 * mlp
        of_layer += (4 + 2 * n_adjusting(wiring)) * rows * width
        n_mlp = [2 * n * s.has_mlp * sizes.d_mlp for n, s in zip(n_queries, specs, strict=True)]
        going_back = 3 * max(patterns) + max(n_mlp) + 4 * rows * width
        going_back += (7 + self._task.n_fields) * stream
        logits = 4 * self._n_answers * self._task.n_classes
        per_example = sum(patterns) + len(specs) * of_layer + sum(n_mlp)
        per_example += going_back + logits
        n_gradients = 2 * count_costs(wiring, self._task).parameters
        return self._n_seeds * (self._settings.batch_size * per_example + n_gradients)


def _of_all_cores(numbers: Iterable[float]) -> float:
    """Return the sum of the largest numbers, one for each core."""
    return sum(nlargest(n_cores(), numbers))
