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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import ml_dtypes  # noqa: F401  numpy knows bfloat16 once it is imported
import numpy as np

from attnkit.realmodels.base import Array, Kind, RealModel, Rope
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.errors import CONVERT, Unreadable, damaged, quote
from attnkit.realmodels.layers import (
    Linear,
    Norm,
    StoredLayer,
    attention_layers,
    find_layers,
    layer_from_shapes,
)
from attnkit.realmodels.notes import BIASED, NORMED, SLOPED, WINDOWED, quantised, scaled
from attnkit.realmodels.tensors import Cursor, TensorEntry, TensorFile, open_header

TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
"""Number types; the file stores their index."""

VERSIONS, MAX_PLAUSIBLE_VERSION = range(4, 7), 99

FAMILIES = {
    "WhisperSpec": "whisper",
    "TransformerSpec": "encoder-decoder",
    "TransformerDecoderSpec": "decoder",
    "TransformerEncoderSpec": "encoder",
}
"""Families by the name of the specification, which is all that the file says about them."""

QUERY_WEIGHT = re.compile(
    r"((encoder|decoder)/layer_(?P<block>\d{1,6})/(self_attention|attention))/linear_0/weight"
)
"""Name of the weight that computes an attention layer's queries."""

LINEAR_SCALING = 0
"""The only `rotary_scaling_type` that is read."""


def open_ctranslate2(path: Path) -> tuple[TensorFile, Configuration, str]:
    """Read the names, shapes and settings in a model.bin.

    Returns:
        The tensors, including aliases; the values of tensors with a single number; and the name
        of the model's specification, such as "WhisperSpec".

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
        for _ in range(cursor.count("I", "tensors")):
            name = cursor.text(cursor.number("H"))
            entries[name] = entry = _entry(cursor, name)
            if entry.shape == ():
                raw = np.frombuffer(cursor.data[entry.offset : cursor.position], np.uint8)
                settings[name] = raw.view(entry.type)[0].item()
        for _ in range(cursor.count("I", "aliases")):
            alias, name = (cursor.text(cursor.number("H")) for _ in range(2))
            if name not in entries:
                raise damaged(path.name, f"{quote(alias)} is an alias of no tensor")
            entries[alias] = entries[name]
            for suffix in ("_scale", "_zero"):  # an alias holds for the tensor's scale, too
                if name + suffix in entries:
                    entries.setdefault(alias + suffix, entries[name + suffix])
    file = TensorFile(path.name, entries, partial(_load, path.name, entries))
    return file, Configuration(settings, path.name), specification


def _check_version(cursor: Cursor) -> None:
    file = cursor.path.name
    if cursor.data[:2] == b"PK" or cursor.data[:1] == b"\x80":
        raise Unreadable(f"{file} is a pickle; {CONVERT}")
    version = cursor.number("I")
    if version > MAX_PLAUSIBLE_VERSION:  # it may be text, or a pickle of the oldest protocol
        raise Unreadable(
            f"{file} is a file of neither CTranslate2 nor Marian, which would begin with a "
            f"version; if it was saved by PyTorch: {CONVERT}"
        )
    if version not in VERSIONS:
        raise Unreadable(
            f"{file} has CTranslate2's version {version}, but only versions 4 to 6 are read; "
            "convert the model again with a current CTranslate2"
        )


def _entry(cursor: Cursor, name: str) -> TensorEntry:
    """Read a tensor's shape, type and size, and skip its data."""
    shape = cursor.shape("I", cursor.number("B"))
    index = cursor.number("B")
    if index >= len(TYPES):
        raise Unreadable(
            f"{cursor.path.name} has {quote(name)} in type {index}, which is not known; known are "
            + ", ".join(f"{i} {known}" for i, known in enumerate(TYPES))
        )
    n_bytes, needed = cursor.number("I"), np.dtype(TYPES[index]).itemsize * math.prod(shape)
    return cursor.entry(name, shape, TYPES[index], n_bytes, needed)


def _load(file: str, entries: Mapping[str, TensorEntry], name: str) -> Array:
    """Read one tensor in single precision; integers are divided by their scale."""
    entry, advice = entries[name], "convert the model with --quantization float16"
    if f"{name}_zero" in entries:
        raise Unreadable(f"{file} has {quote(name)} packed in 4 bits (AWQ), not read; {advice}")
    with np.errstate(invalid="ignore"):  # the caller checks that the values are finite
        values = entry.read_bytes().view(entry.type).astype(np.float32, copy=False)
    values = values.reshape(entry.shape)
    if entry.type.startswith("int"):
        scales = entries.get(f"{name}_scale")
        if scales is None or not scales.type.startswith("float"):
            raise Unreadable(
                f"{file} has {quote(name)} in {entry.type} without a scale, so its values are not "
                f"known; {advice}"
            )
        scale = _load(file, entries, f"{name}_scale")
        if scale.size not in (1, entry.shape[0]) or not np.isfinite(scale).all():
            raise damaged(
                file,
                f"{quote(name)} of shape {entry.shape} has {scale.size:,} scales; they must be "
                "finite, one for all rows or one for each",
            )
        with np.errstate(all="ignore"):  # the caller finds what a scale of 0 gives
            values /= scale.reshape(-1, *[1] * (values.ndim - 1))
    return values


