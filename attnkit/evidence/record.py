"""Records of evidence: scores of all seeds, tuned recipes, and the findings from them.

A record is stored as JSON with the fields of `Evidence`, and nothing else of it is read. Verdicts
are computed anew whenever a record is read. `python -m attnkit claims --ship` writes
`shipped.json`, the records that ship with the package.

JSON has no NaN, which is written as null, and no infinity, which is written as a text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BeforeValidator, PlainSerializer, PlainValidator, TypeAdapter

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.claims.base import Arm, Schedule
from attnkit.claims.measures import SOLVED
from attnkit.claims.statements import Statement
from attnkit.evidence.verdict import (
    RULE_HASH,
    Finding,
    Judgement,
    differences,
    judge,
    judge_statement,
    judge_together,
    with_rivals,
)
from attnkit.foundation.display import Plotted
from attnkit.training.engine import Engine
from attnkit.training.maker import Maker

SHIPPED = Path(__file__).parent / "shipped.json"
"""File of the records that ship with the package."""

STILL_RISES = 0.02
"""Accuracy still rises if either of the last two doublings of the steps adds more than this."""


def plain(value: Any, digits: int = 17) -> Any:
    """Return a value for JSON, with the numbers in its arrays, lists and mappings.

    Args:
        value: The value; texts, truth values and whole numbers stay as they are.
        digits: Significant digits of the numbers. With 17 all bits are kept, with 9 those of single
            precision.
    """
    if isinstance(value, np.ndarray):
        return plain(value.astype(np.float64).tolist(), digits)
    if isinstance(value, Mapping):
        return {name: plain(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, digits) for item in value]
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return None
    return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)


_READ = PlainValidator(lambda value: np.array(value, np.float64))
_SINGLE = PlainSerializer(lambda value: plain(value, 9))

Number = Annotated[float, BeforeValidator(lambda x: math.nan if x is None else x), _SINGLE]
"""A number, written with the digits of single precision."""

Array = Annotated[np.ndarray, _READ, PlainSerializer(plain)]
"""An array of numbers, written to the bit."""

SingleArray = Annotated[np.ndarray, _READ, _SINGLE]
"""An array of numbers, written with the digits of single precision."""

DrawnArray = Annotated[np.ndarray, _READ, PlainSerializer(lambda value: plain(value, 4))]
"""An array of numbers, written with as many digits as a figure shows."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Learning curve of an arm: statistics over its seeds at every evaluation.

    Attributes:
        steps: (e,) steps of the evaluations.
        mean: (e,) mean over seeds.
        low: (e,) lower quartile of the seeds.
        high: (e,) upper quartile of the seeds.
        solved: (e,) share of seeds that have solved the task.
        by: The metric: "accuracy", or "loss" on text.
    """

    steps: DrawnArray
    mean: DrawnArray
    low: DrawnArray
    high: DrawnArray
    solved: DrawnArray
    by: str = "accuracy"

    @staticmethod
    def of(steps: np.ndarray, values: np.ndarray, by: str) -> Curve:
        """Return the curve of the values of s seeds, (e, s), without runs that diverged."""
        present = ~np.isnan(values).all(1)
        steps, values = steps[present], values[present]
        solved = (values >= SOLVED).mean(1) if by == "accuracy" else np.zeros(len(steps))
        low, high = (
            np.nanquantile(values, q, axis=1) if len(values) else steps for q in (0.25, 0.75)
        )
        return Curve(steps, np.nanmean(values, 1), low, high, solved, by)


class Recipe(NamedTuple):
    """Learning rate and schedule of an arm; without a schedule, that of its settings is used."""

    rate: float
    schedule: Schedule | None = None


@dataclass(frozen=True)
class Tried:
    """Result of one recipe in a search.

    Attributes:
        n_solved: Number of seeds that have solved the task at the last step.
        mean: Mean accuracy or loss at the last step; NaN if a run diverged.
    """

    rate: float
    schedule: Schedule
    n_seeds: int
    n_solved: int
    mean: Number


@dataclass(frozen=True)
class Tuned:
    """The recipe that was found for an arm, and those that were tried.

    Attributes:
        schedule: The schedule; None for that of the arm's settings.
        by: What was compared, "accuracy" or "loss".
        steps: Number of steps for which recipes were tried.
        tried: All recipes that were tried for so many steps.
        rivals: The next best recipes. An arm is called worse only if it is worse with them, too.
    """

    rate: float
    schedule: Schedule | None = None
    by: str = "accuracy"
    steps: int = 0
    tried: tuple[Tried, ...] = ()
    rivals: tuple[Recipe, ...] = ()

    @property
    def recipe(self) -> Recipe:
        """The learning rate and the schedule."""
        return Recipe(self.rate, self.schedule)

    @property
    def at_edge(self) -> bool:
        """Whether no smaller, or no larger, learning rate was tried with the same schedule."""
        rates = [one.rate for one in self.tried if one.schedule == self.schedule]
        return len(rates) > 1 and self.rate in (min(rates), max(rates))

    @property
    def never_learnt(self) -> bool:
        """Whether no seed has solved the task with any recipe."""
        tried = self.by == "accuracy" and self.tried
        return bool(tried) and not any(one.n_solved for one in self.tried)


@dataclass(frozen=True)
class FirstRun:
    """Date, prediction and rule at the time when the first run of a claim began.

    Attributes:
        date: Day on which the run began, in ISO 8601; empty for the quick form.
        prediction: Hash of the prediction, see `Claim.prediction_hash`.
        rule: Hash of the rule, see `attnkit.evidence.verdict.RULE_HASH`.
    """

    date: str = ""
    prediction: str = ""
    rule: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Evidence(Plotted):
    """Measurements for a claim, and the findings and the verdict that follow from them.

    Attributes:
        claim: The claim.
        version: Version of attnkit.
        hash: Hash of the claim when it was measured.
        quick: Whether this is the quick form, see `attnkit.evidence.trials`.
        first_seed: First seed of the arms; the others follow.
        n_seeds: Number of seeds; some arms have only the first of them.
        scores: Arm → measure → (k, s) scores at 1, 2, 4, ... times the base steps; NaN where a run
            diverged.
        tuned: Arm → its learning rate and schedule, and those that were tried.
        experiments: The compared experiments, each as `Experiment.to_text`, without those with
            further seeds and with the next best recipes.
        model_steps: Optimiser steps of single runs, tuning included.
        seconds: Seconds of training, tuning included.
        curves: Arm → its learning curve.
        texts: Task → hash of the text on which it trains.
        engine: Engine that trained.
        processor: Kind of processor; empty if unknown.
        versions: Versions of the libraries that trained; empty if unknown.
        first_run: Date, prediction and rule at the time when the first run began.
    """

    claim: Annotated[
        Claim, PlainValidator(lambda name: CLAIMS[name]), PlainSerializer(lambda claim: claim.id)
    ]
    version: str
    hash: str
    quick: bool
    first_seed: int
    n_seeds: int
    scores: Mapping[str, Mapping[str, SingleArray]]
    tuned: Mapping[str, Tuned]
    experiments: tuple[str, ...]
    model_steps: int
    seconds: float
    curves: Mapping[str, Curve] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    engine: Engine = "torch"
    processor: str = ""
    versions: str = ""
    first_run: FirstRun = FirstRun()

    def __repr__(self) -> str:
        """Return a short description; the scores and curves would fill many screens."""
        return f"<Evidence for {self.claim.id}, {self.n_seeds} seeds>"

    @property
    def maker(self) -> Maker:
        """Engine, kind of processor and versions that trained."""
        return Maker(self.engine, self.processor, self.versions)

    @property
    def seeds(self) -> range:
        """The seeds of the arms."""
        return range(self.first_seed, self.first_seed + self.n_seeds)

    @property
    def arms(self) -> dict[str, Arm]:
        """Name → arm: arms of the claim, those with next best recipes, and longer ones."""
        longer = (*self.claim.confirmation[0], *(arm for _, arm in self.lost))
        return {arm.name: arm for arm in (*self.claim.arms, *self.rivals, *longer)}

    @property
    def rivals(self) -> tuple[Arm, ...]:
        """Arms that were measured with their next best recipes, because they had lost."""
        return tuple(
            replace(arm, name=rival)
            for arm in self.claim.arms
            for rival in rivals_of(arm.name, self.tuned)
            if rival in self.scores
        )

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Statements whose arms are measured: of the claim, and those that confirm an inability.

        The quick form may leave out some statements of the claim.
        """
        known = (*self.claim.statements, *self.claim.confirmation[1])
        return tuple(s for s in known if all(name in self.scores for name in s.arms))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The finding on every statement, in the order of `statements`."""
        return tuple(map(self._finding, self.statements))

    @cached_property
    def own_findings(self) -> dict[Statement, Finding]:
        """Statement → finding, of the measured statements of the claim itself."""
        return {f.statement: f for f in self.findings if f.statement in self.claim.statements}

    @property
    def is_partial(self) -> bool:
        """Whether some statement of the claim was not tested, as in the quick form."""
        return len(self.own_findings) < len(self.claim.statements)

    def _finding(self, statement: Statement) -> Finding:
        """Return the finding on a statement, with every recipe of the arm that is worse."""
        finding = self._judged(statement)
        if statement.measured.compares_means or finding.loser is None:
            return finding
        rivals = (rival for rival in rivals_of(finding.loser, self.tuned) if rival in self.scores)
        others = [
            replace(statement, left=rival)
            if statement.left == finding.loser
            else replace(statement, right=rival)
            for rival in rivals
        ]
        return with_rivals(finding, list(map(self._judged, others)))

    def _judged(self, statement: Statement) -> Finding:
        scores = self.scores_at(statement.measure, statement.at)
        return judge_statement(statement, differences(statement, scores))

    @property
    def losers(self) -> dict[str, list[Statement]]:
        """Names of the arms that have lost, and the statements of the claim in which they have."""
        found: dict[str, list[Statement]] = {}
        for statement, finding in self.own_findings.items():
            if finding.loser is not None:
                found.setdefault(finding.loser, []).append(statement)
        return found

    @property
    def lost(self) -> tuple[tuple[str, Arm], ...]:
        """Names of arms that have lost a comparison of accuracies, and the arms that follow them.

        An arm that is called unable is not followed: other arms confirm that.
        """
        return tuple(
            (name, arm)
            for name, statements in self.losers.items()
            if any(one.measure == "accuracy" and not one.unable for one in statements)
            and (arm := self.claim.follow_up(name)) is not None
        )

    @property
    def judgement(self) -> Judgement:
        """The verdict on this claim alone, not corrected for other claims.

        A claim holds only if all its statements were tested.
        """
        return judge(self.findings, all_tested=not self.is_partial)

    @property
    def current(self) -> bool:
        """Whether the arms and statements of the claim are still those that were measured."""
        return self.hash == self.claim.hash

    @property
    def changed(self) -> str:
        """Names of the parts that changed since the first run began; empty if none did."""
        first, now = self.first_run, self.claim.prediction_hash
        parts = {"the rule": first.rule not in ("", RULE_HASH)}
        parts["the prediction"] = first.prediction not in ("", now)
        return " and ".join(name for name, is_changed in parts.items() if is_changed)

    def scores_at(self, measure: str, at: int = 1) -> dict[str, np.ndarray]:
        """Return arm → (s,) scores of a measure, for the arms that have it.

        They are read at a multiple of the base steps, at most at the last step of the arm.
        """
        row = at.bit_length() - 1
        return {
            name: by_measure[measure][min(row, len(by_measure[measure]) - 1)]
            for name, by_measure in self.scores.items()
            if measure in by_measure
        }

    def mean(self, arm: str, measure: str = "accuracy", at: int = 1) -> float:
        """Return the mean score of an arm over the seeds that did not diverge; NaN if all did."""
        values = self.scores_at(measure, at)[arm]
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    def median_steps(self, arm: str, at: int) -> float:
        """Return the median number of steps in which an arm solves the task; perhaps infinite."""
        doublings = self.scores_at("steps_to_solve", at)[arm]
        return 2 ** float(np.median(np.where(np.isnan(doublings), np.inf, doublings)))

    def n_solved(self, arm: str, at: int = 1) -> tuple[int, int]:
        """Return the number of seeds of an arm that have solved the task, and of all its seeds."""
        values = self.scores_at("accuracy", at)[arm]
        return int((values >= SOLVED).sum()), len(values)

    def still_rises(self, arm: str) -> bool:
        """Return whether the mean accuracy of an arm still rises with the steps.

        It does if either of the last two doublings of the steps adds more than `STILL_RISES`, or if
        there are fewer.
        """
        n_readings = len(self.scores[arm]["accuracy"])
        gains = np.diff([self.mean(arm, at=2**k) for k in range(n_readings)])[-2:]
        return bool(len(gains) < 2 or (gains > STILL_RISES).any())

    def to_dict(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return dict(_RECORD.dump_python(self, mode="json"))

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Evidence:
        """Create evidence from the output of `to_dict`.

        Raises:
            KeyError: If the claim does not exist.
            ValueError: If a field is missing or has the wrong type.
        """
        return _RECORD.validate_python(dict(data))


_RECORD = TypeAdapter(Evidence)


def rivals_of(name: str, tuned: Mapping[str, Tuned]) -> dict[str, Recipe]:
    """Return the names of an arm with its next best recipes, and these recipes."""
    rivals = tuned[name].rivals if name in tuned else ()
    return {f"{name}, {recipe.schedule} {recipe.rate:g}": recipe for recipe in rivals}


class Records(dict[str, Evidence]):
    """Records by the ids of their claims; full records are read together, quick ones alone."""

    @staticmethod
    def of(records: Iterable[Evidence]) -> Records:
        """Return records in their order."""
        return Records({record.claim.id: record for record in records})

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict by the claim's id."""
        full = [record for record in self.values() if not record.quick]
        together = judge_together([record.judgement for record in full])
        alone = {name: record.judgement.verdict for name, record in self.items()}
        return alone | {r.claim.id: v for r, v in zip(full, together, strict=True)}

    @property
    def n_together(self) -> int:
        """Number of claims that are read together; 1 if each is read alone."""
        return max(1, sum(not record.quick for record in self.values()))

    def to_json(self, *, summarised: bool = True) -> str:
        """Return the records as JSON, one claim per line.

        Args:
            summarised: Whether what follows from a record stands in front of it, for readers of the
                JSON; attnkit itself reads the record alone.
        """
        entries = (
            {**(_summary(record, self.verdicts[name]) if summarised else {}), **record.to_dict()}
            for name, record in self.items()
        )
        lines = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries]
        return '{"claims": [\n' + ",\n".join(lines) + "\n]}\n"


