"""Access to the fields of a model's configuration, each checked when it is read.

A configuration comes from the same source as the weights and may be damaged. The error
for a wrong value names the field, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        allowed = f"a whole number from 1 to {_MAX_COUNT:,}"
        value: int = self._read(names, default, _is_count, allowed)
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """Return a positive number; without a default, the field must be present."""
        allowed = f"a number above 0, at most {_MAX_NUMBER:g}"
        return float(self._read(names, default, _is_positive, allowed))

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value."""
        value: bool = self._read((name,), default, _is_flag, "true or false")
        return value

    def words(self, name: str, n_layers: int) -> tuple[str, ...] | None:
        """Return one word per layer, or None if the field is missing."""

        def are_words(value: Any) -> bool:
            is_list = isinstance(value, list) and len(value) == n_layers
            return is_list and all(isinstance(word, str) for word in value)

        allowed = f"a list of {n_layers} words, one per layer"
        value = self._read((name,), (), are_words, allowed)
        return tuple(value) or None

    def section(self, *names: str) -> Configuration | None:
        """Return the fields of an object within the configuration, or None if it is missing."""
        if not self.find(*names)[0]:
            return None
        return Configuration(self._read(names, None, _is_object, "an object"), self.file)

    def _read(
        self, names: Sequence[str], default: Any, is_allowed: Callable[[Any], bool], allowed: str
    ) -> Any:
        """Return the value of the first field that is present, or the default unless it is None."""
        name, value = self.find(*names)
        if not name and default is not None:
            return default
        if not name or not is_allowed(value):
            actual = f"{name} is {quote(value)}" if name else f"{' or '.join(names)} is missing"
            raise Unreadable(f"{self.file}: {actual}; it must be {allowed}")
        return value


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MAX_COUNT


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= _MAX_NUMBER


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
