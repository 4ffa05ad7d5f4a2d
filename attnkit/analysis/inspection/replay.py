"""Replays: the models of all frames of a film, run as one batch, with every stage recorded.

Frames take the place of seeds: the code that trains many seeds at once replays many moments of
training at once. The stages come from the same `Transformer` as in training, but no position is
skipped, so that every number can be shown.

Index letters as in `attnkit.model.reference`, with `f` frame in place of run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.foundation.slices import pause
from attnkit.model.model import Model
from attnkit.model.reference import Stages
from attnkit.training.film import Film, Frame
from attnkit.variants import Variant

_MOST_NUMBERS = 2**22
"""Approximate limit of the numbers in the stages of one batch."""


@dataclass(frozen=True, eq=False)
class Replayed:
    """Results of one batch with the models of some frames.

    Attributes:
        stages: Stages of every attention layer.
        logits: Logits of the answers.
    """

    stages: list[Stages]
    logits: Float[Tensor, "f b a c"]


class Replay:
    """Models of one variant at consecutive frames with the same names and shapes of parameters.

    Args:
        experiment: Experiment of one seed; its task may differ from the one trained on if the
            parameters fit.
        variant: Variant of the experiment.
        frames: Frames with the weights to load.

    Attributes:
        model: The models of all frames; each frame is one of its runs.
        transformer: Their transformer.

    Raises:
        ValueError: If the weights do not fit the experiment.
    """

    def __init__(self, experiment: Experiment, variant: Variant, frames: list[Frame]) -> None:
        index = experiment.sharing.index(variant)
        parameters = [frame.parameters[index] for frame in frames]
        self.model = model_of(experiment, variant, parameters, frames[0].step)
        self.transformer = self.model.transformer(variant)

    def precise(self) -> Replay:
        """Return this replay in double precision."""
        other = copy(self)
        other.transformer = self.transformer.double()
        return other

    @torch.no_grad()
    def forward(self, tokens: Int64[Tensor, "b n fields"]) -> Replayed:
        """Run a batch, the same for all frames, and record every stage."""
        x = self.transformer.embed(tokens.expand(len(self.model.seeds), *tokens.shape))
        return self._continue([self.transformer.attention(0, x)])

    @torch.no_grad()
    def with_head_outputs(
        self, replayed: Replayed, layer: int, z: Float[Tensor, "f b h i d"]
    ) -> Replayed:
        """Return the results if the heads of a layer had read out `z` instead."""
        original = replayed.stages[layer]
        changed = replace(original, z=z, added=original.heads.output(z))
        return self._continue([*replayed.stages[:layer], changed])

    def _continue(self, stages: list[Stages]) -> Replayed:
        """Compute the remaining layers and the logits from the stages of the first layers."""
        x = self.transformer.stream_after(len(stages) - 1, stages[-1])
        while len(stages) < len(self.model.layer_specs):
            below = [(layer.k, layer.v) for layer in stages]
            stages.append(self.transformer.attention(len(stages), x, below))
            x = self.transformer.stream_after(len(stages) - 1, stages[-1])
        return Replayed(stages, self.transformer.read_out(x))


def model_of(
    experiment: Experiment,
    variant: Variant,
    parameters: Sequence[dict[str, np.ndarray]],
    step: int,
    model_class: type[Model] = Model,
) -> Model:
    """Return the models of a variant with the parameters that some runs have after these steps.

    Raises:
        ValueError: If the weights do not fit the model.
    """
    model = model_class(
        experiment,
        [experiment.first_seed] * len(parameters),
        torch.device("cpu"),
        sharing=[variant],
        tied={variant} if is_tied(experiment, variant, step) else set(),
        drawn=False,
    )
    for run, arrays in enumerate(parameters):
        for name, value in model.run_parameters(run).items():
            if name not in arrays or arrays[name].shape != tuple(value.shape):
                shape = arrays[name].shape if name in arrays else "none"
                raise ValueError(f"{name}: got {shape}, allowed {tuple(value.shape)}")
            value.copy_(torch.from_numpy(arrays[name]))
    return model


def replays(film: Film, variant: Variant, experiment: Experiment | None = None) -> Iterator[Replay]:
    """Yield replays of all frames in order: one, or two if the variant is tied in between.

    Args:
        film: Film of the run.
        variant: Variant of the film's experiment.
        experiment: Experiment with another task that the weights fit; None for the film's.
    """
    experiment = film.experiment if experiment is None else experiment
    by_form = groupby(film.frames, lambda frame: is_tied(film.experiment, variant, frame.step))
    for _, frames in by_form:
        yield Replay(experiment, variant, list(frames))
        pause()


def _most_replayed(experiment: Experiment, variant: Variant) -> int:
    """Return the most examples times frames in one batch, so that its stages take little memory."""
    wiring, n_ctx = experiment.wiring(variant), experiment.task.n_ctx
    sizes = wiring.sizes
    per_token = 4 * sizes.d_model + 4 * wiring.n_inner * wiring.n_maps + sizes.d_mlp
    per_token += 3 * sizes.n_heads * wiring.n_maps * n_ctx
    return max(1, _MOST_NUMBERS // (n_ctx * sizes.n_layers * per_token))


def film_parts(
    film: Film, variant: Variant, experiment: Experiment, n_examples: int
) -> Iterator[Film]:
    """Split a film into parts whose frames can be replayed in one batch of `n_examples`."""
    n_frames = max(1, _most_replayed(experiment, variant) // n_examples)
    for start in range(0, len(film.frames), n_frames):
        yield replace(film, frames=film.frames[start : start + n_frames])
        pause()


def batched_replays(
    film: Film, variant: Variant, experiment: Experiment, n_examples: int
) -> Iterator[tuple[Replay, int]]:
    """Yield replays of all frames, each with the largest batch of the `n_examples` to run on it."""
    most = _most_replayed(experiment, variant)
    for part in film_parts(film, variant, experiment, n_examples):
        for replay in replays(part, variant, experiment):
            yield replay, max(1, min(n_examples, most // len(part.frames)))


def is_tied(experiment: Experiment, variant: Variant, step: int) -> bool:
    """Return whether a variant is tied during training and has been tied by this step."""
    return len(variant.stages) > 1 and experiment.tie_step(variant) <= step
