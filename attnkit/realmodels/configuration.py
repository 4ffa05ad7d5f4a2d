"""Access to the fields of a model's configuration, each checked when it is read.

A configuration comes from the same source as the weights and may be damaged. The error
for a wrong value names the field, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attnkit.realmodels.errors import Unreadable, choices, quote

N_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
N_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
N_KV_HEADS = ("num_key_value_heads",)
D_MODEL = ("hidden_size", "d_model", "n_embd", "n_embed", "dim")
D_HEAD = ("head_dim", "d_kv", "attention_head_size")
THETA = ("rope_theta", "global_rope_theta", "rotary_emb_base")
LOCAL_THETA = ("rope_local_base_freq", "local_rope_theta")
ROTARY_FRACTION = ("partial_rotary_factor", "rotary_pct")
GLOBAL_EVERY = ("sliding_window_pattern", "global_attn_every_n_layers")
ROPE = ("rope_parameters", "rope_scaling")
LAYER_TYPES = ("layer_types", "attn_layers")
N_PREDICTING = ("num_nextn_predict_layers", "num_mtp_layers")
"""Names of a field in the configurations of transformers; the first one that is present counts."""

_MAX_COUNT = 1_000_000
_MIN_NUMBER, _MAX_NUMBER = 1e-30, 1e30

_REQUIRED = object()
"""In place of a default: the field must be present."""


@dataclass(frozen=True)
class Configuration:
    """Fields of a configuration; a field that is null counts as missing.

    Where a method takes several names, it reads the first of these fields that is present. All
    methods but `find` raise Unreadable if the value is not of the kind they return.

    Attributes:
        values: Values of the fields, by name.
        file: Name of the configuration in messages.
        labels: Name of a field in messages, where the file has another one.
    """

    values: Mapping[str, Any]
    file: str = "config.json"
    labels: Mapping[str, str] = field(default_factory=dict)

    def find(self, *names: str) -> tuple[str, Any]:
        """Return the name in messages and the value of the first field present, or ("", None)."""
        return next(
            (
                (self.labels.get(name, name), self.values[name])
                for name in names
                if self.values.get(name) is not None
            ),
            ("", None),
        )

    def with_defaults(self, defaults: Iterable[tuple[str, Any]]) -> Configuration:
        """Return the configuration with values for fields that are missing or null."""
        missing = {name: value for name, value in defaults if self.values.get(name) is None}
        return replace(self, values={**self.values, **missing})

    def count(self, *names: str, default: int | None = None) -> int:
        """Return a positive integer; without a default, the field must be present."""
        value: int = self._checked(
            names,
            _REQUIRED if default is None else default,
            lambda value: type(value) is int and 1 <= value <= _MAX_COUNT,
            f"a whole number from 1 to {_MAX_COUNT:,}",
        )
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """Return a positive number; without a default, the field must be present."""
        value = self._checked(
            names,
            _REQUIRED if default is None else default,
            lambda value: type(value) in (int, float) and _MIN_NUMBER <= value <= _MAX_NUMBER,
            f"a number from {_MIN_NUMBER:g} to {_MAX_NUMBER:g}",
        )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value."""
        value: bool = self._checked(
            (name,), default, lambda value: isinstance(value, bool), "true or false"
        )
        return value

    def word(self, name: str, allowed: Collection[str] = (), default: str | None = None) -> str:
        """Return a text, which must be one of `allowed` if any are given."""
        value: str = self._checked(
            (name,),
            _REQUIRED if default is None else default,
            lambda value: isinstance(value, str) and (not allowed or value in allowed),
            choices(self.values.get(name), allowed) if allowed else "a word",
        )
        return value

    def words(self, *names: str, n_layers: int) -> tuple[str, ...] | None:
        """Return one word per layer, or None if the field is missing."""
        value = self._checked(
            names,
            None,
            lambda value: (
                isinstance(value, list)
                and len(value) == n_layers
                and all(isinstance(word, str) for word in value)
            ),
            f"a list of {n_layers} words, one per layer",
        )
        return None if value is None else tuple(value)

    def section(self, *names: str) -> Configuration | None:
        """Return the fields of an object within the configuration, or None if it is missing."""
        value = self._checked(names, None, lambda value: isinstance(value, dict), "an object")
        return None if value is None else Configuration(value, self.file)

    def of_layer(self, layer: int) -> Configuration:
        """Return the fields of one layer; a list with an item per layer gives the layer's item."""
        values = {
            name: next(iter(value[layer : layer + 1]), None) if isinstance(value, list) else value
            for name, value in self.values.items()
        }
        return replace(self, values=values)

    def _checked(
        self, names: tuple[str, ...], default: Any, is_allowed: Callable[[Any], bool], allowed: str
    ) -> Any:
        """Return the first field that is present, or the default if none is."""
        name, value = self.find(*names)
        if name and is_allowed(value):
            return value
        if not name and default is not _REQUIRED:
            return default
        known = dict.fromkeys(self.labels.get(name, name) for name in names)
        got = f"{name} is {quote(value)}" if name else f"{' or '.join(known)} is missing"
        raise Unreadable(f"{self.file}: {got}; it must be {allowed}")
