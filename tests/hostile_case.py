"""Cases of damaged model files: their type, and how one is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

NAN, INF = float("nan"), float("inf")
HUGE = 2**63 - 1

CUTS = 24
"""Number of places at which a file of each format is cut off."""

Case = tuple[str, Path]
"""Name of a case and path of its model file."""


def write_case(folder: Path, case: str, name: str, data: bytes, **beside: Any) -> Case:
    """Write a model file into a folder of its own, and return the case with the file's path.

    Args:
        folder: Folder that holds all cases.
        case: Name of the case.
        name: Name of the model file.
        data: Content of the model file.
        beside: Further files, as JSON or bytes; `__` in a keyword stands for the dot.
    """
    home = folder / "".join(c if c.isalnum() or c in "-_." else "-" for c in case)
    home.mkdir()
    (home / name).write_bytes(data)
    for other, content in beside.items():
        is_raw = isinstance(content, bytes)
        path = home / other.replace("__", ".")
        path.write_bytes(content if is_raw else json.dumps(content).encode())
    return case, home / name


def weights(*shape: int, bad: float | None = None) -> np.ndarray:
    """Return random numbers of a shape; `bad` replaces the last one."""
    values = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    if bad is not None:
        values.flat[-1] = bad
    return values
