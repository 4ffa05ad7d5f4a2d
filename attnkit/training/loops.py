"""Loops that train an experiment: to a stream of snapshots, to a result, and to a film."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attnkit.experiment import Experiment
from attnkit.training.film import Film, Frame, filmed_steps
from attnkit.training.metrics import METRICS
from attnkit.training.progress import Progress, display_for
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.training.training import Training
from attnkit.variants.module_layers import ModuleFailure


def stream(experiment: Experiment, device: str = "auto") -> Iterator[Snapshot]:
    """Train an experiment and yield snapshots, the last one after the last step.

    Snapshots are taken at steps 0, 1, 2, 4, 8, … until the gap is a fortieth of all steps, then
    at this gap.
    """
    training = Training(experiment, device)
    yield training.snapshot()
    widest = max(experiment.training.steps // 40, 1)
    while not training.finished:
        training.advance(min(max(training.step, 1), widest))
        yield training.snapshot()


def train(experiment: Experiment, device: str = "auto", progress: Progress = None) -> Result:
    """Train an experiment to its last step and return the result.

    A `KeyboardInterrupt` (Ctrl-C, or the stop button of a notebook) ends the training early. The
    result then has the status "stopped" and holds what was trained until then.

    Args:
        experiment: The experiment to train.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        progress: None shows a live figure in a notebook and a bar on a terminal, and nothing
            elsewhere; only an interruption is always said. True shows lines elsewhere, too. False
            shows and says nothing. A function is called with the training about fifty times; it
            must not change the training.

    Raises:
        InvalidExperiment: If there is no such device, or `progress` is something else.
        ModuleFailure: If a PyTorch module of one's own fails at a later step. Its attribute
            `trained` holds what all variants had trained shortly before.
    """
    display = display_for(progress)
    training = Training(experiment, device)
    if experiment.unequal_costs:
        warnings.warn(f"equal: {experiment.unequal_costs}", stacklevel=2)
    stride = max(experiment.training.steps // 50, 20)
    may_fail = any("module" in variant.given for variant in experiment.sharing)
    before: Result | None = None
    try:
        with display.follow(training, "result"):
            display.begin(training)
            while not training.finished:
                # A variant that has failed cannot catch up with the others.
                before = training.result() if may_fail and training.step else before
                training.advance(stride)
                display(training)
        return training.result()
    except ModuleFailure as error:
        error.trained = before
        raise


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
