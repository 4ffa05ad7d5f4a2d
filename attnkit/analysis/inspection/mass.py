"""Attention mass of every head on the right entry and on the reversed entry."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.analysis.inspection.probes import N_EXAMPLES, examples_of
from attnkit.analysis.inspection.replay import batched_replays
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING
from attnkit.training.film import Film, Frame
from attnkit.variants import Variant


def mass_of(film: Film, variant: Variant) -> Float[np.ndarray, "f l h 2"]:
    """Return the attention to the right and to the reversed entry, mean of examples and questions.

    NaN if a task has no such entries, and in layers whose queries give no answers directly.
    """
    missing = [frame for frame in film.frames if variant not in _CACHE.get(frame, {})]
    if missing:
        measured = _measure_mass(replace(film, frames=missing), variant)
        for frame, mass in zip(missing, measured, strict=True):
            _CACHE.setdefault(frame, {})[variant] = mass
    return np.stack([_CACHE[frame][variant] for frame in film.frames])


_CACHE: WeakKeyDictionary[Frame, dict[Variant, np.ndarray]] = WeakKeyDictionary()
"""Results of `mass_of`, kept as long as their frames: they are slow to compute and never change."""


def _measure_mass(film: Film, variant: Variant) -> Float[np.ndarray, "f l h 2"]:
    examples = examples_of(film.experiment.task)
    entries = [examples.target, examples.reverse]
    counts = [0 if entry is None else int((entry != NOTHING).sum()) for entry in entries]
    if not any(counts):
        n_heads = film.experiment.wiring(variant).sizes.n_heads
        shape = (len(film.frames), len(film.experiment.layer_specs), n_heads, len(entries))
        return np.full(shape, np.nan, np.float32)
    parts = []
    for replay, n in batched_replays(film, variant, film.experiment, N_EXAMPLES):
        sums: Tensor | float = 0.0
        for start in range(0, N_EXAMPLES, n):
            batch = slice(start, start + n)
            of_batch = [None if entry is None else entry[batch] for entry in entries]
            all_stages = replay.forward(examples.tokens[batch]).stages
            by_layer = [
                torch.stack([_mass_at(stages, entry) for entry in of_batch], -1)
                for stages in all_stages
            ]
            sums = sums + torch.stack(by_layer, 1)
        assert isinstance(sums, Tensor)
        parts.append(sums.numpy())
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = (np.concatenate(parts) / np.array(counts)).astype(np.float32)
    return mean


def _mass_at(stages: Stages, position: Int64[Tensor, "b a"] | None) -> Float[Tensor, "f h"]:
    """Return the attention of each answer's query to one position, summed over all answers.

    NaN if there are no such positions, or if the layer's queries give no answers directly.
    """
    shape = (len(stages.pattern), stages.pattern.shape[2])
    if position is None or stages.spec.kind not in ("layer", "cross"):
        return torch.full(shape, torch.nan, dtype=torch.double)
    answering = stages.pattern[..., -position.shape[-1] :, :]
    index = position[None, :, None, :, None].expand(*answering.shape[:-1], 1)
    exists = index != NOTHING
    return (answering.gather(-1, index.clamp_min(0)).double() * exists).sum((1, 3, 4))
