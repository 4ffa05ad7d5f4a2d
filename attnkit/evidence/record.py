"""The record of a claim: every seed's scores, how learning rates were found, what follows.

Records are JSON. What ships with the package is `shipped.json`, written by
`python -m attnkit claims --ship`; verdicts are derived anew whenever a record is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.claims.base import Statement
from attnkit.engine import Engine
from attnkit.evidence.trials import Tuned
from attnkit.evidence.verdict import Finding, Judgement, differences, find, judge, judge_together

SHIPPED = Path(__file__).parent / "shipped.json"
"""The records that ship with the package."""

QUICK_SEEDS = 8
"""Seeds of the quick form: with six, no claim of two statements could ever be contradicted."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was measured for a claim.

    Attributes:
        claim: which. version: of attnkit. hash: of the claim when it was measured.
        quick: few seeds, and no arms that make sure of an inability.
        seeds: of every arm. scores: arm → measure → (s,); NaN where a run diverged.
        tuned: arm → how its learning rate was found.
        experiments: links of what was compared, as `Experiment.to_text`.
        texts: task → hash of its text, which differs between releases of Python.
        model_steps: optimiser steps of single runs, tuning included. seconds: of training.
        engine: what trained. processor: the kind of processor, empty where it is not known.
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
    texts: Mapping[str, str] = field(default_factory=dict)
    engine: Engine = "torch"
    processor: str = ""

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What had to hold: the claim's own, and of those that make sure what was measured."""
        further = self.claim.sure()[1]
        measured = (one for one in further if all(name in self.scores for name in one.arms))
        return (*self.claim.statements, *measured)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the seeds say about every statement."""
        return tuple(
            find(statement, differences(statement, self.of(statement.measure)))
            for statement in self.statements
        )

    @property
    def judgement(self) -> Judgement:
        """The verdict, read alone."""
        return judge(self.findings)

    @property
    def main_finding(self) -> str:
        """What the seeds say about the first statement."""
        return f"{self.statements[0].text}: {told(self.statements[0], self.findings[0])}"

    @property
    def current(self) -> bool:
        """Whether the claim is still what was measured."""
        return self.hash == self.claim.hash

    def of(self, measure: str) -> dict[str, np.ndarray]:
        """Arm → (s,) of a measure."""
        return {name: own[measure] for name, own in self.scores.items() if measure in own}

    def mean(self, arm: str, measure: str = "accuracy") -> float:
        """Over the seeds that did not diverge."""
        values = self.scores[arm][measure]
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    def to_dict(self, together: Verdict | None = None) -> dict[str, Any]:
        """As JSON has it; NaN is null.

        Args:
            together: the verdict that stands when all are read together, if they are.
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
            "decided_by": "mean difference" if main.method == "mean" else "share of pairs",
            "share": main.n_holding / max(1, main.n_pairs),
            "share_interval": [main.share_low, main.share_high],
            "seeds": len(self.seeds),
            "statements": [
                {
                    "text": statement.text,
                    "measure": statement.measure,
                    "method": found.method,
                    "holds_in": found.n_holding,
                    "of_pairs": found.n_pairs,
                    "share_interval": [found.share_low, found.share_high],
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
                name: {measure: [_plain(v) for v in values] for measure, values in own.items()}
                for name, own in self.scores.items()
            },
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
            KeyError: if there is no such claim, or something is missing.
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
            texts=told["texts"],
            model_steps=told["model_steps"],
            seconds=told["seconds"],
            engine=told.get("engine", "torch"),
            processor=told.get("processor", ""),
        )


def verdicts_of(gathered: Iterable[Evidence]) -> dict[str, Verdict]:
    """Claim's id → its verdict: of full records read together, of quick ones each read alone.

    Eight pairs hardly ever stand beside other claims: their smallest p is 1/128.
    """
    found = list(gathered)
    full = [one for one in found if not one.quick]
    together = judge_together([one.judgement for one in full])
    stands = {one.claim.id: verdict for one, verdict in zip(full, together, strict=True)}
    return {one.claim.id: stands.get(one.claim.id, one.judgement.verdict) for one in found}


