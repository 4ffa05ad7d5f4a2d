"""Gather evidence for claims: tune, train and measure, with finished experiments cached on disk."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from attnkit import __version__
from attnkit.claims import Claim, Verdict
from attnkit.claims.base import Arm
from attnkit.claims.measures import MEASURES, measured
from attnkit.evidence.record import Array, Curve, Evidence, FirstRun, Recipe, Tuned, rivals_of
from attnkit.evidence.trials import (
    FIRST_SEED,
    QuickForm,
    Trial,
    comparing_trials,
    tuning_measure,
    tuning_trials,
)
from attnkit.evidence.tuning import Runs, Search
from attnkit.evidence.verdict import RULE_HASH
from attnkit.experiment import Experiment
from attnkit.foundation.files import write_file
from attnkit.training.loops import train
from attnkit.training.maker import Maker
from attnkit.training.pace import training_work
from attnkit.training.results import Result
from attnkit.training.training import pick_device
from attnkit.variants import Variant


@dataclass(frozen=True)
class Measurements:
    """Scores and learning curves of the s runs of a variant.

    Attributes:
        scores: Measure → (k, s) scores at 1, 2, 4, ... times the base steps.
        steps: (e,) steps of the evaluations.
        accuracy: (e, s) accuracy at the evaluations.
        loss: (e, s) loss at the evaluations, in nats.
        seconds: Seconds of training.
    """

    scores: Mapping[str, Array]
    steps: Array
    accuracy: Array
    loss: Array
    seconds: float

    @staticmethod
    def of(result: Result, up_to: int) -> list[Measurements]:
        """Measure every variant of an experiment, trained for `up_to` times its base steps."""
        snapshot, n = result.snapshot, len(result.snapshot.experiment.sharing)
        steps = snapshot.eval_steps.astype(np.float64)
        curves = (
            np.split(snapshot.history[name].astype(np.float64), n, -1)
            for name in ("accuracy", "loss")
        )
        return [
            Measurements(scores, steps, accuracy, loss, result.seconds / n)
            for scores, accuracy, loss in zip(measured(snapshot, up_to), *curves, strict=True)
        ]

    @staticmethod
    def joined(parts: Sequence[Measurements]) -> Measurements:
        """Join the measurements of one variant on several ranges of seeds, in their order."""
        return Measurements(
            {m: np.concatenate([part.scores[m] for part in parts], -1) for m in parts[0].scores},
            parts[0].steps,
            np.concatenate([part.accuracy for part in parts], -1),
            np.concatenate([part.loss for part in parts], -1),
            sum(part.seconds for part in parts),
        )


_MEASUREMENTS = TypeAdapter(Measurements)

TUNING_WORK = 10
"""Work of a quick form whose recipes are tuned first, as a multiple of that without tuning."""


class Interrupted(Exception):
    """Training was interrupted by Ctrl-C; finished experiments stay cached."""


class Bench:
    """Trains and measures experiments, with a cache of earlier measurements.

    Args:
        folder: Folder of the cache, with a file per variant of an experiment.
        fresh: Whether measurements are ignored that another object has cached.

    Attributes:
        maker: Engine, kind of processor and versions that train. Measurements of other makers are
            made again, and the first of them is named.
        say: Called with a line of text about the claim in progress.
        seconds: Seconds of training behind all returned measurements, cached ones included.
        model_steps: Optimiser steps of single runs behind all returned measurements.
    """

    def __init__(
        self,
        folder: Path,
        device: str = "auto",
        say: Callable[[str], None] = lambda _: None,
        *,
        fresh: bool = False,
    ) -> None:
        self.seconds = 0.0
        self.model_steps = 0
        self._folder = folder
        self._fresh = fresh
        self._measured_here: set[str] = set()
        self._device = device
        self.say = say
        self.maker = Maker.here(pick_device(device))
        self._others: set[Maker] = set()  # those that have been named

    def measure(self, trial: Trial) -> dict[tuple[str, Recipe], Measurements]:
        """Return (name of the arm, recipe) → measurements; train only runs not in the cache.

        Runs do not depend on each other, so every variant is cached by itself and all claims share
        the cache.

        Raises:
            Interrupted: If training was interrupted.
        """
        experiment = trial.experiment
        by_variant = self._kept(trial)
        missing = [variant for variant, cached in by_variant.items() if cached is None]
        if missing:
            untrained = experiment.replace(sharing=missing)
            result = train(untrained, device=self._device, progress=False)
            if result.snapshot.status != "finished":
                raise Interrupted
            for variant, found in zip(missing, Measurements.of(result, trial.up_to), strict=True):
                self._cache(experiment.replace(sharing=[variant]), trial.up_to, found)
                by_variant[variant] = found
        measurements = [found for found in by_variant.values() if found is not None]
        self.seconds += sum(found.seconds for found in measurements)
        self.model_steps += experiment.n_runs * experiment.training.steps
        return dict(zip(trial.cells, measurements, strict=True))

    def work(self, trial: Trial) -> float:
        """Return the work of the runs of a trial that are not in the cache, see `training_work`."""
        missing = [variant for variant, kept in self._kept(trial).items() if kept is None]
        if not missing:
            return 0.0
        return training_work(trial.experiment.replace(sharing=missing), self.maker.engine)

    def _kept(self, trial: Trial) -> dict[Variant, Measurements | None]:
        return {
            variant: self._cached(trial.experiment.replace(sharing=[variant]), trial.up_to)
            for variant in trial.experiment.sharing
        }

    def begin(self, claim: Claim) -> FirstRun:
        """Return the date, prediction and rule of the first run of a claim.

        The first call for a claim writes them to the folder; later calls read them.
        """
        path = self._folder / f"begun-{claim.id}-{claim.hash}.json"
        try:
            return FirstRun(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            today = datetime.now(UTC).date().isoformat()
            first_run = FirstRun(today, claim.prediction_hash, RULE_HASH)
            self._write(path, vars(first_run))
            return first_run

    def _path(self, experiment: Experiment, up_to: int) -> Path:
        text_hash = experiment.task.fingerprint
        return self._folder / f"{experiment.hash}-{up_to}{text_hash and f'-{text_hash}'}.json"

    def _cache(self, experiment: Experiment, up_to: int, measurements: Measurements) -> None:
        path = self._path(experiment, up_to)
        data = _MEASUREMENTS.dump_python(measurements, mode="json")
        self._write(path, data | self.maker._asdict())
        self._measured_here.add(path.name)

    def _cached(self, experiment: Experiment, up_to: int) -> Measurements | None:
        """Return what is cached of an experiment with one variant, if this maker measured it."""
        path = self._path(experiment, up_to)
        if self._fresh and path.name not in self._measured_here:
            return None
        try:
            data = json.loads(path.read_bytes())
            cached = _MEASUREMENTS.validate_python(data)
            maker = Maker(data["engine"], data["processor"], data.get("versions", ""))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # The file is missing or incomplete: the experiment is trained again.
        if cached.scores.keys() != MEASURES.keys():
            return None
        if maker not in {self.maker, *self._others}:
            self._others.add(maker)
            self.say(f"    kept measurements are of {maker}; {self.maker} measures again")
        return cached if maker == self.maker else None

    def _write(self, path: Path, data: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(data))


def gather(
    claims: Sequence[Claim],
    bench: Bench,
    *,
    quick: bool = False,
    first_seed: int = FIRST_SEED,
    records: Mapping[str, Evidence] | None = None,
    minutes: float = math.inf,
) -> Iterator[Evidence]:
    """Gather the evidence for claims, one after the other.

    Args:
        quick: Whether the quick form is gathered, see `attnkit.evidence.trials`.
        records: Records by id of the claim, which plan the quick form.
        minutes: Time for the quick form. With a limit, the cheapest claims come first. All but the
            first that is trained begin only if they are expected to end in time, at the pace of
            those before them.

    Yields:
        The evidence for each claim.

    Raises:
        Interrupted: If training was interrupted.
    """
    known = records or {}
    work = dict.fromkeys((claim.id for claim in claims), 0.0)
    if math.isfinite(minutes):
        for claim in claims:
            work[claim.id] = work_of_claim(claim, bench, known.get(claim.id), first_seed)
        claims = sorted(claims, key=lambda claim: work[claim.id])
    began, done = time.monotonic(), 0.0
    for number, claim in enumerate(claims, 1):
        seconds = time.monotonic() - began
        if done and seconds * (1 + work[claim.id] / done) > 60 * minutes:
            return
        bench.say(f"{number}/{len(claims)} {claim.id}")
        yield _gather_one(claim, bench, quick, first_seed, known.get(claim.id))
        done += work[claim.id]


def work_of_claim(claim: Claim, bench: Bench, record: Evidence | None, first_seed: int) -> float:
    """Return the work of a claim's quick form, without the runs that are in the cache."""
    form = QuickForm.of(claim, record)
    work = sum(map(bench.work, form.trials(first_seed)))
    return work * TUNING_WORK if form.untuned else work


