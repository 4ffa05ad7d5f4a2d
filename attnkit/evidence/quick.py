"""The quick form of a claim: few runs with which readers see for themselves what a record says.

The record plans them. A claim that did not hold is refuted by one statement, so the statement that
refuted it is tested again, and no other one; a claim that held needs all its statements. The number
of seeds is the smallest that decides with a probability of `LIKELY`, if new seeds are like those of
the record. If none does, it is as large as it may be. Nothing is tuned again, and no arm is trained
for longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from attnkit.claims import Claim, Verdict
from attnkit.claims.base import QUICK_SEEDS, Arm
from attnkit.claims.statements import Statement
from attnkit.evidence.power import pilot_of, power
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import Trial, comparing_trials
from attnkit.evidence.tuning import Tuned
from attnkit.training.engine import Engine
from attnkit.training.pace import training_work, work_of

LIKELY = 0.9
"""Probability that the planned seeds decide."""

SIZES = (8, 12, 17, QUICK_SEEDS)
"""Planned numbers of seeds. They are few, so that claims share the runs of equal arms. 17 is the
smallest number with which seeds that are all alike show "no worse"."""


@dataclass(frozen=True)
class QuickForm:
    """The runs of a claim's quick form.

    Attributes:
        statements: The statements of the claim that are tested.
        arms: Arms of these statements, and arms whose recipes they use.
        n_seeds: Number of seeds of every arm.
        tuned: Arm → its recorded recipe; empty without a record.
    """

    statements: tuple[Statement, ...]
    arms: tuple[Arm, ...]
    n_seeds: int
    tuned: Mapping[str, Tuned]

    @staticmethod
    def of(claim: Claim, record: Evidence | None) -> QuickForm:
        """Return the quick form of a claim; without a current record, that of all statements."""
        if record is None or not record.current:
            return QuickForm(claim.statements, claim.judged_arms, claim.quick_seeds, {})
        return _planned(record)

    def trials(self, first_seed: int) -> list[Trial]:
        """Return the trials; an arm without a recorded recipe has the settings of its task."""
        recipes = {name: one.recipe for name, one in self.tuned.items()}
        return comparing_trials(self.arms, recipes, self.n_seeds, first_seed)

    def work(self, engine: Engine) -> float:
        """Return the work of the runs with an engine, see `training_work`."""
        return sum(training_work(trial.experiment, engine) for trial in self.trials(0))


@lru_cache(maxsize=256)
def _planned(record: Evidence) -> QuickForm:
    """Return the cheapest form that is likely to decide as the record did."""
    claim = record.claim
    refuting = [(s,) for s, found in record.own_findings if found.verdict is Verdict.FAILED]
    is_refuted = record.judgement.verdict is Verdict.FAILED
    choices = refuting if is_refuted and refuting else [claim.statements]
    planned = [(statements, *_seeds_for(record, statements)) for statements in choices]

    def costs(plan: tuple[tuple[Statement, ...], int, bool]) -> tuple[bool, float]:
        statements, n_seeds, is_likely = plan
        experiments = [arm.experiment for arm in claim.arms_of(statements)]
        return not is_likely, n_seeds * sum(work_of(e, e.sharing[0]) for e in experiments)

    statements, n_seeds, _ = min(planned, key=costs)
    arms = claim.arms_of(statements)
    tuned = {arm.name: record.tuned[arm.name] for arm in arms if arm.name in record.tuned}
    return QuickForm(statements, arms, n_seeds, tuned)


def _seeds_for(record: Evidence, statements: tuple[Statement, ...]) -> tuple[int, bool]:
    """Return the number of seeds that tests statements, and whether it is likely to decide."""
    pilot = pilot_of(record, statements)
    for n_seeds in SIZES:
        if n_seeds <= record.claim.n_seeds and power(pilot, n_seeds) >= LIKELY:
            return n_seeds, True
    return min(SIZES[-1], record.claim.n_seeds), False
