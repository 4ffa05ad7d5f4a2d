"""Train all runs of an experiment and report as they learn.

`Training` is the experiment in progress: it advances by any number of steps and can be looked at
between them. When it is looked at changes no number. `stream` and `train` drive it.

An experiment is cut into cohorts of a few runs each, and one thread per core advances them. A
cohort always computes on a single thread: Intel's MKL and other libraries round a matrix product
differently with one thread and with two, so the bits of a run would depend on its company. Small
cohorts fit the cache, and threads that never wait for each other within a step keep their speed
when something else, for example a browser, wants a core.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from attnkit.experiment import Experiment
from attnkit.foundation.machine import processor_kind
from attnkit.foundation.process import n_cores
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.tasks import NOTHING
from attnkit.training.cohort import Cohort
from attnkit.training.data import draw_probe
from attnkit.training.engine import Engine, kernel_knows, ready_engine
from attnkit.training.results import Result
from attnkit.training.snapshot import METRICS, Probe, Snapshot, Status
from attnkit.variants import Variant

RUNS_PER_COHORT = 10
"""Runs that train as one where they fit the cache; fewer waste calls, more gain nothing."""

_CACHED_FLOATS = 2**20
"""A cohort's largest intermediate, about, so that a core's cache holds it."""

_LARGEST_SCORE = float(np.finfo(np.float16).max)
"""Larger scores of the example are stored as this number, the largest of 16 bits."""

_BLOCK_STEPS = 2
"""Steps a thread takes with one cohort before it turns to the one furthest behind."""


class Training:
    """One experiment in progress: step 0 is evaluated on construction.

    Args:
        experiment: what to train.
        device: "cpu", "cuda", or "auto" for a GPU if there is one; see `pick_device`.
        engine: "kernel" or "torch". None: as `ATTNKIT_ENGINE` says; see `ready_engine`.

    Attributes:
        engine: what trains it, from its first step to its last.
        cohorts: the independent parts it was cut into, which `plan_cohorts` made.
        step: optimiser steps that every run has taken.
        seconds: time spent training and evaluating so far.
    """

    def __init__(
        self, experiment: Experiment, device: str = "auto", engine: Engine | None = None
    ) -> None:
        self.experiment = experiment
        self.device = pick_device(device)
        self.engine = ready_engine(self.device, engine)
        started = time.perf_counter()
        plan = plan_cohorts(experiment, self.device, self.engine)
        self.cohorts = list(_pool().map(self._make_cohort, plan))
        runs = [run for cohort in self.cohorts for run in cohort.runs]
        self._order = [runs.index(run) for run in experiment.runs]
        self._probe = draw_probe(experiment.task)
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
            slice_accuracy=self._joined([own[-1].slice_accuracy for own in evaluations], 0),
            diverged_at=self._joined([cohort.diverged_at for cohort in self.cohorts], 0),
            probe=self._answer_probe(),
            engine=self.engine,
            processor=processor_kind(self.device),
        )

    def result(self) -> Result:
        """The tables and the weights as they are now; "stopped" before the last step."""
        parameters = [own for cohort in self.cohorts for own in cohort.parameters()]
        parameters = [parameters[place] for place in self._order]
        return Result(self.snapshot("finished" if self.finished else "stopped"), parameters)

    def _joined(self, per_cohort: list[np.ndarray], axis: int) -> np.ndarray:
        """Arrays with a run axis, one per cohort, as one in the experiment's order."""
        return np.concatenate(per_cohort, axis).take(self._order, axis)

    def _make_cohort(self, part: Part) -> Cohort:
        return Cohort(self.experiment, part.seeds, self.device, part.sharing, self.engine)

    def _answer_probe(self) -> Probe:
        answered = list(_pool().map(lambda cohort: cohort.answer(self._probe), self.cohorts))
        target, reverse = self._probe.target[0].numpy(), self._probe.reverse
        scores = None
        if (target != NOTHING).any():
            by_cohort = self._joined([own[:, 0] for _, _, own in answered], 0)
            scores = by_cohort.clip(-_LARGEST_SCORE, _LARGEST_SCORE).astype(np.float16)
        return Probe(
            tokens=self._probe.tokens[0].numpy(),
            labels=self._probe.labels[0].numpy(),
            target=target,
            reverse=np.full_like(target, -1) if reverse is None else reverse[0].numpy(),
            answers=self._joined([answers[:, 0] for answers, _, _ in answered], 0),
            pattern=self._joined([own[:, 0] for _, own, _ in answered], 0).astype(np.float16),
            scores=scores,
        )


