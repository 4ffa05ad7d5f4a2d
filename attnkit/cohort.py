"""A cohort: some runs of an experiment, trained as one batched computation.

A cohort knows nothing of the others. It is trained by one thread at a time, gives the same bits
whatever else runs, and keeps its own evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from attnkit import metrics
from attnkit.adam import Adam
from attnkit.attention import Layer
from attnkit.data import TrainingData, held_out_examples, stack
from attnkit.experiment import ALIGNED, Experiment
from attnkit.model import Model
from attnkit.sharing import Sharing
from attnkit.tasks import Examples


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What was measured on the held-out examples at one step; runs in the experiment's order.

    Attributes:
        metrics: name → (r,). head_symmetry: (r, l, h) score symmetry.
    """

    step: int
    metrics: dict[str, Float32[np.ndarray, " r"]]
    head_symmetry: Float32[np.ndarray, "r l h"]


class Cohort:
    """Runs that train as one; step 0 is evaluated on construction.

    Args:
        experiment: what to train; all its sharings are in this cohort.
        seeds: which of its seeds are.
        device: where to train.

    Attributes:
        evaluations: one per evaluation so far, first at step 0.
        diverged_at: (r,) step of the evaluation that found a run's loss not finite, else −1.
    """

    def __init__(self, experiment: Experiment, seeds: Sequence[int], device: torch.device) -> None:
        self.experiment = experiment
        self.seeds = list(seeds)
        self.device = device
        self.model = Model(experiment, self.seeds, device)
        self.step = 0
        self.evaluations: list[Evaluation] = []
        self.diverged_at = np.full(self.model.n_runs, -1, np.int64)
        self._optimiser = Adam(
            self.model.numbers, self.model.gradient, experiment.training.learning_rate
        )
        self._data = TrainingData(experiment, self.seeds, device)
        self._held_out = held_out_examples(experiment, self.seeds, device)
        self._evaluate()

    @property
    def runs(self) -> list[tuple[Sharing, int]]:
        """(sharing, seed) of every run, in the order of all its arrays."""
        return [(sharing, seed) for sharing in self.experiment.sharing for seed in self.seeds]

    def advance(self, n_steps: int) -> None:
        """Take so many optimiser steps, evaluating on the experiment's cadence and at its end."""
        training = self.experiment.training
        for _ in range(n_steps):
            self._train_step()
            self.step += 1
            if self.step % training.evaluate_every == 0 or self.step == training.steps:
                self._evaluate()

    def answer(
        self, examples: Examples
    ) -> tuple[Int64[np.ndarray, "r b a"], Float32[np.ndarray, "r b l h i j"]]:
        """Every run's answers to a batch, and its attention patterns."""
        layers, n_given = list[Layer](), len(examples.tokens)
        repeated = examples.take(torch.arange(n_given + -n_given % ALIGNED) % n_given)
        same_for_all = stack([repeated] * len(self.seeds), self.device)
        answers = self.model.logits(same_for_all.tokens, layers).argmax(-1)
        pattern = torch.stack([layer.pattern for layer in layers], 2)
        return self._in_order(answers)[:, :n_given], self._in_order(pattern)[:, :n_given]

    def parameters(self) -> list[dict[str, np.ndarray]]:
        """A copy of each run's own parameters, in the experiment's order."""
        return [
            {
                name: value.cpu().numpy().copy()
                for name, value in self.model.run_parameters(run).items()
            }
            for run in self.model.to_experiment_order
        ]

    def _train_step(self) -> None:
        tokens, labels = self._data.next()
        self.model.differentiate(tokens, labels)
        self._optimiser.step()

    def _losses(self, logits: Tensor, labels: Tensor) -> Float[Tensor, " r"]:
        """Mean cross-entropy of each run; labels are (s, b, a)."""
        by_run = self._for_runs(labels)
        each = F.cross_entropy(logits.flatten(0, 2), by_run.flatten(), reduction="none")
        return each.view(len(by_run), -1).mean(1)

    def _for_runs(self, by_seed: Tensor) -> Tensor:
        """Repeat what belongs to seeds for the runs, in cohort order."""
        return by_seed.expand(len(self.model.sharings), *by_seed.shape).flatten(0, 1)

    def _in_order(self, by_run: Tensor) -> np.ndarray:
        """From cohort order to the experiment's, as numpy; floats as float32."""
        ordered = by_run[self.model.to_experiment_order]
        array: np.ndarray = (
            (ordered.float() if ordered.is_floating_point() else ordered).cpu().numpy()
        )
        return array

    def _evaluate(self) -> None:
        examples, layers = self._held_out, list[Layer]()
        logits = self.model.logits(examples.tokens, layers)
        symmetry = torch.stack(
            [metrics.score_symmetry(layer.scores).double().mean(1) for layer in layers], 1
        )  # (r, l, h)
        errors = torch.stack([metrics.symmetry_error(layer.scores) for layer in layers])
        measured = {
            "accuracy": metrics.accuracy(logits, self._for_runs(examples.labels)),
            "loss": self._losses(logits, examples.labels),
            "score_symmetry": symmetry.mean((1, 2)),
            "symmetry_error": errors.amax(0),
            "weight_symmetry": self._weight_symmetry(),
            "mass_on_target": self._mass(layers, examples.target),
            "mass_on_reverse": self._mass(layers, examples.reverse),
        }
        row = {name: self._in_order(values) for name, values in measured.items()}
        self.diverged_at[~np.isfinite(row["loss"]) & (self.diverged_at < 0)] = self.step
        head_symmetry = self._in_order(symmetry)
        for values in (*row.values(), head_symmetry):
            values[self.diverged_at >= 0] = np.nan
        self.evaluations.append(Evaluation(self.step, row, head_symmetry))

    def _mass(self, layers: list[Layer], position: Tensor | None) -> Tensor:
        """Mean over layers of the attention at a position; NaN where the task has none."""
        if position is None:
            return torch.full((self.model.n_runs,), torch.nan, device=self.device)
        by_run = self._for_runs(position)
        return torch.stack([metrics.mass_at(layer.pattern, by_run) for layer in layers]).mean(0)

    def _weight_symmetry(self) -> Tensor:
        heads = (self.experiment.size.n_heads, self.experiment.size.d_head)
        per_layer = []
        for layer in range(self.experiment.size.n_layers):
            q, k = (self.model.role_weights(layer, role) for role in ("Q", "K"))
            q, k = (w.unflatten(-1, heads).transpose(1, 2) for w in (q, k))
            q, k = (F.pad(w, (0, -heads[1] % ALIGNED)) for w in (q, k))  # for law 1
            per_layer.append(metrics.weight_symmetry(q, k).mean(1))
        return torch.stack(per_layer).mean(0)
