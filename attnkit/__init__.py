"""Train tiny transformers that share their Q, K and V projections, many at once.

Names are imported when first used, so that `import attnkit` does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnkit.foundation.lazy import import_on_use

if TYPE_CHECKING:
    from attnkit.analysis import Inspection, inspect
    from attnkit.claims import CLAIMS
    from attnkit.evidence.questions import QUESTIONS
    from attnkit.experiment import Experiment, InvalidExperiment, from_text
    from attnkit.tasks import TASKS, Table, Task, Text, register_task
    from attnkit.training import Film, Result, Snapshot, Training, record, stream, train
    from attnkit.ui.server.launch import lab
    from attnkit.variants import CATALOGUE, InvalidVariant, Sharing, Variant, register, variant

__version__ = "0.1.0"

_SUBPACKAGES = {
    "CATALOGUE": "variants",
    "CLAIMS": "claims",
    "Experiment": "experiment",
    "Film": "training",
    "Inspection": "analysis",
    "InvalidExperiment": "experiment",
    "InvalidVariant": "variants",
    "QUESTIONS": "evidence.questions",
    "Result": "training",
    "Sharing": "variants",
    "Snapshot": "training",
    "TASKS": "tasks",
    "Table": "tasks",
    "Task": "tasks",
    "Text": "tasks",
    "Training": "training",
    "Variant": "variants",
    "from_text": "experiment",
    "inspect": "analysis",
    "lab": "ui.server.launch",
    "record": "training",
    "register": "variants",
    "register_task": "tasks",
    "stream": "training",
    "train": "training",
    "variant": "variants",
}

__all__ = [
    "CATALOGUE",
    "CLAIMS",
    "QUESTIONS",
    "TASKS",
    "Experiment",
    "Film",
    "Inspection",
    "InvalidExperiment",
    "InvalidVariant",
    "Result",
    "Sharing",
    "Snapshot",
    "Table",
    "Task",
    "Text",
    "Training",
    "Variant",
    "from_text",
    "inspect",
    "lab",
    "record",
    "register",
    "register_task",
    "stream",
    "train",
    "variant",
]


__getattr__ = import_on_use(__name__, _SUBPACKAGES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
