"""Parameters of several runs in one vector, with one contiguous block for each run.

Every block, and every parameter in it, begins on a cache line, so that BLAS rounds it in the same
way wherever it is in the vector. The gaps between parameters stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnkit.variants.size import ALIGNED

EMBEDDING = "W_E"
"""Name of the embedding matrix, (d_vocab, d_model)."""

Shape = tuple[int, ...]


class Parameters:
    """Parameters of all runs, ordered by variant, then by seed.

    Args:
        shapes: For every variant, the shapes of one run's parameters by name.
        n_seeds: Number of runs of each variant.
        device: Device of the vectors.

    Attributes:
        numbers: Vector of all parameters, zeros at first.
        gradient: Gradient of `numbers`, in the same layout.
        offsets: For every variant, name → (offset from the beginning of a run's block, shape).
    """

    def __init__(
        self, shapes: Sequence[dict[str, Shape]], n_seeds: int, device: torch.device
    ) -> None:
        self._n_seeds = n_seeds
        self.offsets: list[dict[str, tuple[int, Shape]]] = []
        self._starts, self._lengths = [0], list[int]()
        for shapes_by_name in shapes:
            length, offsets = 0, dict[str, tuple[int, Shape]]()
            for name, shape in shapes_by_name.items():
                offsets[name] = length, shape
                n_numbers = math.prod(shape)
                length += n_numbers + -n_numbers % ALIGNED
            self.offsets.append(offsets)
            self._lengths.append(length)
            self._starts.append(self._starts[-1] + n_seeds * length)
        self.numbers = torch.zeros(self._starts[-1], device=device)
        self.gradient = torch.zeros_like(self.numbers)

    def blocks(self, variant: int) -> slice:
        """Return the slice of the vector that holds all runs of a variant."""
        return slice(self._starts[variant], self._starts[variant + 1])

    def block(self, run: int) -> slice:
        """Return the slice of the vector that holds one run."""
        variant, seed = divmod(run, self._n_seeds)
        start = self._starts[variant] + seed * self._lengths[variant]
        return slice(start, start + self._lengths[variant])

    def of_variant(self, variant: int, vector: Tensor) -> dict[str, Tensor]:
        """Return views of a variant's parameters by name, (s, *shape)."""
        return self.of_variants(range(variant, variant + 1), vector)

    def of_variants(self, variants: range, vector: Tensor) -> dict[str, Tensor]:
        """Return views of the parameters of neighbours with equal shapes by name, (s, *shape).

        The first axis is that of all seeds of the first variant, then those of the next.
        """
        runs = vector[self._starts[variants.start] : self._starts[variants.stop]]
        by_run = runs.view(len(variants) * self._n_seeds, -1)
        return {
            name: by_run[:, offset : offset + math.prod(shape)].view(len(by_run), *shape)
            for name, (offset, shape) in self.offsets[variants.start].items()
        }

    def of_run(self, run: int, vector: Tensor) -> dict[str, Tensor]:
        """Return views of a run's parameters by name, each with the parameter's own shape."""
        variant, seed = divmod(run, self._n_seeds)
        return {name: view[seed] for name, view in self.of_variant(variant, vector).items()}

    def clip(self, largest: float) -> None:
        """Scale down the gradient of every run whose norm is larger than `largest`.

        Source:
            `torch.nn.utils.clip_grad_norm_`, for each run separately.
        """
        for variant in range(len(self.offsets)):
            by_seed = self.gradient[self.blocks(variant)].view(self._n_seeds, -1)
            norms = by_seed.square().sum(1, keepdim=True).sqrt()
            by_seed.mul_((largest / (norms + 1e-6)).clamp_max(1.0))
