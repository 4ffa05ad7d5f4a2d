"""Finished experiments that ship with the package, so that no page opens empty.

`python -m attnkit examples` trains them again: every task with its defaults, and every variant of
the catalogue on the phone book.
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
"""Name of the file with the accuracy of every variant of the catalogue."""

WEIGHTS = ".weights.safetensors"
"""Ending of the names of files with the weights of a task's example."""

TASK = "phonebook"
"""Name of the task on which the catalogue is measured."""

REACHED = 0.98
"""Mean accuracy from which the table of variants counts a variant as successful."""


@cache
def load_example(task: str) -> Snapshot:
    """Return the snapshot of a task's finished default experiment.

    Raises:
        OSError: If there is no file for this task.
        ValueError: If the file holds no snapshot.
    """
    return Snapshot.from_bytes((FOLDER / f"{task}.safetensors").read_bytes())


def save_weights(result: Result) -> bytes:
    """Return the weights of a result's first seed as bytes that `load_weights` reads."""
    n_seeds = result.experiment.n_seeds
    return parameters_to_bytes(result.parameters[::n_seeds])


@cache
def load_weights(task: str) -> tuple[Experiment, list[dict[str, np.ndarray]]]:
    """Return the default experiment of a task with its first seed only, and the trained weights.

    Weights ship only for tasks that answer visitors' own phone books.

    Raises:
        OSError: If there are no weights for this task.
        ValueError: If the file holds no weights.
    """
    experiment = load_example(task).experiment.replace(n_seeds=1)
    blob = (FOLDER / f"{task}{WEIGHTS}").read_bytes()
    return experiment, parameters_from_bytes(blob, experiment.n_runs)


@dataclass(frozen=True)
class RecordedAccuracy:
    """Accuracy of a variant: mean over seeds, 95% interval, and whether it reached `REACHED`."""

    mean: float
    low: float
    high: float
    reached: bool


@dataclass(frozen=True)
class RecordedVariants:
    """Accuracies of the catalogue by text form; variants added later are missing."""

    task: str
    steps: int
    n_seeds: int
    threshold: float
    accuracy: dict[str, RecordedAccuracy]


@cache
def load_variants() -> RecordedVariants:
    """Return the recorded accuracies of the catalogue.

    Raises:
        OSError: If there is no file of them.
    """
    data = json.loads((FOLDER / VARIANTS).read_text(encoding="utf-8"))
    accuracy = {text: RecordedAccuracy(**values) for text, values in data.pop("variants").items()}
    return RecordedVariants(**data, accuracy=accuracy)


def default_of(variant: Variant) -> Experiment:
    """Return the experiment in which a catalogue variant is measured: phone book, defaults.

    It has two layers if the variant shares across layers, else one.

    Raises:
        InvalidExperiment: If the variant is not possible at these sizes.
    """
    return Experiment(task=TASK, sharing=[variant], n_layers=variant.least_layers)


def measure_variants() -> dict[str, Any] | None:
    """Train every variant of the catalogue as in `default_of`.

    Returns:
        The content of the file `VARIANTS`; None if the training was interrupted.
    """
    from attnkit.training import train

    by_layers: dict[int, list[Variant]] = {}
    for named in CATALOGUE.values():
        by_layers.setdefault(named.variant.least_layers, []).append(named.variant)
    measured: dict[str, dict[str, float | bool]] = {}
    for n_layers, variants in by_layers.items():
        result = train(Experiment(task=TASK, sharing=variants, n_layers=n_layers), progress=False)
        experiment, snapshot = result.experiment, result.snapshot
        if snapshot.status != "finished":
            return None
        interval = mean_interval(snapshot.per_sharing(snapshot.history["accuracy"][-1]))
        for index, variant in enumerate(experiment.sharing):
            measured[variant.value] = {
                "mean": round(float(interval.mean[index]), 5),
                "low": round(max(float(interval.low[index]), 0.0), 5),
                "high": round(min(float(interval.high[index]), 1.0), 5),
                "reached": bool(interval.mean[index] >= REACHED),
            }
    return {
        "task": TASK,
        "steps": snapshot.step,
        "n_seeds": experiment.n_seeds,
        "threshold": REACHED,
        "variants": measured,
    }
