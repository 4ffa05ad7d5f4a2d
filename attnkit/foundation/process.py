"""Cores, memory and parents of the processes that train or serve pages.

Nothing in this module changes a result.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from attnkit.foundation.machine import cpu_quota

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
"""Parameters of glibc's `mallopt`."""

N_CORES = "ATTNKIT_CORES"
"""Name of the environment variable that limits the cores of a process."""

WITH_PARENT = "--with-parent"
"""Argument of processes that call `end_with_parent`."""

SWITCH_SECONDS = 0.0005
"""Time after which a server's thread gives the interpreter's lock to another thread."""

MOST_OPEN_FILES = 2**16
"""Files and connections that a server may have open, at most, if the system allows as many."""


def prepare_for_training() -> None:
    """Let glibc keep one heap for all threads; call once, before the first tensor and thread.

    Training frees and allocates the same large blocks at every step. By default glibc returns them
    to the system each time, which costs a fifth of the speed.

    By default glibc also gives each thread its own heap, in pieces of 64 MB. Long-lived memory of
    experiments lies between the large blocks, so that no piece can be returned: thirty experiments
    that took turns reserved 2.2 GB, used 0.5 GB, and failed at the limit of `limit_memory`.
    """
    _call_glibc("mallopt", _M_MMAP_THRESHOLD, 1 << 30)
    _call_glibc("mallopt", _M_TRIM_THRESHOLD, 1 << 30)
    _call_glibc("mallopt", _M_TOP_PAD, 1 << 26)
    _call_glibc("mallopt", _M_ARENA_MAX, 1)


def prepare_for_serving() -> None:
    """Let a server answer while it renders pages, and limit its memory; call once, at its start.

    It may have as many open files as the system allows. Every connection is one, and the usual
    soft limit is 1,024: as many idle connections would keep everybody else out.

    One thread sends the messages of all visitors. It waits for the interpreter's lock before each
    of a page's hundred messages, and by default every thread that renders keeps the lock for 5 ms:
    while seven pages were rendered, another visitor's page took 13 s instead of 0.1 s.

    Every page has a thread, glibc gives each thread its own heap, and messages of megabytes leave
    gaps in each heap: a server grew by 200 MB in three hundred visits.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < most:
            with suppress(ValueError, OSError):  # macOS may allow fewer than its hard limit
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    _call_glibc("mallopt", _M_MMAP_THRESHOLD, 1 << 18)
    _call_glibc("mallopt", _M_ARENA_MAX, 2)


def give_memory_back() -> None:
    """Return unused memory in the gaps of the heap to the system, where the C library is glibc.

    Experiments that take turns leave such gaps, as do the visitors of a server: thirty experiments
    held 2 GB, of which 0.2 GB were in use.
    """
    _call_glibc("malloc_trim", 0)


def _call_glibc(function: str, *arguments: int) -> None:
    """Call a function of the C library if it has one of this name, as glibc on Linux."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), function):
        getattr(libc, function)(*arguments)


def limit_memory(megabytes: float) -> None:
    """Limit this process's memory, so that an allocation fails before the machine runs out.

    The limit works on Linux; elsewhere nothing is limited.

    Args:
        megabytes: Memory that the process may reserve in addition to what it has now, in MiB;
            infinite for no limit.
    """
    if sys.platform != "linux":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = hard
    if math.isfinite(megabytes):
        limit = _reserved_bytes() + int(megabytes * 2**20)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _reserved_bytes() -> int:
    """Return the memory of data that this process has reserved, for which there is a limit."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[5]) * os.sysconf("SC_PAGE_SIZE")


def end_with_parent() -> None:
    """Send this process a SIGTERM when its standard input ends, which its parent holds open.

    The system closes it even if the parent is killed.
    """

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)  # unlike `raise_signal`, it wakes the main thread

    threading.Thread(target=wait, daemon=True).start()


def environment_with_package() -> dict[str, str]:
    """Return environment variables for a child process that imports this copy of attnkit."""
    path = os.environ.get("PYTHONPATH")
    root = str(Path(__file__).parents[2])
    variables = {"PYTHONPATH": os.pathsep.join([root, path] if path else [root])}
    return {**os.environ, **threads_of_libraries(), **variables}


def threads_of_libraries() -> dict[str, str]:
    """Return the variable that holds torch and BLAS, which see no quota, to a quota of cores.

    It is empty without a quota that is smaller than the machine, or if the user has set it.
    """
    limited = cpu_quota() < (os.cpu_count() or 1) and "OMP_NUM_THREADS" not in os.environ
    return {"OMP_NUM_THREADS": str(n_cores())} if limited else {}


def n_cores() -> int:
    """Return the number of processor cores that this process may use.

    A container's quota of processor time counts as cores, rounded up. The environment variable
    `ATTNKIT_CORES` sets a smaller number, as for one of many workers.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    available = len(affinity(0)) if affinity else os.cpu_count() or 1
    cores = max(1, math.ceil(min(available, cpu_quota())))
    requested = os.environ.get(N_CORES, "")
    return min(cores, int(requested)) if requested.isdecimal() and int(requested) else cores
