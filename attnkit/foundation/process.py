"""The process that trains: its cores, its memory, and an allocator that suits training.

Nothing here changes a number.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8


SWITCH_SECONDS = 0.0005
"""After so long another thread of a server may have the interpreter's lock."""


def prepare_for_training() -> None:
    """Let glibc keep one heap for all threads; call once, before the first tensor and thread.

    Training frees and takes the same large blocks at every step; by default glibc returns them
    to the system each time, which costs a fifth of the speed.

    By default glibc also gives threads heaps of their own, in pieces of 64 MB. What experiments
    keep for long lies between such blocks and holds each piece: thirty experiments that take turns
    reserved 2.2 GB and used 0.5, and failed at the limit that `limit_memory` sets.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for parameter, value in (
            (_M_MMAP_THRESHOLD, 1 << 30),
            (_M_TRIM_THRESHOLD, 1 << 30),
            (_M_TOP_PAD, 1 << 26),
            (_M_ARENA_MAX, 1),
        ):
            libc.mallopt(parameter, value)


def prepare_for_serving() -> None:
    """Let a server answer while it draws, and keep its memory small; call once, at its start.

    The thread that talks to all visitors waits for the interpreter's lock before each of a page's
    hundred messages. By default every thread that draws keeps the lock for 5 ms: where seven drew,
    another visitor's page took 13 s instead of 0.1 s.

    Every page has a thread, glibc gives threads heaps of their own, and messages of megabytes leave
    gaps in each: a server grew by 200 MB in three hundred visits.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 18)
        libc.mallopt(_M_ARENA_MAX, 2)


def give_memory_back() -> None:
    """Return to the system what the heap holds in gaps between living blocks.

    Experiments that take turns leave such gaps in each other's memory: thirty of them held 2 GB of
    which 0.2 were in use. So do visitors of a server. Where glibc is not, nothing happens.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)


def limit_memory(megabytes: float) -> None:
    """Let the process take so much more than it has: then taking fails, instead of the machine.

    What fails is an allocation in one experiment's turn, which ends that experiment alone. Linux
    only: elsewhere nothing is limited.
    """
    if sys.platform != "linux":
        return
    import resource

    status = Path("/proc/self/status").read_text(encoding="ascii")
    taken = int(re.findall(r"VmData:\s+(\d+) kB", status)[0]) * 1024
    most = taken + int(megabytes * 2**20)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def environment_with_package() -> dict[str, str]:
    """Return this process's environment for a child that imports the same copy of attnkit."""
    known = os.environ.get("PYTHONPATH")
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, known] if known else [root])}


def n_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
