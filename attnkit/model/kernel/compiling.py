"""Compilation of the functions that Python calls, with the types of their arguments."""

from __future__ import annotations

from typing import Any

from numba import boolean, float32, from_dtype, int64

from attnkit.model.kernel import elementwise, step
from attnkit.model.kernel.tables import LAYER, MATRIX, RUN

_TABLES = tuple(from_dtype(table)[::1] for table in (RUN, MATRIX, LAYER))
_BATCH = int64[:, :, :, ::1], int64[:, :, ::1], boolean[:, ::1]
_ROWS = float32[:, ::1]

ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    step.compute: (*_TABLES, _ROWS, *_BATCH, _ROWS, float32[:, :, ::1], _ROWS, float32[::1]),
    elementwise.clip: (float32[::1], float32),
    elementwise.adam: (*[float32[::1]] * 4, *[float32] * 4),
}
"""Entry function → numba's types of its arguments."""


def compile_all() -> None:
    """Compile every function of the kernel, or load it from the cache."""
    for function, types in ARGUMENTS.items():
        function.compile(types)
