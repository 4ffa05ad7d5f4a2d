"""The process that trains: how many cores it has, and an allocator that suits training.

Nothing here changes a number.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def prepare_for_training() -> None:
    """Let glibc keep its heap; call once, before the first tensor.

    Training frees and takes the same large blocks at every step; by default glibc returns them
    to the system each time, which costs a fifth of the speed.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for parameter, value in (
            (_M_MMAP_THRESHOLD, 1 << 30),
            (_M_TRIM_THRESHOLD, 1 << 30),
            (_M_TOP_PAD, 1 << 26),
        ):
            libc.mallopt(parameter, value)


def n_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
