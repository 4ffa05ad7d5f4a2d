"""Table and search of stored experiments, computed from their settings alone.

An experiment on a task or with a variant that this copy does not have is listed all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from attnkit.experiment.experiment import default_settings
from attnkit.service.store import LONGEST_SEARCH, StoredEntry
from attnkit.tasks import TASKS
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

if TYPE_CHECKING:
    import pandas as pd

_MAX_NAMED = 3
"""Largest number of variants that are named; of more variants the number is given."""


def history_table(entries: Sequence[StoredEntry]) -> pd.DataFrame:
    """Return a table with one row per stored experiment, in the order given."""
    import pandas as pd

    rows = [
        {
            "name": name_of(entry),
            "task": task_title(entry.task),
            "changed": changed_settings(entry.text),
            "stored": entry.created_at,
            "runs": entry.n_runs,
            "steps": entry.steps,
            "seconds": entry.seconds,
            "bytes": entry.n_bytes,
            "pinned": entry.pinned,
        }
        for entry in entries
    ]
    return pd.DataFrame(rows)


def name_of(entry: StoredEntry) -> str:
    """Return the name that a person gave an experiment, or else its task, variants and seeds."""
    return entry.name or default_name(entry.text)


@dataclass(frozen=True)
class Search:
    """Search for words, and for settings with their values.

    `of("reverse d_head 5")` and `of("reverse d_head=5")` both search for the word `reverse` and for
    the setting `d_head` with the value 5.
    """

    words: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]

    @staticmethod
    def of(text: str) -> Search:
        """Parse a typed text, up to the length that the store uses."""
        names, words, settings = _setting_names(), [], []
        tokens = iter(re.sub(r"\s*=\s*", "=", text[:LONGEST_SEARCH]).lower().split())
        for token in tokens:
            name, _, value = token.partition("=")
            value = value or (next(tokens, "") if token in names else "")
            if name in names and value:
                settings.append((name, value))
            else:
                words.append(token)
        return Search(tuple(words), tuple(settings))

    @property
    def text(self) -> str:
        """Search text for `ResultStore.entries`, which finds every entry that fits, and others."""
        return " ".join([*self.words, *(word for setting in self.settings for word in setting)])

    def fits(self, entry: StoredEntry) -> bool:
        """Return whether an entry has all words, as shown or as stored, and all settings."""
        settings = json.loads(entry.text)
        shown = [name_of(entry), task_title(entry.task), changed_settings(entry.text)]
        texts = " ".join([*shown, entry.text, entry.hash]).lower()
        has_settings = all(_typed(settings.get(name)) == value for name, value in self.settings)
        return has_settings and all(word in texts for word in self.words)


@lru_cache(1024)
def default_name(text: str) -> str:
    """Return the name of an experiment to which nobody has given one.

    Args:
        text: Canonical JSON of the experiment.
    """
    settings = json.loads(text)
    names = settings["sharing"]
    variants = f"{len(names)} variants"
    if len(names) <= _MAX_NAMED:
        variants = ", ".join(_title(name) for name in names)
    seeds = "1 seed" if settings["n_seeds"] == 1 else f"{settings['n_seeds']} seeds"
    return f"{task_title(settings['task'])} · {variants} × {seeds}"


@lru_cache(1024)
def changed_settings(text: str) -> str:
    """Return the settings that differ from the task's defaults, as people type them.

    Variants and seeds are left out, because the name has them.

    Args:
        text: Canonical JSON of the experiment.
    """
    settings = json.loads(text)
    defaults = _defaults(settings["task"]) if settings["task"] in TASKS else {}
    changed = [
        f"{name} {_typed(value)}"
        for name, value in settings.items()
        if name not in _IN_NAME and (name not in defaults or value != defaults[name])
    ]
    return ", ".join(changed)


def task_title(name: str) -> str:
    """Return the title of a task, or its name if this copy does not have it."""
    return TASKS[name].title if name in TASKS else name


_IN_NAME = ("v", "task", "sharing", "n_seeds")
"""Fields that the name of an experiment contains, and the version of the format."""


@cache
def _defaults(task: str) -> dict[str, Any]:
    return default_settings(task)


def _setting_names() -> frozenset[str]:
    return frozenset(name for task in TASKS for name in _defaults(task))


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _title(text: Any) -> str:
    try:
        return title_of(Variant(text))
    except ValueError:
        return str(text)