def _summary(record: Evidence, verdict: Verdict) -> dict[str, Any]:
    """Return what a record says about its claim, with its verdict read with all others."""
    claim, main = record.claim, record.findings[0]
    statements = []
    for finding in record.findings:
        numbers = dict(vars(finding))
        one = numbers.pop("statement")
        told = {"text": one.text, "measure": one.measure, "at": one.at, "verdict": finding.verdict}
        statements.append(told | numbers)
    summary = {
        "id": claim.id,
        "title": claim.title,
        "source": claim.source,
        "says": claim.says,
        "prediction": claim.prediction,
        "predicted": claim.expected,
        "verdict": verdict,
        "verdict_alone": record.judgement.verdict,
        "p": record.judgement.p,
        "effect": main.effect,
        "interval": [main.effect_low, main.effect_high],
        "seen": claim.seen,
        "changed_since": record.changed,
        "seeds": record.n_seeds,
        "statements": statements,
    }
    return {name: plain(value, 9) for name, value in summary.items()}


@cache
def load_shipped() -> Records:
    """Return the shipped records, in the order of `CLAIMS`.

    Claims whose arms or statements differ from those of the record are left out.
    """
    if not SHIPPED.is_file():
        return Records()
    entries = {one["claim"]: one for one in json.loads(SHIPPED.read_bytes())["claims"]}
    return Records.of(
        Evidence.from_dict(entries[name])
        for name, claim in CLAIMS.items()
        if name in entries and entries[name]["hash"] == claim.hash
    )
