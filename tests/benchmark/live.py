"""Live rates: training while simulated visitors watch a real server on this machine."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context

from visitor import Visitor, dashboard

from attnkit.experiment import Experiment
from attnkit.foundation.process import prepare_for_training
from attnkit.service.service import TrainingService
from benchmark.compare import Rates

_N_WATCHING = (0, 1, 4)  # visitors; with 0 the training service trains without any page
_SOLVABLE = ("QKV", "K=V", "Q=V")  # they solve the default experiment with every seed
_SECONDS = 6.0  # about, of one training
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class LiveRates:
    """Rates "headless", "0 watching", …, and seconds until every run of `_SOLVABLE` is at 0.99."""

    rates: Rates
    click_to_solved: tuple[float, ...]
    headless_to_solved: tuple[float, ...]


def measure_live(rounds: int) -> LiveRates:
    """Train the default experiment headless and watched, in rounds."""
    rate, _ = _headless(200)
    steps = max(300, round(rate * _SECONDS / Experiment().n_runs / 10) * 10)
    rates: dict[str, list[float]] = {"headless": [], **{f"{n} watching": [] for n in _N_WATCHING}}
    watched_seconds, headless_seconds = [], []
    with dashboard() as port:
        _watched(port, 20, 1, 99)  # so that the server's training process is running
        for number in range(rounds):
            rates["headless"].append(_headless(steps)[0])
            for n in _N_WATCHING:
                seed = 100 * (number + 1) + 10 * n
                rate = _watched(port, steps, n, seed) if n else _unwatched(steps, seed)
                rates[f"{n} watching"].append(rate)
            watched_seconds.append(_click_to_solved(port))
            headless_seconds.append(_headless(Experiment().training.steps)[1])
    return LiveRates(Rates(rates), tuple(watched_seconds), tuple(headless_seconds))


def _headless(steps: int) -> tuple[float, float]:
    """Return rate and seconds until solved of a process that only trains."""
    with ProcessPoolExecutor(1, get_context("spawn"), prepare_for_training) as process:
        return process.submit(_train, steps).result()


def _train(steps: int) -> tuple[float, float]:
    """Train, and return rate and seconds until solved; NaN if that never came."""
    from attnkit.training import train

    train(Experiment(steps=20), "cpu", progress=False)  # as the live process is warm, too
    experiment, began = Experiment(steps=steps), time.perf_counter()
    snapshot = train(experiment, "cpu", progress=False).snapshot
    seconds = time.perf_counter() - began
    solvable = [sharing.value in _SOLVABLE for sharing, _ in experiment.runs]
    is_solved = snapshot.history["accuracy"][:, solvable].min(1) >= 0.99
    solved = [*snapshot.eval_steps[is_solved], float("nan")][0]
    return experiment.n_runs * steps / seconds, seconds * float(solved) / steps


def _unwatched(steps: int, seed: int) -> float:
    """Return the rate of the training service without any page, after the first steps."""
    with closing(TrainingService()) as service:
        for experiment in (Experiment(steps=20), Experiment(steps=steps, first_seed=seed)):
            job_id, version, progress = service.submit(experiment), 0, []
            while (job := service.wait(job_id, version, _TIMEOUT_SECONDS)) and not job.over:
                assert job.version > version, "training gave no answer in time"
                version = job.version
                if job.snapshot and job.snapshot.step:
                    progress.append((time.monotonic(), job.snapshot.step))
            if job is None or job.state == "failed":
                raise RuntimeError("live: training failed")
            progress.append((time.monotonic(), steps))
    return _rate(progress)


def _rate(progress: list[tuple[float, int]]) -> float:
    """Return the model-steps per second from times and steps."""
    (began, first), (ended, last) = progress[0], progress[-1]
    return Experiment().n_runs * (last - first) / max(ended - began, 1e-9)


def _watched(port: int, steps: int, n_watching: int, seed: int) -> float:
    """Return the rate that one visitor sees, while the others watch the same training."""

    def follow(visitor: Visitor) -> float:
        progress: list[tuple[float, int]] = []

        def ended() -> bool:
            step = visitor.progress()
            if step and (not progress or progress[-1][1] < step):
                progress.append((time.monotonic(), step))
            return step == steps and not visitor.ticking

        visitor.wait_for("the end", ended)
        return _rate(progress)

    def follow_alone(_: int) -> float:
        with Visitor(port, link) as visitor:
            return follow(visitor)

    link = f"v=1&steps={steps}&first_seed={seed}"
    with Visitor(port, link) as first, ThreadPoolExecutor(n_watching) as pool:
        first.press("train")
        first.wait_for("the first steps", lambda: first.progress() > 0)
        others = pool.map(follow_alone, range(n_watching - 1))
        rate = follow(first)
        list(others)
    return rate


def _click_to_solved(port: int) -> float:
    """Return the seconds from a click on Train until the page shows all `_SOLVABLE` runs solved."""
    with Visitor(port) as visitor:
        visitor.press("reset")
        visitor.wait_for("step 0", lambda: visitor.evaluated_to() == 0)
        began = time.monotonic()
        visitor.press("train")
        visitor.wait_for(
            "solved", lambda: min(min(visitor.single_runs()[name]) for name in _SOLVABLE) >= 0.99
        )
        return time.monotonic() - began
