"""The fields of a model's config.json, each checked where it is read.

A configuration comes with the file, so that it may be damaged or lie: whatever is not what a field
must be is refused, with the field, the value and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnkit.realmodels.base import Unreadable, quote

_MOST = 1_000_000


@dataclass(frozen=True)
class Configuration:
    """The values of a config.json; a field that is null counts as missing."""

    values: Mapping[str, Any]

    def found(self, *names: str) -> tuple[str, Any]:
        """The first of these fields that is there, and its value; ("", None) if none is."""
        return next(
            ((name, self.values[name]) for name in names if self.values.get(name) is not None),
            ("", None),
        )

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number from 1 on.

        Args:
            names: what the field may be called.
            default: for when there is none of them.
        """
        name, value = self.found(*names)
        if not name:
            if default is None:
                raise Unreadable(
                    f"config.json: {' or '.join(names)} is missing; it must be a whole number"
                )
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
            raise Unreadable(
                f"config.json: {name} is {quote(value)}; "
                f"it must be a whole number from 1 to {_MOST:,}"
            )
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """A number above zero."""
        name, value = self.found(*names)
        if not name:
            if default is None:
                raise Unreadable(
                    f"config.json: {' or '.join(names)} is missing; it must be a number"
                )
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value <= 1e30
            or not math.isfinite(value)
        ):
            raise Unreadable(f"config.json: {name} is {quote(value)}; it must be a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        _, value = self.found(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise Unreadable(f"config.json: {name} is {quote(value)}; it must be true or false")
        return value

    def texts(self, name: str, n: int) -> tuple[str, ...] | None:
        """One word per layer, or None if the field is not there."""
        _, value = self.found(name)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) != n
            or not all(isinstance(word, str) for word in value)
        ):
            raise Unreadable(
                f"config.json: {name} is {quote(value)}; "
                f"it must be a list of {n} words, one per layer"
            )
        return tuple(value)

    def part(self, *names: str) -> Configuration | None:
        """The fields within a field, or None if it is not there."""
        name, value = self.found(*names)
        if not name:
            return None
        if not isinstance(value, dict):
            raise Unreadable(f"config.json: {name} is {quote(value)}; it must be an object")
        return Configuration(value)
