"""Results of finished or stopped experiments: the last snapshot and the weights of all runs.

Runs are in the order of `Experiment.runs`. Files are JSON and safetensors, never pickle. This
module does not import torch.
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
from attnkit.foundation.display import Plotted
from attnkit.foundation.documents import read_file
from attnkit.foundation.files import write_file
from attnkit.training.snapshot import READING_ERRORS, Snapshot, Status
from attnkit.training.summary import run_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Result(Plotted):
    """Result of a finished or stopped experiment.

    Attributes:
        snapshot: The last snapshot.
        parameters: Arrays by name for each run; tied parameters are absent.
    """

    snapshot: Snapshot
    parameters: list[dict[str, np.ndarray]]

    def __repr__(self) -> str:
        """Return a short description; the arrays would fill many screens."""
        return repr(self.snapshot).replace("<Snapshot", "<Result", 1)

    @property
    def experiment(self) -> Experiment:
        """Experiment that was trained."""
        return self.snapshot.experiment

    @property
    def status(self) -> Status:
        """The status: "finished", or "stopped" if the training was interrupted."""
        return self.snapshot.status

    @property
    def seconds(self) -> float:
        """Time spent on training and evaluation."""
        return self.snapshot.seconds

    @property
    def model_steps_per_second(self) -> float:
        """Optimiser steps of all runs together per second of training and evaluation."""
        return self.snapshot.model_steps_per_second

    @property
    def table(self) -> pd.DataFrame:
        """Table with one row per run: sharing, seed, last metrics and costs."""
        return run_table(self.snapshot)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values that `train --json` writes, with None where undefined."""
        table = self.table.astype(object).where(self.table.notna(), None)
        rows = table.to_dict("records")
        names = self.experiment.task.slice_names
        if names:
            for row, shares in zip(rows, self.snapshot.slice_accuracy.tolist(), strict=True):
                values = [None if share != share else share for share in shares]
                row["slices"] = dict(zip(names, values, strict=True))
        return {
            "experiment": self.experiment.settings(),
            "hash": self.experiment.hash,
            "fingerprint": self.experiment.task.fingerprint,
            "status": self.snapshot.status,
            "steps": self.snapshot.step,
            "seconds": self.seconds,
            "model_steps_per_second": self.model_steps_per_second,
            **self.snapshot.maker._asdict(),
            "runs": rows,
        }

    def save(self, folder: str | Path) -> None:
        """Write the files of `SAVED` into a folder: JSON for people, snapshot and parameters.

        Raises:
            OSError: If a file cannot be written. A file that fails stays as it was before.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        for name, blob in zip(SAVED, ((text + "\n").encode(), *self.to_blobs()), strict=True):
            write_file(path / name, blob)

    @staticmethod
    def load(folder: str | Path) -> Result:
        """Read the result that `save` wrote into a folder.

        Raises:
            OSError: If a file cannot be read.
            ValueError: If a file is not part of a saved result.
        """
        return Result.from_blobs(*[read_file(Path(folder) / name) for name in SAVED[1:]])

    def to_blobs(self) -> tuple[bytes, bytes]:
        """Return the snapshot and the parameters of all runs, each as a safetensors blob."""
        return self.snapshot.to_bytes(), parameters_to_bytes(self.parameters)

    @staticmethod
    def from_blobs(snapshot: bytes | Snapshot, parameters: bytes) -> Result:
        """Read the blobs of `to_blobs`; the snapshot may have been read already.

        Raises:
            ValueError: If a blob holds something else.
        """
        if isinstance(snapshot, bytes):
            snapshot = Snapshot.from_bytes(snapshot)
        return Result(snapshot, parameters_from_bytes(parameters, snapshot.experiment.n_runs))


def parameters_to_bytes(parameters: list[dict[str, np.ndarray]]) -> bytes:
    """Return the parameters of runs, arrays by name for each, as one safetensors blob."""
    arrays = {
        f"{run}/{name}": np.ascontiguousarray(array)
        for run, run_parameters in enumerate(parameters)
        for name, array in run_parameters.items()
    }
    return save_arrays(arrays)


def parameters_from_bytes(blob: bytes, n_runs: int) -> list[dict[str, np.ndarray]]:
    """Read the parameters that `parameters_to_bytes` wrote.

    Raises:
        ValueError: If the bytes are no parameters, or those of a run with an index ≥ `n_runs`.
    """
    by_run: dict[str, dict[str, np.ndarray]] = {str(run): {} for run in range(n_runs)}
    try:
        for key, array in load_arrays(blob).items():
            run, _, name = key.partition("/")
            by_run[run][name] = array
    except READING_ERRORS as error:
        raise ValueError(f"these bytes hold no parameters of it ({error})") from None
    return list(by_run.values())


SAVED = ("result.json", "snapshot.safetensors", "parameters.safetensors")
"""Names of the files of a saved result; the first one is for people and is not read again."""
