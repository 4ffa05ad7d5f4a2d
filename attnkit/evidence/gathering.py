"""Gather evidence: tune, train, measure; what is finished stays, so that one can go on later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnkit import __version__
from attnkit.claims import Claim
from attnkit.claims.base import Arm
from attnkit.engine import ready_engine
from attnkit.evidence.measures import MEASURES, measured
from attnkit.evidence.record import QUICK_SEEDS, Evidence
from attnkit.evidence.trials import (
    FIRST_SEED,
    Tuned,
    choose,
    comparing_trials,
    tuned_by,
    tuning_trials,
)
from attnkit.experiment import Experiment
from attnkit.machine import processor_kind
from attnkit.training import pick_device, train

Scores = dict[str, np.ndarray]


class Interrupted(Exception):
    """Ctrl-C; what is finished is kept."""


class Bench:
    """Trains experiments, or remembers what they gave.

    Args:
        folder: where scores are kept, a file per experiment.
        fresh: whether only those count that it measured itself.
        device: as in `train`.
        say: told what is done.

    Attributes:
        engine: what trains. processor: the kind of processor. Scores of others are not taken over.
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
        self._own: set[str] = set()
        self._device = device
        self._say = say
        self.engine = ready_engine(pick_device(device))
        self.processor = processor_kind(pick_device(device))

    def measure(self, experiment: Experiment) -> Scores:
        """Measure → (r,) of the finished experiment.

        Raises:
            Interrupted: if training was interrupted.
        """
        known = not self._fresh or experiment.hash in self._own
        kept = self._kept(experiment) if known else None
        if kept is None:
            result = train(experiment, device=self._device)
            if result.snapshot.status != "finished":
                raise Interrupted
            kept = measured(result.snapshot)
            kept["seconds"] = np.array([result.seconds])
            self._keep(experiment, kept)
        self._own.add(experiment.hash)
        self.seconds += float(kept["seconds"][0])
        self.model_steps += experiment.n_runs * experiment.training.steps
        return kept

    def say(self, text: str) -> None:
        """Tell what is done."""
        self._say(text)

    def _path(self, experiment: Experiment) -> Path:
        text = experiment.task.fingerprint
        return self._folder / f"{experiment.hash}{text and f'-{text}'}.json"

    def _kept(self, experiment: Experiment) -> Scores | None:
        path = self._path(experiment)
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            scores = {name: np.array(told[name], np.float64) for name in (*MEASURES, "seconds")}
            maker = (told["engine"], told["processor"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not there, or cut short: it is trained again
        shapes = dict.fromkeys(MEASURES, (experiment.n_runs,)) | {"seconds": (1,)}
        sound = all(scores[name].shape == shape for name, shape in shapes.items())
        return scores if sound and maker == (self.engine, self.processor) else None

    def _keep(self, experiment: Experiment, scores: Scores) -> None:
        path = self._path(experiment)
        path.parent.mkdir(parents=True, exist_ok=True)
        told: dict[str, Any] = {
            name: [None if np.isnan(value) else value for value in values.tolist()]
            for name, values in scores.items()
        }
        told |= {"engine": self.engine, "processor": self.processor}
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
    """The evidence for one claim after the other.

    Args:
        quick: `QUICK_SEEDS` seeds, without the arms that make sure of an inability.
        first_seed: seeds count up from here.
        known: records whose learning rates the quick form takes over.

    Raises:
        Interrupted: see `Bench.measure`.
    """
    for place, claim in enumerate(claims, 1):
        bench.say(f"{place}/{len(claims)} {claim.id}")
        yield _gather_one(claim, bench, quick, first_seed, (known or {}).get(claim.id))


def _gather_one(
    claim: Claim, bench: Bench, quick: bool, first_seed: int, known: Evidence | None
) -> Evidence:
    n_seeds = QUICK_SEEDS if quick else claim.n_seeds
    seconds, model_steps = bench.seconds, bench.model_steps
    taken_over = known.tuned if quick and known is not None and known.current else {}

    def gathered(arms: Sequence[Arm], before: Evidence | None = None) -> Evidence:
        tuned = {arm.name: taken_over[arm.name] for arm in arms if arm.name in taken_over}
        tuned = tuned if len(tuned) == len(arms) else tune(arms, bench)
        rates = {name: one.rate for name, one in tuned.items()}
        trials = comparing_trials(arms, rates, n_seeds, first_seed)
        scores: dict[str, Scores] = {}
        for trial in trials:
            measured = bench.measure(trial.experiment)
            scores |= trial.split({name: measured[name] for name in MEASURES})
        wanted = sorted({"accuracy", "loss", *(one.measure for one in claim.statements)})
        scores = {arm.name: {m: scores[arm.name][m] for m in wanted} for arm in arms}
        texts = tuple(trial.experiment.to_text() for trial in trials)
        return Evidence(
            claim=claim,
            version=__version__,
            hash=claim.hash,
            quick=quick,
            seeds=tuple(range(first_seed, first_seed + n_seeds)),
            scores=scores if before is None else {**before.scores, **scores},
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
        )

    found = gathered(claim.judged_arms if quick else claim.arms)
    shown = [
        one.unable and finding.verdict == "supported"
        for one, finding in zip(claim.statements, found.findings, strict=True)
    ]
    if quick or not any(shown):
        return found
    return gathered(claim.sure()[0], found)


def tune(arms: Sequence[Arm], bench: Bench) -> dict[str, Tuned]:
    """The learning rate of every arm, from seeds of their own; as many trials for each."""
    tried: dict[str, dict[float, Scores]] = {arm.name: {} for arm in arms}
    for trial in tuning_trials(arms):
        measured = bench.measure(trial.experiment)
        for measure in ("accuracy", "loss"):
            for (name, rate), values in trial.per_cell(measured[measure]).items():
                tried[name].setdefault(rate, {})[measure] = values
    tuned = {arm.name: choose(tried[arm.name], tuned_by(arm)) for arm in arms if not arm.rate_of}
    return {arm.name: tuned[arm.rate_of or arm.name] for arm in arms}
