"""Contenders of the benchmark, each in a process with its own allocator, threads and memory."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from attnkit.foundation.process import n_cores, prepare_for_training
from benchmark.cases import Case

CHECKED_STEPS = 20  # after which the losses of contenders are compared


class _Cohort:
    """Contender that trains with attnkit."""

    def __init__(self, case: Case, n_runs: int) -> None:
        prepare_for_training()
        from attnkit.training import Training

        self._case, self._n_runs = case, n_runs
        self._training = Training(case.experiment(n_runs), "cpu")

    def run(self, n_steps: int) -> int:
        self._training.advance(n_steps)
        return n_steps * self._n_runs

    def losses(self, n_steps: int) -> dict[str, float]:
        from attnkit.training import train

        experiment = self._case.experiment(min(self._n_runs, 5), steps=n_steps)
        last = train(experiment, "cpu", progress=False).snapshot.history["loss"][-1]
        names = (sharing.value for sharing in experiment.sharing)
        return dict(zip(names, map(float, last), strict=True))


def _loop(
    n_threads: int, case: Case, n_runs: int, *, index: int | None = None, is_peer: bool = False
) -> Any:
    """Return a clean loop, one of several processes, or the peer, which trains one run."""
    import torch

    from benchmark.loop import Loop, PeerTransformer, Transformer

    torch.set_num_threads(n_threads)
    experiment = case.experiment(1 if is_peer else n_runs)
    seeds = list(experiment.seeds)
    own = seeds if index is None else seeds[index :: n_cores()] or seeds
    return Loop(experiment, own, PeerTransformer if is_peer else Transformer, index is not None)


THREADS = sorted({1, n_cores()})  # of loops and peers

BUILDERS: dict[str, Callable[[Case, int], Any]] = {
    "cohort": _Cohort,
    **{f"clean loop, {n} threads": partial(_loop, n) for n in THREADS},
    **{f"process {index}": partial(_loop, 1, index=index) for index in range(n_cores())},
    **{f"peer, {n} threads": partial(_loop, n, is_peer=True) for n in THREADS},
}


class Turn(NamedTuple):
    """Time and work of one turn."""

    seconds: float
    model_steps: int


class Team(AbstractContextManager["Team"]):
    """Processes that have their turn at the same time: one contender, or one per core."""

    def __init__(self, names: list[str], case: Case, n_runs: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._processes = [
            ProcessPoolExecutor(1, spawn, _build, (name, case, n_runs)) for name in names
        ]
        self._ask("run", 1)

    def turn(self, n_steps: int) -> Turn:
        """Take `n_steps` steps in every process at the same time."""
        started = time.perf_counter()
        model_steps = sum(self._ask("run", n_steps))
        return Turn(time.perf_counter() - started, model_steps)

    def losses(self) -> dict[str, float]:
        """Return the held-out losses of the first seed's runs after `CHECKED_STEPS` steps."""
        return dict(self._ask("losses", CHECKED_STEPS)[0])

    def memory(self) -> float:
        """Return the peak memory without imports, in MiB, summed over the processes."""
        return float(sum(self._ask("memory", 0)))

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.shutdown()

    def _ask(self, request: str, argument: int) -> list[Any]:
        answers = [process.submit(_answer, request, argument) for process in self._processes]
        return [answer.result() for answer in answers]


_here: dict[str, Any] = {}  # in the process of a contender, the contender and the memory before it


def _build(name: str, case: Case, n_runs: int) -> None:
    """Build a contender in its process, which Ctrl-C does not end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch  # noqa: F401  its memory belongs to no contender

    _here["memory"] = _peak_memory()
    _here["contender"] = BUILDERS[name](case, n_runs)


def _answer(request: str, argument: int) -> Any:
    """Answer a request of `Team` in the process of a contender."""
    if request == "memory":
        return _peak_memory() - _here["memory"]
    return getattr(_here["contender"], request)(argument)


def _peak_memory() -> float:  # in MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
