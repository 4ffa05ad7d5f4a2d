"""Gathering of evidence: tune, train, measure. Finished experiments are kept on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from attnkit import __version__
from attnkit.claims import Claim
from attnkit.claims.base import Arm
from attnkit.claims.measures import MEASURES, measured, multiples
from attnkit.evidence.record import Begun, Curve, Evidence
from attnkit.evidence.trials import (
    FIRST_SEED,
    Trial,
    Tuned,
    choose,
    comparing_trials,
    tuned_by,
    tuning_trials,
)
from attnkit.evidence.verdict import RULE_HASH
from attnkit.experiment import Experiment
from attnkit.foundation.machine import processor_kind
from attnkit.training.engine import ready_engine
from attnkit.training.results import Result
from attnkit.training.training import pick_device, train

Scores = dict[str, np.ndarray]


@dataclass(frozen=True)
class Measurements:
    """The numbers that are kept of a finished experiment with r runs.

    Attributes:
        scores: Measure → (k, r) at 1, 2, 4, ... times the base steps.
        steps: (e,) steps of the evaluations.
        accuracy: (e, r) accuracy at the evaluations.
        loss: (e, r) loss at the evaluations.
        seconds: Seconds of training.
    """

    scores: Scores
    steps: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; NaN is null, infinity a string."""
        curves = {"steps": self.steps, "accuracy": self.accuracy, "loss": self.loss}
        return {
            "scores": {name: _listed(values) for name, values in self.scores.items()},
            **{name: _listed(np.asarray(values, np.float64)) for name, values in curves.items()},
            "seconds": self.seconds,
        }

    @staticmethod
    def from_dict(told: Mapping[str, Any]) -> Measurements:
        """Read `to_dict`.

        Raises:
            KeyError: If something is missing.
            TypeError: If something is no array.
            ValueError: If an array is not rectangular.
        """
        arrays = {n: np.array(told[n], np.float64) for n in ("steps", "accuracy", "loss")}
        return Measurements(
            scores={name: np.array(told["scores"][name], np.float64) for name in MEASURES},
            seconds=float(told["seconds"]),
            **arrays,
        )

    @staticmethod
    def of(result: Result, up_to: int) -> Measurements:
        """Measure a finished result that was trained for a multiple of the base steps."""
        snapshot = result.snapshot
        return Measurements(
            measured(snapshot, up_to),
            snapshot.eval_steps,
            snapshot.history["accuracy"].astype(np.float64),
            snapshot.history["loss"].astype(np.float64),
            result.seconds,
        )

    def split(self, n_parts: int) -> list[Measurements]:
        """Return the measurements of equal shares of the runs; each has its share of the time."""
        scores = {name: np.split(values, n_parts, -1) for name, values in self.scores.items()}
        accuracy, loss = (np.split(values, n_parts, -1) for values in (self.accuracy, self.loss))
        return [
            Measurements(
                {name: values[part] for name, values in scores.items()},
                self.steps,
                accuracy[part],
                loss[part],
                self.seconds / n_parts,
            )
            for part in range(n_parts)
        ]

    @staticmethod
    def joined(parts: Sequence[Measurements]) -> Measurements:
        """Return the measurements of all runs of several parts with the same evaluations."""
        names = parts[0].scores
        return Measurements(
            {name: np.concatenate([part.scores[name] for part in parts], -1) for name in names},
            parts[0].steps,
            np.concatenate([part.accuracy for part in parts], -1),
            np.concatenate([part.loss for part in parts], -1),
            sum(part.seconds for part in parts),
        )


def _listed(values: np.ndarray) -> list[Any]:
    if values.ndim > 1:
        return [_listed(row) for row in values]
    return [None if np.isnan(v) else v if np.isfinite(v) else "inf" for v in values.tolist()]


class Interrupted(Exception):
    """An interruption by Ctrl-C; finished experiments are kept."""


