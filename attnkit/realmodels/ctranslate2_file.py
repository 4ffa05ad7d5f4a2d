"""CTranslate2's model.bin, versions 4 to 6: tensors one at a time, and which are attention.

    version u32, what is built (text), revision u32, tensors u32
    per tensor: name (text), rank u8, dimensions u32, type u8, bytes u32, data
    aliases u32, per alias: its name (text), that of a tensor (text)

A text is a length u16, its closing zero included, and bytes. The file says all that is needed, so
that config.json beside it is not read: small settings are tensors, too, such as a stack's
num_heads. Q, K and V are rows of one layer, in this order; cross-attention has Q apart.
"""

from __future__ import annotations

import math
import re
import struct
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
from attnkit.realmodels.cursor import Cursor, check_finite, damaged, open_header, read_bytes
from attnkit.realmodels.notes import BIASED, NORMED, SLOPED, WINDOWED, quantised, scaled
from attnkit.realmodels.rows import QKV, OptionalQKV, build_projections, check_n_layers, split_rows

U8, U16, U32 = struct.Struct("B"), struct.Struct("<H"), struct.Struct("<I")
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
"""By their number in the file."""

DTYPES = {"bfloat16": np.dtype("<u2")} | {
    name: np.dtype(name).newbyteorder("<") for name in TYPES if name != "bfloat16"
}
VERSIONS, FARTHEST_VERSION = range(4, 7), 99
MOST_TENSORS = 2**14
MOST_AXES = 8

FAMILIES = {
    "WhisperSpec": "whisper",
    "TransformerSpec": "encoder-decoder",
    "TransformerDecoderSpec": "decoder",
    "TransformerEncoderSpec": "encoder",
}
"""What is built, by its name in the file; it does not say more."""

BLOCK = re.compile(
    r"((encoder|decoder)/layer_(\d{1,6})/(self_attention|attention))/linear_0/weight"
)

