"""Weights in quantised number types inside safetensors files: which they are, and their values.

Four kinds are read: 4-bit and 8-bit weights of bitsandbytes, affine ones of MLX, and 8-bit floats
with scales, as DeepSeek publishes. Each keeps, beside a weight, tensors that say how its numbers
become those of the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from attnkit.realmodels.base import Array
from attnkit.realmodels.errors import damaged, quote
from attnkit.realmodels.tensors import TensorEntry

_STATE = ".quant_state.bitsandbytes__"
_MAX_BLOCK = 2**16

Entries = Mapping[str, TensorEntry]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Quantised:
    """Rule for a quantised weight.

    Attributes:
        type: Name of the number type.
        shape: Shape of the weight in the model.
        values: Function that reads its values.
    """

    type: str
    shape: tuple[int, ...]
    values: Callable[[], Array]


class QuantisedEntries(Mapping[str, TensorEntry]):
    """Entries of a file in which quantised weights have the shape that they have in the model.

    Attributes:
        stored: Entries as they are in the file.
        settings: Field of the configuration that describes the quantisation.
    """

    def __init__(self, stored: Entries, settings: Settings) -> None:
        """Keep the entries as they are in the file, and the settings."""
        self.stored, self.settings = stored, settings

    def rule(self, name: str) -> Quantised | None:
        """Return the rule for a weight; None if it is not quantised in a way that is read."""
        return _rule(self.stored, self.settings, name)

    def __getitem__(self, name: str) -> TensorEntry:
        rule, entry = self.rule(name), self.stored[name]
        return entry if rule is None else replace(entry, shape=rule.shape, type=rule.type)

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def _rule(entries: Entries, settings: Settings, name: str) -> Quantised | None:
    stem = name.removesuffix(".weight")
    for kind in ("nf4", "fp4"):
        if f"{name}{_STATE}{kind}" in entries:
            return _four_bits(entries, name, kind)
    if f"{stem}.SCB" in entries and entries[name].type == "I8":
        shape = entries[name].shape
        scale = _numbers(entries, f"{stem}.SCB", shape[:1])
        return Quantised(
            "INT8", shape, lambda: _bytes(entries, name, np.int8) * scale()[:, None] / 127
        )
    if f"{stem}.scales" in entries and entries[name].type == "U32":
        return _affine(entries, settings, name, stem)
    for ending in ("weight_scale_inv", "weight_scale", "scale"):
        if f"{stem}.{ending}" in entries and entries[name].type == "F8_E4M3":
            return _floats(entries, settings, name, f"{stem}.{ending}")
    return None


def _bytes(entries: Entries, name: str, dtype: Any) -> Array:
    entry = entries[name]
    numbers: Array = entry.read_bytes().view(dtype).astype(np.float32)
    return numbers.reshape(entry.shape)


def _numbers(
    entries: Entries, name: str, shape: tuple[int, ...] | None = None
) -> Callable[[], Array]:
    """Return a function that reads numbers beside a weight, of a shape if one is given."""
    if name not in entries:
        raise damaged(name, "it is missing beside its quantised weight")
    entry = entries[name]
    dtypes = {
        "F32": np.float32,
        "F16": np.float16,
        "BF16": ml_dtypes.bfloat16,
        "U8": np.uint8,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    }
    if entry.type not in dtypes or (shape is not None and entry.shape != shape):
        raise damaged(
            entry.path.name,
            f"{quote(name)} of shape {entry.shape} in {entry.type} does not fit its weight",
        )
    return lambda: _bytes(entries, name, dtypes[entry.type])


def _setting(settings: Settings, stem: str, name: str, default: int) -> int:
    """Return a setting of one weight, or of the model."""
    own = settings.get(stem)
    value = (own if isinstance(own, dict) else settings).get(name, default)
    return value if type(value) is int and 0 < value <= _MAX_BLOCK else default


def _four_bits(entries: Entries, name: str, kind: str) -> Quantised:
    """Return the rule of bitsandbytes: two numbers of a table in a byte, scaled by block."""
    state_name, file = f"{name}{_STATE}{kind}", entries[name].path.name
    try:
        state = json.loads(entries[state_name].read_bytes().tobytes())
        shape = tuple(int(side) for side in state["shape"])
        size, nested_size = int(state["blocksize"]), int(state.get("nested_blocksize", 1))
        offset = float(state.get("nested_offset", 0.0))
        n = int(np.prod(shape, dtype=object))
        fits = n == 2 * entries[name].n_bytes and 0 < size <= _MAX_BLOCK and nested_size > 0
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(file, f"{quote(state_name)} does not describe its weight") from error
    if not fits or n % size:
        raise damaged(file, f"{quote(name)} does not have the {n:,} numbers of its shape")
    table = _numbers(entries, f"{name}.quant_map", (16,))
    nested = f"{name}.nested_absmax" in entries
    scale = _numbers(entries, f"{name}.absmax", (n // size,))
    if nested:
        inner = _numbers(entries, f"{name}.nested_quant_map", (256,))
        outer = _numbers(entries, f"{name}.nested_absmax", (-(-n // size // nested_size),))

    def values() -> Array:
        raw, scales = entries[name].read_bytes(), scale()
        if nested:
            scales = inner()[scales.astype(np.uint8)]
            scales = scales * outer().repeat(nested_size)[: len(scales)] + np.float32(offset)
        numbers = table()[np.stack([raw >> 4, raw & 15], 1).reshape(-1, size)]
        scaled: Array = numbers * scales[:, None]
        return scaled.reshape(shape)

    return Quantised(kind.upper(), shape, values)


def _affine(entries: Entries, settings: Settings, name: str, stem: str) -> Quantised:
    """Return the rule of MLX: whole numbers of some bits, scaled and shifted by group."""
    n_bits, size = (
        _setting(settings, stem, word, n) for word, n in (("bits", 4), ("group_size", 64))
    )
    rows, n_groups = (
        entries[f"{stem}.scales"].shape[-2:]
        if len(entries[f"{stem}.scales"].shape) == 2
        else (0, 0)
    )
    shape = (rows, n_groups * size)
    entry = entries[name]
    if entry.shape != (rows, shape[1] * n_bits // 32) or n_bits > 8:
        raise damaged(
            entry.path.name,
            f"{quote(name)} of shape {entry.shape} does not hold {n_groups} groups of {size} "
            f"numbers of {n_bits} bits",
            "compare config.json, quantization",
        )
    scale = _numbers(entries, f"{stem}.scales")
    shift = _numbers(entries, f"{stem}.biases", (rows, n_groups))

    def values() -> Array:
        bits = np.unpackbits(entry.read_bytes().reshape(rows, -1), axis=1, bitorder="little")
        powers = np.uint8(1) << np.arange(n_bits, dtype=np.uint8)
        numbers = (bits.reshape(rows, n_groups, size, n_bits) * powers).sum(-1, dtype=np.float32)
        scaled: Array = numbers * scale()[..., None] + shift()[..., None]
        return scaled.reshape(shape)

    return Quantised(f"MLX {n_bits}-bit", shape, values)


def _floats(entries: Entries, settings: Settings, name: str, scale_name: str) -> Quantised:
    """Return the rule of 8-bit floats with one scale for all, for a row, or for a square."""
    shape, scale, scale_shape = (
        entries[name].shape,
        _numbers(entries, scale_name),
        entries[scale_name].shape,
    )
    sides = settings.get("weight_block_size")
    sides = sides if isinstance(sides, list) and len(sides) == 2 else [128, 128]
    good = all(type(side) is int and 0 < side <= _MAX_BLOCK for side in sides)
    blocks = tuple(-(-n // side) for n, side in zip(shape, sides, strict=False)) if good else ()
    if scale_shape not in ((), (1,), shape[:1], (*shape[:1], 1), blocks) or len(shape) != 2:
        raise damaged(
            entries[name].path.name,
            f"{quote(scale_name)} of shape {scale_shape} does not fit a weight of shape {shape}",
        )

    def values() -> Array:
        numbers, scales = _bytes(entries, name, ml_dtypes.float8_e4m3fn), scale()
        if scale_shape == blocks:
            scales = scales.repeat(sides[0], 0).repeat(sides[1], 1)[: shape[0], : shape[1]]
        elif len(scale_shape) == 1:
            scales = scales[:, None]
        scaled: Array = numbers * scales
        return scaled

    return Quantised("FP8", shape, values)
