"""Allowances of memory: how much one piece of work in the training process may take.

A limit is set before each turn and lifted after it. An allocation beyond the allowance therefore
fails in the turn of the work that makes it, and other work goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from attnkit.foundation.process import allocated_megabytes, limit_memory

MARGIN = 1.3
"""Memory that a piece of work may take, divided by its estimate."""

SMALL_MEGABYTES = 96.0
"""Memory in MiB that any work may take in addition, for buffers that no estimate counts."""

GAPS_MEGABYTES = 256.0
"""Free memory of the heap in MiB that may lie in gaps too small for new arrays."""


@dataclass
class Allowance:
    """Memory that a piece of work may take in all its turns together.

    Attributes:
        estimate: Estimated memory in MiB.
        held: Memory in MiB that it holds between its turns.
    """

    estimate: float
    held: float = 0.0

    @contextlib.contextmanager
    def limit(self) -> Iterator[None]:
        """Limit the memory of this process to what the work may still take, during its turn."""
        before, kept = allocated_megabytes()
        left = MARGIN * self.estimate + SMALL_MEGABYTES - self.held
        # What the C library keeps is taken first, except for gaps that are too small.
        limit_memory(max(SMALL_MEGABYTES, left - max(0.0, kept - GAPS_MEGABYTES)))
        try:
            yield
        finally:
            limit_memory(float("inf"))
            self.held += allocated_megabytes()[0] - before
