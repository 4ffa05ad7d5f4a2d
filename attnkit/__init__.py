"""attnkit: train tiny transformers that share their Q, K and V projections, many at once.

Names are imported when first used, so that `import attnkit` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnkit.experiment import Experiment, InvalidExperiment, from_text
    from attnkit.results import Result, Snapshot
    from attnkit.sharing import Sharing
    from attnkit.tasks import TASKS
    from attnkit.training import Training, stream, train

__version__ = "0.1.0"

_HOMES = {
    "Experiment": "experiment",
    "InvalidExperiment": "experiment",
    "Result": "results",
    "Sharing": "sharing",
    "Snapshot": "results",
    "TASKS": "tasks",
    "Training": "training",
    "from_text": "experiment",
    "stream": "training",
    "train": "training",
}

__all__ = [
    "TASKS",
    "Experiment",
    "InvalidExperiment",
    "Result",
    "Sharing",
    "Snapshot",
    "Training",
    "from_text",
    "stream",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnkit' has no attribute {name!r}")
    return getattr(import_module(f"attnkit.{_HOMES[name]}"), name)
