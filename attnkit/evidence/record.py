"""Records: the scores of every seed, how learning rates were found, and what follows.

Records are JSON. Those that ship with the package are in `shipped.json`, which
`python -m attnkit claims --ship` writes; verdicts are computed whenever a record is read.
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
from attnkit.claims.base import Statement
from attnkit.claims.measures import SOLVED
from attnkit.evidence.trials import Tuned
from attnkit.evidence.verdict import (
    RULE_HASH,
    Finding,
    Judgement,
    differences,
    find,
    judge,
    judge_together,
    still_rises,
)
from attnkit.training.engine import Engine

SHIPPED = Path(__file__).parent / "shipped.json"
"""The records that ship with the package."""


@dataclass(frozen=True, eq=False)
class Curve:
    """How the seeds of an arm learn.

    Attributes:
        steps: (e,) steps of the evaluations.
        mean: (e,) mean over seeds.
        low: (e,) lower quartile of the seeds.
        high: (e,) upper quartile of the seeds.
        solved: (e,) share of seeds that have solved the task.
        by: "accuracy", or "loss" on text.
    """

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    solved: np.ndarray
    by: str = "accuracy"

    @staticmethod
    def of(steps: np.ndarray, values: np.ndarray, by: str) -> Curve:
        """Return the curve of evaluations, (e, s); a run that diverged counts as not there."""
        present = ~np.isnan(values).all(1)
        steps, values = steps[present], values[present]
        solved = (values >= SOLVED).mean(1) if by == "accuracy" else np.zeros(len(steps))
        low, high = (
            np.nanquantile(values, q, axis=1) if len(values) else steps for q in (0.25, 0.75)
        )
        return Curve(steps, np.nanmean(values, 1), low, high, solved, by)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it, with as many digits as can be drawn."""
        arrays = {name: array for name, array in vars(self).items() if name != "by"}
        return {n: [float(f"{v:.4g}") for v in array] for n, array in arrays.items()} | {
            "by": self.by
        }

    @staticmethod
    def from_dict(told: Mapping[str, Any]) -> Curve:
        """Read `to_dict`.

        Raises:
            KeyError: If something is missing.
        """
        names = ("steps", "mean", "low", "high", "solved")
        arrays = {name: np.array(told[name], np.float64) for name in names}
        return Curve(**arrays, by=told["by"])


