"""Interleaved rounds of contenders, and the ratios of their rates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from attnkit.bench.cases import Case
from attnkit.bench.contenders import THREADS, Team
from attnkit.foundation.process import n_cores
from attnkit.training.engine import choose_engine

ROUNDS = 5
"""Turns of every contender."""

TURN_SECONDS = 0.6
"""About how long a turn takes; a turn is at least `_LEAST_STEPS` steps."""

_LEAST_STEPS = 2

_REST_SECONDS = 0.02
"""Between turns, so that no thread of the last one still spins."""


@dataclass(frozen=True)
class Ratio:
    """One rate over another, round by round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Over the rounds."""
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.rounds):.2f}–{max(self.rounds):.2f})"


class Rates:
    """Model-steps per second of every contender, one number per round."""

    def __init__(self, by_name: dict[str, list[float]]) -> None:
        self.by_name = by_name

    def best(self, *names: str) -> str:
        """The contender with the highest median among those whose name begins with one of these."""
        known = [name for name in self.by_name if name.startswith(names)]
        return max(known, key=self.median)

    def median(self, name: str) -> float:
        """Of a contender, over the rounds."""
        return statistics.median(self.by_name[name])

    def ratio(self, name: str, other: str) -> Ratio:
        """One contender's rate over another's."""
        pairs = zip(self.by_name[name], self.by_name[other], strict=True)
        return Ratio(tuple(one / two for one, two in pairs))


def race(teams: dict[str, Team], rounds: int = ROUNDS) -> Rates:
    """Let teams take turns, each in every round, and return their rates."""
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
    """One case at one number of runs.

    Attributes:
        loss_gap: largest relative difference of held-out losses between the cohort, the clean
            loop and a process of the strongest simple way, after `CHECKED_STEPS` from one start.
        memory: most MiB that the cohort's process held beyond imports.
    """

    case: str
    n_runs: int
    rates: Rates
    loss_gap: float
    memory: float

    @property
    def of_bound(self) -> Ratio:
        """The cohort's share of the matmul-only bound."""
        return self.rates.ratio("cohort", self.rates.best("bound"))

    @property
    def of_true_bound(self) -> Ratio | None:
        """The cohort's share of the true bound; None where torch trains."""
        if "true bound" not in self.rates.by_name:
            return None
        return self.rates.ratio("cohort", "true bound")

    @property
    def over_loop(self) -> Ratio:
        """The cohort over the clean loop with its best number of threads."""
        return self.rates.ratio("cohort", self.rates.best("clean loop"))

    @property
    def over_processes(self) -> Ratio:
        """The cohort over the strongest simple way."""
        return self.rates.ratio("cohort", "processes")

    @property
    def bound_over_loop(self) -> Ratio:
        """What batching could give at most."""
        return self.rates.ratio(self.rates.best("bound"), self.rates.best("clean loop"))

    @property
    def over_peer(self) -> Ratio | None:
        """The cohort over x-transformers with its best number of threads; None if not asked for."""
        if not any(name.startswith("peer") for name in self.rates.by_name):
            return None
        return self.rates.ratio("cohort", self.rates.best("peer"))


def compare(case: Case, n_runs: int, *, peers: bool = False, rounds: int = ROUNDS) -> Comparison:
    """Run the cohort, the loops, the processes and the bound of one case, interleaved."""
    names = {"cohort": ["cohort"], "bound, whole": ["bound, whole"]}
    names |= {"bound, split": ["bound, split"]}
    names |= (
        {"true bound": ["true bound"]} if choose_engine(torch.device("cpu")) == "kernel" else {}
    )
    names |= {f"clean loop, {n} threads": [f"clean loop, {n} threads"] for n in THREADS}
    names |= {"processes": [f"process {i}" for i in range(min(n_cores(), n_runs))]}
    if peers:
        names |= {f"peer, {n} threads": [f"peer, {n} threads"] for n in THREADS}
    with ExitStack() as stack:
        teams = {
            name: stack.enter_context(Team(members, case, n_runs))
            for name, members in names.items()
        }
        rates = race(teams, rounds)
        memory = teams["cohort"].memory()
        checked = ("cohort", f"clean loop, {THREADS[0]} threads", "processes")
        gap = _largest_gap([teams[name].losses() for name in checked])
        return Comparison(case.name, n_runs, rates, gap, memory)


def _largest_gap(losses: list[dict[str, float]]) -> float:
    return max(
        abs(found[sharing] - loss) / loss
        for found in losses[1:]
        for sharing, loss in losses[0].items()
    )


def grow(cases: Sequence[Case], n_runs: int, rounds: int = ROUNDS) -> dict[str, Rates]:
    """The cohort alone at several sizes, interleaved: name → its rates."""
    with ExitStack() as stack:
        teams = {case.name: stack.enter_context(Team(["cohort"], case, n_runs)) for case in cases}
        rates = race(teams, rounds)
    return {name: Rates({name: rates.by_name[name]}) for name in teams}
