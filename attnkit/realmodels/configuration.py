"""Access to the fields of a model's configuration, each checked when it is read.

A configuration comes from the same source as the weights and may be damaged. The error
for a wrong value names the field, the value and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from attnkit.realmodels.errors import Unreadable, quote

N_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
N_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
N_KV_HEADS = ("num_key_value_heads",)
D_MODEL = ("hidden_size", "d_model", "n_embd", "n_embed", "dim")
D_HEAD = ("head_dim", "d_kv")
THETA = ("rope_theta", "global_rope_theta", "rotary_emb_base")
LOCAL_THETA = ("rope_local_base_freq", "local_rope_theta")
ROTARY_FRACTION = ("partial_rotary_factor", "rotary_pct")
GLOBAL_EVERY = ("sliding_window_pattern", "global_attn_every_n_layers")
ROPE = ("rope_parameters", "rope_scaling")
N_PREDICTING = ("num_nextn_predict_layers", "num_mtp_layers")
"""Names of a field in the configurations of transformers; the first one that is present counts."""

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

    def word(self, name: str, allowed: Iterable[str] = (), default: str | None = None) -> str:
        """Return a text, and one of the allowed ones if any are given."""
        _, value = self.find(name)
        value = default if value is None else value
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise Unreadable(
                f"{self.file}: {name} is {quote(value)}; it must be "
                + (f"one of {', '.join(allowed)}" if allowed else "a word")
            )
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

    def of_layer(self, layer: int) -> Configuration:
        """Return the fields of one layer: of lists with an item per layer, its item."""
        values = {
            name: next(iter(value[layer : layer + 1]), None) if isinstance(value, list) else value
            for name, value in self.values.items()
        }
        return Configuration(values, self.file)

    def section(self, *names: str) -> Configuration | None:
        """Return the fields of an object within the configuration, or None if it is missing."""
        name, value = self.find(*names)
        if not name:
            return None
        if not isinstance(value, dict):
            raise Unreadable(f"{self.file}: {name} is {quote(value)}; it must be an object")
        return Configuration(value, self.file)
