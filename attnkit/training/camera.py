"""Films a training: takes its weights at the steps that a film is to hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnkit.experiment import Experiment
from attnkit.foundation.machine import processor_kind
from attnkit.training.film import Film, Frame, filmed_steps
from attnkit.training.snapshot import METRICS
from attnkit.training.training import Training


class Camera:
    """Takes the frames of a training, if it is held at the steps in question.

    Args:
        training: what is filmed. seed: one of its seeds; None: the first.
    """

    def __init__(self, training: Training, seed: int | None = None) -> None:
        self._training = training
        experiment = training.experiment
        self._seed = experiment.first_seed if seed is None else seed
        self._film = Film(
            experiment.replace(first_seed=self._seed, n_seeds=1),
            [],
            training.engine,
            processor_kind(training.device),
        )
        self._due = filmed_steps(self._film.experiment)
        self.shoot()

    @property
    def film(self) -> Film:
        """What has been taken so far."""
        return replace(self._film, frames=list(self._film.frames))

    @property
    def n_steps_left(self) -> int:
        """Steps until the next frame; 0 if there is none."""
        n_taken = len(self._film.frames)
        return self._due[n_taken] - self._training.step if n_taken < len(self._due) else 0

    def shoot(self) -> None:
        """Take a frame, if one is due now."""
        training, n_taken = self._training, len(self._film.frames)
        if n_taken == len(self._due) or training.step != self._due[n_taken]:
            return
        variants = training.experiment.sharing
        found = {
            run: (evaluation, place, parameters)
            for cohort in training.cohorts
            if self._seed in cohort.seeds
            for evaluation in cohort.evaluations[-1:]
            for (place, run), parameters in zip(
                ((i, r) for i, r in enumerate(cohort.runs) if r[1] == self._seed),
                cohort.parameters(self._seed),
                strict=True,
            )
        }
        own = [found[variant, self._seed] for variant in variants]
        self._film.frames.append(
            Frame(
                training.step,
                [parameters for _, _, parameters in own],
                {name: np.array([e.metrics[name][i] for e, i, _ in own]) for name in METRICS},
                np.stack([e.head_symmetry[i] for e, i, _ in own]),
            )
        )


def record(experiment: Experiment, seed: int | None = None, device: str = "auto") -> Film:
    """Train one seed of an experiment and film it.

    On a CPU the last frame holds, bit for bit, the weights that `train` gives this seed on the same
    engine, the same kind of processor and the same version of torch, whichever other seeds train
    beside it. Another engine or processor rounds differently, so there the weights agree within
    rounding.

    Args:
        experiment: The experiment to train.
        seed: The seed to film. None: the first one of the experiment.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.

    Returns:
        The film, with up to 100 frames from step 0 to the last step.
    """
    first = experiment.first_seed if seed is None else seed
    training = Training(experiment.replace(first_seed=first, n_seeds=1), device)
    camera = Camera(training)
    while not training.finished:
        training.advance(camera.n_steps_left)
        camera.shoot()
    return camera.film
