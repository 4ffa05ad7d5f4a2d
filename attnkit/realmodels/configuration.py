"""Access to the fields of a model's configuration, each checked when it is read.

A configuration comes from the same source as the weights and may be damaged. The error
for a wrong value names the field, the value and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnkit.realmodels.base import Unreadable, quote

_MAX_COUNT = 1_000_000
_MAX_NUMBER = 1e30


@dataclass(frozen=True)
class Configuration:
    """Fields of a configuration; a field that is null counts as missing.

    Where a method takes several names, it reads the first of these fields that is present. All
    methods but `find` raise Unreadable if the value is not of the kind they return.

    Attributes:
        values: Values of the fields, by name.
        file: Name of the configuration in messages.
    """

    values: Mapping[str, Any]
    file: str = "config.json"

    def find(self, *names: str) -> tuple[str, Any]:
        """Return the name and value of the first field that is present, or ("", None)."""
        return next(
            ((name, self.values[name]) for name in names if self.values.get(name) is not None),
            ("", None),
        )

    def count(self, *names: str, default: int | None = None) -> int:
        """Return a positive integer; without a default, the field must be present."""
        name, value = self.find(*names)
        if not name:
            if default is None:
                raise Unreadable(
                    f"{self.file}: {' or '.join(names)} is missing; it must be a whole number"
                )
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_COUNT:
            raise Unreadable(
                f"{self.file}: {name} is {quote(value)}; "
                f"it must be a whole number from 1 to {_MAX_COUNT:,}"
            )
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """Return a positive number; without a default, the field must be present."""
        name, value = self.find(*names)
        if not name:
            if default is None:
                raise Unreadable(
                    f"{self.file}: {' or '.join(names)} is missing; it must be a number"
                )
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value <= _MAX_NUMBER
            or not math.isfinite(value)
        ):
            raise Unreadable(
                f"{self.file}: {name} is {quote(value)}; "
                f"it must be a number above 0, at most {_MAX_NUMBER:g}"
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value."""
        _, value = self.find(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise Unreadable(f"{self.file}: {name} is {quote(value)}; it must be true or false")
        return value

    def words(self, name: str, n_layers: int) -> tuple[str, ...] | None:
        """Return one word per layer, or None if the field is missing."""
        _, value = self.find(name)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) != n_layers
            or not all(isinstance(word, str) for word in value)
        ):
            raise Unreadable(
                f"{self.file}: {name} is {quote(value)}; "
                f"it must be a list of {n_layers} words, one per layer"
            )
        return tuple(value)

    def section(self, *names: str) -> Configuration | None:
        """Return the fields of an object within the configuration, or None if it is missing."""
        name, value = self.find(*names)
        if not name:
            return None
        if not isinstance(value, dict):
            raise Unreadable(f"{self.file}: {name} is {quote(value)}; it must be an object")
        return Configuration(value, self.file)
