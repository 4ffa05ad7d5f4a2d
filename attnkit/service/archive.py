"""Weights and films of jobs in the training process, with which it answers requests."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.tying import Runs, inspect_tying
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.responses import Answers
from attnkit.experiment import Experiment, from_text
from attnkit.service.book_answers import (
    Weights,
    WeightsGone,
    answer,
    draw_example,
    joined_answers,
)
from attnkit.service.training_job import TrainingJob
from attnkit.training.film import Film
from attnkit.training.joining import join_films

KEPT_BYTES = 2**26
"""Size of the weights of ended jobs that are kept; the oldest are dropped first."""

FILM_BYTES = 2**27
"""Size of the films of ended jobs that are kept; the least recently inspected go first."""

REQUESTS = ("example", "ask", "inspect")
"""Commands that are answered at once and change no job."""


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
        self.films[name] = job.camera.film
        drop_oldest(self.films, FILM_BYTES, least=1)

    def answer(self, command: dict[str, Any]) -> bytes:
        """Answer a request.

        Raises:
            FilmGone: If the film that it needs was dropped.
        """
        if command["do"] == "example":
            return draw_example(from_text(command["experiment"])).to_bytes()
        if command["do"] == "ask":
            return self._ask(command).to_bytes()
        return self._inspect(command)

    def _ask(self, command: dict[str, Any]) -> Answers:
        """Let the models of a shipped example or of a job answer a phone book.

        If the job has taken over finished runs, the models of each job that trained some answer.
        """
        tokens = np.array(command["tokens"])
        if "example" in command:
            return answer(Weights.shipped(command["example"]), tokens)
        if "trainers" not in command:
            return answer(self._weights_of(command["job"]), tokens)
        weights = {name: self._weights_of(name) for name in command["trainers"]}
        experiment = from_text(command["experiment"])
        return joined_answers(experiment, [weights[n] for n in command["trainers"]], tokens)

    def _inspect(self, command: dict[str, Any]) -> bytes:
        """Inspect the models of a job; the header of the result names its film."""
        names = command.get("trainers", [command["job"]])
        films = {name: self._film_of(name) for name in names}
        film = films[names[0]]
        if "trainers" in command:
            film = join_films(from_text(command["experiment"]), [films[name] for name in names])
        inspection = Inspection.from_dict(command["asked"])
        if inspection.view == "tying":
            result = inspect_tying(film, inspection, self._all_seeds(film.experiment, names))
        else:
            result = inspect(film, inspection)
        result.header["film"] = command["job"]
        return result.to_bytes()

    def _all_seeds(self, experiment: Experiment, names: list[str]) -> list[Runs] | None:
        """Return the runs of all seeds of every variant; None if their weights were dropped.

        Args:
            experiment: The experiment with all variants.
            names: The job that trained them, or for every variant the one that trained it.
        """
        try:
            weights = [self._weights_of(name) for name in names]
        except WeightsGone:
            return None
        of_variants = weights if len(weights) > 1 else weights * len(experiment.sharing)
        return [
            (of_job.experiment, of_job.of_variant(variant), of_job.step)
            for variant, of_job in zip(experiment.sharing, of_variants, strict=True)
        ]

    def _weights_of(self, name: str) -> Weights:
        job = self._jobs.get(name)
        weights = self.weights.get(name) if job is None else Weights.of(job.training)
        if weights is None:
            raise WeightsGone("The weights of this run are not kept any more: train it again")
        return weights

    def _film_of(self, name: str) -> Film:
        """Return the film of one job, which then counts as the last inspected one."""
        job, film = self._jobs.get(name), self.films.pop(name, None)
        if job is not None:
            return job.camera.film
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
