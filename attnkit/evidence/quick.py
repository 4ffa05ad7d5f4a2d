"""The quick form of a claim: few runs with which readers see for themselves what a record says.

It trains what decides: of a claim that did not hold, the cheapest of the statements that failed, as
any of them refutes it; otherwise all statements. Recorded recipes are used, and no arm is trained
for longer than its claim says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnkit.claims import Claim, Verdict
from attnkit.claims.base import LEAST_SEEDS, Arm
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import Trial, comparing_trials
from attnkit.evidence.tuning import Tuned
from attnkit.training.pace import work_of

NEW_SEED = 70_000
"""First seed of new runs, which no shipped record has used."""

MOST_SEEDS = 20
"""Most seeds of the quick form."""

TWO_MINUTES = 6_000.0
"""Work that ends in about two minutes on two cores, in 10⁹ multiply-adds."""

NO_WORSE_SEEDS = 17
"""Fewest seeds that can show "no worse": if no seed of 17 is worse, at most a fifth of all is."""


@dataclass(frozen=True)
class QuickForm:
    """The runs of a claim's quick form.

    Attributes:
        arms: Arms of the statements that are tested; without a record, also those whose recipes
            they use.
        n_seeds: Number of seeds of every arm: as many as end in about two minutes, at least
            `LEAST_SEEDS` and at most `MOST_SEEDS`; half of those of the full form without a record.
        tuned: Arm → its recorded recipe; empty without a current record.
    """

    arms: tuple[Arm, ...]
    n_seeds: int
    tuned: Mapping[str, Tuned]

    @staticmethod
    def of(claim: Claim, record: Evidence | None) -> QuickForm:
        """Return the quick form of a claim with its record, if there is one."""
        if record is None or not record.current:
            return QuickForm(claim.judged_arms, _within(claim.n_seeds // 2), {})
        choices = [claim.compared_arms]
        if record.judgement.verdict is Verdict.FAILED:
            findings = record.own_findings.items()
            failed = [s for s, finding in findings if finding.verdict is Verdict.FAILED]
            choices = [claim.arms_of([statement]) for statement in failed] or choices
        arms = min(choices, key=_work)
        tuned = {arm.name: record.tuned[arm.name] for arm in arms if arm.name in record.tuned}
        in_time = int(TWO_MINUTES / _work(arms))
        return QuickForm(arms, _within(min(claim.n_seeds, in_time)), tuned)

    @property
    def untuned(self) -> bool:
        """Whether no recipe is recorded."""
        return not self.tuned

    def trials(self, first_seed: int) -> list[Trial]:
        """Return the trials; an arm without a recorded recipe has the settings of its task."""
        recipes = {name: one.recipe for name, one in self.tuned.items()}
        return comparing_trials(self.arms, recipes, self.n_seeds, first_seed)


def _work(arms: tuple[Arm, ...]) -> float:
    """Return the work of one seed of every arm."""
    experiments = [arm.experiment for arm in arms]
    return sum(work_of(experiment, experiment.sharing[0]) for experiment in experiments)


def _within(n_seeds: int) -> int:
    return max(LEAST_SEEDS, min(MOST_SEEDS, n_seeds))