def _gather_one(
    claim: Claim, bench: Bench, quick: bool, first_seed: int, record: Evidence | None
) -> Evidence:
    seconds, model_steps = bench.seconds, bench.model_steps
    form = QuickForm.of(claim, record) if quick else None
    tasks = [arm.experiment.task for arm in claim.arms]
    evidence = Evidence(
        claim=claim,
        version=__version__,
        hash=claim.hash,
        quick=quick,
        first_seed=first_seed,
        n_seeds=claim.n_seeds if form is None else form.n_seeds,
        scores={},
        tuned={},
        experiments=(),
        model_steps=0,
        seconds=0.0,
        texts={task.name: task.fingerprint for task in tasks if task.fingerprint},
        **bench.maker._asdict(),
        first_run=FirstRun() if quick else bench.begin(claim),
    )
    if form is not None:
        evidence = _with_arms(evidence, form.arms, bench, form.tuned)
    else:
        evidence = _with_arms(evidence, claim.trained_arms, bench)
        evidence = _with_rivals(evidence, bench)
        own = evidence.own_findings.values()
        if any(one.statement.unable and one.verdict is Verdict.HELD for one in own):
            evidence = _with_arms(evidence, claim.confirmation[0], bench)
        evidence = _with_arms(evidence, [arm for _, arm in evidence.lost], bench)
    return replace(
        evidence,
        model_steps=bench.model_steps - model_steps,
        seconds=round(bench.seconds - seconds, 1),
    )


