"""Types of the numbers in stored evidence: how JSON, which has no NaN and no infinity, holds them.

NaN is written as null and infinity as a text. Fields of data classes that have these types are read
and written by a `pydantic.TypeAdapter`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, PlainSerializer, PlainValidator


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
