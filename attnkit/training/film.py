"""Films: the weights of one seed's runs at many moments of training.

Whatever one wants to see of a model later (another example, a head that is switched off, a book of
one's own) can be computed from its weights, so these are what is kept, and not any one example's
arrays. One seed is enough: a run does not depend on those that train beside it, so the film of
another seed, or of a result whose film is gone, is recorded by training that seed again alone.
`attnkit.training.camera` does that; no torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32

from attnkit.experiment import Experiment
from attnkit.training.engine import Engine

MOST_FRAMES = 100
"""Moments of a film; more evaluations than that are thinned evenly."""

MOST_BYTES = 2**25
"""Weights of one film: of larger models there are fewer moments."""

_LEAST_FRAMES = 2


@dataclass(frozen=True, eq=False)
class Frame:
    """One moment of training, just after an evaluation.

    Attributes:
        step: optimiser steps taken.
        parameters: variant's place → name → array; tied parameters are absent.
        metrics: name → (v,) as evaluated on the held-out examples.
        head_symmetry: (v, l, h) score symmetry; NaN where there is none.
    """

    step: int
    parameters: list[dict[str, np.ndarray]]
    metrics: dict[str, Float32[np.ndarray, " v"]]
    head_symmetry: Float32[np.ndarray, "v l h"]


@dataclass(frozen=True, eq=False)
class Film:
    """The frames of one seed's runs so far.

    Attributes:
        experiment: of that seed alone.
        frames: in the order of their steps; all steps from 0 that `filmed_steps` names, unless
            it was thinned or cut.
        engine: what trained it. processor: the kind of processor. See `Snapshot`.
    """

    experiment: Experiment
    frames: list[Frame]
    engine: Engine = "torch"
    processor: str = ""

    @property
    def steps(self) -> list[int]:
        """When the frames were taken."""
        return [frame.step for frame in self.frames]

    @property
    def n_bytes(self) -> int:
        """What the weights take."""
        return sum(
            array.nbytes
            for frame in self.frames
            for own in frame.parameters
            for array in own.values()
        )

    def metric(self, name: str) -> Float32[np.ndarray, "f v"]:
        """What was evaluated at the frames."""
        return np.stack([frame.metrics[name] for frame in self.frames])

    @property
    def head_symmetry(self) -> Float32[np.ndarray, "f v l h"]:
        """Score symmetry per head at the frames."""
        return np.stack([frame.head_symmetry for frame in self.frames])

    def after(self, step: int) -> Film:
        """The frames that were taken later."""
        return replace(self, frames=[frame for frame in self.frames if frame.step > step])

    def at(self, step: int) -> Film:
        """The last frame up to a step, alone."""
        earlier = [frame for frame in self.frames if frame.step <= step]
        return replace(self, frames=(earlier or self.frames[:1])[-1:])

    def thinned(self, n_frames: int) -> Film:
        """At most so many frames, evenly chosen; the first and the last stay."""
        n_frames = max(n_frames, _LEAST_FRAMES)
        if len(self.frames) <= n_frames:
            return self
        kept = np.linspace(0, len(self.frames) - 1, n_frames).round()
        return replace(self, frames=[self.frames[int(place)] for place in kept])


def filmed_steps(experiment: Experiment) -> list[int]:
    """The steps of a film's frames: those of the evaluations, thinned to what a film may hold."""
    training = experiment.training
    evaluated = [*range(0, training.steps, training.evaluate_every), training.steps]
    most = max(_LEAST_FRAMES, min(MOST_FRAMES, MOST_BYTES // _frame_bytes(experiment)))
    if len(evaluated) <= most:
        return evaluated
    kept = np.linspace(0, len(evaluated) - 1, most).round().astype(int)
    return [evaluated[place] for place in kept]


def film_megabytes(experiment: Experiment) -> float:
    """Memory that the film of one seed takes in the end."""
    return len(filmed_steps(experiment)) * _frame_bytes(experiment) / 2**20


def _frame_bytes(experiment: Experiment) -> int:
    return 4 * sum(experiment.costs(variant).parameters for variant in experiment.sharing)
