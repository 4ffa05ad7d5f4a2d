"""Live rates: training while simulated visitors watch a real server on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from visitor import Visitor, dashboard

from attnkit.experiment import Experiment
from attnkit.service.service import TrainingService
from benchmark.compare import Rates, Ratio

N_WATCHING = (0, 1, 4)  # visitors; with 0 the training service trains without any page
SOLVABLE = ("QKV", "K=V", "Q=V")  # they solve the default experiment with every seed
_TIMEOUT_SECONDS = 60.0

_HEADLESS = """
import sys, time
from attnkit.foundation.process import prepare_for_training
prepare_for_training()
import attnkit as ak
ak.train(ak.Experiment(steps=20), "cpu")  # warm up, as the live process is warm, too
experiment = ak.Experiment(steps=int(sys.argv[1]))
began = time.perf_counter()
result = ak.train(experiment, "cpu")
seconds = time.perf_counter() - began
solvable = [sharing.value in sys.argv[2].split(",") for sharing, _ in experiment.runs]
history = result.snapshot.history["accuracy"][:, solvable]
solved = [step for step, row in zip(result.snapshot.eval_steps, history) if row.min() >= 0.99]
print(experiment.n_runs * experiment.training.steps / seconds)
print(seconds * solved[0] / experiment.training.steps if solved else "nan")
"""


@dataclass(frozen=True)
class LiveRates:
    """Rates "headless", "0 watching", …, and seconds until every run of `SOLVABLE` is at 0.99."""

    rates: Rates
    click_to_solved: tuple[float, ...]
    headless_to_solved: tuple[float, ...]

    def of_headless(self, n_watching: int) -> Ratio:
        """Return the rate with `n_watching` visitors divided by the headless rate."""
        return self.rates.ratio(f"{n_watching} watching", "headless")


def measure_live(rounds: int, seconds: float = 6.0) -> LiveRates:
    """Train the default experiment headless and watched, in rounds, each for about so long."""
    rate, _ = _headless(200)
    steps = max(300, round(rate * seconds / Experiment().n_runs / 10) * 10)
    rates: dict[str, list[float]] = {"headless": []}
    rates |= {f"{n} watching": [] for n in N_WATCHING}
    watched_seconds, headless_seconds = [], []
    with dashboard() as port:
        with Visitor(port, "v=1&steps=20&n_seeds=1&first_seed=99") as visitor:
            visitor.press("train")  # so that the server's training process is running
            visitor.wait_for("the end", lambda: _ended(visitor, 20))
        for number in range(rounds):
            rates["headless"].append(_headless(steps)[0])
            for n in N_WATCHING:
                seed = 100 * (number + 1) + 10 * n
                rate = _watched(port, steps, n, seed) if n else _unwatched(steps, seed)
                rates[f"{n} watching"].append(rate)
            watched_seconds.append(_click_to_solved(port))
            headless_seconds.append(_headless(Experiment().training.steps)[1])
    return LiveRates(Rates(rates), tuple(watched_seconds), tuple(headless_seconds))


def _headless(steps: int) -> tuple[float, float]:
    """Return rate and seconds until solved of a process that only trains."""
    command = [sys.executable, "-c", _HEADLESS, str(steps), ",".join(SOLVABLE)]
    process = subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_SECONDS)
    rate, seconds = map(float, process.stdout.split())
    return rate, seconds


def _unwatched(steps: int, seed: int) -> float:
    """Return the rate of the training service without any page."""
    service = TrainingService()
    try:
        _train(service, Experiment(steps=20, n_seeds=1))
        return _train(service, Experiment(steps=steps, first_seed=seed))
    finally:
        service.close()


def _train(service: TrainingService, experiment: Experiment) -> float:
    """Train an experiment to its end, and return the rate after the first steps."""
    job_id = service.submit(experiment)
    began, first, version = 0.0, 0, 0
    while True:
        job = service.wait(job_id, version, _TIMEOUT_SECONDS)
        if job is None or job.version == version or job.state == "failed":
            raise RuntimeError("live: training failed or gave no answer in time")
        version = job.version
        step = job.snapshot.step if job.snapshot else 0
        if not began and step:
            began, first = time.monotonic(), step
        if job.over:
            return experiment.n_runs * (step - first) / max(time.monotonic() - began, 1e-9)


def _watched(port: int, steps: int, n_watching: int, seed: int) -> float:
    """Return the rate that one visitor sees, while the others watch the same training."""
    link = f"v=1&steps={steps}&first_seed={seed}"
    with Visitor(port, link) as first:
        first.press("train")
        first.wait_for("the first steps", lambda: first.progress() > 0)
        with ThreadPoolExecutor(n_watching) as pool:
            others = [pool.submit(_follow, port, link, steps) for _ in range(n_watching - 1)]
            rate = _rate_seen(first, steps)
            for other in others:
                other.result()
    return rate


def _follow(port: int, link: str, steps: int) -> None:
    with Visitor(port, link) as visitor:
        if not visitor.watch(_TIMEOUT_SECONDS, lambda: _ended(visitor, steps)):
            raise RuntimeError(f"live: a follower did not see the end: {visitor.texts()[:8]}")


def _rate_seen(visitor: Visitor, steps: int) -> float:
    progress: list[tuple[float, int]] = []

    def ended() -> bool:
        step = visitor.progress()
        if step and (not progress or progress[-1][1] < step):
            progress.append((time.monotonic(), step))
        return _ended(visitor, steps)

    if not visitor.watch(_TIMEOUT_SECONDS, ended) or len(progress) < 2:
        raise RuntimeError(f"live: the run could not be followed: {visitor.texts()[:8]}")
    (began, first), (ended_at, last) = progress[0], progress[-1]
    return Experiment().n_runs * (last - first) / (ended_at - began)


def _ended(visitor: Visitor, steps: int) -> bool:
    return visitor.progress() == steps and not visitor.ticking


def _click_to_solved(port: int) -> float:
    """Return the seconds from a click on Train until the page shows all `SOLVABLE` runs solved."""
    with Visitor(port) as visitor:
        visitor.press("reset")
        visitor.wait_for("step 0", lambda: visitor.evaluated_to() == 0)
        began = time.monotonic()
        visitor.press("train")

        def solved() -> bool:
            runs = visitor.single_runs()
            return all(min(runs[name]) >= 0.99 for name in SOLVABLE)

        visitor.wait_for("solved", solved)
        return time.monotonic() - began
