"""Where a claim holds: its arms are trained in other structures, one side of which differs.

A record tests a claim in one structure. Here MLP, width, layers, heads, sizes of the data and
steps are changed one at a time, with `N_SEEDS` new seeds. Every arm is trained with its recorded
learning rate and, unless all seeds solve the task with it, with half of it and twice of it; it
counts with the best of them. The results are no verdicts: they show which conditions a sentence
must name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.claims.base import Arm, Side
from attnkit.claims.measures import SOLVED
from attnkit.evidence.record import Evidence, Number, Recipe
from attnkit.evidence.trials import Trial, comparing_trials, own_recipe, tuning_measure
from attnkit.evidence.verdict import differences
from attnkit.experiment import Experiment
from attnkit.experiment.experiment import settings
from attnkit.foundation.language import mark, tr
from attnkit.foundation.process import n_cores
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.pace import work_of

if TYPE_CHECKING:
    from attnkit.evidence.gathering import Bench

ELSEWHERE = Path(__file__).parent / "elsewhere.json"
"""File of the results that ship with the package."""

FIRST_SEED = 920_000
"""First seed, which neither records nor tuning use."""

N_SEEDS = 3
"""Number of seeds."""

RATES = (1.0, 0.5, 2.0)
"""Multiples of the recorded learning rate that are tried in every structure."""

SIX_MINUTES = 18_000.0
"""Work that ends in about six minutes on two cores, in 10⁹ multiply-adds."""

SIDES: dict[Side, tuple[float, ...]] = {
    "mlp": (0, 1, 4),
    "width": (0.5, 1, 2),
    "layers": (1, 2, 4),
    "heads": (1, 4, 8),
    "entries": (0.5, 1, 2),
    "steps": (1, 4),
}
"""Values of every side of the structure: layers and heads are numbers, the width of the MLP is a
multiple of the model's, and all others are multiples of what the claim has."""

_SETTINGS: dict[Side, tuple[str, ...]] = {
    "mlp": ("d_mlp",),
    "width": ("d_model", "d_head"),
    "layers": ("n_layers",),
    "heads": ("n_heads",),
    "entries": ("n_entries", "n_names", "n_values", "n_pairs"),
    "steps": ("steps",),
}
"""Settings of every side. Those that a variant sets for itself keep their values."""

LEARNT = 0.75
"""A variant learns if its accuracy has come so far on the way from chance to 1."""


class Outcome(StrEnum):
    """Outcome of a claim in one structure, in English; on screen it has its mark."""

    HOLDS = "holds"
    MIXED = "holds with some seeds"
    FAILS = "does not hold"
    OPEN = "no variant learns"

    @property
    def mark(self) -> str:
        """Mark of the outcome, so that it is not told by its colour alone."""
        return {"holds": "✓", "does not hold": "✗", "no variant learns": "–"}.get(self, "~")


@dataclass(frozen=True)
class Place:
    """One structure, and what the arms of a claim did in it.

    Attributes:
        side: The side that was changed, one of `SIDES`.
        is_own: Whether this is the structure of the claim.
        holding: For every statement of the claim, the number of seeds with which it holds.
        values: Arm → its value of the measure of the first statement, the median of the seeds, or
            the mean if means are compared; without arms that are not read by this measure.
        rates: Arm → the best multiple of its recorded learning rate.
        learns: Whether any arm learns the task, see `LEARNT`; on text always.
    """

    side: Side
    value: float
    is_own: bool
    outcome: Outcome
    holding: tuple[int, ...]
    values: Mapping[str, Number]
    rates: Mapping[str, float]
    learns: bool


@dataclass(frozen=True)
class Elsewhere:
    """A claim in other structures."""

    hash: str
    seconds: float
    places: tuple[Place, ...]


_RESULTS = TypeAdapter(dict[str, Elsewhere])


def shown_arms(claim: Claim) -> tuple[Arm, ...]:
    """Return the compared arms, and QKV beside them if the claim has it."""
    compared = claim.compared_arms
    return tuple(arm for arm in claim.arms if arm in compared or arm.variant == "QKV")


def structures(claim: Claim) -> dict[tuple[Side, float], tuple[Arm, ...]]:
    """Return (side, value) → the arms with it.

    A side is left out if the claim compares it, or if the task has no such setting; a value, if the
    arms cannot be trained with it.
    """
    found = {}
    for side, value in ((side, value) for side, values in SIDES.items() for value in values):
        arms = tuple(_changed(arm, side, value) for arm in shown_arms(claim))
        try:
            experiments = [arm.experiment for arm in arms]
        except InvalidExperiment:
            continue
        # Some options of variants have no effect with fewer layers.
        is_deep = all(one.sharing[0].least_layers <= len(one.layer_specs) for one in experiments)
        if is_deep and _is_free(claim, side):
            found[side, value] = arms
    return found


