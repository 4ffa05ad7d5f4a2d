"""Reader of CTranslate2's model.bin, versions 4 to 6.

    version u32, specification (text), revision u32, number of tensors u32
    per tensor: name (text), rank u8, dimensions u32, type u8, size in bytes u32, data
    number of aliases u32, per alias: its name (text), name of a tensor (text)

A text is a length u16, which includes a closing zero, and its bytes. Settings such as a stack's
num_heads are tensors, too, so that the config.json beside the file is not needed. The weights of
Q, K and V are rows of one linear layer, in this order; in cross-attention Q has a layer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import ml_dtypes  # noqa: F401  numpy knows bfloat16 once it is imported
import numpy as np

from attnkit.realmodels.base import Array, Kind, Projections, RealModel, Rope, pairs
from attnkit.realmodels.binary import (
    Stored,
    TensorFile,
    layers_of,
    open_header,
    projections,
    split_heads,
)
from attnkit.realmodels.errors import CONVERT, Unreadable, damaged, quote
from attnkit.realmodels.notes import BIASED, NORMED, SLOPED, WINDOWED, quantised, scaled

TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
"""Number types; the file stores their index."""

FAMILIES = {
    "WhisperSpec": "whisper",
    "TransformerSpec": "encoder-decoder",
    "TransformerDecoderSpec": "decoder",
    "TransformerEncoderSpec": "encoder",
}
"""Families by the name of the specification, which is all that the file says about them."""

_QUERY_WEIGHT = re.compile(
    r"((encoder|decoder)/layer_(\d{1,6})/(self_attention|attention))/linear_0/weight"
)
_UNSCALED, _LINEAR = -1, 0
"""Values of `rotary_scaling_type` that are read."""


def open_ctranslate2(path: Path) -> tuple[TensorFile, str]:
    """Read the names, shapes and settings in a model.bin, and the name of its specification.

    Raises:
        Unreadable: If it is not such a file, is a pickle, has another version, or contradicts
            itself.
    """
    entries: dict[str, Stored] = {}
    settings: dict[str, float] = {}
    with open_header(path) as cursor:
        if cursor.data[:2] == b"PK" or cursor.data[:1] == b"\x80":
            raise Unreadable(f"{path.name} is a pickle; {CONVERT}")
        version = cursor.number("I")
        if version not in range(4, 7):
            raise Unreadable(
                f"{path.name} is a file of neither Marian nor CTranslate2's versions 4 to 6; "
                f"convert the model again, or, if it was saved by PyTorch: {CONVERT}"
            )
        specification = cursor.text(cursor.number("H"))
        cursor.number("I")  # the revision
        for _ in range(cursor.count("I", "tensors")):
            name = cursor.text(cursor.number("H"))
            shape, index = cursor.shape("I", cursor.number("B")), cursor.number("B")
            if index >= len(TYPES):
                raise damaged(path.name, f"{quote(name)} is in type {index}, which is not known")
            entries[name] = cursor.tensor(name, shape, TYPES[index], cursor.number("I"))
            if shape == ():
                raw = cursor.data[entries[name].offset : cursor.position]
                settings[name] = np.frombuffer(raw, TYPES[index])[0].item()
        for _ in range(cursor.count("I", "aliases")):
            alias, name = (cursor.text(cursor.number("H")) for _ in range(2))
            if name not in entries:
                raise damaged(path.name, f"{quote(alias)} is an alias of no tensor")
            for suffix in ("", "_scale", "_zero"):  # an alias holds for the tensor's scale, too
                if name + suffix in entries:
                    entries.setdefault(alias + suffix, entries[name + suffix])
    return TensorFile(path.name, entries, settings, partial(_load, path.name, entries)), (
        specification
    )


def _load(file: str, entries: Mapping[str, Stored], name: str) -> Array:
    """Read one tensor; integers are divided by their scale."""
    entry, advice = entries[name], "convert the model with --quantization float16"
    if f"{name}_zero" in entries:
        raise Unreadable(f"{file} has {quote(name)} packed in 4 bits (AWQ), not read; {advice}")
    values = entry.read_bytes().view(entry.type).astype(np.float32).reshape(entry.shape)
    if entry.type.startswith("int"):
        if f"{name}_scale" not in entries:
            raise Unreadable(f"{file} has {quote(name)} in {entry.type} without a scale; {advice}")
        scale = _load(file, entries, f"{name}_scale")
        if scale.size not in (1, entry.shape[0]):
            raise damaged(file, f"{quote(name)} of shape {entry.shape} has {scale.size:,} scales")
        values /= scale.reshape(-1, *[1] * (values.ndim - 1))
    return values


def ctranslate2_model(path: Path) -> RealModel:
    """Find the attention layers of the model in a model.bin; only names and settings are read.

    Raises:
        Unreadable: As by `open_ctranslate2`, or if there is no attention layer or the settings
            contradict each other.
    """
    file, specification = open_ctranslate2(path)
    matches = filter(None, map(_QUERY_WEIGHT.fullmatch, file.entries))
    scopes = sorted((match.groups() for match in matches), key=lambda groups: int(groups[2]))
    found = []
    for scope, stack, block, attention in scopes:
        cross = attention == "attention"
        kind = Kind.CROSS if cross else Kind.ENCODER if stack == "encoder" else Kind.CAUSAL
        n_heads = file.count(f"{stack}/num_heads")
        default = 1 if file.settings.get(f"{scope}/multi_query") else n_heads
        n_kv_heads = file.count(f"{scope}/num_heads_kv", default)
        read = partial(_read, file, kind, scope, f"{stack}/layer_{block}", n_heads, n_kv_heads)
        found.append((kind, n_heads, n_kv_heads, read))
    family = FAMILIES.get(specification, quote(specification).strip("'").removesuffix("Spec"))
    notes = tuple(_notes(file, [scope for scope, *_ in scopes]))
    name = path.resolve().parent.name
    return RealModel(name, family, "CTranslate2", layers_of(file, found), notes)


def _read(
    file: TensorFile, kind: Kind, scope: str, block: str, n_heads: int, n_kv_heads: int
) -> Projections:
    """Read one layer, whose names begin with `scope`."""
    roles = ("q", "kv") if kind is Kind.CROSS else ("qkv",)
    parts = {role: file.read(f"{scope}/linear_{i}/weight") for i, role in enumerate(roles)}
    d_head = int(file.settings.get(f"{scope}/head_dim", 0))
    matrices = split_heads(file, parts, n_heads, n_kv_heads, d_head)
    gain = None
    if file.settings.get(f"{block.partition('/')[0]}/pre_norm", 1):
        inner = [f"{block}/{name}_layer_norm" for name in ("input", "shared")]
        gain = _gain(file, [f"{scope}/layer_norm", *(inner if kind is not Kind.CROSS else ())])
    gain_kv = _gain(file, ["encoder/layer_norm"]) if kind is Kind.CROSS else gain
    return projections(matrices, gain, gain_kv, _rope(file, scope, matrices["q"].shape[2]))


def _gain(file: TensorFile, names: Iterable[str]) -> Array | None:
    """Return the gain of the first of these norms that is in the file."""
    for name in names:
        if f"{name}/gamma" in file.entries:
            added = 1 if file.settings.get(f"{name}/layer_norm_use_residual") else 0
            return file.read(f"{name}/gamma") + np.float32(added)
    return None


def _notes(file: TensorFile, scopes: list[str]) -> Iterator[str]:
    weights = [f"{scope}/linear_{i}/weight" for scope in scopes for i in (0, 1)]
    types = {file.entries[w].type for w in weights if w in file.entries}
    if types := {name for name in types if name.startswith("int")}:
        yield quantised(types)
    if any(name.endswith(("/q_norm/gamma", "/k_norm/gamma")) for name in file.entries):
        yield NORMED
    if any(name.endswith("/relative_attention_bias") for name in file.entries):
        yield BIASED
    if any("/relative_position" in n for n in file.entries) or file.settings.get("decoder/alibi"):
        yield SLOPED
    if any(file.settings.get(f"{scope}/sliding_window", 0) > 0 for scope in scopes):
        yield WINDOWED
    types_of_scaling = {file.settings.get(f"{s}/rotary_scaling_type", _UNSCALED) for s in scopes}
    if max(types_of_scaling, default=_UNSCALED) > _LINEAR:
        yield scaled()


def _rope(file: TensorFile, scope: str, d_head: int) -> Rope | None:
    """Return a layer's rotary positions; None without them or if their scaling is not read."""
    n = file.settings.get(f"{scope}/rotary_dim", -1)
    scaling = file.settings.get(f"{scope}/rotary_scaling_type", _UNSCALED)
    if n < 0 or scaling > _LINEAR:
        return None
    n = int(n) or d_head  # the format writes 0 for all
    base = file.settings.get(f"{scope}/rotary_base", 10_000.0)
    if n % 2 or n > d_head or not 0 < base < np.inf:
        raise Unreadable(
            f"{file.name}: {scope}/rotary_dim is {n} and its base {base:g}; allowed are an even "
            f"number of a head's {d_head} dimensions and a base above 0"
        )
    frequencies = base ** (-np.arange(0, n, 2) / n)
    if scaling == _LINEAR:
        frequencies /= file.settings.get(f"{scope}/rotary_scaling_factor", 1.0)
    interleaved = bool(file.settings.get(f"{scope}/rotary_interleave", 1))
    return Rope(frequencies, *pairs(n // 2, interleaved=interleaved))
