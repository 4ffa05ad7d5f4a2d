"""The parameters of a cohort: one vector for the optimiser, views by name and by run.

Every run's part of every parameter starts on a cache line, so that BLAS rounds it alike wherever it
stands; the gaps hold zeros for ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnkit.blocks import Parameter
from attnkit.recipe import ALIGNED

TABLE = "W_E"
"""The embedding: (seeds · vocabulary, variants · width), so that a row serves all variants."""


@dataclass(frozen=True)
class Slab:
    """The parameters of one name of neighbouring runs.

    Attributes:
        runs: those that own it. shape: of one run's. start: where it begins in the vector.
    """

    name: str
    runs: slice
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """Where the next one begins."""
        n_runs: int = self.runs.stop - self.runs.start
        return self.start + n_runs * self._stride

    @property
    def _stride(self) -> int:
        n_numbers: int = math.prod(self.shape)
        return n_numbers + -n_numbers % ALIGNED

    def of(self, vector: Tensor) -> Tensor:
        """Its part of a vector, (runs, *shape)."""
        rows = vector[self.start : self.stop].view(-1, self._stride)
        return rows[:, : math.prod(self.shape)].view(-1, *self.shape)


class Parameters:
    """All numbers of a cohort.

    Args:
        n_seeds, n_variants: the runs, ordered by variant, then seed.
        d_vocab, d_model: one run's embedding.
        slabs: every other parameter: name, owners, shape of one.

    Attributes:
        numbers, gradient: the vector and its gradient, zeros at first.
    """

    def __init__(
        self,
        n_seeds: int,
        n_variants: int,
        d_vocab: int,
        d_model: int,
        slabs: Sequence[tuple[str, slice, tuple[int, ...]]],
        device: torch.device,
    ) -> None:
        self._n_seeds, self._table = n_seeds, (n_seeds * d_vocab, n_variants * d_model)
        self._d_vocab, self._d_model = d_vocab, d_model
        stop = math.prod(self._table)
        self.slabs: list[Slab] = []
        for name, runs, shape in slabs:
            self.slabs.append(Slab(name, runs, shape, stop))
            stop = self.slabs[-1].stop
        self.numbers = torch.zeros(stop, device=device)
        self.gradient = torch.zeros_like(self.numbers)

    def table(self) -> Parameter:
        """The embedding of all runs."""
        n_numbers = math.prod(self._table)
        value, gradient = (
            vector[:n_numbers].view(self._table) for vector in (self.numbers, self.gradient)
        )
        return Parameter(value, gradient)

    def find(self, name: str, runs: slice) -> Slab:
        """The slab of this name that some runs own, or a part of it."""
        for slab in self.slabs:
            if slab.name == name and slab.runs.start <= runs.start < slab.runs.stop:
                return slab
        raise KeyError(f"{name} of runs {runs.start} to {runs.stop}")

    def parameter(self, slab: Slab) -> Parameter:
        """Value and gradient of a slab."""
        return Parameter(slab.of(self.numbers), slab.of(self.gradient))

    def of_runs(self, name: str, runs: slice) -> Parameter:
        """Value and gradient of some neighbouring runs' part of a slab."""
        slab = self.find(name, runs)
        start = slab.runs.start
        return self.parameter(slab).of(slice(runs.start - start, runs.stop - start))

    def clip(self, largest: float) -> None:
        """Shorten the gradient of every run that is longer than this.

        Source:
            `torch.nn.utils.clip_grad_norm_`, of each run by itself.
        """
        n_variants = self._table[1] // self._d_model
        shape = (self._n_seeds, self._d_vocab, n_variants, self._d_model)
        table = self.gradient[: math.prod(self._table)].view(shape)
        by_run = table.permute(2, 0, 1, 3).reshape(n_variants * self._n_seeds, -1)
        squares = by_run.square().sum(1)
        for slab in self.slabs:
            squares[slab.runs] += slab.of(self.gradient).flatten(1).square().sum(1)
        share = (largest / (squares.sqrt() + 1e-6)).clamp_max(1.0)
        table.mul_(share.view(n_variants, -1).T[:, None, :, None])
        for slab in self.slabs:
            own = slab.of(self.gradient)
            own.mul_(share[slab.runs].view(-1, *[1] * (own.dim() - 1)))

    def by_name(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of a vector; a name that several slabs have is numbered from the second on."""
        views = {TABLE: vector[: math.prod(self._table)].view(self._table)}
        for slab in self.slabs:
            same = [other for other in self.slabs if other.name == slab.name]
            place = same.index(slab)
            views[slab.name if place == 0 else f"{slab.name} {place + 1}"] = slab.of(vector)
        return views

    def of_run(self, run: int, vector: Tensor) -> dict[str, Tensor]:
        """Views of what belongs to one run, by name, without the axis of runs."""
        variant, seed = divmod(run, self._n_seeds)
        rows = slice(seed * self._d_vocab, (seed + 1) * self._d_vocab)
        columns = slice(variant * self._d_model, (variant + 1) * self._d_model)
        own = {TABLE: vector[: math.prod(self._table)].view(self._table)[rows, columns]}
        for slab in self.slabs:
            if slab.runs.start <= run < slab.runs.stop:
                own[slab.name] = slab.of(vector)[run - slab.runs.start]
        return own
