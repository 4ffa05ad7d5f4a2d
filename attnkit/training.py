"""Train all runs of an experiment and report as they learn.

`Training` is the experiment in progress: it advances by any number of steps and can be looked at
between them. When it is looked at changes no number. `stream` and `train` drive it.

An experiment is cut into cohorts of a few seeds each, which one thread per core advances. Small
cohorts fit the cache, and threads that never wait for each other within a step keep their speed
when something else, a browser say, wants a core: one cohort on two threads fell to a third of its
speed beside one busy process, two threads with cohorts of their own to three quarters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

import numpy as np
import torch

from attnkit.cohort import Cohort
from attnkit.experiment import Experiment
from attnkit.model import generator_for
from attnkit.process import n_cores
from attnkit.results import METRICS, Probe, Result, Snapshot, Status

RUNS_PER_COHORT = 5
"""Seeds are put together until a cohort has about so many runs; fewer waste calls, more cache."""

_BLOCK_STEPS = 2
"""Steps a thread takes with one cohort before it turns to the one furthest behind."""

_PROBE_SEED = 0


class Training:
    """One experiment in progress: step 0 is evaluated on construction.

    Args:
        experiment: what to train.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.

    Attributes:
        cohorts: the independent parts it was cut into, in the order of their seeds.
        step: optimiser steps that every run has taken.
        seconds: time spent training and evaluating so far.
    """

    def __init__(self, experiment: Experiment, device: str = "auto") -> None:
        started = time.perf_counter()
        self.experiment = experiment
        self.device = _pick_device(device)
        plan = plan_cohorts(experiment, self.device)
        self.cohorts = list(_pool().map(lambda seeds: Cohort(experiment, seeds, self.device), plan))
        generator = generator_for(_PROBE_SEED, "probe")
        self._probe = experiment.task.draw(1, generator, held_out=True)
        self.step = 0
        self.seconds = time.perf_counter() - started

    @property
    def finished(self) -> bool:
        """Whether the last step has been taken."""
        return self.step >= self.experiment.training.steps

    def advance(self, n_steps: int) -> None:
        """Take up to so many optimiser steps, evaluating on the experiment's cadence.

        Interrupted, it brings all cohorts to the same step before it passes the interrupt on.
        """
        started = time.perf_counter()
        target = min(self.step + n_steps, self.experiment.training.steps)
        race = _Race(self.cohorts, target)
        try:
            race.run()
        finally:
            self.step = min(cohort.step for cohort in self.cohorts)
            self.seconds += time.perf_counter() - started

    def snapshot(self, status: Status | None = None) -> Snapshot:
        """What can be drawn now. A status is derived from the step unless given."""
        n_common = min(len(cohort.evaluations) for cohort in self.cohorts)
        evaluations = [cohort.evaluations[:n_common] for cohort in self.cohorts]
        history = {
            name: self._joined([np.stack([e.metrics[name] for e in own]) for own in evaluations], 1)
            for name in METRICS
        }
        return Snapshot(
            experiment=self.experiment,
            status=status or ("finished" if self.finished else "running"),
            step=self.step,
            seconds=self.seconds,
            eval_steps=np.array([e.step for e in evaluations[0]], np.int64),
            history=history,
            head_symmetry=self._joined([own[-1].head_symmetry for own in evaluations], 0),
            diverged_at=self._joined([cohort.diverged_at for cohort in self.cohorts], 0),
            probe=self._answer_probe(),
        )

    def result(self) -> Result:
        """The tables and the weights as they are now; "stopped" before the last step."""
        by_run = {
            (sharing, seed): own
            for cohort in self.cohorts
            for (sharing, seed), own in zip(
                [(sharing, seed) for sharing in self.experiment.sharing for seed in cohort.seeds],
                cohort.parameters(),
                strict=True,
            )
        }
        parameters = [by_run[run] for run in self.experiment.runs]
        return Result(self.snapshot("finished" if self.finished else "stopped"), parameters)

    def _joined(self, per_cohort: list[np.ndarray], axis: int) -> np.ndarray:
        """Arrays with a run axis, one per cohort, as one in the experiment's order."""
        n_sharings = len(self.experiment.sharing)
        split = [
            array.reshape(*array.shape[:axis], n_sharings, -1, *array.shape[axis + 1 :])
            for array in per_cohort
        ]
        joined = np.concatenate(split, axis + 1)
        shape = (*joined.shape[:axis], self.experiment.n_runs, *joined.shape[axis + 2 :])
        return joined.reshape(shape)

    def _answer_probe(self) -> Probe:
        answered = [cohort.answer(self._probe) for cohort in self.cohorts]
        target, reverse = self._probe.target[0].numpy(), self._probe.reverse
        return Probe(
            tokens=self._probe.tokens[0].numpy(),
            labels=self._probe.labels[0].numpy(),
            target=target,
            reverse=np.full_like(target, -1) if reverse is None else reverse[0].numpy(),
            answers=self._joined([answers[:, 0] for answers, _ in answered], 0),
            pattern=self._joined([pattern[:, 0] for _, pattern in answered], 0),
        )


