"""Reader of CTranslate2's model.bin, versions 4 to 6.

    version u32, specification (text), revision u32, number of tensors u32
    per tensor: name (text), rank u8, dimensions u32, type u8, size in bytes u32, data
    number of aliases u32, per alias: its name (text), name of a tensor (text)

A text is a length u16, which includes a closing zero, and its bytes. Settings such as a stack's
num_heads are tensors, too, so that the config.json beside the file is not needed. The weights of
Q, K and V are rows of one linear layer, in this order; in cross-attention Q has a layer of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import (
    CONVERT,
    Array,
    AttentionLayer,
    Kind,
    Projections,
    RealModel,
    Rope,
    Unreadable,
    listing,
    quote,
)
from attnkit.realmodels.binary_file import (
    BinaryFile,
    Cursor,
    TensorEntry,
    check_finite,
    damaged,
    open_header,
)
from attnkit.realmodels.notes import BIASED, NORMED, SLOPED, WINDOWED, quantised, scaled
from attnkit.realmodels.rows import QKV, OptionalQKV, build_projections, check_n_layers, split_rows

TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
"""Number types; the file stores their index."""

DTYPES = {"bfloat16": np.dtype("<u2")} | {
    name: np.dtype(name).newbyteorder("<") for name in TYPES if name != "bfloat16"
}
VERSIONS, MAX_PLAUSIBLE_VERSION = range(4, 7), 99

FAMILIES = {
    "WhisperSpec": "whisper",
    "TransformerSpec": "encoder-decoder",
    "TransformerDecoderSpec": "decoder",
    "TransformerEncoderSpec": "encoder",
}
"""Families by the name of the specification, which is all that the file says about them."""

QUERY_WEIGHT = re.compile(
    r"((encoder|decoder)/layer_(\d{1,6})/(self_attention|attention))/linear_0/weight"
)
"""Name of the weight that computes an attention layer's queries."""

LINEAR_SCALING = 0
"""The only `rotary_scaling_type` that is read."""


@dataclass(frozen=True, eq=False)
class CTranslate2File(BinaryFile):
    """CTranslate2 file whose tensors have been listed; it is a `TensorFile`.

    Aliases are names of entries, too.

    Attributes:
        specification: Name of the model's specification, such as "WhisperSpec".
        settings: Values of the tensors that are one number, by name.
    """

    specification: str
    settings: Mapping[str, float]

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """Read one tensor in single precision; integers are divided by their scale.

        Raises:
            Unreadable: If the tensor is missing, packed in 4 bits, or not finite.
        """
        raw, entry = self.read_bytes(name), self.entries[name]
        if f"{name}_zero" in self.entries:
            raise Unreadable(
                f"{self.path.name} has {quote(name)} packed in 4 bits (AWQ), which is not read; "
                "convert the model with --quantization float16"
            )
        values = _values(raw, entry.type).reshape(entry.shape)
        if entry.type.startswith("int") and entry.shape and not name.endswith("_scale"):
            if f"{name}_scale" not in self.entries:
                raise Unreadable(
                    f"{self.path.name} has {quote(name)} in {entry.type} without a scale, so its "
                    "values are not known; convert the model with --quantization float16"
                )
            scale = self.read(f"{name}_scale")
            if scale.size not in (1, entry.shape[0]):
                raise damaged(
                    self.path.name, f"{quote(name)} has {scale.size:,} scales for {entry.shape}"
                )
            with np.errstate(all="ignore"):  # `check_finite` finds what a scale of 0 gives
                values /= scale.reshape(-1, *[1] * (values.ndim - 1))
        return check_finite(values, self.path.name, name)

    def setting(self, name: str, default: float) -> float:
        """Return the value of a tensor of one number, or the default if it is missing."""
        if name not in self.entries:
            return default
        value = self.settings.get(name, math.nan)
        if not math.isfinite(value):
            raise damaged(self.path.name, f"{quote(name)} is not one finite number")
        return value


def _values(raw: np.ndarray, type: str) -> np.ndarray:
    """Return the numbers that bytes stand for, in single precision."""
    stored = raw.view(DTYPES[type])
    if type == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # callers check that the values are finite
        return stored.astype(np.float32, copy=False)


def open_ctranslate2(path: Path) -> CTranslate2File:
    """Read the names, shapes and settings in a model.bin.

    Raises:
        Unreadable: If it is not such a file, is a pickle, has another version, or contradicts
            itself.
    """
    with open_header(path) as cursor:
        _check_version(cursor)
        specification = cursor.text(cursor.number("H"))
        cursor.number("I")  # the revision
        entries: dict[str, TensorEntry] = {}
        settings: dict[str, float] = {}
        aliases: dict[str, str] = {}
        for _ in range(cursor.count("I", "tensors")):
            name = cursor.text(cursor.number("H"))
            entries[name] = entry = _entry(cursor, quote(name))
            if entry.shape == ():
                raw = np.frombuffer(cursor.data[entry.offset : cursor.position], np.uint8)
                settings[name] = float(_values(raw, entry.type)[0])
        for _ in range(cursor.count("I", "aliases")):
            alias, name = (cursor.text(cursor.number("H")) for _ in range(2))
            if name not in entries:
                raise damaged(path.name, f"{quote(alias)} is an alias of no tensor")
            entries[alias] = entries[name]
            aliases[alias] = name
        for alias, name in aliases.items():  # an alias holds for the tensor's scale, too
            for suffix in ("_scale", "_zero"):
                if name + suffix in entries:
                    entries.setdefault(alias + suffix, entries[name + suffix])
    return CTranslate2File(path, entries, specification, settings)


