"""Sweeps that are trained in the process of a test, without workers."""

from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool

import pytest

from attnkit.sweeps import Sweep, run_sweep

SMALL = Sweep(
    base={"task": "phonebook", "steps": 4, "evaluate_every": 2, "n_eval": 16, "batch_size": 16},
    axes={"d_head": [2, 3], "n_entries": [2, 5]},
    sharing=["QKV", "K=V"],
    n_seeds=2,
    first_seed=7,
)


def changed(sweep=SMALL, **changes):
    """Return a sweep with other settings."""
    return Sweep(**{**sweep.to_dict(), **changes})


class Inline(Executor):
    """Executor that runs tasks at once in this process, and gives up those that it is told to."""

    n_workers, cancelled = 1, False

    def __init__(self, gives_up=lambda chunk: False, error=None):
        self.n_runs, self._gives_up = 0, gives_up
        self._error = error or BrokenProcessPool("the worker ended")

    def submit(self, fn, *args):
        """Run a task before its future is returned."""
        future, chunk = Future(), args[1] if args else None
        if self._gives_up(chunk):
            future.set_exception(self._error)
        else:
            future.set_result(fn(*args))
            self.n_runs += chunk.n_runs
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Note how it ended."""
        self.cancelled = cancel_futures


def run_inline(sweep, folder, workers=None, **options):
    """Run a sweep in this process; return the number of runs that were trained and the result."""
    workers = workers or Inline()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnkit.sweeps.run.start_workers", lambda *_: workers)
        result = run_sweep(sweep, folder, **options)
    return workers.n_runs, result
