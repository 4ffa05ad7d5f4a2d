"""Answers of trained models to a phone book of any size that the task's settings allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnkit.analysis.inspection.probes import size_refusal
from attnkit.analysis.inspection.replay import is_tied
from attnkit.analysis.responses import Answers, Example, VariantAnswers
from attnkit.examples import load_weights
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.training import Training
from attnkit.training.data import draw_probe
from attnkit.variants import Variant
from attnkit.variants.size import ALIGNED


def draw_example(experiment: Experiment) -> Example:
    """Return the held-out example of a task that attention maps show.

    Raises:
        ValueError: If the task has too few different examples.
    """
    drawn = draw_probe(experiment.task)
    target, reverse = drawn.target[0].numpy(), drawn.reverse
    return Example(
        tokens=drawn.tokens[0].numpy(),
        labels=drawn.labels[0].numpy(),
        target=target,
        reverse=np.full_like(target, -1) if reverse is None else reverse[0].numpy(),
    )


@dataclass(frozen=True, eq=False)
class Weights:
    """Parameters of all runs of an experiment at one step.

    Attributes:
        parameters: One dictionary for each of `experiment.runs`, in their order.
    """

    experiment: Experiment
    step: int
    parameters: list[dict[str, np.ndarray]]

    @staticmethod
    def of(training: Training) -> Weights:
        """Return a copy of the weights of an experiment in training."""
        runs = [run for cohort in training.cohorts for run in cohort.runs]
        parameters = [
            run_parameters for cohort in training.cohorts for run_parameters in cohort.parameters()
        ]
        order = [runs.index(run) for run in training.experiment.runs]
        return Weights(training.experiment, training.step, [parameters[index] for index in order])

    @staticmethod
    def shipped(task: str) -> Weights:
        """Return the weights of a task's shipped example, which has the first seed only."""
        experiment, parameters = load_weights(task)
        return Weights(experiment, experiment.training.steps, parameters)

    def of_variant(self, variant: Variant) -> list[dict[str, np.ndarray]]:
        """Return the parameters of one variant, a dictionary for each seed."""
        n_seeds, index = self.experiment.n_seeds, self.experiment.sharing.index(variant)
        return self.parameters[index * n_seeds : (index + 1) * n_seeds]

    @property
    def n_bytes(self) -> int:
        """Size of all parameters."""
        return sum(array.nbytes for run in self.parameters for array in run.values())


def answer(weights: Weights, tokens: np.ndarray) -> Answers:
    """Return the answers of every run to one phone book.

    Args:
        weights: Weights of the models.
        tokens: (i, fields) entries, followed by as many questions.

    Raises:
        InvalidExperiment: If the task allows no phone book of this size.
    """
    experiment = weights.experiment.replace(
        n_entries=len(tokens) // 2, batch_size=ALIGNED, n_eval=ALIGNED, n_train=0
    )
    batch = torch.from_numpy(np.array(tokens, np.int64)).expand(
        len(experiment.seeds), ALIGNED, -1, -1
    )
    return Answers(
        weights.step,
        [
            _answer(weights, experiment, index, batch.contiguous())
            for index in range(len(experiment.sharing))
        ],
    )


def joined_answers(
    experiment: Experiment, weights: Sequence[Weights], tokens: np.ndarray
) -> Answers:
    """Return the answers of an experiment whose variants were trained in different jobs.

    Args:
        experiment: The experiment with all variants.
        weights: For each variant of the experiment, the weights of the job that trained it.
        tokens: (i, fields) entries, followed by as many questions.

    Raises:
        InvalidExperiment: If the task allows no phone book of this size.
    """
    answers = {of_job: answer(of_job, tokens).variants for of_job in dict.fromkeys(weights)}
    return Answers(
        min(of_job.step for of_job in weights),
        [
            answers[of_job][of_job.experiment.sharing.index(variant)]
            for variant, of_job in zip(experiment.sharing, weights, strict=True)
        ],
    )


def _answer(weights: Weights, experiment: Experiment, index: int, batch: Tensor) -> VariantAnswers:
    """Return the answers of one variant.

    Args:
        weights: Weights of all variants.
        experiment: The experiment with the size of the phone book.
        index: Index of the variant in the experiment.
        batch: (r, b, i, fields) tokens.
    """
    seeds, task, variant = list(experiment.seeds), experiment.task, experiment.sharing[index]
    tied = {variant} if is_tied(weights.experiment, variant, weights.step) else set()
    model = Model(experiment, seeds, torch.device("cpu"), sharing=[variant], tied=tied)
    for run, trained in enumerate(weights.of_variant(variant)):
        for name, value in model.run_parameters(run).items():
            if name not in trained or trained[name].shape != tuple(value.shape):
                return _no_answers(size_refusal(weights.experiment, experiment, variant))
            value.copy_(torch.from_numpy(trained[name]))
    layers = list[Layer]()
    answers = model.logits(batch, layers)[:, 0].argmax(-1)
    first = task.answers_from  # position of the first question
    attention = torch.stack([layer.pattern[:, 0].mean(1) for layer in layers], 1)
    return VariantAnswers(
        "",
        answers.numpy().astype(np.int64),
        attention[:, :, first:, :first].float().numpy().astype(np.float32),
    )


def _no_answers(reason: str) -> VariantAnswers:
    return VariantAnswers(reason, np.zeros((0, 0), np.int64), np.zeros((0, 0, 0, 0), np.float32))


class WeightsGone(Exception):
    """The weights of a job were dropped; the message says what to do, without a full stop."""


def error_text(error: Exception) -> str:
    """Return the text that pages show for an error."""
    if isinstance(error, InvalidExperiment | WeightsGone | ValueError):
        return str(error)
    return f"{type(error).__name__}: {error}"[:500]
