"""True bound: the rate of a step that computes the needed products at the full speed of a core.

Operands stay in the first cache, what the kernel skips is skipped, and each shape is computed by
MKL or by the kernel's own product, whichever is faster. Norms, softmax and memory come on top.
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
from attnkit.model.kernel.compiler import OPTIONS
from attnkit.model.kernel.description import Description, describe
from attnkit.model.kernel.products import multiply
from attnkit.model.kernel.tables import BLOCK, NONE
from attnkit.model.model import Model

Shape = tuple[int, int, int]  # (i, k, j) of a product of (i, k) and (k, j)
_TRIED_SECONDS = 0.002  # for each way of computing a product


def needed_products(description: Description, n_batch: int) -> Counter[Shape]:
    """Return the number of products of each shape that one step of a run needs, in full chunks."""
    run, counts = description.run[0], Counter[Shape]()
    n_together = int(run["n_together"])
    n_chunks = round(n_batch / n_together) or 1

    def count(number: int, *shapes: Shape) -> None:
        for shape in shapes:
            counts[shape] += number

    def count_linear(index: int, n_rows: int) -> None:
        matrix = description.matrices[index]
        if matrix["weight"] != NONE:
            i, j = int(matrix["n_in"]), int(matrix["n_out"])
            count(n_chunks, (n_rows, i, j), (i, n_rows, j), (n_rows, j, i))

    for layer in description.layers:
        n_queries, n_keys = int(layer["n_queries"]), int(layer["n_keys"])
        for names, rows in (("QO", n_queries), ("KV", n_keys)):
            for name in names:
                if name not in "QV" or layer[f"projects_{name}"]:
                    count_linear(layer[f"W_{name}"], n_together * rows)
        for name in ("W_in", "W_out"):
            if layer[name] != NONE:
                count_linear(layer[name], n_together * n_queries)
        d_k, d_v, causal = int(layer["d_k"]), int(layer["d_v"]), bool(layer["causal"])
        block = BLOCK if causal else n_queries
        for first in range(0, n_queries, block):
            n = min(block, n_queries - first)
            n_seen = min(int(layer["position"]) + first + n, n_keys) if causal else n_keys
            forward = (n, d_k, n_seen), (n, n_seen, d_v)
            backward = (n, d_v, n_seen), (n_seen, n, d_v), (n_seen, n, d_k), (n, n_seen, d_k)
            count(n_batch * int(layer["n_heads"]), *forward, *backward)
    count_linear(run["W_U"], n_together * int(run["n_ctx"] - run["answers_from"]))
    return counts


class TrueBound:
    """True bound that computes the needed products of all runs, with one thread per core."""

    def __init__(self, experiment: Experiment) -> None:
        torch.set_num_threads(1)
        self._n_runs, self._n_seeds = experiment.n_runs, experiment.n_seeds
        model = Model(experiment, [experiment.first_seed], torch.device("cpu"), drawn=False)
        counts = Counter[Shape]()
        for run, variant in enumerate(model.variants):
            block = model.block(run)
            given = model.wirings[variant], model.layer_specs, model.task, model.offsets(variant)
            description = describe(*given, block.stop - block.start)
            counts += needed_products(description, experiment.training.batch_size)
        self._products = [_faster_product(shape, count) for shape, count in counts.items()]
        self._pool = ThreadPoolExecutor(n_cores(), initializer=torch.set_num_threads, initargs=(1,))

    def run(self, n_steps: int) -> int:
        """Compute `n_steps` steps, and return the number of model-steps."""

        def one_seed(_: int) -> None:
            for compute in self._products:
                compute()

        list(self._pool.map(one_seed, range(n_steps * self._n_seeds)))
        return n_steps * self._n_runs


def _faster_product(shape: Shape, count: int) -> Callable[[], Any]:
    """Return a function that computes a product `count` times, in the faster of two ways."""
    i, k, j = shape
    a, b = np.ones((i, k), np.float32), np.ones((k, j), np.float32)

    def by_kernel(out: np.ndarray, n: int = count) -> None:
        _repeat(out, a, b, n)

    def by_mkl(out: np.ndarray, n: int = count) -> None:
        for _ in range(n):
            torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))

    def time_of(way: Callable[[np.ndarray, int], None]) -> float:
        """Return the time of one product, the shortest of several measurements."""
        out = np.empty((i, j), np.float32)
        way(out, 1)
        turns, n = [(0.0, 1)], 1
        while turns[-1][0] < _TRIED_SECONDS:
            started = time.perf_counter()
            way(out, n)
            turns.append((time.perf_counter() - started, n))
            n *= 2
        return min(seconds / n for seconds, n in turns[1:])

    best = min((by_kernel, by_mkl), key=time_of)
    return lambda: best(np.empty((i, j), np.float32))


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _repeat(out: np.ndarray, a: np.ndarray, b: np.ndarray, n: int) -> None:
    for _ in range(n):
        multiply(out, a, b)
