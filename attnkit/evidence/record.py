"""Records of evidence: scores of all seeds, tuned learning rates, and the findings from them.

Records are stored as JSON. `python -m attnkit claims --ship` writes `shipped.json`, the records
that ship with the package. Verdicts are computed anew whenever a record is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.claims.measures import SOLVED
from attnkit.claims.statements import Statement
from attnkit.evidence.trials import Tuned
from attnkit.evidence.verdict import (
    RULE_HASH,
    Finding,
    Judgement,
    differences,
    judge,
    judge_statement,
    judge_together,
    still_rises,
)
from attnkit.foundation.display import Plotted
from attnkit.training.engine import Engine

SHIPPED = Path(__file__).parent / "shipped.json"
"""File of the records that ship with the package."""


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

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    solved: np.ndarray
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, rounded to the precision of a figure."""
        arrays = {name: array for name, array in vars(self).items() if name != "by"}
        rounded = {name: [float(f"{v:.4g}") for v in array] for name, array in arrays.items()}
        return rounded | {"by": self.by}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Curve:
        """Create a curve from the output of `to_dict`.

        Raises:
            KeyError: If a key is missing.
        """
        names = ("steps", "mean", "low", "high", "solved")
        arrays = {name: np.array(data[name], np.float64) for name in names}
        return Curve(**arrays, by=data["by"])


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
        quick: Whether this is the quick form: fewer seeds, no arms that confirm an inability.
        seeds: The seeds of the arms; some arms have only the first of them.
        scores: Arm → measure → (k, s) scores at 1, 2, 4, ... times the base steps; NaN where a run
            diverged.
        tuned: Arm → its learning rate, and the rates that were tried.
        experiments: The compared experiments, each as `Experiment.to_text`.
        model_steps: Optimiser steps of single runs, tuning included.
        seconds: Seconds of training, tuning included.
        curves: Arm → its learning curve.
        texts: Task → hash of its text, which differs between releases of Python.
        engine: Engine that trained.
        processor: Kind of processor; empty if unknown.
        first_run: Date, prediction and rule at the time when the first run began.
    """

    claim: Claim
    version: str
    hash: str
    quick: bool
    seeds: tuple[int, ...]
    scores: Mapping[str, Mapping[str, np.ndarray]]
    tuned: Mapping[str, Tuned]
    experiments: tuple[str, ...]
    model_steps: int
    seconds: float
    curves: Mapping[str, Curve] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    engine: Engine = "torch"
    processor: str = ""
    first_run: FirstRun = FirstRun()

    def __repr__(self) -> str:
        """Return a short description; the scores and curves would fill many screens."""
        return f"<Evidence for {self.claim.id}, {len(self.seeds)} seeds>"

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements of the claim, and measured ones that confirm an inability."""
        further = self.claim.confirmation()[1]
        measured = (s for s in further if all(name in self.scores for name in s.arms))
        return (*self.claim.statements, *measured)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The finding on every statement, in the order of `statements`."""
        return tuple(
            judge_statement(
                statement, differences(statement, self.scores_at(statement.measure, statement.at))
            )
            for statement in self.statements
        )

    @property
    def judgement(self) -> Judgement:
        """The verdict on this claim alone, not corrected for other claims."""
        return judge(self.findings)

    @property
    def current(self) -> bool:
        """Whether the arms and statements of the claim are still those that were measured."""
        return self.hash == self.claim.hash

    @property
    def changed(self) -> str:
        """Names of the parts that changed since the first run began; empty if none did."""
        parts = []
        if self.first_run.rule not in ("", RULE_HASH):
            parts.append("the rule")
        if self.first_run.prediction not in ("", self.claim.prediction_hash):
            parts.append("the prediction")
        return " and ".join(parts)

    def scores_at(self, measure: str, at: int = 1) -> dict[str, np.ndarray]:
        """Return arm → (s,) scores of a measure, for the arms that have it.

        Args:
            measure: Name of the measure.
            at: Multiple of the base steps; an arm that is not trained for so long is read at its
                last step.
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

    def n_solved(self, arm: str, at: int = 1) -> tuple[int, int]:
        """Return the number of seeds of an arm that have solved the task, and of all its seeds."""
        values = self.scores_at("accuracy", at)[arm]
        return int((values >= SOLVED).sum()), len(values)

    def still_rises(self, arm: str) -> bool:
        """Return whether the mean accuracy of an arm still rises at its last step."""
        n_readings = len(self.scores[arm]["accuracy"])
        return still_rises(np.array([self.mean(arm, at=2**k) for k in range(n_readings)]))

    def to_dict(self, together: Verdict | None = None) -> dict[str, Any]:
        """Return plain values for JSON: NaN as null, infinity as a string.

        Args:
            together: Verdict of this claim if several are read together, see `verdicts_of`.
        """
        main = self.findings[0]
        return {
            "id": self.claim.id,
            "title": self.claim.title,
            "source": self.claim.source,
            "says": self.claim.says,
            "prediction": self.claim.prediction,
            "predicted": self.claim.expected,
            "verdict": together or self.judgement.verdict,
            "verdict_alone": self.judgement.verdict,
            "p": self.judgement.p,
            "effect": _plain(main.effect),
            "interval": [_plain(main.effect_low), _plain(main.effect_high)],
            "decided_by": "mean difference" if main.method == "mean" else "pairs of seeds",
            "seen": self.claim.seen,
            "begun": vars(self.first_run),
            "changed_since": self.changed,
            "seeds": len(self.seeds),
            "statements": [
                _statement_to_dict(statement, finding)
                for statement, finding in zip(self.statements, self.findings, strict=True)
            ],
            "attnkit": self.version,
            "hash": self.hash,
            "quick": self.quick,
            "first_seed": self.seeds[0],
            "scores": {
                name: {
                    measure: [[_plain(value) for value in row] for row in values]
                    for measure, values in by_measure.items()
                }
                for name, by_measure in self.scores.items()
            },
            "curves": {name: curve.to_dict() for name, curve in self.curves.items()},
            "tuning": {
                name: {
                    "learning_rate": tuned.rate,
                    "by": tuned.by,
                    "tried": {f"{rate:g}": _plain(value) for rate, value in tuned.tried.items()},
                    "at_edge": tuned.at_edge,
                }
                for name, tuned in self.tuned.items()
            },
            "experiments": list(self.experiments),
            "texts": dict(self.texts),
            "model_steps": self.model_steps,
            "seconds": round(self.seconds, 1),
            "engine": self.engine,
            "processor": self.processor,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Evidence:
        """Create evidence from the output of `to_dict`.

        Raises:
            KeyError: If the claim does not exist, or a key is missing.
        """
        first, n_seeds = int(data["first_seed"]), int(data["seeds"])
        return Evidence(
            claim=CLAIMS[data["id"]],
            version=data["attnkit"],
            hash=data["hash"],
            quick=data["quick"],
            seeds=tuple(range(first, first + n_seeds)),
            scores={
                name: {m: np.array(values, np.float64) for m, values in by_measure.items()}
                for name, by_measure in data["scores"].items()
            },
            tuned={
                name: Tuned(
                    tuning["learning_rate"],
                    {float(r): np.nan if v is None else v for r, v in tuning["tried"].items()},
                    tuning["by"],
                )
                for name, tuning in data["tuning"].items()
            },
            experiments=tuple(data["experiments"]),
            model_steps=data["model_steps"],
            seconds=data["seconds"],
            curves={name: Curve.from_dict(curve) for name, curve in data["curves"].items()},
            texts=data["texts"],
            engine=data["engine"],
            processor=data["processor"],
            first_run=FirstRun(**data["begun"]),
        )


def _statement_to_dict(statement: Statement, finding: Finding) -> dict[str, Any]:
    return {
        "text": statement.text,
        "measure": statement.measure,
        "method": finding.method,
        "at": statement.at,
        "n_pairs": finding.n_pairs,
        "n_worse": finding.n_worse,
        "n_better": finding.n_better,
        "share_interval": [finding.share_low, finding.share_high],
        "median": _plain(finding.median),
        "effect": _plain(finding.effect),
        "effect_interval": [_plain(finding.effect_low), _plain(finding.effect_high)],
        "verdict": finding.verdict,
    }


def verdicts_of(records: Iterable[Evidence]) -> dict[str, Verdict]:
    """Return id of the claim → verdict: full records are read together, quick ones alone."""
    records = list(records)
    full = [record for record in records if not record.quick]
    together = judge_together([record.judgement for record in full])
    verdicts = {record.claim.id: record.judgement.verdict for record in records}
    corrected = {record.claim.id: verdict for record, verdict in zip(full, together, strict=True)}
    return verdicts | corrected


def to_json(records: Iterable[Evidence]) -> str:
    """Return records that are read together as JSON, one claim per line."""
    records = list(records)
    verdicts = verdicts_of(records)
    lines = [
        json.dumps(record.to_dict(verdicts[record.claim.id]), ensure_ascii=False, allow_nan=False)
        for record in records
    ]
    return '{"claims": [\n' + ",\n".join(lines) + "\n]}\n"


@cache
def load_shipped() -> dict[str, Evidence]:
    """Return id of the claim → its shipped record, in the order of `CLAIMS`.

    Claims whose arms or statements differ from those of the record are left out.
    """
    if not SHIPPED.is_file():
        return {}
    entries = json.loads(SHIPPED.read_text(encoding="utf-8"))["claims"]
    by_id = {entry["id"]: entry for entry in entries}
    return {
        name: Evidence.from_dict(by_id[name])
        for name, claim in CLAIMS.items()
        if name in by_id and by_id[name]["hash"] == claim.hash
    }


@cache
def shipped_verdicts() -> dict[str, Verdict]:
    """Return the verdicts of all shipped records, read together."""
    return verdicts_of(load_shipped().values())


def _plain(value: float) -> float | str | None:
    """Return a number for JSON, with as many digits as single precision holds."""
    if np.isnan(value):
        return None
    return float(f"{value:.9g}") if np.isfinite(value) else str(value)
