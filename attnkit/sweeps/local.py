"""Executor of local worker processes that survives the end of a worker."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from attnkit.foundation.machine import free_and_total_memory
from attnkit.foundation.process import N_CORES, n_cores, prepare_for_training

MOST_ATTEMPTS = 3
"""Number of times that a task is started if its worker ends before it."""

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

    Unlike in `ProcessPoolExecutor`, a worker that is killed, for example because memory is short,
    does not end the others' work for good: all unfinished tasks are started again, each at most
    `MOST_ATTEMPTS` times. Workers end with the process that started them, however that ends.

    Args:
        n_workers: Number of processes.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._lock = threading.Lock()
        self._closed = False
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
        n_workers = min(self.n_workers, 61) if os.name == "nt" else self.n_workers
        return ProcessPoolExecutor(n_workers, context, _prepare_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task, which may be repeated; return its future."""
        outer: Future[Any] = Future()
        outer.set_running_or_notify_cancel()
        self._start(outer, lambda pool: pool.submit(fn, *args, **kwargs), 1)
        return outer

    def _start(
        self,
        outer: Future[Any],
        submit: Callable[[ProcessPoolExecutor], Future[Any]],
        attempt: int,
    ) -> None:
        with self._lock:
            if self._closed:
                outer.set_exception(RuntimeError("the workers have ended"))
                return
            pool = self._pool
            try:
                inner = submit(pool)
            except BrokenProcessPool:  # its tasks have not reported it yet
                pool = self._pool = self._new_pool()
                inner = submit(pool)

        def finish(inner: Future[Any]) -> None:
            if inner.cancelled():
                outer.set_exception(CancelledError())
                return
            error = inner.exception()
            if not isinstance(error, BrokenProcessPool) or self._closed:
                outer.set_exception(error) if error else outer.set_result(inner.result())
            elif attempt == MOST_ATTEMPTS:
                outer.set_exception(error)
            else:
                with self._lock:
                    if self._pool is pool:
                        self._pool = self._new_pool()
                self._start(outer, submit, attempt + 1)

        inner.add_done_callback(finish)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers, at once if futures are cancelled."""
        with self._lock:
            self._closed = True
            pool = self._pool
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=cancel_futures)
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
