"""Recording of films: copies the weights of a training at the steps of the film's frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnkit.experiment import Experiment
from attnkit.training.film import Film, Frame, filmed_steps
from attnkit.training.metrics import METRICS
from attnkit.training.progress import Progress, display_for
from attnkit.training.training import Training


class Recorder:
    """Recorder of a film; the training has to stop at the steps of the frames.

    Args:
        training: The training to film.
        seed: The seed to film. None: the first one of the experiment.
    """

    def __init__(self, training: Training, seed: int | None = None) -> None:
        self._training = training
        experiment = training.experiment
        self._seed = experiment.first_seed if seed is None else seed
        self._film = Film(
            experiment.replace(first_seed=self._seed, n_seeds=1),
            [],
            *training.maker,
        )
        self._due = filmed_steps(self._film.experiment)
        self.record_frame()

    @property
    def film(self) -> Film:
        """Film of the frames that have been taken so far."""
        return replace(self._film, frames=list(self._film.frames))

    @property
    def n_steps_left(self) -> int:
        """Number of steps until the next frame; 0 after the last one."""
        n_taken = len(self._film.frames)
        return self._due[n_taken] - self._training.step if n_taken < len(self._due) else 0

    def record_frame(self) -> None:
        """Take a frame, if one is due now."""
        training, n_taken = self._training, len(self._film.frames)
        if n_taken == len(self._due) or training.step != self._due[n_taken]:
            return
        by_variant = {}
        for cohort in training.cohorts:
            runs = [i for i, (_, seed) in enumerate(cohort.runs) if seed == self._seed]
            parameters = cohort.parameters(self._seed)
            for run, run_parameters in zip(runs, parameters, strict=True):
                variant, _ = cohort.runs[run]
                by_variant[variant] = (cohort.evaluations[-1], run, run_parameters)
        filmed = [by_variant[variant] for variant in training.experiment.sharing]
        self._film.frames.append(
            Frame(
                training.step,
                [parameters for _, _, parameters in filmed],
                {name: np.array([e.metrics[name][i] for e, i, _ in filmed]) for name in METRICS},
                np.stack([e.head_symmetry[i] for e, i, _ in filmed]),
            )
        )


def record(
    experiment: Experiment,
    seed: int | None = None,
    device: str = "auto",
    progress: Progress = None,
) -> Film:
    """Train one seed of an experiment and record its film.

    On a CPU the last frame has, bit for bit, the weights that `train` gives this seed on the same
    engine, the same kind of processor and the same versions, whichever other seeds train beside it.
    With another one of these, the weights agree within rounding.

    Args:
        experiment: The experiment to train.
        seed: The seed to film. None: the first one of the experiment.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        progress: What is shown meanwhile, as for `train`.

    Returns:
        The film, with up to 100 frames from step 0 to the last step. After a `KeyboardInterrupt`
        it has the frames until then.
    """
    display = display_for(progress)
    first = experiment.first_seed if seed is None else seed
    training = Training(experiment.replace(first_seed=first, n_seeds=1), device)
    recorder = Recorder(training)
    with display.follow(training, "film"):
        display.begin(training)
        while not training.finished:
            training.advance(recorder.n_steps_left)
            recorder.record_frame()
            display(training)
    return recorder.film
