"""The registry of tasks: adding one is one class, listed here, and its test."""

from __future__ import annotations

from attnkit.tasks.base import Examples, Label, Task
from attnkit.tasks.phonebook import Phonebook
from attnkit.tasks.relations import Directed, Mutual

TASKS: dict[str, type[Task]] = {task.name: task for task in (Directed, Mutual, Phonebook)}

__all__ = ["TASKS", "Examples", "Label", "Task"]
