"""Tasks: generators of labelled sequences, and their registry.

Every module of this package is imported here and registers the tasks that it defines: to add a
task, add a module. Plugins are imported last; see `attnkit.foundation.plugins`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from attnkit.foundation.plugins import import_plugins
from attnkit.tasks.base import FAMILIES, NOTHING, TASKS, Examples, Label, Task, register_task
from attnkit.tasks.language import Text
from attnkit.tasks.own_data import (
    OWN_TASKS,
    OwnData,
    data_in_link,
    hash_in_link,
    is_task,
    task_named,
)
from attnkit.tasks.table import Table

__all__ = [
    "FAMILIES",
    "NOTHING",
    "OWN_TASKS",
    "TASKS",
    "Examples",
    "Label",
    "OwnData",
    "Table",
    "Task",
    "Text",
    "data_in_link",
    "hash_in_link",
    "is_task",
    "register_task",
    "task_named",
]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

for _task in sorted(TASKS.values(), key=lambda task: (FAMILIES.index(task.family), task.place)):
    TASKS[_task.name] = TASKS.pop(_task.name)
import_plugins()
