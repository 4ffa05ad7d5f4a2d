"""How much attention every head pays to the right entry, and to the one that asks back."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.analysis.inspection.probes import N_EXAMPLES, examples_of
from attnkit.analysis.inspection.replay import in_parts
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING
from attnkit.training.film import Film, Frame
from attnkit.variants import Variant


def mass_of(film: Film, variant: Variant) -> Float[np.ndarray, "f l h 2"]:
    """Attention on the right and on the reversed entry, a mean over examples and questions.

    NaN where a task has none, and in layers of which no answer is fetched directly.
    """
    unknown = [frame for frame in film.frames if variant not in _KNOWN.get(frame, {})]
    if unknown:
        measured = _measure_mass(replace(film, frames=unknown), variant)
        for frame, mass in zip(unknown, measured, strict=True):
            _KNOWN.setdefault(frame, {})[variant] = mass
    return np.stack([_KNOWN[frame][variant] for frame in film.frames])


_KNOWN: WeakKeyDictionary[Frame, dict[Variant, np.ndarray]] = WeakKeyDictionary()
"""What `mass_of` has found, for as long as a film is kept: it takes longest, and never changes."""


def _measure_mass(film: Film, variant: Variant) -> Float[np.ndarray, "f l h 2"]:
    examples = examples_of(film.experiment.task)
    positions = [examples.target, examples.reverse]
    n_there = [0 if own is None else int((own != NOTHING).sum()) for own in positions]
    if not any(n_there):
        n_heads = film.experiment.wiring(variant).sizes.n_heads
        shape = (len(film.frames), len(film.experiment.layer_specs), n_heads, len(positions))
        return np.full(shape, np.nan, np.float32)
    found = []
    for replay, n in in_parts(film, variant, film.experiment, N_EXAMPLES):
        sums: Tensor | float = 0.0
        for start in range(0, N_EXAMPLES, n):
            some = slice(start, start + n)
            here = [None if own is None else own[some] for own in positions]
            stages = replay.forward(examples.tokens[some]).stages
            by_layer = [torch.stack([_sum_at(own, at) for at in here], -1) for own in stages]
            sums = sums + torch.stack(by_layer, 1)
        assert isinstance(sums, Tensor)
        found.append(sums.numpy())
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = (np.concatenate(found) / np.array(n_there)).astype(np.float32)
    return mean


def _sum_at(stages: Stages, position: Int64[Tensor, "b a"] | None) -> Float[Tensor, "f h"]:
    """Attention at one position each, summed over questions; NaN where nobody asks for answers."""
    shape = (len(stages.pattern), stages.pattern.shape[2])
    if position is None or stages.spec.kind not in ("layer", "cross"):
        return torch.full(shape, torch.nan, dtype=torch.double)
    answering = stages.pattern[..., -position.shape[-1] :, :]
    index = position[None, :, None, :, None].expand(*answering.shape[:-1], 1)
    there = index != NOTHING
    return (answering.gather(-1, index.clamp_min(0)).double() * there).sum((1, 3, 4))
