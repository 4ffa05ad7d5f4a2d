"""Training of all runs of an experiment, with snapshots at any step.

`Training` is an experiment in progress: it advances by any number of steps and returns snapshots
between them, which change no number. `stream` and `train` drive it.

An experiment is divided into cohorts of a few runs each, and one thread per core advances them. A
cohort always computes on a single thread: Intel's MKL and other libraries round a matrix product
differently with one thread and with two, so the bits of a run would depend on what runs beside
it. Small cohorts fit the cache, and threads that never wait for each other within a step keep
their speed when another program, for example a browser, uses a core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

import numpy as np
import torch

from attnkit.experiment import Experiment
from attnkit.foundation.process import n_cores
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.foundation.slices import pause
from attnkit.tasks import NOTHING
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData, draw_probe
from attnkit.training.engine import Engine
from attnkit.training.evaluation import RunAnswers
from attnkit.training.maker import Maker
from attnkit.training.metrics import METRICS
from attnkit.training.plans import CohortPlan, plan_cohorts
from attnkit.training.results import Result
from attnkit.training.snapshot import Probe, Snapshot, Status

_SCORE_RANGE = (float(np.finfo(np.float16).min), float(np.finfo(np.float16).max))
"""Range to which the scores of the probe are clipped: that of floats of 16 bits."""

_BLOCK_STEPS = 2
"""Number of steps that a thread takes with one cohort before it chooses the next cohort."""


class Training:
    """Experiment in progress; step 0 is evaluated on construction.

    Args:
        experiment: The experiment to train.
        device: "cpu", "cuda", or "auto" for a GPU if there is one; see `pick_device`.
        engine: "kernel" or "torch". None: the engine that `ATTNKIT_ENGINE` names; see
            `ready_engine`.
        attention_curves: Whether every evaluation measures attention. If not, only the last one
            does, which saves a fifth of the time of small models.

    Attributes:
        experiment: The experiment that is trained.
        device: The device that trains.
        engine: The engine, which stays the same from the first step to the last.
        cohorts: Independent groups of runs, as planned by `plan_cohorts`.
        step: Optimiser steps that every run has taken.
        seconds: Time spent on training and evaluation so far.
    """

    def __init__(
        self,
        experiment: Experiment,
        device: str = "auto",
        engine: Engine | None = None,
        *,
        attention_curves: bool = True,
    ) -> None:
        self.experiment = experiment
        self.device = pick_device(device)
        self.maker = Maker.here(self.device, engine)
        self.engine = self.maker.engine
        self._attention_curves = attention_curves
        self.cohorts: list[Cohort] = []
        started, waited = time.perf_counter(), 0.0
        plans = plan_cohorts(experiment, self.device.type, self.engine)
        for first in range(0, len(plans), n_cores()):
            waited += self._make_cohorts(plans[first : first + n_cores()])
        runs = [run for cohort in self.cohorts for run in cohort.runs]
        self._order = [runs.index(run) for run in experiment.runs]
        self._probe = draw_probe(experiment.task)
        self.step = 0
        self.seconds = time.perf_counter() - started - waited

    @property
    def finished(self) -> bool:
        """True after the last step."""
        return self.step >= self.experiment.training.steps

    def advance(self, n_steps: int) -> None:
        """Take up to `n_steps` optimiser steps; evaluate every `evaluate_every` steps.

        After a `KeyboardInterrupt` all cohorts are brought to the same step before it is raised
        again.
        """
        started = time.perf_counter()
        target = min(self.step + n_steps, self.experiment.training.steps)
        try:
            _Race(self.cohorts, target).run()
        finally:
            self.step = min(cohort.step for cohort in self.cohorts)
            self.seconds += time.perf_counter() - started

    def snapshot(self, status: Status | None = None) -> Snapshot:
        """Return a snapshot of this moment. Without a status, the step decides it."""
        n_common = min(len(cohort.evaluations) for cohort in self.cohorts)
        evaluations = [cohort.evaluations[:n_common] for cohort in self.cohorts]
        history = {
            name: self._join([np.stack([e.metrics[name] for e in done]) for done in evaluations], 1)
            for name in METRICS
        }
        return Snapshot(
            experiment=self.experiment,
            status=status or ("finished" if self.finished else "running"),
            step=self.step,
            seconds=self.seconds,
            eval_steps=np.array([e.step for e in evaluations[0]], np.int64),
            history=history,
            head_symmetry=self._join([done[-1].head_symmetry for done in evaluations], 0),
            slice_accuracy=self._join([done[-1].slice_accuracy for done in evaluations], 0),
            diverged_at=self._join([cohort.diverged_at for cohort in self.cohorts], 0),
            probe=self._answer_probe(),
            **self.maker._asdict(),
        )

    def result(self) -> Result:
        """Return the snapshot and the weights of this moment; "stopped" before the last step."""
        parameters = [run for cohort in self.cohorts for run in cohort.parameters()]
        parameters = [parameters[index] for index in self._order]
        return Result(self.snapshot("finished" if self.finished else "stopped"), parameters)

    def _join(self, per_cohort: list[np.ndarray], axis: int) -> np.ndarray:
        """Join one array per cohort along the axis of runs, in the experiment's order."""
        return np.concatenate(per_cohort, axis).take(self._order, axis)

    def _make_cohorts(self, plans: Sequence[CohortPlan]) -> float:
        """Make one cohort on each core; return the seconds that this has waited for other work."""
        task = self.experiment.task_at(0)
        data = [TrainingData(self.experiment, p.seeds, self.device, task) for p in plans]
        waited = 0.0
        for one in data:  # one after the other, because drawing takes much memory for a moment
            while one.draw_next():
                waited += pause()
        self.cohorts += _pool().map(self._make_cohort, plans, data)
        return waited + pause()

    def _make_cohort(self, plan: CohortPlan, data: TrainingData) -> Cohort:
        return Cohort(
            self.experiment,
            plan.seeds,
            self.device,
            plan.sharing,
            self.engine,
            attention_curves=self._attention_curves,
            data=data,
        )

    def _answer_probe(self) -> Probe:
        answers, patterns, scores = (
            self._join(list(arrays), 0)
            for arrays in zip(*_pool().map(self._probed, self.cohorts), strict=True)
        )
        target, reverse = self._probe.target[0].numpy(), self._probe.reverse
        has_entries = (target != NOTHING).any()
        return Probe(
            tokens=self._probe.tokens[0].numpy(),
            labels=self._probe.labels[0].numpy(),
            target=target,
            reverse=np.full_like(target, -1) if reverse is None else reverse[0].numpy(),
            answers=answers,
            pattern=patterns,
            scores=scores if has_entries else None,
        )

    def _probed(self, cohort: Cohort) -> RunAnswers:
        """Return the answers, the patterns and the scores of a cohort's runs on the probe."""
        answers, patterns, scores = (array[:, 0] for array in cohort.answer(self._probe))
        clipped = scores.clip(*_SCORE_RANGE).astype(np.float16)
        return answers, patterns.astype(np.float16), clipped