LINEAR_SCALING = 0
"""Among the ways to scale rotary positions, the one that is read."""


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a model.bin.

    Attributes:
        offset: from the start of the file.
    """

    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, eq=False)
class CTranslate2File:
    """A model.bin whose header is read; a TensorFile.

    Attributes:
        built: what is built of the tensors, say "WhisperSpec".
        entries: every tensor, and under its other names, too.
        settings: those that are one number.
    """

    path: Path
    built: str
    entries: Mapping[str, TensorEntry]
    settings: Mapping[str, float]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of every tensor; a linear layer's is (outputs, inputs)."""
        return {name: entry.shape for name, entry in self.entries.items()}

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """One tensor in single precision; whole numbers with a scale are divided by it.

        Raises:
            Unreadable: if it is not there, packed, or not finite.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise Unreadable(
                f"{self.path.name} has no tensor {quote(name)}; it has {listing(self.entries)}"
            )
        if f"{name}_zero" in self.entries:
            raise Unreadable(
                f"{self.path.name} has {quote(name)} packed in 4 bits (AWQ), which is not read; "
                "convert the model without it, say with --quantization float16"
            )
        raw = read_bytes(self.path, entry.offset, entry.n_bytes, name)
        values = _values(raw, entry.type).reshape(entry.shape)
        if entry.type.startswith("int") and entry.shape and not name.endswith("_scale"):
            if f"{name}_scale" not in self.entries:
                raise Unreadable(
                    f"{self.path.name} has {quote(name)} in {entry.type} without a scale, so what "
                    "numbers it stands for is not known; convert the model to float16"
                )
            scale = self.read(f"{name}_scale")
            if scale.size not in (1, entry.shape[0]):
                raise damaged(
                    self.path.name, f"{quote(name)} has {scale.size:,} scales for {entry.shape}"
                )
            with np.errstate(all="ignore"):  # a scale of 0 is found right after
                values /= scale.reshape(-1, *[1] * (values.ndim - 1))
        return check_finite(values, self.path.name, name)

    def setting(self, name: str, otherwise: float) -> float:
        """A setting, which is a tensor of one number, or another number where it is missing."""
        if name not in self.entries:
            return otherwise
        value = self.settings.get(name, math.nan)
        if not math.isfinite(value):
            raise damaged(self.path.name, f"{quote(name)} is not one finite number")
        return value


def _values(raw: np.ndarray, kind: str) -> np.ndarray:
    """What numbers bytes stand for, in single precision."""
    stored = raw.view(DTYPES[kind])
    if kind == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # what is no number is found by who asks
        return stored.astype(np.float32, copy=False)


def open_ctranslate2(path: Path) -> CTranslate2File:
    """Reads the names and shapes in a model.bin.

    Raises:
        Unreadable: if it is no such file, of another version, or contradicts itself; or a pickle.
    """
    with open_header(path) as cursor:
        if cursor.data[:2] == b"PK" or cursor.data[:1] == b"\x80":
            raise Unreadable(f"{path.name} is a pickle; {CONVERT}")
        version = cursor.number(U32, "the version")
        if version > FARTHEST_VERSION:  # then it is text, or a pickle of the oldest protocol
            raise Unreadable(
                f"{path.name} is neither of CTranslate2, whose files begin with a version, nor "
                f"safetensors; if it is of PyTorch: {CONVERT}"
            )
        if version not in VERSIONS:
            raise Unreadable(
                f"{path.name} is of CTranslate2's version {version}, and versions 4 to 6 are "
                "read; convert the model again with a current CTranslate2"
            )
        built = _text(cursor, "what is built")
        cursor.number(U32, "the revision")
        n_tensors = cursor.number(U32, "the number of tensors")
        _few(cursor, n_tensors, "tensors")
        entries: dict[str, TensorEntry] = {}
        settings: dict[str, float] = {}
        aliases: dict[str, str] = {}
        for i in range(n_tensors):
            name = _new_name(cursor, entries, f"tensor {i}")
            entries[name] = entry = _entry(cursor, quote(name))
            if entry.shape == ():
                raw = np.frombuffer(cursor.data[entry.offset : cursor.position], np.uint8)
                settings[name] = float(_values(raw, entry.type)[0])
        n_aliases = cursor.number(U32, "the number of aliases")
        _few(cursor, n_aliases, "aliases")
        for i in range(n_aliases):
            alias = _new_name(cursor, entries, f"alias {i}")
            name = _text(cursor, f"what alias {i} names")
            if name not in entries:
                raise damaged(path.name, f"{quote(alias)} is an alias of no tensor")
            entries[alias] = entries[name]
            aliases[alias] = name
        for alias, name in aliases.items():  # which is that of its scale, too
            for part in ("_scale", "_zero"):
                if name + part in entries:
                    entries.setdefault(alias + part, entries[name + part])
    return CTranslate2File(path, built, entries, settings)


def _text(cursor: Cursor, what: str) -> str:
    """A text, without its closing zero."""
    n = cursor.number(U16, f"the length of {what}")
    return cursor.text(n, what).partition("\0")[0]


def _few(cursor: Cursor, n: int, what: str) -> None:
    if n > MOST_TENSORS:
        raise damaged(cursor.name, f"it claims {n:,} {what}, and {MOST_TENSORS:,} are read")


def _new_name(cursor: Cursor, entries: Mapping[str, TensorEntry], what: str) -> str:
    name = _text(cursor, f"the name of {what}")
    if not name or name in entries:
        raise damaged(
            cursor.name,
            f"{what} is called {quote(name)}, "
            + ("which is another's name" if name else "which is no name"),
        )
    return name


def _entry(cursor: Cursor, what: str) -> TensorEntry:
    """A tensor's place; its data is passed over."""
    rank = cursor.number(U8, f"the rank of {what}")
    if rank > MOST_AXES:
        raise damaged(cursor.name, f"{what} has rank {rank}, and {MOST_AXES} at most are read")
    shape = cursor.numbers("I", rank, f"the shape of {what}")
    kind = cursor.number(U8, f"the type of {what}")
    if kind >= len(TYPES):
        raise Unreadable(
            f"{cursor.name} has {what} in type {kind}, which is not known; known are "
            + ", ".join(f"{i} {name}" for i, name in enumerate(TYPES))
        )
    n_bytes = cursor.number(U32, f"the size of {what}")
    needed = DTYPES[TYPES[kind]].itemsize
    for side in shape:
        needed *= side
    if n_bytes != needed:
        raise damaged(
            cursor.name, f"{what} of shape {shape} has {n_bytes:,} bytes and would need {needed:,}"
        )
    return TensorEntry(shape, TYPES[kind], cursor.skip(n_bytes, what), n_bytes)