def to_json(gathered: Iterable[Evidence]) -> str:
    """Records that are read together, one claim a line."""
    found = list(gathered)
    verdicts = verdicts_of(found)
    lines = [
        json.dumps(one.to_dict(verdicts[one.claim.id]), ensure_ascii=False, allow_nan=False)
        for one in found
    ]
    return '{"claims": [\n' + ",\n".join(lines) + "\n]}\n"


def readable(gathered: Iterable[Evidence]) -> str:
    """A table of verdicts, a claim a line, and how to read it."""
    found = list(gathered)
    verdicts = verdicts_of(found)
    lines = [f"{'claim':22} {'verdict':13} {'foretold':13} main finding"]
    for one in found:
        verdict = verdicts[one.claim.id]
        foretold = "" if verdict == one.claim.expected else one.claim.expected
        lines.append(f"{one.claim.id:22} {verdict:13} {foretold:13} {one.main_finding}")
    n_right = sum(verdicts[one.claim.id] == one.claim.expected for one in found)
    lines.append(
        f"\n{n_right} of {len(found)} foretold; what else was, stands there. {_reading(found)}"
    )
    return "\n".join(lines)


def _reading(found: Sequence[Evidence]) -> str:
    """How the verdicts of records are to be read."""
    if any(one.quick for one in found):
        return "Quick: each verdict is read alone, at 95%."
    first = ", ".join(str(seed) for seed in sorted({one.seeds[0] for one in found}))
    return (
        "Verdicts are read together (Holm): the chance that any of them is wrong, at these sizes "
        f"and learning rates, is at most 5%. Seeds count up from {first}."
    )


def to_markdown(gathered: Iterable[Evidence]) -> str:
    """README's table: who says what, what came of it, what was foretold."""
    found = list(gathered)
    verdicts = verdicts_of(found)
    lines = ["| claim | verdict | foretold | main finding |", "|---|---|---|---|"]
    for one in found:
        verdict = verdicts[one.claim.id]
        alone = one.judgement.verdict
        read_alone = f" (read alone: {alone})" if alone != verdict else ""
        cells = (f"`{one.claim.id}` {one.claim.title}", f"{verdict}{read_alone}")
        lines.append(f"| {' | '.join((*cells, one.claim.expected, one.main_finding))} |")
    n_right = sum(verdicts[one.claim.id] == one.claim.expected for one in found)
    lines += ["", f"{n_right} of {len(found)} were foretold. {_reading(found)}"]
    return "\n".join(lines)


def told(statement: Statement, found: Finding) -> str:
    """What the seeds say about a statement, in a few words."""
    points = statement.measured.unit == "points"
    scale, unit = (100, " points") if points else (1, f" {statement.measured.unit}".rstrip())
    digits = 1 if points else 3
    effect = f"{scale * found.effect:+z.{digits}f}{unit}".replace("-", "−")
    if found.method == "mean":
        low, high = (f"{scale * v:+z.{digits}f}" for v in (found.effect_low, found.effect_high))
        return f"{effect} [{low} to {high}]".replace("-", "−")
    average = "; the others diverged" if np.isnan(found.effect) else f", on average {effect}"
    return (
        f"in {found.n_holding} of {found.n_pairs} pairs of seeds [{found.share_low:.0%} to "
        f"{found.share_high:.0%} of all]{average}"
    )


@cache
def load_shipped() -> dict[str, Evidence]:
    """Claim's id → its shipped record, in the order of `CLAIMS`; a claim of one's own has none."""
    if not SHIPPED.is_file():
        return {}
    told = {one["id"]: one for one in json.loads(SHIPPED.read_text(encoding="utf-8"))["claims"]}
    records = [Evidence.from_dict(told[name]) for name in CLAIMS if name in told]
    return {record.claim.id: record for record in records if record.current}


def _plain(value: float) -> float | None:
    """As JSON has it, to as many digits as single precision holds."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.9g}")
