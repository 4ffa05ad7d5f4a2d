"""Interleaved rounds of contenders, and the ratios of their rates."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from attnkit.foundation.process import n_cores
from benchmark.cases import Case
from benchmark.contenders import THREADS, Team

_TURN_SECONDS = 0.6  # about; a turn has at least `_LEAST_STEPS` steps
_LEAST_STEPS = 2
_REST_SECONDS = 0.02  # after it no thread of the last turn is still spinning

_RATIOS = {
    "over_clean_loop": ("cohort", "clean loop"),
    "over_processes": ("cohort", "processes"),
    "over_peer": ("cohort", "peer"),
}


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


@dataclass(frozen=True)
class Rates:
    """Model-steps per second of every contender, one number per round."""

    by_name: dict[str, list[float]]

    def best(self, prefix: str) -> str | None:
        """Return the contender with the highest median rate whose name begins so, if any."""
        contenders = [name for name in self.by_name if name.startswith(prefix)]
        return max(contenders, key=self.median, default=None)

    def median(self, name: str) -> float:
        """Return the median rate of a contender over the rounds."""
        return statistics.median(self.by_name[name])

    def ratio(self, name: str, other: str) -> Ratio:
        """Return one contender's rate divided by another's, round by round."""
        pairs = zip(self.by_name[name], self.by_name[other], strict=True)
        return Ratio(tuple(rate / base for rate, base in pairs))


def race(teams: dict[str, Team], rounds: int) -> Rates:
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
    while (seconds := team.turn(n_steps).seconds) <= _TURN_SECONDS / 3:
        n_steps *= 2
    return max(_LEAST_STEPS, round(n_steps * _TURN_SECONDS / seconds))


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
        best = {name: [*map(self.rates.best, pair)] for name, pair in _RATIOS.items()}
        return {
            name: self.rates.ratio(one, other) if one and other else None
            for name, (one, other) in best.items()
        }


def compare(case: Case, n_runs: int, *, peers: bool, rounds: int) -> Comparison:
    """Time the cohort, loops and processes of one case in interleaved rounds."""
    names = ["cohort", *(f"clean loop, {n} threads" for n in THREADS)]
    names += [f"peer, {n} threads" for n in THREADS] * peers
    members = {name: [name] for name in names}
    members["processes"] = [f"process {i}" for i in range(min(n_cores(), n_runs))]
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
