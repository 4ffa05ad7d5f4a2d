"""Finished experiments that ship with the package, so that no page opens empty.

`python -m attnkit examples` makes them anew: every task at its defaults, and every variant of the
catalogue on the phone book.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attnkit.experiment import Experiment
from attnkit.training.results import Result, parameters_from_bytes, parameters_to_bytes
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.variants import CATALOGUE, Variant

FOLDER = Path(__file__).parent

VARIANTS = "variants.json"
"""What every variant of the catalogue reached."""

WEIGHTS = ".weights.safetensors"
"""How the file with the weights of a task's example ends."""

TASK = "phonebook"
"""On which the catalogue is measured."""

REACHED = 0.98
"""Mean accuracy that counts as reached in the table of variants."""


@cache
def load_example(task: str) -> Snapshot:
    """The finished default experiment of a task.

    Raises:
        OSError: if it was never made. ValueError: if its file is not ours.
    """
    return Snapshot.from_bytes((FOLDER / f"{task}.safetensors").read_bytes())


def save_weights(result: Result) -> bytes:
    """Return the weights of a result's first seed, as `load_weights` reads them."""
    n_seeds = result.experiment.n_seeds
    return parameters_to_bytes(result.parameters[::n_seeds])


@cache
def load_weights(task: str) -> tuple[Experiment, list[dict[str, np.ndarray]]]:
    """Return the finished default experiment of a phone book, its first seed alone, with weights.

    Only of tasks to which people can put a book of their own are weights shipped.

    Raises:
        OSError: if there are none. ValueError: if the file is not ours.
    """
    experiment = load_example(task).experiment.replace(n_seeds=1)
    blob = (FOLDER / f"{task}{WEIGHTS}").read_bytes()
    return experiment, parameters_from_bytes(blob, experiment.n_runs)


@dataclass(frozen=True)
class RecordedAccuracy:
    """Accuracy of a variant: mean over seeds with its 95% interval."""

    mean: float
    low: float
    high: float
    reached: bool


@dataclass(frozen=True)
class RecordedVariants:
    """What the catalogue reached, by text form; entries added since are missing."""

    task: str
    steps: int
    n_seeds: int
    threshold: float
    accuracy: dict[str, RecordedAccuracy]


@cache
def load_variants() -> RecordedVariants:
    """The recorded accuracies of the catalogue.

    Raises:
        OSError: if they were never made.
    """
    found = json.loads((FOLDER / VARIANTS).read_text(encoding="utf-8"))
    accuracy = {text: RecordedAccuracy(**values) for text, values in found.pop("variants").items()}
    return RecordedVariants(**found, accuracy=accuracy)


def default_of(variant: Variant) -> Experiment:
    """The experiment a variant of the catalogue is costed and measured in: phone book, defaults.

    It has as many layers as the variant needs to differ from one without them.

    Raises:
        InvalidExperiment: if the variant does not go with these sizes.
    """
    return Experiment(task=TASK, sharing=[variant], n_layers=variant.least_layers)


def measure_variants() -> dict[str, Any] | None:
    """Train the whole catalogue, each as `default_of` says; what `VARIANTS` holds.

    None if it was interrupted.
    """
    from attnkit.training import train

    by_layers: dict[int, list[Variant]] = {}
    for named in CATALOGUE.values():
        by_layers.setdefault(named.variant.least_layers, []).append(named.variant)
    measured: dict[str, dict[str, float | bool]] = {}
    for n_layers, variants in by_layers.items():
        result = train(Experiment(task=TASK, sharing=variants, n_layers=n_layers))
        experiment, snapshot = result.experiment, result.snapshot
        if snapshot.status != "finished":
            return None
        interval = mean_interval(snapshot.per_sharing(snapshot.history["accuracy"][-1]))
        for place, variant in enumerate(experiment.sharing):
            measured[variant.value] = {
                "mean": round(float(interval.mean[place]), 5),
                "low": round(max(float(interval.low[place]), 0.0), 5),
                "high": round(min(float(interval.high[place]), 1.0), 5),
                "reached": bool(interval.mean[place] >= REACHED),
            }
    return {
        "task": TASK,
        "steps": snapshot.step,
        "n_seeds": experiment.n_seeds,
        "threshold": REACHED,
        "variants": measured,
    }