@dataclass(frozen=True)
class Part:
    """The runs of one cohort: some variants, each with the same seeds."""

    sharing: tuple[Variant, ...]
    seeds: list[int]


def plan_cohorts(
    experiment: Experiment, device: torch.device, engine: Engine = "torch"
) -> list[Part]:
    """Return which runs train together; a GPU takes them all at once.

    On a CPU, every core has some, and no cohort has more than `RUNS_PER_COHORT`. The kernel
    computes each run by itself: its cohorts have few seeds, so that examples are drawn once for
    many variants. Torch computes the seeds of a variant together, as many as fit the cache.
    """
    variants, seeds = experiment.sharing, list(experiment.seeds)
    if device.type != "cpu":
        return [Part(variants, seeds)]
    on_kernel = [v for v in variants if engine == "kernel" and kernel_knows(experiment, v)]
    by_torch = [v for v in variants if v not in on_kernel]
    parts = []
    if on_kernel:
        together = min(RUNS_PER_COHORT, math.ceil(len(on_kernel) * len(seeds) / n_cores()))
        n_variants = min(len(on_kernel), together)
        parts += _cut(on_kernel, n_variants, seeds, together // n_variants)
    if by_torch:
        share = math.ceil(experiment.n_runs / n_cores())
        fitting = min(RUNS_PER_COHORT, _CACHED_FLOATS // _largest_intermediate(experiment))
        for together in range(max(1, min(fitting, share)), 0, -1):
            n_seeds = min(together, len(seeds))
            found = _cut(by_torch, together // n_seeds, seeds, n_seeds)
            if parts or len(found) >= min(n_cores(), experiment.n_runs):
                break
        parts += found
    return parts


def _cut(
    variants: Sequence[Variant], n_variants: int, seeds: list[int], n_seeds: int
) -> list[Part]:
    """Cut variants and seeds into parts of about equal size, of at most so many of each."""
    of_variants = np.array_split(np.arange(len(variants)), math.ceil(len(variants) / n_variants))
    of_seeds = np.array_split(np.array(seeds), math.ceil(len(seeds) / n_seeds))
    return [
        Part(tuple(variants[place] for place in some), [int(seed) for seed in their_seeds])
        for their_seeds in of_seeds
        for some in of_variants
    ]


def _largest_intermediate(experiment: Experiment) -> int:
    """Numbers in the largest tensor of one run's step."""
    n_ctx = experiment.task.n_ctx
    per_token = max(
        max(
            wiring.sizes.d_model,
            wiring.n_inner,
            wiring.vectors[wiring.roles["Q"]].n_numbers,
            wiring.sizes.d_mlp,
            wiring.sizes.n_heads * wiring.n_maps * n_ctx,
            experiment.task.n_classes,
        )
        for wiring in map(experiment.wiring, experiment.sharing)
    )
    return experiment.training.batch_size * n_ctx * per_token


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
    """Bring cohorts to a common step; every thread takes the one furthest behind."""

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
    """Return the training threads of this process: one per core, each computing on one core."""
    return ThreadPoolExecutor(n_cores(), "attnkit", initializer=_prepare_thread)


def _prepare_thread() -> None:
    """Let a training thread compute by itself, and take numbers next to zero for zero.

    A run whose patterns are all ones and zeros would otherwise be half as fast: processors compute
    with such numbers in many more steps.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def pick_device(device: str) -> torch.device:
    """Return the device of a name: "cpu", "cuda", "cuda:1", "mps", or "auto" for the fastest.

    Raises:
        InvalidExperiment: if this machine has no such device; names those it has.
    """
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = ["cpu", *["cuda"][:n_gpus], *(f"cuda:{n}" for n in range(n_gpus))]
    known += ["mps"] if torch.backends.mps.is_available() else []
    if device == "auto":
        return torch.device("cuda" if n_gpus else "cpu")
    if device not in known:
        raise InvalidExperiment([Problem("device", device, ", ".join(["auto", *known]))])
    return torch.device(device)
