"""A model whose runs are computed by the kernel."""

from __future__ import annotations

import threading
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.model.adam import Adam
from attnkit.model.kernel import elementwise, step
from attnkit.model.kernel.description import Description, describe
from attnkit.model.model import Model
from attnkit.model.parameters import EMBEDDING
from attnkit.model.reference import Layer

_memory = threading.local()


class KernelModel(Model):
    """The transformers of all runs of one cohort on a CPU; see `attnkit.model.model.Model`.

    Every variant must be one that `attnkit.training.engine.kernel_knows`.
    """

    @cached_property
    def _kernels(self) -> list[_Kernel]:
        return [_Kernel(self, place) for place in range(len(self.variants))]

    def logits(
        self, tokens: Int64[Tensor, "s b n fields"], layers: list[Layer] | None = None
    ) -> Float[Tensor, "r b a c"]:
        """Answer a batch per seed with every run; see `Model.logits`."""
        batch = _array(tokens)
        return torch.cat([kernel.answer(batch, layers) for kernel in self._kernels])

    def differentiate(
        self, tokens: Int64[Tensor, "s b n fields"], labels: Int64[Tensor, "s b a"]
    ) -> None:
        """Put the gradient of every run's mean cross-entropy into `gradient`."""
        batch, their_labels = _array(tokens), _array(labels)
        for kernel in self._kernels:
            kernel.differentiate(batch, their_labels)

    def clip(self, largest: float) -> None:
        """Shorten every run's gradient to this norm if it is longer."""
        for kernel in self._kernels:
            for own in kernel.gradient:
                elementwise.clip(own, np.float32(largest))


class _Kernel:
    """The runs of one variant, with the tables and numbers that the kernel is called with."""

    def __init__(self, model: KernelModel, place: int) -> None:
        variant, seeds = model.variants[place], len(model.seeds)
        first = place * seeds
        blocks = slice(model.block(first).start, model.block(first + seeds - 1).stop)
        self.numbers = model.numbers[blocks].view(seeds, -1).numpy()
        self.gradient = model.gradient[blocks].view(seeds, -1).numpy()
        wiring, task = model.wirings[variant], model.task
        given = wiring, model.layer_specs, task, model.offsets(variant), self.numbers.shape[1]
        self._training = describe(*given)
        self._recording = describe(*given, all_positions=True)
        self._n_answers = task.n_ctx - task.answers_from
        self._n_classes = task.n_classes
        self._fixed = np.zeros((seeds, task.d_vocab), np.bool_)
        if model.movable is not None:
            for seed in range(seeds):
                rows = model.run_parameters(first + seed, model.movable)[EMBEDDING]
                self._fixed[seed] = (rows == 0).all(1).numpy()

    def differentiate(self, tokens: np.ndarray, labels: np.ndarray) -> None:
        """Write the gradients of a batch for each seed."""
        plan, arrays = self._training, (self.numbers, self.gradient, tokens, labels, self._fixed)
        step.differentiate(*plan.tables, *arrays, _scratch(plan))

    def answer(self, tokens: np.ndarray, layers: list[Layer] | None) -> Float[Tensor, "s b a c"]:
        """Return the logits of a batch for each seed, and append what its layers compute."""
        plan = self._training if layers is None else self._recording
        seeds, n_examples = tokens.shape[:2]
        logits = np.empty((seeds, n_examples * self._n_answers, self._n_classes), np.float32)
        n_recorded = 0 if layers is None else plan.n_recorded * n_examples
        record = np.empty((seeds, n_recorded), np.float32)
        step.answer(*plan.tables, self.numbers, tokens, logits, record, _scratch(plan))
        if layers is not None:
            start = 0
            for heads, asks, looks in plan.shapes:
                shape, found = (seeds, n_examples, heads, asks, looks), []
                for _ in range(2):
                    stop = start + n_examples * heads * asks * looks
                    own = np.ascontiguousarray(record[:, start:stop])
                    found.append(torch.from_numpy(own).view(shape))
                    start = stop
                layers.append(Layer(*found))
        return torch.from_numpy(logits).view(seeds, n_examples, self._n_answers, -1)


class KernelAdam(Adam):
    """Adam in one pass over the numbers; see `attnkit.model.adam.Adam`."""

    def _move(self, unbiased: float, factor: float) -> None:
        first, second = self._betas
        vectors = self._numbers, self._gradient, self.mean, self.square
        for part, rate in self._learning_rates:
            elementwise.adam(
                *(vector[part].numpy() for vector in vectors),
                *(np.float32(1 - first), np.float32(1 - second)),
                *(np.float32(self._epsilon * unbiased), np.float32(rate * factor)),
            )


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array of the one layout that the kernel is compiled for."""
    return np.ascontiguousarray(tensor.numpy())


def _scratch(plan: Description) -> np.ndarray:
    """Return this thread's scratch memory, which begins on a cache line."""
    known: np.ndarray | None = getattr(_memory, "scratch", None)
    if known is None or len(known) < plan.n_scratch:
        _memory.scratch = known = _aligned(plan.n_scratch)
    return known


def _aligned(n_numbers: int) -> np.ndarray:
    """Return zeros that begin on a cache line, with a cache line behind them."""
    numbers = np.zeros(n_numbers + 32, np.float32)
    return numbers[-numbers.ctypes.data // 4 % 16 :]