def _is_free(claim: Claim, side: Side) -> bool:
    """Return whether a side can be changed without changing what the claim compares."""
    arms, names = shown_arms(claim), _SETTINGS[side]
    known = [settings(arm.experiment.task.name) for arm in arms]
    if not all(any(name in one for name in names) for one in known):
        return False
    if side in ("width", "entries", "steps"):
        return True
    (name,) = names
    values = {arm.name: arm.experiment.settings()[name] for arm in arms}
    alike = all(len({values[arm] for arm in one.arms}) == 1 for one in claim.statements)
    return alike and not any(f" {name}=" in arm.variant for arm in claim.compared_arms)


def _changed(arm: Arm, side: Side, value: float) -> Arm:
    own = Experiment(**{**arm.settings, "n_seeds": 1}).settings()
    changes = {
        name: int(value * {"mlp": own["d_model"], "layers": 1, "heads": 1}.get(side, own[name]))
        for name in _SETTINGS[side]
        if name in own
    }
    different = {name: number for name, number in changes.items() if number != own[name]}
    return replace(arm, settings={**arm.settings, **different}) if different else arm


def trials_of(
    arms: Sequence[Arm], recipes: Mapping[str, Recipe], rates: Sequence[float] = RATES
) -> list[Trial]:
    """Return the trials of arms in one structure, each with multiples of its learning rate."""
    tried = {f"{arm.name} ×{times:g}": (arm, times) for arm in arms for times in rates}
    return comparing_trials(
        [replace(arm, name=name, most_seeds=None) for name, (arm, _) in tried.items()],
        {
            name: Recipe(recipes[arm.name].rate * times, recipes[arm.name].schedule)
            for name, (arm, times) in tried.items()
        },
        N_SEEDS,
        FIRST_SEED,
    )


def work_elsewhere(claim: Claim) -> float:
    """Return the work of one core for all structures of a claim, see `training_work`."""
    own = shown_arms(claim)
    changed = [arms for arms in structures(claim).values() if arms != own]
    experiments = [arm.experiment for arms in (own, *changed) for arm in arms]
    work = sum(work_of(one, one.sharing[0]) for one in experiments)
    return len(RATES) * N_SEEDS * work / n_cores()


def is_clear(record: Evidence | None) -> bool:
    """Return whether nine of ten seeds show every difference that a record has found.

    Three seeds can say nothing about differences that fewer seeds show.
    """
    return record is None or all(
        10 * one.n_worse >= 9 * one.n_pairs
        for one in record.own_findings.values()
        if one.statement.asserts_difference
        and one.verdict is Verdict.HELD
        and one.method == "pairs"
    )


def search_elsewhere(claim: Claim, record: Evidence | None, bench: Bench) -> Elsewhere:
    """Train a claim in other structures.

    An arm without a recorded recipe has the learning rate of its task.

    Raises:
        Interrupted: If training was interrupted.
    """
    seconds, own = bench.seconds, shown_arms(claim)
    known = {} if record is None else record.tuned
    recipes = {a.name: known[a.name].recipe if a.name in known else own_recipe(a) for a in own}
    places: list[Place] = []
    for (side, value), arms in structures(claim).items():
        is_own = arms == own
        place = next((one for one in places if one.is_own and is_own), None)
        if place is None:
            place = _place(claim, arms, recipes, bench)
            bench.say(f"    {side} {value:g}: {place.outcome}")
        places.append(replace(place, side=side, value=value, is_own=is_own))
    if any(place.learns for place in places if place.is_own):
        places = [p if p.learns else replace(p, outcome=Outcome.OPEN) for p in places]
    return Elsewhere(claim.hash, round(bench.seconds - seconds, 1), tuple(places))


_Scores = Mapping[str, np.ndarray]


