"""Finished experiments that ship with the package, so that nobody meets an empty screen.

`python -m attnkit examples` makes them anew: every task at its defaults.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from attnkit.results import Snapshot

FOLDER = Path(__file__).parent


@cache
def load_example(task: str) -> Snapshot:
    """The finished default experiment of a task.

    Raises:
        OSError: if it was never made. ValueError: if its file is not ours.
    """
    return Snapshot.from_bytes((FOLDER / f"{task}.safetensors").read_bytes())
