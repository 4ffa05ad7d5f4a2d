"""The true bound: the products that a step needs, at the speed that a core reaches in them.

Each product of the kernel's step stands once, in the shape in which the kernel computes it, on
operands that stay in the first cache: tied roles once, causal blocks above the diagonal and
positions that nobody reads left out. What a step does besides, norms, softmax, memory and calls,
keeps training below it. Each shape is computed by MKL or by our own product, whichever is faster.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit

from attnkit.experiment import Experiment
from attnkit.foundation.process import n_cores
from attnkit.model.kernel.description import Description, describe
from attnkit.model.kernel.products import multiply
from attnkit.model.kernel.tables import BLOCK, NONE
from attnkit.model.kernel.vectors import OPTIONS
from attnkit.model.model import Model

Shape = tuple[int, int, int]
"""(i, k, j) of a product of (i, k) and (k, j)."""

_TRIED_SECONDS = 0.002


def needed_products(plan: Description, n_batch: int) -> Counter[Shape]:
    """Return how often one step of one run needs the product of each shape.

    Args:
        plan: what the kernel computes; all its chunks count as full.
        n_batch: examples in a batch, a multiple of those in a chunk, or about.
    """
    run, found = plan.run[0], Counter[Shape]()
    together = int(run["n_together"])
    n_chunks = round(n_batch / together) or 1

    def linear(place: int, n_rows: int) -> None:
        matrix = plan.matrices[place]
        if matrix["weight"] == NONE:
            return
        n_in, n_out = int(matrix["n_in"]), int(matrix["n_out"])
        for shape in ((n_rows, n_in, n_out), (n_in, n_rows, n_out), (n_rows, n_out, n_in)):
            found[shape] += n_chunks

    for layer in plan.layers:
        n_queries, n_keys = int(layer["n_queries"]), int(layer["n_keys"])
        query_rows, key_rows = together * n_queries, together * n_keys
        for name, wanted, n_rows in (
            ("W_Q", layer["projects_Q"], query_rows),
            ("W_K", True, key_rows),
            ("W_V", layer["projects_V"], key_rows),
            ("W_O", True, query_rows),
            ("W_in", layer["W_in"] != NONE, query_rows),
            ("W_out", layer["W_out"] != NONE, query_rows),
        ):
            if wanted:
                linear(layer[name], n_rows)
        d_k, d_v = int(layer["d_k"]), int(layer["d_v"])
        block = BLOCK if layer["causal"] else n_queries
        for first in range(0, n_queries, block):
            rows = min(block, n_queries - first)
            seen = min(int(layer["position"]) + first + rows, n_keys)
            seen = seen if layer["causal"] else n_keys
            for shape in (
                *((rows, d_k, seen), (rows, seen, d_v), (rows, d_v, seen)),
                *((seen, rows, d_v), (seen, rows, d_k), (rows, seen, d_k)),
            ):
                found[shape] += n_batch * int(layer["n_heads"])
    linear(run["W_U"], together * int(run["n_ctx"] - run["answers_from"]))
    return found


class TrueBound:
    """The needed products of all runs, one thread per core."""

    def __init__(self, experiment: Experiment) -> None:
        torch.set_num_threads(1)
        self._n_runs, self._n_seeds = experiment.n_runs, experiment.n_seeds
        model = Model(experiment, [experiment.first_seed], torch.device("cpu"), drawn=False)
        wanted = Counter[Shape]()
        for variant in experiment.sharing:
            place = model.variants.index(variant)
            block = model.block(place)
            given = model.wirings[variant], model.layer_specs, model.task, model.offsets(variant)
            plan = describe(*given, block.stop - block.start)
            wanted += needed_products(plan, experiment.training.batch_size)
        self._products = [_faster_product(shape, count) for shape, count in wanted.items()]
        self._pool = ThreadPoolExecutor(n_cores(), initializer=torch.set_num_threads, initargs=(1,))

    def run(self, n_steps: int) -> int:
        """Compute so many steps; returns the model-steps."""
        list(self._pool.map(self._one_seed, range(n_steps * self._n_seeds)))
        return n_steps * self._n_runs

    def _one_seed(self, _: int) -> None:
        for compute in self._products:
            compute()


def _faster_product(shape: Shape, count: int) -> Callable[[], Any]:
    """Return what computes a product so many times, by the faster way."""
    i, k, j = shape
    a, b = np.ones((i, k), np.float32), np.ones((k, j), np.float32)

    def ours(out: np.ndarray, n: int = count) -> None:
        _repeat(out, a, b, n)

    def of_mkl(out: np.ndarray, n: int = count) -> None:
        for _ in range(n):
            torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))

    best = min((ours, of_mkl), key=lambda way: _seconds(way, (i, j)))
    return lambda: best(np.empty((i, j), np.float32))


def _seconds(way: Callable[[np.ndarray, int], None], shape: tuple[int, int]) -> float:
    """Return the time of one product, the least of some tries."""
    out, n = np.empty(shape, np.float32), 1
    way(out, 1)
    least = float("inf")
    while True:
        started = time.perf_counter()
        way(out, n)
        took = time.perf_counter() - started
        least = min(least, took / n)
        if took > _TRIED_SECONDS:
            return least
        n *= 2


@njit(**{**OPTIONS, "cache": False})  # type: ignore[untyped-decorator]
def _repeat(out: np.ndarray, a: np.ndarray, b: np.ndarray, n: int) -> None:
    for _ in range(n):
        multiply(out, a, b)
