"""Runs the models of all frames of a film as one batch, stage by stage.

Frames take the place of seeds: what trains many seeds at once replays many moments at once. The
stages go through the same parts as training does (`Heads`, `Norm`, `Mlp`, `ReadOut`), but nothing
is skipped or written in place, so that every number can be shown.

Index letters as in `attnkit.model`, with `f` frame in place of run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

Edit = Callable[[int, Tensor], Tensor]
"""Takes a layer and what its heads have read out, (f, b, h, i, d); returns what leaves instead."""


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
        logits: the answers.
    """

    stages: list[Stages]
    final: Float[Tensor, "f b a m"]
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
    def forward(self, tokens: Int64[Tensor, "b n fields"], edit: Edit | None = None) -> Replayed:
        """Answer a batch, the same for all frames, and keep every stage."""
        model, n_frames = self.model, len(self.model.seeds)
        n_batch, n_ctx = tokens.shape[:2]
        x, _ = model.embedding.forward(tokens.expand(n_frames, *tokens.shape).contiguous())
        made: list[Stages] = []
        for layer, level in enumerate(model.levels):
            made.append(self._attend(layer, x.view(n_frames, n_batch, n_ctx, -1), made, edit))
            x = x.clone()
            asks = slice(*made[-1].place.asks)
            x.view(n_frames, n_batch, n_ctx, -1)[:, :, asks] += made[-1].added
            level.forward_mlps(x)
        answering = x.view(n_frames, n_batch, n_ctx, -1)[:, :, model.task.answers_from :]
        logits, _ = model.read_out.forward(answering.flatten(1, 2))
        return Replayed(made, answering, logits.view(n_frames, n_batch, -1, logits.shape[-1]))

    def _attend(
        self, layer: int, x: Float[Tensor, "f b n m"], made: list[Stages], edit: Edit | None
    ) -> Stages:
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
        if edit is not None:
            z = edit(layer, z)
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


def is_tied(experiment: Experiment, variant: Variant, step: int) -> bool:
    """Whether a variant that is tied during training has been by then."""
    return len(variant.stages) > 1 and experiment.tie_step(variant) <= step