def ctranslate2_model(path: Path) -> RealModel:
    """Find the attention layers of the model in a model.bin; only names and settings are read.

    Raises:
        Unreadable: As by `open_ctranslate2`, or if there is no attention layer or the settings
            contradict each other.
    """
    file, settings, specification = open_ctranslate2(path)
    matches = find_layers(file, QUERY_WEIGHT)
    layers = attention_layers(
        file, (_stored_layer(file, settings, *match.groups()) for match in matches)
    )
    name = quote(specification).strip("'")
    family = FAMILIES.get(specification, name.removesuffix("Spec"))
    notes = tuple(_notes(file, settings, [match[1] for match in matches]))
    return RealModel(path.resolve().parent.name, family, "CTranslate2", layers, notes)


def _stored_layer(
    file: TensorFile, settings: Configuration, scope: str, stack: str, block: str, attention: str
) -> StoredLayer:
    """Return names and shapes of the tensors of a layer; the names begin with `scope`."""
    is_cross = attention == "attention"
    kind = Kind.CROSS if is_cross else Kind.ENCODER if stack == "encoder" else Kind.CAUSAL
    n_heads = settings.count(f"{stack}/num_heads")
    default = 1 if settings.values.get(f"{scope}/multi_query") else n_heads
    n_kv_heads = settings.count(f"{scope}/num_heads_kv", default=default)
    names = [f"{scope}/linear_{i}" for i in (0, 1)]
    roles = ("q", "kv") if is_cross else ("qkv",)
    linears = tuple(
        Linear(role, f"{name}/weight", f"{name}/bias")
        for role, name in zip(roles, names, strict=False)
    )
    d_head = settings.count(f"{scope}/head_dim", default=0)
    layer = layer_from_shapes(file, kind, linears, n_heads, n_kv_heads, d_head=d_head)
    norm = None
    if settings.values.get(f"{stack}/pre_norm", 1):
        norms = [f"{scope}/layer_norm"]
        if not is_cross:
            norms += [f"{stack}/layer_{block}/{n}_layer_norm" for n in ("input", "shared")]
        norm = _norm(file, settings, norms)
    kv_norm = _norm(file, settings, ["encoder/layer_norm"]) if is_cross else norm
    rope = _rope(settings, scope, layer.d_head)
    return replace(layer, norm=norm, kv_norm=kv_norm, rope=rope)


def _norm(file: TensorFile, settings: Configuration, names: Iterable[str]) -> Norm | None:
    """Return the first of these norms that is in the file."""
    for name in names:
        if f"{name}/gamma" in file.entries:
            added = settings.values.get(f"{name}/layer_norm_use_residual")
            return Norm(f"{name}/gamma", 1.0 if added else 0.0)
    return None


def _notes(file: TensorFile, settings: Configuration, scopes: list[str]) -> Iterator[str]:
    weights = [f"{scope}/linear_{i}/weight" for scope in scopes for i in (0, 1)]
    types = {file.entries[w].type for w in weights if w in file.entries}
    if types := {name for name in types if name.startswith("int")}:
        yield quantised(types)
    if any(name.endswith(("/q_norm/gamma", "/k_norm/gamma")) for name in file.entries):
        yield NORMED
    if any(name.endswith("/relative_attention_bias") for name in file.entries):
        yield BIASED
    has_positions = any("/relative_position" in name for name in file.entries)
    if has_positions or settings.values.get("decoder/alibi"):
        yield SLOPED
    if any(settings.values.get(f"{scope}/sliding_window", 0) > 0 for scope in scopes):
        yield WINDOWED
    if any(_scaling(settings, scope) not in (None, LINEAR_SCALING) for scope in scopes):
        yield scaled()


def _scaling(settings: Configuration, scope: str) -> float | None:
    """Return the `rotary_scaling_type` of a layer, or None if rotary positions are not scaled."""
    scaling: float = settings.values.get(f"{scope}/rotary_scaling_type", -1)
    return None if scaling < 0 else scaling


def _rope(settings: Configuration, scope: str, d_head: int) -> Rope | None:
    """Return a layer's rotary positions; None without them or if their scaling is not read."""
    n = settings.values.get(f"{scope}/rotary_dim", -1)
    scaling = _scaling(settings, scope)
    if n < 0 or scaling not in (None, LINEAR_SCALING):
        return None
    n = n or d_head  # the format writes 0 for all
    if n % 2 or not 0 < n <= d_head:
        raise Unreadable(
            f"{settings.file}: {scope}/rotary_dim is {n:g}; it must be an even number of a head's "
            f"{d_head} dimensions"
        )
    base = settings.number(f"{scope}/rotary_base", default=10_000.0)
    frequencies = base ** (-np.arange(0, int(n), 2) / n)
    if scaling is not None:
        frequencies /= settings.number(f"{scope}/rotary_scaling_factor", default=1.0)
    return Rope(frequencies, bool(settings.values.get(f"{scope}/rotary_interleave", 1)))