def plan_cohorts(experiment: Experiment, device: torch.device) -> list[list[int]]:
    """Which seeds train together; a GPU takes them all at once."""
    seeds = list(experiment.seeds)
    if device.type != "cpu":
        return [seeds]
    together = max(1, round(RUNS_PER_COHORT / len(experiment.sharing)))
    return [seeds[start : start + together] for start in range(0, len(seeds), together)]


def stream(experiment: Experiment, device: str = "auto") -> Iterator[Snapshot]:
    """Train an experiment and yield snapshots, densely at first.

    They come at steps 0, 1, 2, 4, 8, … until that gap exceeds a fortieth of the steps, then
    evenly; the last one is finished.
    """
    training = Training(experiment, device)
    yield training.snapshot()
    widest = max(experiment.training.steps // 40, 1)
    while not training.finished:
        training.advance(min(max(training.step, 1), widest))
        yield training.snapshot()


def train(
    experiment: Experiment,
    device: str = "auto",
    progress: Callable[[Training], None] | None = None,
) -> Result:
    """Train an experiment to its last step.

    Args:
        experiment: what to train.
        device: "cpu", "cuda", or "auto".
        progress: called about fifty times with the training, which it may only look at.

    A `KeyboardInterrupt` during training ends it early: the result is then what was reached, with
    status "stopped".
    """
    training = Training(experiment, device)
    stride = max(experiment.training.steps // 50, 20)
    try:
        while not training.finished:
            training.advance(stride)
            if progress is not None:
                progress(training)
    except KeyboardInterrupt:
        pass
    return training.result()


class _Race:
    """Brings cohorts to a common step; every thread takes the one furthest behind."""

    def __init__(self, cohorts: list[Cohort], target: int) -> None:
        self.target = target
        self._cohorts = cohorts
        self._free = list(cohorts)
        self._lock = threading.Lock()

    def run(self) -> None:
        """Train until all stand at the target, or, interrupted, at the step of the foremost."""
        workers: list[Future[None]] = []
        try:
            workers += [_pool().submit(self._work) for _ in self._cohorts[: n_cores()]]
            wait(workers)
        except KeyboardInterrupt:
            self.target = 0  # nothing more is begun
            wait(workers)
            self.target = max(cohort.step for cohort in self._cohorts)
            wait([_pool().submit(self._work)])
            raise
        for worker in workers:
            worker.result()

    def _work(self) -> None:
        while True:
            with self._lock:
                behind = [cohort for cohort in self._free if cohort.step < self.target]
                if not behind:
                    return
                cohort = min(behind, key=lambda cohort: cohort.step)
                self._free.remove(cohort)
            try:
                cohort.advance(min(_BLOCK_STEPS, self.target - cohort.step))
            finally:
                with self._lock:
                    self._free.append(cohort)


@cache
def _pool() -> ThreadPoolExecutor:
    """The process's training threads, one per core, each of which computes on one core."""
    return ThreadPoolExecutor(
        n_cores(), "attnkit", initializer=torch.set_num_threads, initargs=(1,)
    )


def _pick_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)
