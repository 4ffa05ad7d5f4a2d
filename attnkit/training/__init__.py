"""Training of an experiment: data, cohorts, metrics, and the snapshots, results and films made.

Names are imported when first used, so that pages can read results without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnkit.training.camera import record
    from attnkit.training.film import Film
    from attnkit.training.results import Result
    from attnkit.training.snapshot import Snapshot
    from attnkit.training.training import Training, stream, train

_HOMES = {
    "Film": "film",
    "Result": "results",
    "Snapshot": "snapshot",
    "Training": "training",
    "record": "camera",
    "stream": "training",
    "train": "training",
}

__all__ = ["Film", "Result", "Snapshot", "Training", "record", "stream", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