class _Race:
    """Race of threads that bring cohorts to a common step; each takes the one furthest behind."""

    def __init__(self, cohorts: list[Cohort], target: int) -> None:
        self.target = target
        self._cohorts = cohorts
        self._free = list(cohorts)
        self._lock = threading.Lock()

    def run(self) -> None:
        """Train all cohorts to the target; if interrupted, to the step of the foremost cohort."""
        workers: list[Future[None]] = []
        try:
            workers += [_pool().submit(self._work) for _ in self._cohorts[: n_cores()]]
            wait(workers)
        except KeyboardInterrupt:
            self.target = 0  # so that threads start no further steps
            wait(workers)
            self.target = max(cohort.step for cohort in self._cohorts)
            wait([_pool().submit(self._work)])
            raise
        try:
            while workers:
                workers.pop(0).result()
        finally:
            workers.clear()  # an error refers to this frame, and a failed worker to its error

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
    """Return the training threads of this process: one per core, each of which uses one core."""
    return ThreadPoolExecutor(n_cores(), "attnkit", initializer=_prepare_thread)


def _prepare_thread() -> None:
    """Make a training thread use one core and flush denormal numbers to zero.

    Processors are slow with denormal numbers: a run whose patterns are all ones and zeros would
    take twice as long.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def pick_device(device: str) -> torch.device:
    """Return a device by name: "cpu", "cuda", "cuda:1", "mps", or "auto" for CUDA if available.

    Raises:
        InvalidExperiment: If this machine has no such device. It names the devices that exist.
    """
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = ["cpu", *["cuda"][:n_gpus], *(f"cuda:{n}" for n in range(n_gpus))]
    known += ["mps"] if torch.backends.mps.is_available() else []
    if device == "auto":
        return torch.device("cuda" if n_gpus else "cpu")
    if device not in known:
        raise InvalidExperiment([Problem("device", device, ", ".join(["auto", *known]))])
    return torch.device(device)
