"""Finished layers of a measurement, so that one that was stopped goes on where it was.

A layer is taken from here only if its weights and the settings are the same, which a checksum of
both says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from attnkit.foundation.files import write_file
from attnkit.realmodels.base import Projections

Rows = list[dict[str, object]]


class KeptLayers:
    """Rows and drawing data of the layers that have been measured, in a folder of their own."""

    def __init__(self, folder: Path, settings: Sequence[object]) -> None:
        """Keep layers in a folder, which need not exist, for measurements with these settings."""
        self._folder, self._settings = folder, repr(settings)

    def find(self, name: str, layer: Projections) -> tuple[Rows, dict[str, np.ndarray]] | None:
        """Return rows and drawing data of a layer; None unless it is here, whole and the same."""
        path = self._path(name, layer)
        try:
            arrays = load(path.read_bytes())
            rows: Rows = json.loads(arrays.pop("rows").tobytes())
        except (OSError, ValueError, KeyError, SafetensorError):
            return None
        return rows, arrays

    def keep(
        self, name: str, layer: Projections, rows: Rows, arrays: dict[str, np.ndarray]
    ) -> None:
        """Write rows and drawing data of a layer; nothing if the disk is full."""
        text = json.dumps(rows, default=lambda number: number.item())
        raw = save(arrays | {"rows": np.frombuffer(text.encode(), np.uint8)})
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_file(self._path(name, layer), raw)

    def remove(self) -> None:
        """Remove all layers, because the measurement is finished."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, name: str, layer: Projections) -> Path:
        checksum = hashlib.sha256(f"{name} {self._settings}".encode())
        for field in fields(layer):
            value = getattr(layer, field.name)
            is_array = isinstance(value, np.ndarray)
            checksum.update(value.tobytes() if is_array else repr(value)[:20].encode())
        return self._folder / f"{checksum.hexdigest()}.safetensors"
