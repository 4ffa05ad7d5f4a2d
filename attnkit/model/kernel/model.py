"""A model that computes its runs with the compiled kernel."""

from __future__ import annotations

import math
import threading
from functools import cached_property
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attnkit.model.adam import Adam
from attnkit.model.kernel import elementwise, step
from attnkit.model.kernel.description import Description, describe
from attnkit.model.model import Model, RunGroup
from attnkit.model.parameters import EMBEDDING
from attnkit.model.reference import Layer
from attnkit.tasks.base import Task

_memory = threading.local()


class KernelModel(Model):
    """Transformers of all runs of one cohort on a CPU; see `attnkit.model.model.Model`.

    The kernel must support every variant; see `attnkit.training.engine.kernel_knows`.
    """

    @cached_property
    def _kernels(self) -> list[_Kernel]:
        return [_Kernel(self, index) for index in range(len(self.variants))]

    def at_length(self, task: Task) -> Self:
        """Return this model for a task of another length; see `Model.at_length`."""
        other = super().at_length(task)
        vars(other).pop("_kernels", None)
        return other

    def _logits(
        self, tokens: Tensor, layers: list[Layer] | None, group: RunGroup
    ) -> list[Float[Tensor, "s b a c"]]:
        batch = _array(tokens)
        kernels = [self._kernels[self.variants.index(variant)] for variant in group.variants]
        return [kernel.logits(batch, group.seeds, layers) for kernel in kernels]

    def differentiate(
        self, tokens: Int64[Tensor, "s b n fields"], labels: Int64[Tensor, "s b a"]
    ) -> None:
        """Set `gradient` to the gradient of every run's mean cross-entropy."""
        batch, batch_labels = _array(tokens), _array(labels)
        for kernel in self._kernels:
            kernel.differentiate(batch, batch_labels)

    def clip(self, largest: float) -> None:
        """Scale down the gradient of every run whose norm is larger than `largest`."""
        for kernel in self._kernels:
            for gradient in kernel.gradient:
                elementwise.clip(gradient, np.float32(largest))


class _Kernel:
    """Runs of one variant, with the tables and arrays that the kernel is called with."""

    def __init__(self, model: KernelModel, index: int) -> None:
        variant, n_seeds = model.variants[index], len(model.seeds)
        first = index * n_seeds
        blocks = slice(model.block(first).start, model.block(first + n_seeds - 1).stop)
        self.numbers = model.numbers[blocks].view(n_seeds, -1).numpy()
        self.gradient = model.gradient[blocks].view(n_seeds, -1).numpy()
        wiring, task = model.wirings[variant], model.task
        arguments = wiring, model.layer_specs, task, model.offsets(variant), self.numbers.shape[1]
        self._training = describe(*arguments)
        self._recording = describe(*arguments, all_positions=True)
        self._fixed_weights = model.fixed_weights(variant)
        self._n_answers = task.n_ctx - task.answers_from
        self._n_classes = task.n_classes
        self._fixed = np.zeros((n_seeds, task.d_vocab), np.bool_)
        if model.movable is not None:
            for seed in range(n_seeds):
                rows = model.run_parameters(first + seed, model.movable)[EMBEDDING]
                self._fixed[seed] = (rows == 0).all(1).numpy()

    def differentiate(self, tokens: np.ndarray, labels: np.ndarray) -> None:
        """Write the gradients of one batch for each seed."""
        n_seeds = len(self.numbers)
        logits, record = np.empty((n_seeds, 0, 0), np.float32), np.empty((n_seeds, 0), np.float32)
        arrays = self.numbers, tokens, labels, self._fixed, self.gradient, logits, record
        step.compute(*self._training.tables, *arrays, _scratch(self._training))
        for part in self._fixed_weights:
            self.gradient[:, part] = 0.0

    def logits(
        self, tokens: np.ndarray, seeds: slice, layers: list[Layer] | None
    ) -> Float[Tensor, "s b a c"]:
        """Return the logits of one batch for each of these seeds.

        Scores and patterns of every layer are appended to `layers`, if it is given.
        """
        description = self._training if layers is None else self._recording
        n_seeds, n_examples = tokens.shape[:2]
        logits = np.empty((n_seeds, n_examples * self._n_answers, self._n_classes), np.float32)
        n_recorded = 0 if layers is None else description.n_recorded * n_examples
        record = np.empty((n_seeds, n_recorded), np.float32)
        labels, gradient = np.empty((0, 0, 0), np.int64), np.empty((n_seeds, 0), np.float32)
        arrays = self.numbers[seeds], tokens, labels, self._fixed, gradient, logits, record
        step.compute(*description.tables, *arrays, _scratch(description))
        if layers is not None:
            start = 0
            for shape in description.shapes:
                tensors = []
                for _ in ("scores", "pattern"):
                    stop = start + n_examples * math.prod(shape)
                    numbers = np.ascontiguousarray(record[:, start:stop])
                    tensors.append(torch.from_numpy(numbers).view(n_seeds, n_examples, *shape))
                    start = stop
                layers.append(Layer(*tensors))
        return torch.from_numpy(logits).view(n_seeds, n_examples, self._n_answers, -1)


class KernelAdam(Adam):
    """Adam in one pass over the parameters; see `attnkit.model.adam.Adam`."""

    def _move(self, unbiased: float, factor: float) -> None:
        first, second = self._betas
        vectors = self._numbers, self._gradient, self.mean, self.square
        for block, rate in self._learning_rates:
            elementwise.adam(
                *(vector[block].numpy() for vector in vectors),
                *(np.float32(1 - first), np.float32(1 - second)),
                *(np.float32(self._epsilon * unbiased), np.float32(rate * factor)),
            )


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as a contiguous array, the layout for which the kernel is compiled."""
    return np.ascontiguousarray(tensor.numpy())


def _scratch(description: Description) -> np.ndarray:
    """Return this thread's scratch memory, which begins on a cache line."""
    scratch: np.ndarray | None = getattr(_memory, "scratch", None)
    if scratch is None or len(scratch) < description.n_scratch:
        _memory.scratch = scratch = _aligned_zeros(description.n_scratch)
    return scratch


def _aligned_zeros(n_numbers: int) -> np.ndarray:
    """Return zeros that begin on a cache line, with at least one more cache line after them."""
    numbers = np.zeros(n_numbers + 32, np.float32)
    return numbers[-numbers.ctypes.data // 4 % 16 :]