def ctranslate2_model(path: Path) -> RealModel:
    """The attention of the model in a model.bin; nothing but names and settings is read yet.

    Raises:
        Unreadable: as `open_ctranslate2` does; or if no layer is attention by its name, or the
            settings do not fit.
    """
    file = open_ctranslate2(path)
    found = []
    for tensor in file.entries:
        if block := BLOCK.fullmatch(tensor):
            scope, stack, number, attention = block.groups()
            kind = Kind.ENCODER if stack == "encoder" else Kind.CAUSAL
            kind = Kind.CROSS if attention == "attention" else kind
            found.append((list(Kind).index(kind), int(number), stack, scope))
    if not found:
        raise Unreadable(f"{path.name} has no attention by name; it has {listing(file.entries)}")
    check_n_layers(path.name, len(found))
    layers = []
    indices = {kind: count() for kind in Kind}
    for place, _, stack, scope in sorted(found):
        kind = list(Kind)[place]
        n_heads = _count(file, f"{stack}/num_heads")
        shared = 1 if file.setting(f"{scope}/multi_query", 0) else n_heads
        n_kv_heads = _count(file, f"{scope}/num_heads_kv", shared)
        if n_heads % n_kv_heads:
            raise damaged(
                path.name, f"{n_heads} query heads cannot share {n_kv_heads} key and value heads"
            )
        read = partial(_read, file, scope, n_heads, n_kv_heads)
        layers.append(AttentionLayer(kind, next(indices[kind]), n_heads, n_kv_heads, read))
    family = FAMILIES.get(file.built, quote(file.built).strip("'").removesuffix("Spec"))
    scopes = [scope for *_, scope in found]
    name = path.resolve().parent.name
    return RealModel(name, family, "CTranslate2", tuple(layers), _notes(file, scopes))


def _notes(file: CTranslate2File, scopes: list[str]) -> tuple[str, ...]:
    """What to know of the numbers."""
    weights = [f"{scope}/linear_{i}/weight" for scope in scopes for i in (0, 1)]
    types = {file.entries[w].type for w in weights if w in file.entries}
    types = {name for name in types if name.startswith("int")}
    said = {
        NORMED: any(name.endswith(("/q_norm/gamma", "/k_norm/gamma")) for name in file.entries),
        BIASED: any(name.endswith("/relative_attention_bias") for name in file.entries),
        SLOPED: bool(file.setting("decoder/alibi", 0))
        or any("/relative_position" in name for name in file.entries),
        WINDOWED: any(file.setting(f"{scope}/sliding_window", 0) > 0 for scope in scopes),
        scaled(): any(_scaling(file, scope) not in (None, LINEAR_SCALING) for scope in scopes),
    }
    notes = [note for note, holds in said.items() if holds]
    return (*([quantised(types)] if types else []), *notes)


def _count(file: CTranslate2File, name: str, otherwise: int = 0) -> int:
    """A positive whole number among the settings."""
    value = file.setting(name, otherwise)
    if not 0 < value < 2**16 or value != int(value):
        raise damaged(
            file.path.name, f"{name} is {value:g}, and must be there and a positive whole number"
        )
    return int(value)


def _scaling(file: CTranslate2File, scope: str) -> int | None:
    """How rotary positions are scaled, by its number in the format."""
    kind = int(file.setting(f"{scope}/rotary_scaling_type", -1))
    return None if kind < 0 else kind