class Bench:
    """Trains experiments, or remembers what was measured earlier.

    Args:
        folder: Folder in which measurements are kept, a file per variant of an experiment.
        device: As in `train`.
        say: Called with a line about what is being done.
        fresh: Whether only measurements of this object count.

    Attributes:
        engine: The engine that trains. Measurements of others are not used.
        processor: The kind of processor. Measurements of others are not used.
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
        self._say = say
        self.engine = ready_engine(pick_device(device))
        self.processor = processor_kind(pick_device(device))

    def measure(self, trial: Trial) -> Measurements:
        """Return what is measured of the finished experiment of a trial.

        A run does not depend on those beside it, so only the variants are trained that have not
        been measured yet, whichever claim asked for them.

        Raises:
            Interrupted: If training was interrupted.
        """
        whole = trial.experiment
        alone = {variant: whole.replace(sharing=[variant]) for variant in whole.sharing}
        known = {variant: self._kept(one, trial.up_to) for variant, one in alone.items()}
        missing = [variant for variant, found in known.items() if found is None]
        if missing:
            result = train(whole.replace(sharing=missing), device=self._device)
            if result.snapshot.status != "finished":
                raise Interrupted
            parts = Measurements.of(result, trial.up_to).split(len(missing))
            for variant, found in zip(missing, parts, strict=True):
                self._keep(alone[variant], trial.up_to, found)
                known[variant] = found
        joined = Measurements.joined([found for found in known.values() if found is not None])
        self.seconds += joined.seconds
        self.model_steps += whole.n_runs * whole.training.steps
        return joined

    def say(self, text: str) -> None:
        """Tell what is being done."""
        self._say(text)

    def begin(self, claim: Claim) -> Begun:
        """Return how prediction and rule stood when the first run of a claim began.

        They are written down at the first call, and read from then on.
        """
        path = self._folder / f"begun-{claim.id}-{claim.hash}.json"
        try:
            return Begun(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            today = datetime.now(UTC).date().isoformat()
            begun = Begun(today, claim.prediction_hash, RULE_HASH)
            self._write(path, vars(begun))
            return begun

    def _path(self, experiment: Experiment, up_to: int) -> Path:
        text = experiment.task.fingerprint
        return self._folder / f"{experiment.hash}-{up_to}{text and f'-{text}'}.json"

    def _keep(self, experiment: Experiment, up_to: int, found: Measurements) -> None:
        """Write down the measurements of an experiment with one variant."""
        path = self._path(experiment, up_to)
        maker = {"engine": self.engine, "processor": self.processor}
        self._write(path, found.to_dict() | maker)
        self._measured_here.add(path.name)

    def _kept(self, experiment: Experiment, up_to: int) -> Measurements | None:
        """Read the measurements of an experiment with one variant, if they are to be used."""
        path = self._path(experiment, up_to)
        if self._fresh and path.name not in self._measured_here:
            return None
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            known = Measurements.from_dict(told)
            maker = (told["engine"], told["processor"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # It is not there or incomplete: the experiment is trained again.
        shape = (len(multiples(up_to)), experiment.n_runs)
        curve = (len(known.steps), experiment.n_runs)
        sound = all(values.shape == shape for values in known.scores.values())
        sound = sound and known.accuracy.shape == known.loss.shape == curve
        return known if sound and maker == (self.engine, self.processor) else None

    def _write(self, path: Path, told: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(told), encoding="utf-8")
        part.replace(path)


def gather(
    claims: Sequence[Claim],
    bench: Bench,
    *,
    quick: bool = False,
    first_seed: int = FIRST_SEED,
    known: Mapping[str, Evidence] | None = None,
) -> Iterator[Evidence]:
    """Yield the evidence for one claim after the other.

    Args:
        claims: The claims.
        bench: Trains the experiments.
        quick: Whether the seeds of the quick form are used, without arms that confirm an inability.
        first_seed: The first seed.
        known: Records whose learning rates the quick form uses.

    Raises:
        Interrupted: See `Bench.measure`.
    """
    for place, claim in enumerate(claims, 1):
        bench.say(f"{place}/{len(claims)} {claim.id}")
        yield _gather_one(claim, bench, quick, first_seed, (known or {}).get(claim.id))


def _gather_one(
    claim: Claim, bench: Bench, quick: bool, first_seed: int, known: Evidence | None
) -> Evidence:
    n_seeds = claim.quick_seeds if quick else claim.n_seeds
    seconds, model_steps = bench.seconds, bench.model_steps
    taken_over = known.tuned if quick and known is not None and known.current else {}
    begun = Begun() if quick else bench.begin(claim)

    def gathered(arms: Sequence[Arm], before: Evidence | None = None) -> Evidence:
        tuned = {arm.name: taken_over[arm.name] for arm in arms if arm.name in taken_over}
        tuned = tuned if len(tuned) == len(arms) else tune(arms, bench)
        rates = {name: one.rate for name, one in tuned.items()}
        trials = comparing_trials(arms, rates, n_seeds, first_seed)
        scores: dict[str, Scores] = {}
        curves: dict[str, Curve] = {}
        for trial in trials:
            found = bench.measure(trial)
            scores |= trial.split(found.scores)
            curves |= _curves(trial, found)
        wanted = sorted({"accuracy", "loss", *(one.measure for one in claim.statements)})
        scores = {arm.name: {m: scores[arm.name][m] for m in wanted} for arm in arms}
        curves = {arm.name: curves[arm.name] for arm in arms}
        texts = tuple(trial.experiment.to_text() for trial in trials)
        return Evidence(
            claim=claim,
            version=__version__,
            hash=claim.hash,
            quick=quick,
            seeds=tuple(range(first_seed, first_seed + n_seeds)),
            scores=scores if before is None else {**before.scores, **scores},
            curves=curves if before is None else {**before.curves, **curves},
            tuned=tuned if before is None else {**before.tuned, **tuned},
            experiments=texts if before is None else (*before.experiments, *texts),
            texts={
                task.name: task.fingerprint
                for task in (arm.experiment.task for arm in claim.arms)
                if task.fingerprint
            },
            model_steps=bench.model_steps - model_steps,
            seconds=bench.seconds - seconds,
            engine=bench.engine,
            processor=bench.processor,
            begun=begun,
        )

    found = gathered(claim.judged_arms if quick else claim.arms)
    shown = [
        one.unable and finding.verdict == "held"
        for one, finding in zip(claim.statements, found.findings, strict=True)
    ]
    if quick or not any(shown):
        return found
    return gathered(claim.confirmation()[0], found)


def _curves(trial: Trial, found: Measurements) -> dict[str, Curve]:
    """Return arm → its curve, on text of the loss, otherwise of the accuracy."""
    by = "loss" if trial.experiment.task.corpus else "accuracy"
    values = trial.per_cell(found.loss if by == "loss" else found.accuracy)
    return {name: Curve.of(found.steps, own, by) for (name, _), own in values.items()}


def tune(arms: Sequence[Arm], bench: Bench) -> dict[str, Tuned]:
    """Tune the learning rate of every arm on seeds of their own, with as many trials for each."""
    tried: dict[str, dict[float, Scores]] = {arm.name: {} for arm in arms}
    for trial in tuning_trials(arms):
        found = bench.measure(trial)
        for measure in ("accuracy", "loss"):
            for (name, rate), values in trial.per_cell(found.scores[measure][-1]).items():
                tried[name].setdefault(rate, {})[measure] = values
    tuned = {arm.name: choose(tried[arm.name], tuned_by(arm)) for arm in arms if not arm.rate_of}
    return {arm.name: tuned[arm.rate_of or arm.name] for arm in arms}
