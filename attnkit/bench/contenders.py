"""Everything that is timed, each in a process of its own that works only when told to.

A process each gives every contender its own allocator and thread settings, and a peak memory that
is its own. The cohort and the bounds set the allocator as attnkit does
(`attnkit.foundation.process`); loops, processes and peers run as one writes them, with the default.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self

from attnkit.bench.cases import Case
from attnkit.foundation.process import n_cores, prepare_for_training

CHECKED_STEPS = 20
"""Steps after which the losses of contenders are compared."""


class _Contender(Protocol):
    def run(self, n_steps: int) -> int:
        """Take so many steps; return the model-steps."""


def _cohort(case: Case, n_runs: int) -> _Contender:
    prepare_for_training()
    return _Cohort(case, n_runs)


class _Cohort:
    """attnkit's own training."""

    def __init__(self, case: Case, n_runs: int) -> None:
        from attnkit.training import Training

        self._case, self._n_runs = case, n_runs
        self._training = Training(case.experiment(n_runs), "cpu")

    def run(self, n_steps: int) -> int:
        self._training.advance(n_steps)
        return n_steps * self._n_runs

    def losses(self, n_steps: int) -> dict[str, float]:
        from attnkit.training import train

        n_runs = min(self._n_runs, 5)
        experiment = self._case.experiment(n_runs, steps=n_steps, evaluate_every=n_steps)
        last = train(experiment, "cpu").snapshot.history["loss"][-1]
        return {
            sharing.value: float(loss)
            for sharing, loss in zip(experiment.sharing, last, strict=True)
        }


def _loop(n_threads: int) -> Callable[[Case, int], _Contender]:
    def build(case: Case, n_runs: int) -> _Contender:
        import torch

        from attnkit.bench.loop import Loop

        torch.set_num_threads(n_threads)
        experiment = case.experiment(n_runs)
        return Loop(experiment, list(experiment.seeds))

    return build


def _process(place: int) -> Callable[[Case, int], _Contender]:
    def build(case: Case, n_runs: int) -> _Contender:
        import torch

        from attnkit.bench.loop import Loop

        torch.set_num_threads(1)
        experiment = case.experiment(n_runs)
        seeds = list(experiment.seeds)[place :: n_cores()] or list(experiment.seeds)
        return Loop(experiment, seeds, fused=True)

    return build


def _peer(n_threads: int) -> Callable[[Case, int], _Contender]:
    def build(case: Case, n_runs: int) -> _Contender:
        import torch

        from attnkit.bench.loop import Loop, PeerTransformer

        torch.set_num_threads(n_threads)
        experiment = case.experiment(1)
        return Loop(experiment, list(experiment.seeds), PeerTransformer)

    return build


def _whole_bound(case: Case, n_runs: int) -> _Contender:
    from attnkit.bench.bound import WholeBound

    prepare_for_training()
    return WholeBound(case.experiment(n_runs))


def _split_bound(case: Case, n_runs: int) -> _Contender:
    from attnkit.bench.bound import SplitBound

    prepare_for_training()
    return SplitBound(case.experiment(n_runs))


def _true_bound(case: Case, n_runs: int) -> _Contender:
    from attnkit.bench.true_bound import TrueBound

    prepare_for_training()
    return TrueBound(case.experiment(n_runs))


THREADS = sorted({1, n_cores()})

BUILDERS: dict[str, Callable[[Case, int], _Contender]] = {
    "cohort": _cohort,
    "bound, whole": _whole_bound,
    "bound, split": _split_bound,
    "true bound": _true_bound,
    **{f"clean loop, {n} threads": _loop(n) for n in THREADS},
    **{f"process {place}": _process(place) for place in range(n_cores())},
    **{f"peer, {n} threads": _peer(n) for n in THREADS},
}


@dataclass(frozen=True)
class Turn:
    """What one turn of a contender took."""

    seconds: float
    model_steps: int


class Team:
    """Processes that take their turn together: one contender, or one per core.

    Args:
        names: keys of `BUILDERS`.
    """

    def __init__(self, names: list[str], case: Case, n_runs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the processes inherit this:
        try:  # they end with their pipes, and would answer Ctrl-C with tracebacks
            for name in names:
                ours, theirs = context.Pipe()
                given = (theirs, name, case, n_runs)
                process = context.Process(target=_serve, args=given, daemon=True)
                process.start()
                theirs.close()
                self._pipes.append(ours)
                self._processes.append(process)
        finally:
            signal.signal(signal.SIGINT, before)
        for pipe in self._pipes:
            pipe.recv()

    def turn(self, n_steps: int) -> Turn:
        """Let every process take so many steps, all at once."""
        started = time.perf_counter()
        model_steps = sum(self._ask("run", n_steps))
        return Turn(time.perf_counter() - started, model_steps)

    def losses(self) -> dict[str, float]:
        """Held-out loss of the first seed's runs after `CHECKED_STEPS`."""
        self._pipes[0].send(("losses", CHECKED_STEPS))
        found: dict[str, float] = self._pipes[0].recv()
        return found

    def memory(self) -> float:
        """Most MiB held beyond what imports took, summed over the processes."""
        return float(sum(self._ask("memory", 0)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            process.kill()

    def _ask(self, question: str, argument: int) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((question, argument))
        return [pipe.recv() for pipe in self._pipes]


def _serve(pipe: Connection, name: str, case: Case, n_runs: int) -> None:
    import torch  # noqa: F401  its size is no contender's

    before = _peak()
    contender: Any = BUILDERS[name](case, n_runs)
    contender.run(1)
    pipe.send("ready")
    while True:
        try:
            question, argument = pipe.recv()
        except EOFError:
            return
        if question == "memory":
            pipe.send(_peak() - before)
        else:
            pipe.send(getattr(contender, question)(argument))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