def _check_version(cursor: Cursor) -> None:
    if cursor.data[:2] == b"PK" or cursor.data[:1] == b"\x80":
        raise Unreadable(f"{cursor.name} is a pickle; {CONVERT}")
    version = cursor.number("I")
    if version > MAX_PLAUSIBLE_VERSION:  # it may be text, or a pickle of the oldest protocol
        raise Unreadable(
            f"{cursor.name} is a file of neither CTranslate2 nor Marian, which would begin with a "
            f"version; if it was saved by PyTorch: {CONVERT}"
        )
    if version not in VERSIONS:
        raise Unreadable(
            f"{cursor.name} has CTranslate2's version {version}, but only versions 4 to 6 are "
            "read; convert the model again with a current CTranslate2"
        )


def _entry(cursor: Cursor, what: str) -> TensorEntry:
    """Read a tensor's shape, type and size, and skip its data."""
    shape = cursor.shape("I", cursor.number("B"))
    type_index = cursor.number("B")
    if type_index >= len(TYPES):
        raise Unreadable(
            f"{cursor.name} has {what} in type {type_index}, which is not known; known are "
            + ", ".join(f"{i} {name}" for i, name in enumerate(TYPES))
        )
    n_bytes = cursor.number("I")
    needed = DTYPES[TYPES[type_index]].itemsize * math.prod(shape)
    if n_bytes != needed:
        raise damaged(
            cursor.name, f"{what} of shape {shape} has {n_bytes:,} bytes, but needs {needed:,}"
        )
    return TensorEntry(shape, TYPES[type_index], cursor.skip(n_bytes), n_bytes)


def ctranslate2_model(path: Path) -> RealModel:
    """Find the attention layers of the model in a model.bin; only names and settings are read.

    Raises:
        Unreadable: As by `open_ctranslate2`, or if there is no attention layer or the settings
            contradict each other.
    """
    file = open_ctranslate2(path)
    kinds = list(Kind)
    layer_keys = []  # index of the kind, block, stack and scope of every layer
    for tensor in file.entries:
        if match := QUERY_WEIGHT.fullmatch(tensor):
            scope, stack, block, attention = match.groups()
            kind = Kind.ENCODER if stack == "encoder" else Kind.CAUSAL
            kind = Kind.CROSS if attention == "attention" else kind
            layer_keys.append((kinds.index(kind), int(block), stack, scope))
    if not layer_keys:
        raise Unreadable(f"{path.name} has no attention by name; it has {listing(file.entries)}")
    check_n_layers(path.name, len(layer_keys))
    layers = []
    indices = {kind: count() for kind in Kind}
    for kind_index, _, stack, scope in sorted(layer_keys):
        kind = kinds[kind_index]
        n_heads = _positive_integer(file, f"{stack}/num_heads")
        default = 1 if file.setting(f"{scope}/multi_query", 0) else n_heads
        n_kv_heads = _positive_integer(file, f"{scope}/num_heads_kv", default)
        if n_heads % n_kv_heads:
            raise damaged(
                path.name, f"{n_heads} query heads cannot share {n_kv_heads} key and value heads"
            )
        read = partial(_read, file, scope, n_heads, n_kv_heads)
        layers.append(AttentionLayer(kind, next(indices[kind]), n_heads, n_kv_heads, read))
    specification = quote(file.specification).strip("'")
    family = FAMILIES.get(file.specification, specification.removesuffix("Spec"))
    scopes = [scope for *_, scope in layer_keys]
    name = path.resolve().parent.name
    return RealModel(name, family, "CTranslate2", tuple(layers), _notes(file, scopes))


def _notes(file: CTranslate2File, scopes: list[str]) -> tuple[str, ...]:
    weights = [f"{scope}/linear_{i}/weight" for scope in scopes for i in (0, 1)]
    types = {file.entries[w].type for w in weights if w in file.entries}
    types = {name for name in types if name.startswith("int")}
    applies = {
        NORMED: any(name.endswith(("/q_norm/gamma", "/k_norm/gamma")) for name in file.entries),
        BIASED: any(name.endswith("/relative_attention_bias") for name in file.entries),
        SLOPED: bool(file.setting("decoder/alibi", 0))
        or any("/relative_position" in name for name in file.entries),
        WINDOWED: any(file.setting(f"{scope}/sliding_window", 0) > 0 for scope in scopes),
        scaled(): any(_scaling(file, scope) not in (None, LINEAR_SCALING) for scope in scopes),
    }
    notes = [note for note, does_apply in applies.items() if does_apply]
    return (*([quantised(types)] if types else []), *notes)


