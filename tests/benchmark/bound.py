"""Matmul-only bound: the rate of a training step that computes matrix products only.

Every product is computed forward and with its two backward products, on prepared tensors. Tied
roles are projected once, and only answering positions are unembedded. The work is that of the clean
loop, all layers at all positions. Training skips query positions of the last layer that nothing
reads, so its rate can be above this bound.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from attnkit.experiment import Experiment
from attnkit.foundation.process import n_cores
from attnkit.variants.sharing import ROLES

_RUNS_TOGETHER = 5  # in one call of a split bound


@dataclass(frozen=True)
class Product:
    """Product `left @ right` with the products of both gradients, from a prepared `upstream`."""

    left: Tensor
    right: Tensor
    upstream: Tensor

    def compute(self) -> None:
        """Compute the three products."""
        torch.bmm(self.left, self.right)
        torch.bmm(self.upstream, self.right.transpose(1, 2))
        torch.bmm(self.left.transpose(1, 2), self.upstream)


def products(experiment: Experiment, n_seeds: int) -> list[Product]:
    """Return the products of one training step, for `n_seeds` seeds of all sharings."""
    size, task = experiment.size, experiment.task
    n_batch = experiment.training.batch_size
    n_runs, inner = n_seeds * len(experiment.sharing), size.n_heads * size.d_head
    n_tokens = n_batch * task.n_ctx
    n_matrices = n_runs * n_batch * size.n_heads
    owners = [
        n_seeds * sum(variant.sharing.owner(role) == role for variant in experiment.sharing)
        for role in ROLES
    ]
    shapes = []
    for _ in range(size.n_layers):
        shapes += [(n, n_tokens, size.d_model, inner) for n in owners if n]
        shapes += [(n_matrices, task.n_ctx, size.d_head, task.n_ctx)]  # scores
        shapes += [(n_matrices, task.n_ctx, task.n_ctx, size.d_head)]  # pattern @ v
        shapes += [(n_runs, n_tokens, inner, size.d_model)]
        if size.d_mlp:
            shapes += [(n_runs, n_tokens, size.d_model, size.d_mlp)]
            shapes += [(n_runs, n_tokens, size.d_mlp, size.d_model)]
    n_answers = n_batch * (task.n_ctx - task.answers_from)
    shapes += [(n_runs, n_answers, size.d_model, task.n_classes)]
    return [
        Product(torch.randn(n, i, k), torch.randn(n, k, j), torch.randn(n, i, j))
        for n, i, k, j in shapes
    ]


class Bound:
    """Matmul-only bound: all runs on all cores, or split, a few runs on one core at a time."""

    def __init__(self, experiment: Experiment, *, split: bool) -> None:
        self._n_runs, all_seeds = experiment.n_runs, experiment.n_seeds
        n_seeds = max(1, _RUNS_TOGETHER // len(experiment.sharing)) if split else all_seeds
        self._groups = [
            products(experiment, min(n_seeds, all_seeds - first))
            for first in range(0, all_seeds, n_seeds)
        ]
        n_workers, n_threads = (n_cores(), 1) if split else (1, n_cores())
        self._pool = ThreadPoolExecutor(
            n_workers, initializer=torch.set_num_threads, initargs=(n_threads,)
        )

    def run(self, n_steps: int) -> int:
        """Compute `n_steps` steps, and return the number of model-steps."""

        def compute(group: list[Product]) -> None:
            for product in group:
                product.compute()

        list(self._pool.map(compute, self._groups * n_steps))
        return n_steps * self._n_runs
