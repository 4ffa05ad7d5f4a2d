"""Films: the weights of one seed's runs at many moments of training.

A film keeps weights and no example's attention, because everything else can be computed from
weights later: other examples, an ablated head, a custom phone book. One seed is enough: a run does
not depend on the runs that train beside it, so the film of another seed is recorded by training
that seed alone. `attnkit.training.loops` records films; this module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32

from attnkit.experiment import Experiment
from attnkit.foundation.display import Displayed
from attnkit.training.engine import Engine

MOST_FRAMES = 100
"""Largest number of frames; of more evaluations, evenly spaced ones are kept."""

MOST_BYTES = 2**25
"""Largest size of a film's weights in bytes; films of larger models have fewer frames."""

_LEAST_FRAMES = 2


@dataclass(frozen=True, eq=False)
class Frame:
    """Weights and metrics of one seed's runs just after an evaluation.

    Attributes:
        step: Optimiser steps taken.
        parameters: Arrays by name for each variant; tied parameters are absent.
        metrics: Metrics (v,) on the held-out examples, by name.
        head_symmetry: Score symmetry (v, l, h); NaN where it is not defined.
    """

    step: int
    parameters: list[dict[str, np.ndarray]]
    metrics: dict[str, Float32[np.ndarray, " v"]]
    head_symmetry: Float32[np.ndarray, "v l h"]


@dataclass(frozen=True, eq=False, repr=False)
class Film(Displayed):
    """Frames of one seed's runs.

    Attributes:
        experiment: The experiment with that seed only.
        frames: Frames in the order of their steps. A film that is not thinned or cut has those of
            `filmed_steps`, as far as it is recorded.
        engine: Engine that trained the runs; see `Snapshot`.
        processor: Kind of processor that trained the runs; empty if unknown.
        versions: Versions of the libraries that trained the runs; empty if unknown.
    """

    experiment: Experiment
    frames: list[Frame]
    engine: Engine = "torch"
    processor: str = ""
    versions: str = ""

    def __repr__(self) -> str:
        """Return a short description; the weights would fill many screens."""
        experiment = self.experiment
        frames = f"{len(self.frames)} frames"
        return f"<Film of {experiment.n_runs} runs of {experiment.task.name}, {frames}>"

    @property
    def steps(self) -> list[int]:
        """Steps at which the frames were taken."""
        return [frame.step for frame in self.frames]

    @property
    def n_bytes(self) -> int:
        """Size of the weights in bytes."""
        return sum(
            array.nbytes
            for frame in self.frames
            for parameters in frame.parameters
            for array in parameters.values()
        )

    def metric(self, name: str) -> Float32[np.ndarray, "f v"]:
        """Return a metric of every variant at the frames."""
        return np.stack([frame.metrics[name] for frame in self.frames])

    @property
    def head_symmetry(self) -> Float32[np.ndarray, "f v l h"]:
        """Score symmetry of every head at the frames."""
        return np.stack([frame.head_symmetry for frame in self.frames])

    def after(self, step: int) -> Film:
        """Return the film with the frames after a step only."""
        return replace(self, frames=[frame for frame in self.frames if frame.step > step])

    def at(self, step: int) -> Film:
        """Return the film with one frame: the last one up to a step, or else the first."""
        earlier = [frame for frame in self.frames if frame.step <= step]
        return replace(self, frames=(earlier or self.frames[:1])[-1:])

    def thinned(self, n_frames: int) -> Film:
        """Return the film with at most `n_frames` evenly spaced frames, first and last included."""
        n_frames = max(n_frames, _LEAST_FRAMES)
        if len(self.frames) <= n_frames:
            return self
        indices = np.linspace(0, len(self.frames) - 1, n_frames).round()
        return replace(self, frames=[self.frames[int(index)] for index in indices])


def filmed_steps(experiment: Experiment) -> list[int]:
    """Return the steps of a film's frames: those of the evaluations, evenly thinned."""
    training = experiment.training
    evaluated = [*range(0, training.steps, training.evaluate_every), training.steps]
    most = max(_LEAST_FRAMES, min(MOST_FRAMES, MOST_BYTES // _frame_bytes(experiment)))
    if len(evaluated) <= most:
        return evaluated
    indices = np.linspace(0, len(evaluated) - 1, most).round().astype(int)
    return [evaluated[index] for index in indices]


def film_megabytes(experiment: Experiment) -> float:
    """Return the memory of a complete film of one seed, in MiB."""
    return len(filmed_steps(experiment)) * _frame_bytes(experiment) / 2**20


def _frame_bytes(experiment: Experiment) -> int:
    return 4 * sum(experiment.costs(variant).parameters for variant in experiment.sharing)