def _positive_integer(file: CTranslate2File, name: str, default: int = 0) -> int:
    value = file.setting(name, default)
    if not 0 < value < 2**16 or value != int(value):
        raise damaged(
            file.path.name, f"{name} is {value:g} or missing; it must be a positive whole number"
        )
    return int(value)


def _scaling(file: CTranslate2File, scope: str) -> int | None:
    """Return the `rotary_scaling_type` of a layer, or None if rotary positions are not scaled."""
    scaling = int(file.setting(f"{scope}/rotary_scaling_type", -1))
    return None if scaling < 0 else scaling


def _read(file: CTranslate2File, scope: str, n_heads: int, n_kv_heads: int) -> Projections:
    """Read the layer whose tensors have names that begin with `scope`."""
    what = quote(scope)
    is_self_attention = scope.endswith("self_attention")
    weights: QKV
    biases: OptionalQKV
    weight, bias = _linear(file, f"{scope}/linear_0")
    if is_self_attention:
        counts = n_heads, n_kv_heads
        weights = split_rows(file.path.name, what, weight, *counts)
        biases = (
            (None, None, None) if bias is None else split_rows(file.path.name, what, bias, *counts)
        )
    else:
        kv_weight, kv_bias = _linear(file, f"{scope}/linear_1")
        _, k, v = split_rows(file.path.name, what, kv_weight, 0, n_kv_heads)
        weights, biases = (weight, k, v), (bias, None, None)
        if kv_bias is not None:
            _, b_k, b_v = split_rows(file.path.name, what, kv_bias, 0, n_kv_heads)
            biases = bias, b_k, b_v
    d_head = len(weights[0]) // n_heads
    head_dim = _positive_integer(file, f"{scope}/head_dim", d_head or 1)
    if head_dim != d_head:
        raise damaged(
            file.path.name,
            f"{what} has {n_heads} heads of width {d_head}, but head_dim is {head_dim}",
        )
    gain_q = _gain(file, scope)
    gain_kv = gain_q if is_self_attention else _gamma(file, "encoder/layer_norm")
    rope = _rope(file, scope, d_head)
    return build_projections(
        file.path.name, what, weights, biases, n_heads, n_kv_heads, (gain_q, gain_kv), rope
    )


def _linear(file: CTranslate2File, name: str) -> tuple[Array, Array | None]:
    """Read a linear layer's weight and its bias, if it has one."""
    weight, bias = file.read(f"{name}/weight"), _optional(file, f"{name}/bias")
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        shape = None if bias is None else bias.shape
        raise damaged(
            file.path.name, f"{quote(name)} has a weight of {weight.shape} and a bias of {shape}"
        )
    return weight, bias


def _gain(file: CTranslate2File, scope: str) -> Array | None:
    """Read the gain of the norm before a layer; None if the model's norms come after it."""
    stack, block, _ = scope.split("/")
    if not file.setting(f"{stack}/pre_norm", 1):
        return None
    norms = [f"{scope}/layer_norm"]
    if scope.endswith("self_attention"):
        norms += [f"{stack}/{block}/{name}" for name in ("input_layer_norm", "shared_layer_norm")]
    for norm in norms:
        if (gamma := _gamma(file, norm)) is not None:
            return gamma
    return None


def _gamma(file: CTranslate2File, norm: str) -> Array | None:
    gamma = _optional(file, f"{norm}/gamma")
    if gamma is not None and file.setting(f"{norm}/layer_norm_use_residual", 0):
        return 1 + gamma
    return gamma


def _rope(file: CTranslate2File, scope: str, d_head: int) -> Rope | None:
    """Return a layer's rotary positions; None without them or if their scaling is not read."""
    n = file.setting(f"{scope}/rotary_dim", -1)
    scaling = _scaling(file, scope)
    if n < 0 or scaling not in (None, LINEAR_SCALING):
        return None
    n = n or d_head  # the format writes 0 for all
    base = file.setting(f"{scope}/rotary_base", 10_000)
    factor = 1.0 if scaling is None else file.setting(f"{scope}/rotary_scaling_factor", 1)
    if n % 2 or n > d_head or base <= 0 or factor <= 0:
        raise damaged(
            file.path.name,
            f"{quote(scope)} cannot rotate {n:g} of a head's {d_head} dimensions with base "
            f"{base:g} and scaling factor {factor:g}",
        )
    frequencies = base ** (-np.arange(0, int(n), 2) / n) / factor
    return Rope(frequencies, bool(file.setting(f"{scope}/rotary_interleave", 1)))


def _optional(file: CTranslate2File, name: str) -> Array | None:
    return file.read(name) if name in file.entries else None
