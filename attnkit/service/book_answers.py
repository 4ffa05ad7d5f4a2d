"""Asks trained models about a book of one's own, as large as one likes within the task's dials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    """The held-out example of a task that attention maps show.

    Raises:
        ValueError: if the task has too few different ones.
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
    """The parameters of all runs at one step, in the experiment's order."""

    experiment: Experiment
    step: int
    parameters: list[dict[str, np.ndarray]]

    @staticmethod
    def of(training: Training) -> Weights:
        """A copy of a training's weights."""
        runs = [run for cohort in training.cohorts for run in cohort.runs]
        found = [own for cohort in training.cohorts for own in cohort.parameters()]
        order = [runs.index(run) for run in training.experiment.runs]
        return Weights(training.experiment, training.step, [found[place] for place in order])

    @staticmethod
    def shipped(task: str) -> Weights:
        """Return the weights of a task's shipped example, of its first seed alone."""
        experiment, parameters = load_weights(task)
        return Weights(experiment, experiment.training.steps, parameters)

    @property
    def n_bytes(self) -> int:
        """What they take."""
        return sum(array.nbytes for own in self.parameters for array in own.values())


def answer(weights: Weights, tokens: np.ndarray) -> Answers:
    """Every run's answers to one book, (i, fields), of as many entries as questions.

    Raises:
        InvalidExperiment: if the task allows no book of that size.
    """
    n_entries = len(tokens) // 2
    small: dict[str, Any] = {"batch_size": ALIGNED, "n_eval": ALIGNED, "n_train": 0}
    experiment = weights.experiment.replace(n_entries=n_entries, **small)
    batch = torch.from_numpy(np.array(tokens, np.int64)).expand(
        len(experiment.seeds), ALIGNED, -1, -1
    )
    return Answers(
        weights.step,
        [
            _answer(weights, experiment, place, variant, batch.contiguous())
            for place, variant in enumerate(experiment.sharing)
        ],
    )


def joined_answers(
    experiment: Experiment, weights: Sequence[Weights], tokens: np.ndarray
) -> Answers:
    """Return answers of an experiment whose variants were trained apart.

    Args:
        experiment: What is asked.
        weights: One for every variant of the experiment, in its order.
        tokens: As `answer` takes them.

    Raises:
        InvalidExperiment: if the task allows no book of that size.
    """
    different = {id(own): own for own in weights}
    found = {key: answer(own, tokens).variants for key, own in different.items()}
    return Answers(
        min(own.step for own in weights),
        [
            found[id(own)][own.experiment.sharing.index(variant)]
            for variant, own in zip(experiment.sharing, weights, strict=True)
        ],
    )


def _answer(
    weights: Weights, experiment: Experiment, place: int, variant: Variant, batch: Tensor
) -> VariantAnswers:
    seeds, task = list(experiment.seeds), experiment.task
    tied = {variant} if is_tied(weights.experiment, variant, weights.step) else set()
    model = Model(experiment, seeds, torch.device("cpu"), sharing=[variant], tied=tied)
    for run in range(len(seeds)):
        trained = weights.parameters[place * len(seeds) + run]
        for name, value in model.run_parameters(run).items():
            if name not in trained or trained[name].shape != tuple(value.shape):
                return _refused(weights.experiment, experiment, variant)
            value.copy_(torch.from_numpy(trained[name]))
    layers = list[Layer]()
    answers = model.logits(batch, layers)[:, 0].argmax(-1)
    first = task.answers_from
    attention = torch.stack([layer.pattern[:, 0].mean(1) for layer in layers], 1)
    return VariantAnswers(
        "",
        answers.numpy().astype(np.int64),
        attention[:, :, first:, :first].float().numpy().astype(np.float32),
    )


def _refused(trained: Experiment, asked: Experiment, variant: Variant) -> VariantAnswers:
    return VariantAnswers(
        size_refusal(trained, asked, variant),
        np.zeros((0, 0), np.int64),
        np.zeros((0, 0, 0, 0), np.float32),
    )


class WeightsGone(Exception):
    """A job's weights are not kept any more; says what to do, without a full stop."""


def reason(error: Exception) -> str:
    """What a page says of an error."""
    if isinstance(error, InvalidExperiment | WeightsGone | ValueError):
        return str(error)
    return f"{type(error).__name__}: {error}"[:500]
