"""Executor of worker processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from attnkit.foundation.machine import free_and_total_memory
from attnkit.foundation.process import N_CORES, n_cores, prepare_for_training

_USABLE_MEMORY = 0.8
"""Share of the free memory that workers may use."""


def n_local_workers(megabytes: float) -> int:
    """Return the number of workers for this machine: one per core, fewer if memory is short.

    Args:
        megabytes: Memory that one worker needs, in MiB.
    """
    free, _ = free_and_total_memory()
    return max(1, min(n_cores(), int(_USABLE_MEMORY * free / megabytes)))


class LocalExecutor(Executor):
    """Executor of worker processes, each of which trains on one core.

    If a worker is killed, for example because memory is short, all unfinished tasks raise
    `BrokenProcessPool`, and the next task starts new workers. Workers end with the process that
    started them, however that ends.

    Args:
        n_workers: Number of processes.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
        n_workers = min(self.n_workers, 61) if os.name == "nt" else self.n_workers
        return ProcessPoolExecutor(n_workers, context, _prepare_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task as soon as a worker is free."""
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._pool = self._new_pool()
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers, at once if futures are cancelled."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=cancel_futures)
        if cancel_futures:
            for process in processes:
                process.terminate()
        if wait:
            for process in processes:
                process.join()


def _prepare_worker() -> None:
    """Prepare a worker: one core, and an end when the parent process ends."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C for all
    os.environ[N_CORES] = "1"
    prepare_for_training()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
