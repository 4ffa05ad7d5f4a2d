"""What a list says of stored experiments: read from their settings alone, which may be foreign.

An experiment on a task or with a variant that this copy does not know is listed all the same.
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

_FEW = 3
"""So many variants are named; of more their number is told."""


def history_table(entries: Sequence[StoredEntry]) -> pd.DataFrame:
    """One row per stored experiment, in their order."""
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
    """What somebody called it, or else its task, variants and seeds."""
    return entry.name or default_name(entry.text)


@dataclass(frozen=True)
class Search:
    """What somebody looks for: words, and settings with their values.

    `of("reverse d_head 5")` and `of("reverse d_head=5")` are the word `reverse` and the setting.
    """

    words: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]

    @staticmethod
    def of(text: str) -> Search:
        """Read what was typed, as far as the store looks at it."""
        names, words, settings = _setting_names(), [], []
        pieces = iter(re.sub(r"\s*=\s*", "=", text[:LONGEST_SEARCH]).lower().split())
        for piece in pieces:
            name, _, value = piece.partition("=")
            value = value or (next(pieces, "") if piece in names else "")
            if name in names and value:
                settings.append((name, value))
            else:
                words.append(piece)
        return Search(tuple(words), tuple(settings))

    @property
    def text(self) -> str:
        """Words that a stored text has if it fits."""
        return " ".join([*self.words, *(part for setting in self.settings for part in setting)])

    def fits(self, entry: StoredEntry) -> bool:
        """Whether all of it stands in what is shown or stored."""
        told = json.loads(entry.text)
        shown = [name_of(entry), task_title(entry.task), changed_settings(entry.text)]
        texts = " ".join([*shown, entry.text, entry.hash]).lower()
        has_settings = all(_typed(told.get(name)) == value for name, value in self.settings)
        return has_settings and all(word in texts for word in self.words)


@lru_cache(1024)
def default_name(text: str) -> str:
    """What an experiment, as canonical JSON, is called while nobody has given it a name."""
    told = json.loads(text)
    variants = told["sharing"]
    which = f"{len(variants)} variants"
    if len(variants) <= _FEW:
        which = ", ".join(_title(name) for name in variants)
    seeds = "1 seed" if told["n_seeds"] == 1 else f"{told['n_seeds']} seeds"
    return f"{task_title(told['task'])} · {which} × {seeds}"


@lru_cache(1024)
def changed_settings(text: str) -> str:
    """What differs from the task's defaults, besides variants and seeds, as it is typed."""
    told = json.loads(text)
    known = _defaults(told["task"]) if told["task"] in TASKS else {}
    changed = [
        f"{name} {_typed(value)}"
        for name, value in told.items()
        if name not in _TOLD and (name not in known or value != known[name])
    ]
    return ", ".join(changed)


def task_title(name: str) -> str:
    """What a task is called; its name if this copy does not have it."""
    return TASKS[name].title if name in TASKS else name


_TOLD = ("v", "task", "sharing", "n_seeds")
"""What the name says, or the format."""


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
