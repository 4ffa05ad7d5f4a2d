"""attnkit: train tiny transformers that share their Q, K and V projections, many at once.

Names are imported when first used, so that `import attnkit` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnkit.camera import record
    from attnkit.experiment import Experiment, from_text
    from attnkit.film import Film
    from attnkit.inspection.request import Inspection
    from attnkit.inspection.views import inspect
    from attnkit.results import Result, Snapshot
    from attnkit.settings import InvalidExperiment
    from attnkit.sharing import Sharing
    from attnkit.tasks import TASKS, Task, register_task
    from attnkit.training import Training, stream, train
    from attnkit.variants import CATALOGUE, InvalidVariant, Variant, register

__version__ = "0.1.0"

_HOMES = {
    "CATALOGUE": "variants",
    "Experiment": "experiment",
    "Film": "film",
    "Inspection": "inspection.request",
    "InvalidExperiment": "settings",
    "InvalidVariant": "variants",
    "Result": "results",
    "Sharing": "sharing",
    "Snapshot": "results",
    "TASKS": "tasks",
    "Task": "tasks",
    "Training": "training",
    "Variant": "variants",
    "from_text": "experiment",
    "inspect": "inspection.views",
    "record": "camera",
    "register": "variants",
    "register_task": "tasks",
    "stream": "training",
    "train": "training",
}

__all__ = [
    "CATALOGUE",
    "TASKS",
    "Experiment",
    "Film",
    "Inspection",
    "InvalidExperiment",
    "InvalidVariant",
    "Result",
    "Sharing",
    "Snapshot",
    "Task",
    "Training",
    "Variant",
    "from_text",
    "inspect",
    "record",
    "register",
    "register_task",
    "stream",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnkit' has no attribute {name!r}")
    return getattr(import_module(f"attnkit.{_HOMES[name]}"), name)
