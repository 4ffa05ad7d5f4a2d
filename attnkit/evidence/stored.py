"""Numbers and learning curves in stored evidence: how JSON holds them.

JSON has no NaN, which is written as null, and no infinity, which is written as a text. Fields of
data classes that have these types are read and written by a `pydantic.TypeAdapter`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from attnkit.claims.measures import SOLVED


def plain(value: Any, digits: int = 17) -> Any:
    """Return a value for JSON, with the numbers in its arrays, lists and mappings.

    Args:
        value: The value; texts, truth values and whole numbers stay as they are.
        digits: Significant digits of the numbers. With 17 all bits are kept, with 9 those of single
            precision.
    """
    if isinstance(value, np.ndarray):
        return plain(value.astype(np.float64).tolist(), digits)
    if isinstance(value, Mapping):
        return {name: plain(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, digits) for item in value]
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return None
    return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)


_READ = PlainValidator(lambda value: np.array(value, np.float64))
_SINGLE = PlainSerializer(lambda value: plain(value, 9))

Number = Annotated[float, BeforeValidator(lambda x: math.nan if x is None else x), _SINGLE]
"""A number, written with the digits of single precision."""

Array = Annotated[np.ndarray, _READ, PlainSerializer(plain)]
"""An array of numbers, written to the bit."""

SingleArray = Annotated[np.ndarray, _READ, _SINGLE]
"""An array of numbers, written with the digits of single precision."""

DrawnArray = Annotated[np.ndarray, _READ, PlainSerializer(lambda value: plain(value, 4))]
"""An array of numbers, written with as many digits as a figure shows."""


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

    steps: DrawnArray
    mean: DrawnArray
    low: DrawnArray
    high: DrawnArray
    solved: DrawnArray
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