@dataclass(frozen=True)
class Begun:
    """How prediction and rule stood when the first run of a claim began.

    Attributes:
        date: Day on which it began, as ISO 8601 has it; empty for runs of the quick form.
        prediction: Hash of the prediction, see `Claim.prediction_hash`.
        rule: Hash of the rule, see `attnkit.evidence.verdict.RULE_HASH`.
    """

    date: str = ""
    prediction: str = ""
    rule: str = ""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was measured for a claim.

    Attributes:
        claim: The claim.
        version: Version of attnkit.
        hash: Hash of the claim when it was measured.
        quick: Whether it has the seeds of the quick form, and no arms that confirm an inability.
        seeds: The seeds of the arms; some arms have only the first of them.
        scores: Arm → measure → (k, s) at 1, 2, 4, ... times the base steps; NaN where a run
            diverged.
        tuned: Arm → how its learning rate was found.
        experiments: What was compared, each as `Experiment.to_text`.
        model_steps: Optimiser steps of single runs, tuning included.
        seconds: Seconds of training.
        curves: Arm → how its seeds learn.
        texts: Task → hash of its text, which differs between releases of Python.
        engine: The engine that trained.
        processor: The kind of processor; empty where it is not known.
        begun: How prediction and rule stood when the first run began.
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
    begun: Begun = Begun()

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements of the claim, and those that confirm an inability."""
        further = self.claim.confirmation()[1]
        measured = (one for one in further if all(name in self.scores for name in one.arms))
        return (*self.claim.statements, *measured)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The result of every statement."""
        return tuple(
            find(statement, differences(statement, self.of(statement.measure, statement.at)))
            for statement in self.statements
        )

    @property
    def judgement(self) -> Judgement:
        """The verdict, read alone."""
        return judge(self.findings)

    @property
    def current(self) -> bool:
        """Whether the claim is still the one that was measured."""
        return self.hash == self.claim.hash

    @property
    def changed(self) -> str:
        """The parts that changed since the first run began, in words; empty if none did."""
        rule, prediction = self.begun.rule, self.begun.prediction
        parts = {
            "the rule": rule and rule != RULE_HASH,
            "the prediction": prediction and prediction != self.claim.prediction_hash,
        }
        return " and ".join(name for name, is_changed in parts.items() if is_changed)

    def of(self, measure: str, at: int = 1) -> dict[str, np.ndarray]:
        """Return arm → (s,) of a measure at a multiple of the base steps, or at its last step."""
        row = at.bit_length() - 1
        found = {name: own[measure] for name, own in self.scores.items() if measure in own}
        return {name: values[min(row, len(values) - 1)] for name, values in found.items()}

    def mean(self, arm: str, measure: str = "accuracy", at: int = 1) -> float:
        """Return the mean over the seeds that did not diverge."""
        values = self.of(measure, at)[arm]
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    def n_solved(self, arm: str, at: int = 1) -> tuple[int, int]:
        """Return how many seeds of an arm have solved the task, and how many there are."""
        values = self.of("accuracy", at)[arm]
        return int((values >= SOLVED).sum()), len(values)

    def still_rises(self, arm: str) -> bool:
        """Return whether the mean accuracy of an arm still rises at its last step."""
        n_readings = len(self.scores[arm]["accuracy"])
        return still_rises(np.array([self.mean(arm, at=2**k) for k in range(n_readings)]))

    def to_dict(self, together: Verdict | None = None) -> dict[str, Any]:
        """Return it as JSON has it; NaN is null, infinity a string.

        Args:
            together: The verdict that stands when all are read together, if they are.
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
            "begun": vars(self.begun),
            "changed_since": self.changed,
            "seeds": len(self.seeds),
            "statements": [
                {
                    "text": statement.text,
                    "measure": statement.measure,
                    "method": found.method,
                    "at": statement.at,
                    "n_pairs": found.n_pairs,
                    "n_worse": found.n_worse,
                    "n_better": found.n_better,
                    "share_interval": [found.share_low, found.share_high],
                    "median": _plain(found.median),
                    "effect": _plain(found.effect),
                    "effect_interval": [_plain(found.effect_low), _plain(found.effect_high)],
                    "verdict": found.verdict,
                }
                for statement, found in zip(self.statements, self.findings, strict=True)
            ],
            "attnkit": self.version,
            "hash": self.hash,
            "quick": self.quick,
            "first_seed": self.seeds[0],
            "scores": {
                name: {
                    measure: [[_plain(value) for value in row] for row in values]
                    for measure, values in own.items()
                }
                for name, own in self.scores.items()
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
    def from_dict(told: Mapping[str, Any]) -> Evidence:
        """Read `to_dict`.

        Raises:
            KeyError: If there is no such claim, or something is missing.
        """
        first, n_seeds = int(told["first_seed"]), int(told["seeds"])
        return Evidence(
            claim=CLAIMS[told["id"]],
            version=told["attnkit"],
            hash=told["hash"],
            quick=told["quick"],
            seeds=tuple(range(first, first + n_seeds)),
            scores={
                name: {m: np.array(values, np.float64) for m, values in own.items()}
                for name, own in told["scores"].items()
            },
            tuned={
                name: Tuned(
                    own["learning_rate"],
                    {float(r): np.nan if v is None else v for r, v in own["tried"].items()},
                    own["by"],
                )
                for name, own in told["tuning"].items()
            },
            experiments=tuple(told["experiments"]),
            model_steps=told["model_steps"],
            seconds=told["seconds"],
            curves={name: Curve.from_dict(own) for name, own in told["curves"].items()},
            texts=told["texts"],
            engine=told["engine"],
            processor=told["processor"],
            begun=Begun(**told["begun"]),
        )


def verdicts_of(gathered: Iterable[Evidence]) -> dict[str, Verdict]:
    """Return the verdict of every claim: full records are read together, quick ones alone."""
    found = list(gathered)
    full = [one for one in found if not one.quick]
    together = judge_together([one.judgement for one in full])
    stands = {one.claim.id: verdict for one, verdict in zip(full, together, strict=True)}
    return {one.claim.id: stands.get(one.claim.id, one.judgement.verdict) for one in found}


def to_json(gathered: Iterable[Evidence]) -> str:
    """Return records that are read together as JSON, one claim per line."""
    found = list(gathered)
    verdicts = verdicts_of(found)
    lines = [
        json.dumps(one.to_dict(verdicts[one.claim.id]), ensure_ascii=False, allow_nan=False)
        for one in found
    ]
    return '{"claims": [\n' + ",\n".join(lines) + "\n]}\n"


@cache
def load_shipped() -> dict[str, Evidence]:
    """Return claim's id → its shipped record, in the order of `CLAIMS`.

    A claim without a record of its present form is left out.
    """
    if not SHIPPED.is_file():
        return {}
    told = {one["id"]: one for one in json.loads(SHIPPED.read_text(encoding="utf-8"))["claims"]}
    current = {name: told[name] for name in CLAIMS if name in told}
    records = [
        Evidence.from_dict(one) for name, one in current.items() if one["hash"] == CLAIMS[name].hash
    ]
    return {record.claim.id: record for record in records}


def _plain(value: float) -> float | str | None:
    """Return a number as JSON has it, with as many digits as single precision holds."""
    if value is None or np.isnan(value):
        return None
    return float(f"{value:.9g}") if np.isfinite(value) else str(value)
