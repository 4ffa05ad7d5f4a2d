"""Runs the models of all frames of a film as one batch, stage by stage.

Frames take the place of seeds: what trains many seeds at once replays many moments at once. The
stages go through the same parts as training does (`Heads`, `Norm`, `Mlp`, `ReadOut`), but nothing
is skipped or written in place, so that every number can be shown.

Index letters as in `attnkit.model`, with `f` frame in place of run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.architecture import Place
from attnkit.experiment import Experiment
from attnkit.film import Film, Frame
from attnkit.model import Model
from attnkit.variants import Variant
from attnkit.wired import Heads

_MOST_NUMBERS = 2**22
"""Of a replay's stages, about, in memory at once."""


@dataclass(frozen=True, eq=False)
class Stages:
    """What one attention layer computes, in order. Of several maps per head, all are here.

    Attributes:
        place: who asks (i), and who is looked at (j).
        heads: its weights, one model per frame.
        x: the residual stream before it, all positions.
        rows: the same, normalised: what is projected.
        q: as the scores see them. k, v: repeated for the query heads that share them.
        scores: scaled, with biases, before masks. masked: what the softmax takes.
        pattern: after the softmax.
        z: the values of every head, weighted and summed.
        added: what all heads together add to the residual stream of those who ask.
    """

    place: Place
    heads: Heads
    x: Float[Tensor, "f b n m"]
    rows: Float[Tensor, "f b n m"]
    q: Float[Tensor, "f b hp i d"]
    k: Float[Tensor, "f b hp j d"]
    v: Float[Tensor, "f b h j d"]
    scores: Float[Tensor, "f b h p i j"]
    masked: Float[Tensor, "f b h p i j"]
    pattern: Float[Tensor, "f b h i j"]
    z: Float[Tensor, "f b h i d"]
    added: Float[Tensor, "f b i m"]


@dataclass(frozen=True, eq=False)
class Replayed:
    """A batch, answered by the models of some frames.

    Attributes:
        stages: of every attention layer. final: the residual stream that is read out.
        model: what reads it out.
    """

    stages: list[Stages]
    final: Float[Tensor, "f b a m"]
    model: Model

    @cached_property
    def logits(self) -> Float[Tensor, "f b a c"]:
        """The answers."""
        rows, _ = self.model.read_out.forward(self.final.flatten(1, 2))
        return rows.view(*self.final.shape[:3], -1)


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
        same_for_all = tokens.expand(len(self.model.seeds), *tokens.shape).contiguous()
        x, _ = self.model.embedding.forward(same_for_all)
        x = x.view(*same_for_all.shape[:3], -1)
        return self._go_on([self._attend(0, x, [])])

    @torch.no_grad()
    def changed(self, found: Replayed, layer: int, z: Float[Tensor, "f b h i d"]) -> Replayed:
        """What had been found if a layer's heads had read out something else."""
        before = found.stages[layer]
        added = before.heads.leave(z).view_as(before.added)
        return self._go_on([*found.stages[:layer], replace(before, z=z, added=added)])

    def _go_on(self, made: list[Stages]) -> Replayed:
        """From the stages of the first layers to the end."""
        for level in self.model.levels[len(made) - 1 :]:
            x = made[-1].x.clone()
            x[:, :, slice(*made[-1].place.asks)] += made[-1].added
            level.forward_mlps(x.view(len(x), -1, x.shape[-1]))
            if len(made) < len(self.model.levels):
                made.append(self._attend(len(made), x, made))
        return Replayed(made, x[:, :, self.model.task.answers_from :], self.model)

    def _attend(self, layer: int, x: Float[Tensor, "f b n m"], made: list[Stages]) -> Stages:
        (group,) = self.model.groups
        place, wiring = self.model.places[layer], group.wiring
        heads = self.model.heads(layer, group)
        ((_, block),) = self.model.levels[layer].attention
        rows = block.norm.forward(x.flatten(1, 2))[0].view_as(x)
        asks, looks = slice(*place.asks), slice(*place.looks)
        at = torch.arange(x.shape[2], device=x.device)  # counted on each side by itself
        asking, looked_at = at[: asks.stop - asks.start], at[: looks.stop - looks.start]
        leader = wiring.leader(layer)
        read = rows if leader == layer else made[leader].rows
        store = heads.source.store(read[:, :, looks])
        k, v = heads.keys_and_values(store, looked_at)
        own = store if leader == layer and place.square else {}  # tied queries are among them
        q = heads.queries(rows[:, :, asks], own, asking)
        scores = heads.scores(q, k, asking, looked_at)
        mask = self.model.mask(group, place)
        pattern = heads.pattern(scores, mask)
        z = heads.mix(pattern, v)
        return Stages(
            place,
            heads,
            x,
            rows,
            q,
            heads.for_all_heads(k),
            heads.for_all_heads(v),
            scores,
            scores if mask is None else scores + mask,
            pattern,
            z,
            heads.leave(z).view(*x.shape[:2], -1, x.shape[-1]),
        )


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
