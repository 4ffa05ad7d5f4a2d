"""The quick form of a claim: few runs with which readers see for themselves what a record says.

The record plans them. The number of seeds is the smallest that decides with a probability of
`LIKELY`, if new seeds are like those of the record. A claim that did not hold is refuted by any one
of its statements that failed, so the cheapest of these can be tested alone; a claim that held needs
all its statements. Recorded recipes are used, and no arm is trained for longer than its claim says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from attnkit.claims import Claim, Verdict
from attnkit.claims.base import LEAST_SEEDS, Arm
from attnkit.evidence.power import pilot_of, power
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import Trial, comparing_trials
from attnkit.evidence.tuning import Tuned
from attnkit.training.pace import work_of

NEW_SEED = 70_000
"""First seed of new runs, which no shipped record has used."""

LIKELY = 0.9
"""Probability that the planned seeds decide."""

MOST_SEEDS = 20
"""Most seeds of the quick form."""

SIZES = (8, 12, 17, MOST_SEEDS)
"""Planned numbers of seeds. There are only four, so that claims share the runs of equal arms. With
17 seeds and more, seeds that are all alike show "no worse"."""


@dataclass(frozen=True)
class QuickForm:
    """The runs of a claim's quick form.

    Attributes:
        arms: Arms of the statements that are tested; without a record, also those whose recipes
            they use.
        n_seeds: Number of seeds of every arm.
        tuned: Arm → its recorded recipe; empty without a record.
    """

    arms: tuple[Arm, ...]
    n_seeds: int
    tuned: Mapping[str, Tuned]

    @staticmethod
    def of(claim: Claim, record: Evidence | None, *, whole: bool = False) -> QuickForm:
        """Return the quick form of a claim.

        Without a current record all statements are tested, with half of the seeds of the full form,
        at least `LEAST_SEEDS` and at most `MOST_SEEDS`.

        Args:
            claim: The claim.
            record: Its record, which plans the form.
            whole: Whether all statements are tested, even if one that failed would do.
        """
        if record is None or not record.current:
            n_seeds = max(LEAST_SEEDS, min(MOST_SEEDS, claim.n_seeds // 2))
            return QuickForm(claim.judged_arms, n_seeds, {})
        return _planned(record, whole)

    @property
    def untuned(self) -> bool:
        """Whether no recipe is recorded."""
        return not self.tuned

    def trials(self, first_seed: int) -> list[Trial]:
        """Return the trials; an arm without a recorded recipe has the settings of its task."""
        recipes = {name: one.recipe for name, one in self.tuned.items()}
        return comparing_trials(self.arms, recipes, self.n_seeds, first_seed)


@lru_cache(maxsize=256)
def _planned(record: Evidence, whole: bool) -> QuickForm:
    """Return the cheapest form that is likely to decide, or the one that is the most likely to."""
    claim = record.claim
    choices = [claim.compared_arms]
    if record.judgement.verdict is Verdict.FAILED and not whole:
        findings = record.own_findings.items()
        failed = [s for s, finding in findings if finding.verdict is Verdict.FAILED]
        choices = [claim.arms_of([statement]) for statement in failed] or choices
    plans = [(arms, *_seeds_for(record, arms)) for arms in choices]

    def cost(plan: tuple[tuple[Arm, ...], int, float]) -> tuple[float, float]:
        arms, n_seeds, probability = plan
        experiments = [arm.experiment for arm in arms]
        work = n_seeds * sum(work_of(e, e.sharing[0]) for e in experiments)
        return (0.0, work) if probability >= LIKELY else (1.0, -probability)

    arms, n_seeds, _ = min(plans, key=cost)
    tuned = {arm.name: record.tuned[arm.name] for arm in arms if arm.name in record.tuned}
    return QuickForm(arms, n_seeds, tuned)


def _seeds_for(record: Evidence, arms: Sequence[Arm]) -> tuple[int, float]:
    """Return the number of seeds of some arms, and the probability that they decide."""
    names = {arm.name for arm in arms}
    statements = [s for s in record.claim.statements if names.issuperset(s.arms)]
    pilot = pilot_of(record, statements)
    sizes = sorted({min(size, record.claim.n_seeds) for size in SIZES})
    probabilities = {size: power(pilot, size) for size in sizes}
    likely = [size for size in sizes if probabilities[size] >= LIKELY]
    n_seeds = likely[0] if likely else sizes[-1]
    return n_seeds, probabilities[n_seeds]
