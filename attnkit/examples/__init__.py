"""Finished experiments that ship with the package, so that nobody meets an empty screen.

`python -m attnkit examples` makes them anew: every task at its defaults, and every variant of the
catalogue on the phone book.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attnkit.experiment import Experiment
from attnkit.results import Snapshot
from attnkit.statistics import mean_interval
from attnkit.variants import CATALOGUE

FOLDER = Path(__file__).parent

VARIANTS = "variants.json"
"""What every variant of the catalogue reached."""

REACHED = 0.98
"""Mean accuracy that counts as reached in the table of variants."""


@cache
def load_example(task: str) -> Snapshot:
    """The finished default experiment of a task.

    Raises:
        OSError: if it was never made. ValueError: if its file is not ours.
    """
    return Snapshot.from_bytes((FOLDER / f"{task}.safetensors").read_bytes())


@dataclass(frozen=True)
class Measured:
    """Accuracy of a variant: mean over seeds with its 95% interval."""

    mean: float
    low: float
    high: float
    reached: bool


@dataclass(frozen=True)
class MeasuredVariants:
    """What the catalogue reached, by text form; entries added since are missing."""

    task: str
    steps: int
    n_seeds: int
    threshold: float
    accuracy: dict[str, Measured]


@cache
def load_variants() -> MeasuredVariants:
    """The recorded accuracies of the catalogue.

    Raises:
        OSError: if they were never made.
    """
    found = json.loads((FOLDER / VARIANTS).read_text(encoding="utf-8"))
    accuracy = {text: Measured(**values) for text, values in found.pop("variants").items()}
    return MeasuredVariants(**found, accuracy=accuracy)


def measure_variants() -> dict[str, Any]:
    """Train the whole catalogue on the phone book at its defaults; what `VARIANTS` holds."""
    from attnkit.training import train

    variants = {named.variant for named in CATALOGUE.values()}
    result = train(Experiment(task="phonebook", sharing=variants))
    experiment, snapshot = result.experiment, result.snapshot
    interval = mean_interval(snapshot.per_sharing(snapshot.history["accuracy"][-1]))
    return {
        "task": experiment.task.name,
        "steps": snapshot.step,
        "n_seeds": experiment.n_seeds,
        "threshold": REACHED,
        "variants": {
            variant.value: {
                "mean": round(float(interval.mean[place]), 5),
                "low": round(max(float(interval.low[place]), 0.0), 5),
                "high": round(min(float(interval.high[place]), 1.0), 5),
                "reached": bool(interval.mean[place] >= REACHED),
            }
            for place, variant in enumerate(experiment.sharing)
        },
    }
