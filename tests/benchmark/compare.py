"""Interleaved rounds of contenders, and the ratios of their rates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from attnkit.foundation.process import n_cores
from attnkit.training.engine import choose_engine
from benchmark.cases import Case
from benchmark.contenders import THREADS, Team

ROUNDS = 5
TURN_SECONDS = 0.6  # about; a turn has at least `_LEAST_STEPS` steps
_LEAST_STEPS = 2
_REST_SECONDS = 0.02  # after it no thread of the last turn is still spinning


@dataclass(frozen=True)
class Ratio:
    """Ratio of two contenders' rates, one number per round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.rounds):.2f}–{max(self.rounds):.2f})"


class Rates:
    """Model-steps per second of every contender, one number per round."""

    def __init__(self, by_name: dict[str, list[float]]) -> None:
        self.by_name = by_name

    def best(self, *prefixes: str) -> str:
        """Return the contender with the highest median rate whose name begins so."""
        contenders = [name for name in self.by_name if name.startswith(prefixes)]
        return max(contenders, key=self.median)

    def has(self, prefix: str) -> bool:
        """Return whether there is a contender whose name begins so."""
        return any(name.startswith(prefix) for name in self.by_name)

    def median(self, name: str) -> float:
        """Return the median rate of a contender over the rounds."""
        return statistics.median(self.by_name[name])

    def ratio(self, name: str, other: str) -> Ratio:
        """Return one contender's rate divided by another's, round by round."""
        pairs = zip(self.by_name[name], self.by_name[other], strict=True)
        return Ratio(tuple(rate / base for rate, base in pairs))


def race(teams: dict[str, Team], rounds: int = ROUNDS) -> Rates:
    """Give every team one turn in each round, and return the rates."""
    n_steps = {name: _steps_per_turn(team) for name, team in teams.items()}
    rates: dict[str, list[float]] = {name: [] for name in teams}
    for _ in range(rounds):
        for name, team in teams.items():
            time.sleep(_REST_SECONDS)
            turn = team.turn(n_steps[name])
            rates[name].append(turn.model_steps / turn.seconds)
    return Rates(rates)


def _steps_per_turn(team: Team) -> int:
    team.turn(_LEAST_STEPS)
    n_steps = _LEAST_STEPS
    while True:
        seconds = team.turn(n_steps).seconds
        if seconds > TURN_SECONDS / 3:
            return max(_LEAST_STEPS, round(n_steps * TURN_SECONDS / seconds))
        n_steps *= 2


@dataclass(frozen=True)
class Comparison:
    """Results of one case with one number of runs.

    `loss_gap` is the largest relative difference of held-out losses between cohort, clean loop and
    one of the processes; `memory` the peak of the cohort's process without imports, in MiB.
    """

    case: str
    n_runs: int
    rates: Rates
    loss_gap: float
    memory: float

    @property
    def ratios(self) -> dict[str, Ratio | None]:
        """Ratios of the best rates, by name; None where a contender did not run."""
        pairs = {
            "of_bound": ("cohort", "bound"),
            "of_true_bound": ("cohort", "true bound"),
            "over_clean_loop": ("cohort", "clean loop"),
            "over_processes": ("cohort", "processes"),
            "over_peer": ("cohort", "peer"),
            "bound_over_clean_loop": ("bound", "clean loop"),
        }
        rates = self.rates
        return {
            name: rates.ratio(rates.best(one), rates.best(other)) if rates.has(other) else None
            for name, (one, other) in pairs.items()
        }


def compare(case: Case, n_runs: int, *, peers: bool = False, rounds: int = ROUNDS) -> Comparison:
    """Time the cohort, loops, processes and bounds of one case in interleaved rounds."""
    names = ["cohort", "bound, whole", "bound, split"]
    if choose_engine(torch.device("cpu")) == "kernel":
        names.append("true bound")
    names += [f"clean loop, {n} threads" for n in THREADS]
    members = {name: [name] for name in names}
    members["processes"] = [f"process {i}" for i in range(min(n_cores(), n_runs))]
    if peers:
        members |= {f"peer, {n} threads": [f"peer, {n} threads"] for n in THREADS}
    with ExitStack() as stack:
        teams = {
            name: stack.enter_context(Team(contenders, case, n_runs))
            for name, contenders in members.items()
        }
        rates = race(teams, rounds)
        memory = teams["cohort"].memory()
        compared = ("cohort", f"clean loop, {THREADS[0]} threads", "processes")
        first, *rest = (teams[name].losses() for name in compared)
        gap = max(abs(one[name] - loss) / loss for one in rest for name, loss in first.items())
        return Comparison(case.name, n_runs, rates, gap, memory)


def measure_growth(cases: Sequence[Case], n_runs: int, rounds: int = ROUNDS) -> dict[str, Rates]:
    """Time the cohort alone in several cases, interleaved, and return case name → rates."""
    with ExitStack() as stack:
        teams = {case.name: stack.enter_context(Team(["cohort"], case, n_runs)) for case in cases}
        rates = race(teams, rounds)
    return {name: Rates({name: rates.by_name[name]}) for name in teams}
