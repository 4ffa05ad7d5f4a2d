"""Answers to requests, and the weights and films of jobs that the training process keeps for them.

A phone book may have any size that the task's settings allow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attnkit.analysis.inspection.inspected_example import size_refusal
from attnkit.analysis.inspection.replay import is_tied
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.surgery import Runs, inspect_tying
from attnkit.analysis.inspection.views import inspect, shown_film
from attnkit.analysis.responses import Answers, Example, VariantAnswers
from attnkit.examples import load_weights
from attnkit.experiment import Experiment, from_text
from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment, message_of
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.service.protocol import Ask, DrawExample, Inspect, Request
from attnkit.service.training_job import TrainingJob
from attnkit.training import Training
from attnkit.training.data import draw_probe
from attnkit.training.film import Film
from attnkit.training.joining import join_films
from attnkit.variants import Variant
from attnkit.variants.size import ALIGNED

KEPT_BYTES = 2**26
"""Size of the weights of ended jobs that are kept; the oldest are dropped first."""

FILM_BYTES = 2**27
"""Size of the films of ended jobs that are kept; the least recently inspected go first."""


class FilmGone(Exception):
    """The film of a job was dropped."""


class Archive:
    """Weights and films of ended jobs, together with those of running jobs.

    Args:
        jobs: Running jobs by id; the training process changes them.

    Attributes:
        weights: Weights of ended jobs by id, the newest last.
        films: Films of ended jobs by id, the last inspected one last.
    """

    def __init__(self, jobs: Mapping[str, TrainingJob]) -> None:
        self._jobs = jobs
        self.weights: dict[str, Weights] = {}
        self.films: dict[str, Film] = {}

    def keep(self, name: str, job: TrainingJob) -> None:
        """Keep the film of a job that ends, and the last weights of all its seeds.

        Weights that are larger than the limit by themselves are not kept, because all others would
        be dropped for them.
        """
        with contextlib.suppress(MemoryError, RuntimeError):
            weights = Weights.of(job.training)
            if weights.n_bytes <= KEPT_BYTES:
                self.weights[name] = weights
        drop_oldest(self.weights, KEPT_BYTES)
        self.films[name] = job.recorder.film
        drop_oldest(self.films, FILM_BYTES, least=1)

    def answer(self, request: Request) -> bytes:
        """Answer a request.

        Raises:
            FilmGone: If the film that it needs was dropped.
        """
        if isinstance(request, DrawExample):
            return draw_example(from_text(request.experiment)).to_bytes()
        if isinstance(request, Ask):
            return self._ask(request).to_bytes()
        assert isinstance(request, Inspect)
        return self._inspect(request)

    def _ask(self, request: Ask) -> Answers:
        """Let the models of a shipped example or of a job answer a phone book."""
        if request.example:
            shipped = Weights.shipped(request.example)
            variants = shipped.experiment.sharing
            weights = [shipped] * len(variants)
        else:
            weights = self._weights_of(request.trainers)
            variants = from_text(request.experiment).sharing
        return answer(weights, variants, np.array(request.tokens))

    def _inspect(self, request: Inspect) -> bytes:
        """Inspect the models of a job; the header of the result names its film."""
        films = {name: self._film_of(name) for name in request.trainers}
        film = films[request.trainers[0]]
        if film.experiment.to_json() != request.experiment:
            of_variants = [films[name] for name in request.trainers]
            film = join_films(from_text(request.experiment), of_variants)
        inspection = Inspection.from_dict(request.inspection)
        if inspection.view == "tying":
            runs = self._all_seeds(film.experiment, request)
            shown = shown_film(film, "tying")
            if runs is not None:
                of_variant = dict(zip(film.experiment.sharing, runs, strict=True))
                runs = [of_variant[variant] for variant in shown.experiment.sharing]
            result = inspect_tying(shown, inspection, runs)
        else:
            result = inspect(film, inspection)
        result.header["film"] = request.job
        return result.to_bytes()

    def _all_seeds(self, experiment: Experiment, request: Inspect) -> list[Runs] | None:
        """Return the runs of all seeds of every variant; None if their weights were dropped."""
        try:
            weights = self._weights_of(request.trainers)
        except WeightsGone:
            return None
        return [
            (of_job.experiment, of_job.of_variant(variant), of_job.step)
            for variant, of_job in zip(experiment.sharing, weights, strict=True)
        ]

    def _weights_of(self, names: Sequence[str]) -> list[Weights]:
        """Return the weights of the jobs with these ids; equal ids give the same object."""
        found = {}
        for name in dict.fromkeys(names):
            job = self._jobs.get(name)
            weights = self.weights.get(name)
            if job is not None and job.is_built:
                weights = Weights.of(job.training)
            if weights is None:
                raise WeightsGone(
                    mark("The weights of this run are not kept any more: train it again")
                )
            found[name] = weights
        return [found[name] for name in names]

    def _film_of(self, name: str) -> Film:
        """Return the film of one job, which then counts as the last inspected one."""
        job, film = self._jobs.get(name), self.films.pop(name, None)
        if job is not None and job.is_built:
            return job.recorder.film
        if film is None:
            raise FilmGone
        self.films[name] = film
        return film


def drop_oldest(
    items: dict[str, Weights] | dict[str, Film], max_bytes: int, least: int = 0
) -> None:
    """Delete the first items until the others are small enough, or only `least` are left."""
    while len(items) > least and sum(item.n_bytes for item in items.values()) > max_bytes:
        del items[next(iter(items))]


class WeightsGone(Exception):
    """The weights of a job were dropped; the message says what to do, without a full stop."""


def error_text(error: Exception) -> str:
    """Return the text that pages show for an error, still to be translated."""
    if isinstance(error, InvalidExperiment | WeightsGone | ValueError):
        return message_of(error)
    if is_lack_of_memory(error):
        return mark(
            "Too little memory to look inside this run: take smaller sizes, or fewer variants"
        )
    return f"{type(error).__name__}: {error}"[:500]


def is_lack_of_memory(error: Exception) -> bool:
    """Return whether an allocation has failed; libraries raise errors of different classes."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


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


