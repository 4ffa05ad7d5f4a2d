"""Gradients of a training step as CUDA graphs: one call launches all their kernels.

At these sizes a GPU computes a kernel in less time than Python needs to launch it. A graph records
the kernels of one step and launches them again, on the next batch, without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

_ONE_AT_A_TIME = Lock()
"""Held while a graph is recorded: a process can record only one."""

_WARM_UPS = 3
"""Steps before the recording, in which libraries choose their kernels and take their memory."""


class StepGraph:
    """Recorded computation from tokens and labels to gradients.

    Args:
        compute: The computation. It reads its arguments and tensors that stay at their addresses,
            and writes to such tensors only.
        tokens: Tokens of the first batch, on a GPU. All later batches have the same shape.
        labels: Labels of the first batch.

    Source:
        PyTorch's documentation, “CUDA semantics”, section “CUDA Graphs”.
    """

    def __init__(
        self, compute: Callable[[Tensor, Tensor], None], tokens: Tensor, labels: Tensor
    ) -> None:
        self._tokens, self._labels = tokens.clone(), labels.clone()
        self._graph = torch.cuda.CUDAGraph()
        current, side = torch.cuda.current_stream(tokens.device), torch.cuda.Stream(tokens.device)
        with _ONE_AT_A_TIME:
            side.wait_stream(current)
            with torch.cuda.stream(side):
                for _ in range(_WARM_UPS):
                    compute(self._tokens, self._labels)
            current.wait_stream(side)
            # Meanwhile other threads may train other cohorts.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                compute(self._tokens, self._labels)

    def __call__(self, tokens: Tensor, labels: Tensor) -> None:
        """Compute the gradients of another batch."""
        self._tokens.copy_(tokens)
        self._labels.copy_(labels)
        self._graph.replay()


def side_by_side(items: Sequence[T], device: torch.device) -> Iterator[T]:
    """Yield items; on a GPU, what is computed between two of them runs beside the other items.

    Work of one item must not depend on that of another. Work after the last item waits for all.
    """
    if device.type != "cuda" or len(items) == 1:
        yield from items
        return
    current = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in items]
    for item, stream in zip(items, streams, strict=True):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            yield item
    for stream in streams:
        current.wait_stream(stream)
