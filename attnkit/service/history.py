"""Descriptions of stored experiments, their table and their search, from their settings alone.

An experiment on a task or with a variant that this copy does not have is listed all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from attnkit.experiment.experiment import Experiment, from_text, settings
from attnkit.foundation.settings import Setting, shown
from attnkit.foundation.words import counted
from attnkit.tasks import OWN_TASKS, TASKS, is_task, task_named
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

if TYPE_CHECKING:
    import pandas as pd

LONGEST_SEARCH = 200
"""Number of characters of a search text that are used."""

_MAX_NAMED = 3
"""Largest number of variants that are named; of more variants the number is given."""


@dataclass(frozen=True)
class StoredEntry:
    """Description of one stored result, without its arrays.

    Attributes:
        name: Name that a person gave it; empty if nobody did.
        text: Canonical JSON of the experiment.
        seconds: Training time.
        version: Version of attnkit that stored it.
        n_bytes: Size of the snapshot and the parameters.
        pinned: Whether the size limit of the store spares it.
        used_at: Time of its last use, to the minute.
    """

    hash: str
    name: str
    task: str
    text: str
    n_runs: int
    steps: int
    seconds: float
    version: str
    n_bytes: int
    pinned: bool
    created_at: datetime
    used_at: datetime

    @property
    def experiment(self) -> Experiment:
        """The experiment that was trained.

        Raises:
            InvalidExperiment: If this copy does not have its task or one of its variants.
        """
        return from_text(self.text)


def history_table(entries: Sequence[StoredEntry], reached: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with one row per stored experiment, in the order given.

    Args:
        entries: The experiments.
        reached: What an experiment reached in a few words, by hash; unknown ones are missing.
    """
    import pandas as pd

    rows = [
        {
            "name": name_of(entry),
            "reached": reached.get(entry.hash),
            "changed": changed_settings(entry.text),
            "stored": entry.created_at,
            "runs": entry.n_runs,
            "steps": entry.steps,
            "seconds": entry.seconds,
            "bytes": entry.n_bytes,
            "pinned": entry.pinned,
            "task": task_title(entry.task),
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

    A setting may be typed as in code or as on screen: `d_head 5`, `d_head=5` and `head width 5` all
    search for the setting `d_head` with the value 5.

    Attributes:
        words: Words that an entry must have, as shown or as stored.
        settings: Names and stored value of each setting. If several settings have the label that
            was typed, one of them must have the value.
    """

    words: tuple[str, ...]
    settings: tuple[tuple[tuple[str, ...], str], ...]

    @staticmethod
    def of(text: str) -> Search:
        """Parse a typed text, up to the length that the store uses."""
        text = re.sub(r" ?= ?", "=", " ".join(text[:LONGEST_SEARCH].lower().split()))
        settings: list[tuple[tuple[str, ...], str]] = []
        for typed, named in _settings_by_words().items():
            for match in re.finditer(rf"(?<!\S){re.escape(typed)}[ =](\S+)", text):
                values = (_value_of(setting, match[1]) for setting in named.values())
                # a name in code is no label, so nothing else is meant
                value = next(filter(None, values), match[1] if typed in named else None)
                if value is not None:
                    settings.append((tuple(named), value))
                    text = text.replace(match[0], " ", 1)
        return Search(tuple(text.split()), tuple(settings))

    @property
    def text(self) -> str:
        """Search text for `ResultStore.entries`, which finds every entry that fits, and others."""
        stored = [
            word
            for names, value in self.settings
            for word in ((*names, value) if len(names) == 1 else (value,))
        ]
        return " ".join([*self.words, *stored])

    def fits(self, entry: StoredEntry) -> bool:
        """Return whether an entry has all words, as shown or as stored, and all settings."""
        settings = json.loads(entry.text)
        shown = [name_of(entry), task_title(entry.task), changed_settings(entry.text)]
        texts = " ".join([*shown, entry.text, entry.hash]).lower()
        has_settings = all(
            any(name in settings and str(settings[name]).lower() == value for name in names)
            for names, value in self.settings
        )
        return has_settings and all(word in texts for word in self.words)


@lru_cache(1024)
def default_name(text: str) -> str:
    """Return the name of an experiment, given as canonical JSON, to which nobody has given one."""
    settings = json.loads(text)
    names = settings["sharing"]
    variants = f"{len(names)} variants"
    if len(names) <= _MAX_NAMED:
        variants = ", ".join(_title(name) for name in names)
    return f"{task_title(settings['task'])} · {variants} × {counted(settings['n_seeds'], 'seed')}"


@lru_cache(1024)
def changed_settings(text: str) -> str:
    """Return the settings that differ from the task's defaults, with their names on screen.

    Variants and seeds are left out, because the name has them.

    Args:
        text: Canonical JSON of the experiment.
    """
    values = json.loads(text)
    task = values["task"]
    described = _described(task) if is_task(task) else {}
    changed = [
        _shown(name, described.get(name), value)
        for name, value in values.items()
        if name not in _IN_NAME and (name not in described or value != described[name].default)
    ]
    own = OWN_TASKS.get(task)
    if own is not None:
        changed.insert(0, f"your own {own.size_in_words(values['data'])}")
    return ", ".join(changed)


def task_title(name: str) -> str:
    """Return the title of a task, or its name if this copy does not have it."""
    return task_named(name).title if is_task(name) else name


_IN_NAME = ("v", "task", "sharing", "n_seeds", "data")
"""Fields that the name of an experiment contains, the version of the format, and own data."""


@cache
def _described(task: str) -> dict[str, Setting]:
    return settings(task)


@cache
def _settings_by_words() -> dict[str, dict[str, Setting]]:
    """Return settings by name, under their name and their label in lower case, longest first."""
    known: dict[str, dict[str, Setting]] = {}
    for task in TASKS:
        for name, setting in _described(task).items():
            known.setdefault(setting.label.lower(), {})[name] = setting
    for task in TASKS:  # a name in code is clear, also where it is the label of another setting
        known |= {name: {name: setting} for name, setting in _described(task).items()}
    return dict(sorted(known.items(), key=lambda item: -len(item[0])))


def _value_of(setting: Setting, typed: str) -> str | None:
    """Return a typed value as it is stored, in lower case; None if the setting cannot have it."""
    if setting.kind is bool:
        return {"on": "true", "yes": "true", "off": "false", "no": "false"}.get(typed)
    if setting.choices:
        choices = {setting.label_of(choice).lower(): choice.lower() for choice in setting.choices}
        return (choices | {choice.lower(): choice.lower() for choice in setting.choices}).get(typed)
    if not re.fullmatch(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", typed):
        return None
    number = float(typed)
    return str(int(number) if setting.kind is int and number.is_integer() else number)


def _shown(name: str, setting: Setting | None, value: Any) -> str:
    """Return a setting and its value on screen; the label of an unknown one is made of its name."""
    if isinstance(value, bool):
        value = "on" if value else "off"
    elif setting is not None and setting.choices:
        value = setting.label_of(value)
    elif isinstance(value, str):
        value = shown(value)
    return f"{name.replace('_', ' ') if setting is None else setting.label} {value}"


def _title(text: Any) -> str:
    try:
        return title_of(Variant(text))
    except ValueError:
        return str(text)