def _read(file: CTranslate2File, scope: str, n_heads: int, n_kv_heads: int) -> Projections:
    """One layer's matrices; `scope` is what its tensors' names begin with."""
    what = quote(scope)
    own = scope.endswith("self_attention")
    weights: QKV
    biases: OptionalQKV
    weight, bias = _linear(file, f"{scope}/linear_0")
    if own:
        counts = n_heads, n_kv_heads
        weights = split_rows(file.path.name, what, weight, *counts)
        biases = (
            (None, None, None) if bias is None else split_rows(file.path.name, what, bias, *counts)
        )
    else:
        pair, pair_bias = _linear(file, f"{scope}/linear_1")
        _, k, v = split_rows(file.path.name, what, pair, 0, n_kv_heads)
        weights, biases = (weight, k, v), (bias, None, None)
        if pair_bias is not None:
            _, b_k, b_v = split_rows(file.path.name, what, pair_bias, 0, n_kv_heads)
            biases = bias, b_k, b_v
    d_head = len(weights[0]) // n_heads
    width = _count(file, f"{scope}/head_dim", d_head or 1)
    if width != d_head:
        raise damaged(
            file.path.name, f"{what} has {n_heads} heads of {d_head}, and head_dim is {width}"
        )
    gain = _gain(file, scope)
    seen = gain if own else _gamma(file, "encoder/layer_norm")
    rope = _rope(file, scope, d_head)
    return build_projections(
        file.path.name, what, weights, biases, n_heads, n_kv_heads, (gain, seen), rope
    )


def _linear(file: CTranslate2File, name: str) -> tuple[Array, Array | None]:
    """A linear layer's weight and bias."""
    weight, bias = file.read(f"{name}/weight"), _optional(file, f"{name}/bias")
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        shape = None if bias is None else bias.shape
        raise damaged(
            file.path.name, f"{quote(name)} has a weight of {weight.shape} and a bias of {shape}"
        )
    return weight, bias


def _gain(file: CTranslate2File, scope: str) -> Array | None:
    """Gain of the norm before a layer; None where norms come after it."""
    stack, block, _ = scope.split("/")
    if not file.setting(f"{stack}/pre_norm", 1):
        return None
    places = [f"{scope}/layer_norm"]
    if scope.endswith("self_attention"):
        places += [f"{stack}/{block}/{norm}" for norm in ("input_layer_norm", "shared_layer_norm")]
    for place in places:
        if (gamma := _gamma(file, place)) is not None:
            return gamma
    return None


def _gamma(file: CTranslate2File, norm: str) -> Array | None:
    gamma = _optional(file, f"{norm}/gamma")
    if gamma is not None and file.setting(f"{norm}/layer_norm_use_residual", 0):
        return 1 + gamma
    return gamma


def _rope(file: CTranslate2File, scope: str, d_head: int) -> Rope | None:
    """How queries and keys turn; None where they do not, or in a way that is not read."""
    n = file.setting(f"{scope}/rotary_dim", -1)
    scaling = _scaling(file, scope)
    if n < 0 or scaling not in (None, LINEAR_SCALING):
        return None
    n = n or d_head  # the format writes 0 for all
    base = file.setting(f"{scope}/rotary_base", 10_000)
    slower = 1.0 if scaling is None else file.setting(f"{scope}/rotary_scaling_factor", 1)
    if n % 2 or n > d_head or base <= 0 or slower <= 0:
        raise damaged(
            file.path.name,
            f"{quote(scope)} turns {n:g} of a head's {d_head} dimensions at base {base:g}, "
            f"{slower:g} times slower",
        )
    frequencies = base ** (-np.arange(0, int(n), 2) / n) / slower
    return Rope(frequencies, bool(file.setting(f"{scope}/rotary_interleave", 1)))


def _optional(file: CTranslate2File, name: str) -> Array | None:
    return file.read(name) if name in file.entries else None
