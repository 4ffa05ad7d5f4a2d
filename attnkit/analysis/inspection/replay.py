"""Runs the models of all frames of a film as one batch, stage by stage.

Frames take the place of seeds: what trains many seeds at once replays many moments at once. The
stages come from the same `Transformer` as in training, but no position is skipped, so that every
number can be shown.

Index letters as in `attnkit.model.reference`, with `f` frame in place of run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.model.model import Model
from attnkit.model.reference import Stages
from attnkit.training.film import Film, Frame
from attnkit.variants import Variant

_MOST_NUMBERS = 2**22
"""Of a replay's stages, about, in memory at once."""


@dataclass(frozen=True, eq=False)
class Replayed:
    """A batch, answered by the models of some frames.

    Attributes:
        stages: what every attention layer computed. logits: the answers.
    """

    stages: list[Stages]
    logits: Float[Tensor, "f b a c"]


class Replay:
    """One variant's models at some neighbouring frames, which all have the same parameters.

    Args:
        experiment: of one seed; its task may be another than the one trained on, as long as the
            parameters fit.
        variant: one of its variants. frames: whose weights to take.

    Attributes:
        model: the models; a frame is a run of it.

    Raises:
        ValueError: if the weights do not fit the experiment.
    """

    def __init__(self, experiment: Experiment, variant: Variant, frames: list[Frame]) -> None:
        place = experiment.sharing.index(variant)
        tied = {variant} if is_tied(experiment, variant, frames[0].step) else set()
        self.model = Model(
            experiment,
            [experiment.first_seed] * len(frames),
            torch.device("cpu"),
            sharing=[variant],
            tied=tied,
            drawn=False,
        )
        self._transformer = self.model.transformer(variant)
        self.fill([frame.parameters[place] for frame in frames])

    def fill(self, parameters: list[dict[str, np.ndarray]]) -> None:
        """Take these weights, one model after another."""
        for run, given in enumerate(parameters):
            own = self.model.run_parameters(run)
            for name, value in own.items():
                if name not in given or given[name].shape != tuple(value.shape):
                    shape = given[name].shape if name in given else "none"
                    raise ValueError(f"{name}: got {shape}, allowed {tuple(value.shape)}")
                value.copy_(torch.from_numpy(given[name]))

    @torch.no_grad()
    def forward(self, tokens: Int64[Tensor, "b n fields"]) -> Replayed:
        """Answer a batch, the same for all frames, and keep every stage."""
        x = self._transformer.embed(tokens.expand(len(self.model.seeds), *tokens.shape))
        return self._go_on([self._transformer.attend(0, x, None)])

    @torch.no_grad()
    def changed(self, found: Replayed, layer: int, z: Float[Tensor, "f b h i d"]) -> Replayed:
        """Return what would have been found if a layer's heads had read out something else."""
        before = found.stages[layer]
        changed = replace(before, z=z, added=before.heads.output(z))
        return self._go_on([*found.stages[:layer], changed])

    def _go_on(self, made: list[Stages]) -> Replayed:
        """Compute from the stages of the first layers to the end."""
        x = self._transformer.stream_after(len(made) - 1, made[-1])
        while len(made) < len(self.model.layer_specs):
            made.append(self._transformer.attend(len(made), x, made[-1]))
            x = self._transformer.stream_after(len(made) - 1, made[-1])
        return Replayed(made, self._transformer.read_out(x))


def replays(film: Film, variant: Variant, experiment: Experiment | None = None) -> Iterator[Replay]:
    """A variant's models at all frames, in order: one replay, or two if it is tied in between.

    Args:
        experiment: with another task that the same weights can answer; None: the film's.
    """
    own = film.experiment if experiment is None else experiment
    by_form = groupby(film.frames, lambda frame: is_tied(film.experiment, variant, frame.step))
    for _, frames in by_form:
        yield Replay(own, variant, list(frames))


def _n_at_once(experiment: Experiment, variant: Variant) -> int:
    """How many examples, times frames, can be replayed together: so many that memory is no care."""
    wiring, n_ctx = experiment.wiring(variant), experiment.task.n_ctx
    sizes = wiring.sizes
    per_token = 4 * sizes.d_model + 4 * wiring.n_inner * wiring.n_maps + sizes.d_mlp
    per_token += 3 * sizes.n_heads * wiring.n_maps * n_ctx
    return max(1, _MOST_NUMBERS // (n_ctx * sizes.n_layers * per_token))


def parts_of(
    film: Film, variant: Variant, experiment: Experiment, n_examples: int
) -> Iterator[Film]:
    """The film cut into so many frames as can be replayed at once on so many examples."""
    n_each = max(1, _n_at_once(experiment, variant) // n_examples)
    for start in range(0, len(film.frames), n_each):
        yield replace(film, frames=film.frames[start : start + n_each])


def in_parts(
    film: Film, variant: Variant, experiment: Experiment, n_examples: int
) -> Iterator[tuple[Replay, int]]:
    """Replays of all frames, and how many of so many examples can be replayed at once."""
    n_together = _n_at_once(experiment, variant)
    for part in parts_of(film, variant, experiment, n_examples):
        for replay in replays(part, variant, experiment):
            yield replay, max(1, min(n_examples, n_together // len(part.frames)))


def is_tied(experiment: Experiment, variant: Variant, step: int) -> bool:
    """Whether a variant that is tied during training has been by then."""
    return len(variant.stages) > 1 and experiment.tie_step(variant) <= step