def _place(claim: Claim, arms: Sequence[Arm], recipes: Mapping[str, Recipe], bench: Bench) -> Place:
    """Train arms in a structure, and return what they did, each at the best of its rates."""

    def measured(some: Sequence[Arm], rates: Sequence[float]) -> dict[str, _Scores]:
        trials = map(bench.measure, trials_of(some, recipes, rates))
        return {name: one.scores for cells in trials for (name, _), one in cells.items()}

    found = measured(arms, RATES[:1])
    # No rate is better than one with which all seeds solve the task.
    counts_points = all(one.measured.unit == "points" for one in claim.statements)
    first = min(one.at for one in claim.statements)
    best = {
        arm.name: counts_points
        and bool((_read(found[f"{arm.name} ×1"], "accuracy", first) >= SOLVED).all())
        for arm in arms
    }
    others = [arm for arm in arms if not (best[arm.name] and best.get(arm.recipe_of, True))]
    found |= measured(others, RATES[1:])
    scores: dict[str, _Scores] = {}
    rates: dict[str, float] = {}
    for arm in sorted(arms, key=lambda arm: bool(arm.recipe_of)):
        tried = RATES if arm in others else RATES[:1]
        goodness = {times: _goodness(arm, found[f"{arm.name} ×{times:g}"]) for times in tried}
        own_best = max(tried, key=goodness.__getitem__)  # the recorded one among equals
        rates[arm.name] = rates.get(arm.recipe_of, own_best)
        scores[arm.name] = found[f"{arm.name} ×{rates[arm.name]:g}"]
    read = [
        {arm.name: _read(scores[arm.name], one.measure, one.at) for arm in arms}
        for one in claim.statements
    ]
    holding = []
    for one, by_arm in zip(claim.statements, read, strict=True):
        values = differences(one, by_arm)
        holding.append(int(((one.low < values) & (values < one.high)).sum()))
    outcome = {N_SEEDS: Outcome.HOLDS, 0: Outcome.FAILS}.get(min(holding), Outcome.MIXED)
    average = np.mean if claim.statements[0].measured.compares_means else np.median
    averages = {name: float(average(one)) for name, one in read[0].items()}
    learns = any(
        tuning_measure(arm) == "loss"
        or scores[arm.name]["accuracy"][-1].mean() >= chance + LEARNT * (1 - chance)
        for arm in arms
        for chance in [arm.experiment.task.chance]
    )
    return Place("width", 1, False, outcome, tuple(holding), averages, rates, learns)


def _read(scores: _Scores, measure: str, at: int) -> np.ndarray:
    """Return the scores of an arm at a multiple of its base steps, at most at its last step."""
    values = scores[measure]
    row: np.ndarray = values[min(at.bit_length(), len(values)) - 1]
    return row


def _goodness(arm: Arm, scores: _Scores) -> tuple[float, float]:
    """Return how good the runs of an arm are at the last step, and how fast they learn."""
    by = tuning_measure(arm)
    mean = float(scores[by][-1].mean())
    if by == "loss":
        return -math.inf if math.isnan(mean) else -mean, 0.0
    steps = float(scores["steps_to_solve"][-1].mean())
    return (0.0, -math.inf) if math.isnan(mean + steps) else (round(mean, 2), -steps)


TITLES: dict[Side, str] = {
    "mlp": mark("MLP"),
    # Translators: of the model and its heads.
    "width": mark("Width"),
    "layers": mark("Layers"),
    "heads": mark("Heads"),
    "entries": mark("Entries"),
    "steps": mark("Steps"),
}
"""Names of the sides on screen."""


def value_in_words(place: Place) -> str:
    """Return the value of the side of a structure: a number, or a multiple."""
    if place.side in ("layers", "heads"):
        return f"{place.value:g}"
    if not place.value:
        # Translators: without an MLP.
        return tr("none")
    times = {0.5: "½", 1.0: "1"}.get(place.value, f"{place.value:g}")
    return f"{times} ×"


def in_words(result: Elsewhere) -> str:
    """Return where a claim holds, in a line: every side with a mark for each of its values."""
    by_side: dict[str, list[str]] = {}
    for place in result.places:
        texts = by_side.setdefault(tr(TITLES[place.side]), [])
        texts.append(f"{value_in_words(place)} {place.outcome.mark}")
    return "; ".join(f"{side}: {', '.join(texts)}" for side, texts in by_side.items())


def readable(claim: Claim, result: Elsewhere) -> str:
    """Return a table of all structures, with the values of the arms, in plain text."""
    measure = claim.statements[0].measured
    lines = [f"{claim.id}: {claim.title} ({measure.title}, {N_SEEDS} seeds)"]
    for place in result.places:
        values = ", ".join(
            f"{name} {2**value:,.0f}" if measure.unit == "doublings" else f"{name} {value:.3f}"
            for name, value in place.values.items()
        )
        where = f"{TITLES[place.side]} {value_in_words(place)}"
        lines.append(f"  {where:30} {place.outcome.mark} {place.outcome:22} {values}")
    return "\n".join(lines)


def to_json(results: Mapping[str, Elsewhere]) -> str:
    """Return results by the ids of their claims as JSON, one claim per line."""
    data = _RESULTS.dump_python(dict(results), mode="json")
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@cache
def _shipped() -> dict[str, Elsewhere]:
    return _RESULTS.validate_json(ELSEWHERE.read_bytes()) if ELSEWHERE.is_file() else {}


def elsewhere_of(claim: Claim) -> Elsewhere | None:
    """Return the shipped result of a claim; None if there is none, or if the claim was another."""
    found = _shipped().get(claim.id)
    return found if found is not None and found.hash == claim.hash else None


def load_elsewhere() -> dict[str, Elsewhere]:
    """Return the shipped results by the ids of their claims."""
    found = ((claim.id, elsewhere_of(claim)) for claim in CLAIMS.values())
    return {name: one for name, one in found if one is not None}
