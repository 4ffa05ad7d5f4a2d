"""Cohorts: groups of runs of an experiment that train as one batched computation.

A cohort advances: it trains and, at the experiment's cadence, evaluates. At given steps it ties
variants, or starts the main task after an earlier one. It does not depend on the other cohorts: one
thread at a time trains it, and it gives the same bits whatever runs beside it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.model.adam import Adam
from attnkit.model.model import Model
from attnkit.model.parameters import EMBEDDING
from attnkit.tasks import Examples, Task
from attnkit.training.data import TrainingData
from attnkit.training.engine import Engine, kernel_knows
from attnkit.training.evaluation import Evaluation, Evaluator, RunAnswers
from attnkit.variants import Variant
from attnkit.variants.tying import kept_role

_ROLE_PARAMETER = re.compile(r"(\d+\.[Wb]_)([QKV])")
"""Name of the matrix or bias of tied roles: its layer and kind, then the first of these roles."""


class Cohort:
    """Group of runs that train as one; step 0 is evaluated on construction.

    Args:
        experiment: The experiment to train.
        seeds: Seeds of the experiment that this cohort trains.
        device: The device that trains.
        sharing: Variants of the experiment that this cohort trains. None: all.
        engine: Engine to train with. If the kernel cannot train all variants, torch trains them,
            also if the engine is "kernel".
        attention_curves: Whether every evaluation measures attention. If not, only the last one
            does, and these metrics are NaN in the others.
        data: Training data of the first task. None: it is made here.

    Attributes:
        step: Optimiser steps taken.
        evaluations: All evaluations so far; the first one is that of step 0.
        diverged_at: Step (r,) of the evaluation that found a run's loss not finite; else −1.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        device: torch.device,
        sharing: Sequence[Variant] | None = None,
        engine: Engine = "torch",
        *,
        attention_curves: bool = True,
        data: TrainingData | None = None,
    ) -> None:
        self.experiment = experiment
        self.engine = engine
        self._attention_curves = attention_curves
        self.sharing = experiment.sharing if sharing is None else tuple(sharing)
        self.seeds = list(seeds)
        self.device = device
        self._on_kernel = engine == "kernel" and all(
            kernel_knows(experiment, variant) for variant in self.sharing
        )
        self._frozen = False
        self.model = self._make_model()
        self.step = 0
        self.evaluations: list[Evaluation] = []
        self.diverged_at = np.full(self.model.n_runs, -1, np.int64)
        self._optimiser = self._make_optimiser()
        self._tie_steps = {v: experiment.tie_step(v) for v in self.sharing if len(v.stages) > 1}
        self._set_task(experiment.task_at(0), data)
        self._tie_due_variants()  # a variant may be tied from its initial numbers on
        self._evaluate()

    @property
    def runs(self) -> list[tuple[Variant, int]]:
        """Variant and seed of every run, in the order of the runs in all arrays."""
        return [(variant, seed) for variant in self.sharing for seed in self.seeds]

    def advance(self, n_steps: int) -> None:
        """Take `n_steps` optimiser steps; evaluate every `evaluate_every` steps and at the end."""
        training = self.experiment.training
        for _ in range(n_steps):
            self._train_step()
            self.step += 1
            self._start_main_task_if_due()
            self._tie_due_variants()
            if self.step % training.evaluate_every == 0 or self.step == training.steps:
                self._evaluate()

    def answer(self, examples: Examples) -> RunAnswers:
        """Return the answers, patterns and scores of every run on a batch; see `Evaluator`."""
        return self._evaluator.answer(self.model, examples)

    def parameters(self, seed: int | None = None) -> list[dict[str, np.ndarray]]:
        """Return a copy of the parameters of each run, by name; tied roles have one matrix.

        Args:
            seed: Seed of the runs to copy. None: all runs.
        """
        return [
            {
                name: value.cpu().numpy().copy()
                for name, value in self.model.run_parameters(run).items()
            }
            for run, (_, run_seed) in enumerate(self.runs)
            if seed in (None, run_seed)
        ]

    def _train_step(self) -> None:
        """Take one optimiser step on the next batch."""
        training = self.experiment.training
        tokens, labels = self._data.next()
        self.model.differentiate(tokens, labels)
        if training.clip:
            self.model.clip(training.clip)
        self._optimiser.step(training.learning_rate_factor(self.step))

    def _evaluate(self) -> None:
        """Add an evaluation; a run whose loss is not finite has diverged, and has no others."""
        attention = self._attention_curves or self.step == self.experiment.training.steps
        evaluation = self._evaluator.evaluate(self.model, self.step, attention=attention)
        lost = ~np.isfinite(evaluation.metrics["loss"])
        self.diverged_at[lost & (self.diverged_at < 0)] = self.step
        evaluation.clear(self.diverged_at >= 0)
        self.evaluations.append(evaluation)

    def _tie_due_variants(self) -> None:
        """Tie the variants that are due at this step.

        Parameters and Adam's moments of tied roles are made from the untied ones; see `tie`.
        """
        if self.step not in self._tie_steps.values():
            return
        old, optimiser = self.model, self._optimiser
        tied = {variant for variant, due in self._tie_steps.items() if due <= self.step}
        self.model = self._make_model(tied)
        self._optimiser = self._make_optimiser()
        optimiser.copy_step_to(self._optimiser)
        vectors = (
            (old.numbers, self.model.numbers),
            (optimiser.mean, self._optimiser.mean),
            (optimiser.square, self._optimiser.square),
        )
        for run, (variant, _) in enumerate(self.runs):
            for source, target in vectors:
                new = self.model.run_parameters(run, target)
                for name, value in tie(variant, old.run_parameters(run, source), new):
                    new[name].copy_(value)

    def _start_main_task_if_due(self) -> None:
        """After the earlier task, freeze the embedding and draw all other parameters anew.

        Some tasks have an earlier task, which trains for `earlier_steps`; see `Task.earlier`.
        Without one these are 0, and nothing happens.
        """
        if self.step != self.experiment.training.earlier_steps:
            return
        old = self.model
        self._frozen = True  # for `_make_model`
        # Variants that are due at this very step are tied afterwards, by `_tie_due_variants`.
        self.model = self._make_model({v for v, due in self._tie_steps.items() if due < self.step})
        for run in range(self.model.n_runs):
            self.model.run_parameters(run)[EMBEDDING].copy_(old.run_parameters(run)[EMBEDDING])
        self._optimiser = self._make_optimiser()
        del old  # before examples are drawn
        self._set_task(self.experiment.task)

    def _set_task(self, task: Task, data: TrainingData | None = None) -> None:
        """Train and evaluate on a task from this step on."""
        self._data = data or TrainingData(self.experiment, self.seeds, self.device, task)
        trained_on = self._data.evaluation_examples()
        self._evaluator = Evaluator(self.experiment, self.seeds, self.device, task, trained_on)

    def _make_model(self, tied: Collection[Variant] = ()) -> Model:
        """Return a model with initial parameters, in which these variants are tied already."""
        model_class: type[Model] = Model
        if self._on_kernel:
            from attnkit.model.kernel.model import KernelModel

            model_class = KernelModel
        return model_class(
            self.experiment,
            self.seeds,
            self.device,
            sharing=self.sharing,
            tied=tied,
            embedding_frozen=self._frozen,
        )

    def _make_optimiser(self) -> Adam:
        """Return an optimiser of the model that begins at its first step."""
        rates = []
        for rate, runs in groupby(range(self.model.n_runs), self._learning_rate):
            blocks = [self.model.block(run) for run in runs]
            rates.append((slice(blocks[0].start, blocks[-1].stop), rate))
        adam_class: type[Adam] = Adam
        if self._on_kernel:
            from attnkit.model.kernel.model import KernelAdam

            adam_class = KernelAdam
        return adam_class(self.model.numbers, self.model.gradient, rates)

    def _learning_rate(self, run: int) -> float:
        variant, _ = self.runs[run]
        option = variant.given.get("learning_rate")
        return self.experiment.training.learning_rate if option is None else float(option.value)


def tie(
    variant: Variant, old: dict[str, Tensor], new: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of a run after variants were tied, by name.

    Roles that become one class get the mean of their matrices, or the one that the variant keeps.
    All other parameters stay as they are, and so do those of a run that is not tied now.

    Args:
        variant: The variant of the run.
        old: Parameters of the run before, by name.
        new: Parameters of the run after; only their names are used.
    """
    before, after = variant.stages[0].sharing, variant.stages[-1].sharing
    is_tied_now = old.keys() != new.keys()
    for name in new:
        named = _ROLE_PARAMETER.fullmatch(name)
        if not is_tied_now or named is None:
            yield name, old[name]
            continue
        layer, first = named.groups()
        tied_roles = next(roles for roles in after.classes if roles[0] == first)
        source_role = kept_role(variant.parts, tied_roles)
        source_roles = tied_roles if source_role is None else (source_role,)
        owners = dict.fromkeys(before.owner(role) for role in source_roles)
        yield name, torch.stack([old[layer + owner] for owner in owners]).mean(0)