def _with_rivals(evidence: Evidence, bench: Bench) -> Evidence:
    """Return the evidence with the next best recipes of every arm that has lost.

    An arm with the recipe of another one has none of its own.
    """
    rivals = [
        (replace(arm, name=rival), Tuned(recipe.rate, recipe.schedule))
        for name, statements in evidence.losers.items()
        for arm in [evidence.claim.arm_of(name)]
        if not arm.recipe_of and not all(one.measured.compares_means for one in statements)
        for rival, recipe in rivals_of(arm.name, evidence.tuned).items()
    ]
    recorded = {arm.name: tuned for arm, tuned in rivals}
    found = _with_arms(evidence, [arm for arm, _ in rivals], bench, recorded)
    return replace(found, experiments=evidence.experiments)


def _with_arms(
    evidence: Evidence, arms: Sequence[Arm], bench: Bench, recorded: Mapping[str, Tuned] = {}
) -> Evidence:
    """Return the evidence with further arms, with recorded recipes if all of them have one."""
    is_known = all(arm.name in recorded for arm in arms)
    tuned = {arm.name: recorded[arm.name] for arm in arms} if is_known else tune(arms, bench)
    recipes = {name: choice.recipe for name, choice in tuned.items()}
    trials = comparing_trials(arms, recipes, evidence.n_seeds, evidence.first_seed)
    found = {name: one for (name, _), one in _measured(trials, bench).items()}
    measures = {"accuracy", "loss", *(one.measure for one in evidence.claim.statements)}
    if any(arm.up_to > 1 for arm in arms):
        measures.add("steps_to_solve")  # longer runs tell when they learn
    scores, curves = dict(evidence.scores), dict(evidence.curves)
    for arm in arms:
        own, by = found[arm.name], tuning_measure(arm)
        scores[arm.name] = {measure: own.scores[measure] for measure in sorted(measures)}
        curves[arm.name] = Curve.of(own.steps, own.loss if by == "loss" else own.accuracy, by)
    compared = [trial.experiment for trial in trials]
    links = (e.to_text() for e in compared if e.first_seed == evidence.first_seed)
    return replace(
        evidence,
        scores=scores,
        curves=curves,
        tuned={**evidence.tuned, **tuned},
        experiments=(*evidence.experiments, *links),
    )


def _measured(trials: Sequence[Trial], bench: Bench) -> dict[tuple[str, Recipe], Measurements]:
    """Return (name of the arm, recipe) → measurements, with all seeds of several trials."""
    parts: dict[tuple[str, Recipe], list[Measurements]] = {}
    for trial in trials:
        for cell, found in bench.measure(trial).items():
            parts.setdefault(cell, []).append(found)
    return {cell: Measurements.joined(ranges) for cell, ranges in parts.items()}


def tune(arms: Sequence[Arm], bench: Bench) -> dict[str, Tuned]:
    """Tune the recipes of arms, on seeds that are used for nothing else.

    Returns:
        Name of the arm → its recipe, or that of the arm named by `recipe_of`.
    """
    searches = {arm.name: Search(arm, tuning_measure(arm)) for arm in arms if not arm.recipe_of}
    while wanted := [(one.arm, request) for one in searches.values() for request in one.wanted()]:
        found = _measured(tuning_trials(wanted), bench)
        for arm, request in wanted:
            own = found[arm.name, request.recipe]
            searches[arm.name].add(request, Runs(own.steps, own.accuracy, own.loss))
    tuned = {name: search.found() for name, search in searches.items()}
    return {arm.name: tuned[arm.recipe_of or arm.name] for arm in arms}