def answer(weights: Sequence[Weights], variants: Sequence[Variant], tokens: np.ndarray) -> Answers:
    """Return the answers of every run of some variants to one phone book.

    Args:
        weights: For each variant the weights of the job that has trained it.
        variants: The variants.
        tokens: (i, fields) entries, followed by as many questions.

    Raises:
        InvalidExperiment: If the task allows no phone book of this size.
    """
    sizes = {"n_entries": len(tokens) // 2, "batch_size": ALIGNED, "n_eval": ALIGNED, "n_train": 0}
    resized = {each: each.experiment.replace(**sizes) for each in dict.fromkeys(weights)}
    return Answers(
        min(each.step for each in weights),
        [
            _answer(each, resized[each], variant, tokens)
            for each, variant in zip(weights, variants, strict=True)
        ],
    )


def _answer(
    weights: Weights, experiment: Experiment, variant: Variant, tokens: np.ndarray
) -> VariantAnswers:
    """Return the answers of one variant.

    Args:
        weights: Weights of this variant and others.
        experiment: Their experiment with the size of the phone book.
        variant: The variant.
        tokens: (i, fields) entries, followed by as many questions.
    """
    seeds, task = list(experiment.seeds), experiment.task
    tied = {variant} if is_tied(weights.experiment, variant, weights.step) else set()
    model = Model(experiment, seeds, torch.device("cpu"), sharing=[variant], tied=tied)
    for run, trained in enumerate(weights.of_variant(variant)):
        for name, value in model.run_parameters(run).items():
            if name not in trained or trained[name].shape != tuple(value.shape):
                reason = size_refusal(weights.experiment, experiment, variant)
                nothing = np.zeros((0, 0), np.int64), np.zeros((0, 0, 0, 0), np.float32)
                return VariantAnswers(reason, *nothing)
            value.copy_(torch.from_numpy(trained[name]))
    batch = torch.from_numpy(np.array(tokens, np.int64)).expand(len(seeds), ALIGNED, -1, -1)
    layers = list[Layer]()
    answers = model.logits(batch.contiguous(), layers)[:, 0].argmax(-1)
    first = task.answers_from  # position of the first question
    attention = torch.stack([layer.pattern[:, 0].mean(1) for layer in layers], 1)
    return VariantAnswers(
        "",
        answers.numpy().astype(np.int64),
        attention[:, :, first:, :first].float().numpy().astype(np.float32),
    )
