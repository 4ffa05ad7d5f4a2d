"""The Result of a finished or stopped experiment: its last snapshot and its weights. numpy only.

Arrays are ordered by `Experiment.runs`. Files are JSON and safetensors, never pickle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from attnkit.experiment import Experiment
from attnkit.foundation.files import write_file
from attnkit.training.snapshot import READING_ERRORS, Snapshot
from attnkit.training.summary import run_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Result:
    """A finished (or stopped) experiment.

    Attributes:
        snapshot: the last one.
        parameters: run index → name → array; tied parameters are absent.
    """

    snapshot: Snapshot
    parameters: list[dict[str, np.ndarray]]

    @property
    def experiment(self) -> Experiment:
        """The experiment that was trained."""
        return self.snapshot.experiment

    @property
    def seconds(self) -> float:
        """Time spent training and evaluating."""
        return self.snapshot.seconds

    @property
    def model_steps_per_second(self) -> float:
        """Optimiser steps of single runs per second."""
        return self.snapshot.model_steps_per_second

    @property
    def table(self) -> pd.DataFrame:
        """One row per run: its sharing, seed, last metrics, costs."""
        return run_table(self.snapshot)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values that `train --json` writes, null where undefined."""
        table = self.table.astype(object).where(self.table.notna(), None)
        rows = table.to_dict("records")
        names = self.experiment.task.slice_names
        if names:
            for row, shares in zip(rows, self.snapshot.slice_accuracy.tolist(), strict=True):
                told = [None if share != share else share for share in shares]
                row["slices"] = dict(zip(names, told, strict=True))
        return {
            "experiment": self.experiment.settings(),
            "hash": self.experiment.hash,
            "fingerprint": self.experiment.task.fingerprint,
            "status": self.snapshot.status,
            "steps": self.snapshot.step,
            "seconds": self.seconds,
            "model_steps_per_second": self.model_steps_per_second,
            "engine": self.snapshot.engine,
            "processor": self.snapshot.processor,
            "runs": rows,
        }

    def save(self, folder: str | Path) -> None:
        """Write the files of `SAVED`: JSON for people, the last snapshot, the parameters.

        Raises:
            OSError: if one cannot be written; each file is whole or as it was before.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        for name, blob in zip(SAVED, ((text + "\n").encode(), *self.to_blobs()), strict=True):
            write_file(path / name, blob)

    @staticmethod
    def load(folder: str | Path) -> Result:
        """Read what `save` wrote.

        Raises:
            OSError: if a file is missing. ValueError: if one is not ours.
        """
        return Result.from_blobs(*[(Path(folder) / name).read_bytes() for name in SAVED[1:]])

    def to_blobs(self) -> tuple[bytes, bytes]:
        """The snapshot and the parameters of every run, each one safetensors blob."""
        return self.snapshot.to_bytes(), parameters_to_bytes(self.parameters)

    @staticmethod
    def from_blobs(snapshot: bytes | Snapshot, parameters: bytes) -> Result:
        """Read `to_blobs`, whose snapshot may have been read already.

        Raises:
            ValueError: if one of the two is not ours.
        """
        read = Snapshot.from_bytes(snapshot) if isinstance(snapshot, bytes) else snapshot
        return Result(read, parameters_from_bytes(parameters, read.experiment.n_runs))


def parameters_to_bytes(parameters: list[dict[str, np.ndarray]]) -> bytes:
    """Write the parameters of runs, name → array for each, as one safetensors blob."""
    named = {
        f"{run}/{name}": np.ascontiguousarray(array)
        for run, own in enumerate(parameters)
        for name, array in own.items()
    }
    return save_arrays(named)


def parameters_from_bytes(blob: bytes, n_runs: int) -> list[dict[str, np.ndarray]]:
    """Read `parameters_to_bytes`.

    Raises:
        ValueError: if the bytes hold no parameters of so many runs.
    """
    found: list[dict[str, np.ndarray]] = [{} for _ in range(n_runs)]
    by_run = {str(run): own for run, own in enumerate(found)}
    try:
        for key, array in load_arrays(blob).items():
            run, _, name = key.partition("/")
            by_run[run][name] = array
    except READING_ERRORS as error:
        raise ValueError(f"these bytes hold no parameters of it ({error})") from None
    return found


SAVED = ("result.json", "snapshot.safetensors", "parameters.safetensors")
"""Files of a saved result; the first one is for people and is not read again."""
