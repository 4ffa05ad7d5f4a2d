"""GGUF, the format of llama.cpp: tensors one at a time, and which of them are attention.

What numbers a block of bytes stands for is asked of the package `gguf`, which knows every
quantisation. Its converter keeps Hugging Face's matrices but for two things, which are undone or
need no doing here: in Llama's layout the rows of Q and K are shuffled within each head, so that
rotary pairs stand side by side; and Gemma's norms are stored with their 1 added.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import (
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
from attnkit.realmodels.cursor import check_finite, damaged, read_bytes
from attnkit.realmodels.gguf_header import TensorEntry, Value, is_whole, read_header
from attnkit.realmodels.notes import BIASED, CAPPED, NORMED, WINDOWED, quantised, scaled
from attnkit.realmodels.rows import QKV, OptionalQKV, build_projections, check_n_layers, split_rows


@dataclass(frozen=True, eq=False)
class GgufFile:
    """A GGUF file whose header is read; a TensorFile.

    Attributes:
        metadata: the header's keys but long ones.
        entries: every tensor, by name.
    """

    path: Path
    metadata: Mapping[str, Value]
    entries: Mapping[str, TensorEntry]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of every tensor; a linear layer's is (outputs, inputs)."""
        return {name: entry.shape for name, entry in self.entries.items()}

    def type_of(self, name: str) -> str:
        """How a tensor's numbers are written, say "Q4_1"."""
        return str(_library().GGMLQuantizationType(self.entries[name].kind).name)

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """One tensor in single precision; the file is open only meanwhile.

        Raises:
            Unreadable: if it is not there, of a type that is not read, or not finite.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise Unreadable(
                f"{self.path.name} has no tensor {quote(name)}; it has {listing(self.entries)}"
            )
        raw = read_bytes(self.path, entry.offset, entry.n_bytes, name)
        library = _library()
        with np.errstate(all="ignore"):  # a damaged scale is found right after
            try:
                values = library.quants.dequantize(
                    raw.reshape(*entry.shape[:-1], -1), library.GGMLQuantizationType(entry.kind)
                )
            except NotImplementedError as error:
                raise Unreadable(
                    f"{self.path.name} has {quote(name)} in {self.type_of(name)}, which is not "
                    "read; convert the model to F16 or Q8_0"
                ) from error
        return check_finite(
            np.asarray(values, np.float32).reshape(entry.shape), self.path.name, name
        )


def open_gguf(path: Path) -> GgufFile:
    """Reads a GGUF file's header.

    Raises:
        Unreadable: if it is no such file, of another version, or damaged.
    """
    blocks = {int(kind): held for kind, held in _library().GGML_QUANT_SIZES.items()}
    return GgufFile(path, *read_header(path, blocks))


def _library() -> ModuleType:
    """Imported only now: it takes longer than a file's header."""
    import gguf
    import gguf.quants

    return gguf


@dataclass(frozen=True)
class Architecture:
    """What a GGUF file does not say of itself, but its architecture's name does.

    Attributes:
        kind: of the layers in blocks that are neither an encoder's nor a decoder's.
        rotary: whether queries and keys turn by position.
        shuffled: whether the converter shuffles the rows of Q and K for that.
        local: how many layers make a group of which only the last looks far; the others, which
            are local, turn at another base. None where all are alike.
    """

    kind: Kind = Kind.CAUSAL
    rotary: bool = True
    shuffled: bool = False
    local: int | None = None


ARCHITECTURES = {
    "llama": Architecture(shuffled=True),  # and what is built as it is: Mistral, SmolLM2 …
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "phi3": Architecture(),
    "gemma": Architecture(),
    "gemma2": Architecture(),
    "gemma3": Architecture(local=6),
    "gpt2": Architecture(rotary=False),
    "bert": Architecture(Kind.ENCODER, rotary=False),
    "nomic-bert": Architecture(Kind.ENCODER),
    "t5": Architecture(rotary=False),
    "t5encoder": Architecture(rotary=False),
}
"""By the name in the key general.architecture."""

LOCAL_BASE = 10_000.0

BLOCK = re.compile(r"(enc\.|dec\.|)blk\.(\d{1,6})\.(cross_attn|attn)_(?:q|qkv)\.weight")

PLAIN = ("F32", "F16", "BF16")

QUANTISED = re.compile(r"[-._](i?q\d\w*|b?f\d+|mxfp4)$", re.IGNORECASE)
"""What a file's name ends in to tell its type."""


def gguf_model(path: Path) -> RealModel:
    """The attention of the model in a GGUF file; nothing but the header is read yet.

    Raises:
        Unreadable: as `open_gguf` does; or if the architecture is none of `ARCHITECTURES`, or the
            header does not fit it.
    """
    file = open_gguf(path)
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise Unreadable(
            f"{path.name}: the architecture {quote(name)} is not read; those read are "
            + ", ".join(ARCHITECTURES)
        )
    if _number(file, "split.count", 1) > 1:
        raise Unreadable(
            f"{path.name} is one part of several; join them with llama-gguf-split --merge"
        )
    architecture = ARCHITECTURES[name]
    found = set()
    for tensor in file.entries:
        if block := BLOCK.fullmatch(tensor):
            side, number, attention = block.groups()
            kind = {"enc.": Kind.ENCODER, "dec.": Kind.CAUSAL}.get(side, architecture.kind)
            kind = Kind.CROSS if attention == "cross_attn" else kind
            found.add((list(Kind).index(kind), int(number), f"{side}blk.{number}.{attention}"))
    if not found:
        raise Unreadable(f"{path.name} has no attention by name; it has {listing(file.entries)}")
    check_n_layers(path.name, len(found))
    turning, notes = _turning(file, name, architecture)
    layers = []
    indices = {kind: count() for kind in Kind}
    for place, number, stem in sorted(found):
        kind = list(Kind)[place]
        n_heads = _heads(file, f"{name}.attention.head_count", number)
        n_kv_heads = _heads(file, f"{name}.attention.head_count_kv", number, n_heads)
        if n_heads % n_kv_heads:
            raise damaged(
                path.name, f"{n_heads} query heads cannot share {n_kv_heads} key and value heads"
            )
        layers.append(
            AttentionLayer(
                kind,
                next(indices[kind]),
                n_heads,
                n_kv_heads,
                partial(_read, file, name, stem, number, n_heads, n_kv_heads, turning),
            )
        )
    stems = [stem for *_, stem in found]
    return RealModel(
        _title(file), name, "GGUF", tuple(layers), (*_notes(file, name, stems), *notes)
    )


def _title(file: GgufFile) -> str:
    """The file's name without its type; or the key's, where that says nothing."""
    stem = QUANTISED.sub("", file.path.stem)
    name = file.metadata.get("general.name")
    generic = stem.lower() in ("model", "ggml-model", "ggml", "gguf")
    return " ".join(name.split())[:80] if generic and isinstance(name, str) and name else stem


def _width(file: GgufFile, key: str) -> int | None:
    """A positive whole number, if the header has it."""
    return _heads(file, key, 0) if key in file.metadata else None


def _notes(file: GgufFile, name: str, stems: list[str]) -> tuple[str, ...]:
    """What to know of the numbers."""
    weights = [f"{stem}_{part}.weight" for stem in stems for part in ("q", "k", "v", "qkv")]
    types = {file.type_of(w) for w in weights if w in file.entries} - set(PLAIN)
    said = {
        NORMED: any(
            f"{stem}_{part}_norm.weight" in file.entries for stem in stems for part in "qk"
        ),
        BIASED: any(f"{stem}_rel_b.weight" in file.entries for stem in stems),
        CAPPED: _number(file, f"{name}.attn_logit_softcapping", 0) > 0,
        WINDOWED: _number(file, f"{name}.attention.sliding_window", 0) > 0,
    }
    notes = [note for note, holds in said.items() if holds]
    return (*([quantised(types)] if types else []), *notes)


def _number(file: GgufFile, key: str, otherwise: float) -> float:
    """A key's number, or another one where the key is missing."""
    value = file.metadata.get(key, otherwise)
    if isinstance(value, bool | str | tuple) or not math.isfinite(value):
        raise damaged(file.path.name, f"{key} is {quote(value)} and not a number")
    return value


def _heads(file: GgufFile, key: str, layer: int, otherwise: int | None = None) -> int:
    """A number of heads: one for all layers, or one for each."""
    value = file.metadata.get(key, otherwise)
    if isinstance(value, tuple):
        value = value[layer] if layer < len(value) else None
    if not is_whole(value) or not 0 < value < 2**16:
        raise damaged(
            file.path.name, f"{key} is {quote(value)}, and must be a positive whole number"
        )
    return value


@dataclass(frozen=True)
class Turning:
    """How queries and keys turn by position, where the header says so.

    Attributes:
        base: of the angles, and `local_base` of local layers.
        scale: of all of them; local layers have none.
        n_dims: how many of a head's dimensions turn; all if None.
    """

    base: float
    local_base: float
    scale: float
    n_dims: int | None

    def rope(self, file: GgufFile, architecture: Architecture, number: int, d_head: int) -> Rope:
        """That of one block's heads, in Hugging Face's order of dimensions."""
        n = d_head if self.n_dims is None else self.n_dims
        if n > d_head or n % 2 or d_head % 2:
            raise damaged(file.path.name, f"{n:,} of a head's {d_head:,} dimensions turn in pairs")
        local = architecture.local is not None and (number + 1) % architecture.local != 0
        base, scale = (self.local_base, 1.0) if local else (self.base, self.scale)
        frequencies = scale * base ** (-np.arange(0, n, 2) / n)
        if (factors := _optional(file, "rope_freqs.weight")) is not None:
            if factors.shape != frequencies.shape or (factors <= 0).any():
                raise damaged(file.path.name, f"rope_freqs.weight is not {n // 2} factors")
            frequencies /= factors
        if architecture.shuffled:  # then a pair's halves are half a head apart, though fewer turn
            frequencies = np.pad(frequencies, (0, (d_head - n) // 2))
        return Rope(frequencies)


def _turning(
    file: GgufFile, name: str, architecture: Architecture
) -> tuple[Turning | None, tuple[str, ...]]:
    """How queries and keys turn, and a note where that is not read."""
    if not architecture.rotary:
        return None, ()
    key = f"{name}.rope"
    scaling = file.metadata.get(f"{key}.scaling.type", "linear")
    if scaling not in ("linear", "none") or "rope_factors_long.weight" in file.entries:
        return None, (scaled(),)
    slower = _number(file, f"{key}.scaling.factor", _number(file, f"{key}.scale_linear", 1))
    turning = Turning(
        _number(file, f"{key}.freq_base", 10_000),
        _number(file, f"{key}.freq_base_swa", LOCAL_BASE),
        1 / slower if slower and scaling == "linear" else 1.0,  # the format writes 0 for none
        _width(file, f"{key}.dimension_count"),
    )
    if min(turning.base, turning.local_base, turning.scale) <= 0:
        raise damaged(file.path.name, f"a base or factor in the keys {key}.* is not positive")
    return turning, ()


def _read(
    file: GgufFile,
    name: str,
    stem: str,
    number: int,
    n_heads: int,
    n_kv_heads: int,
    turning: Turning | None,
) -> Projections:
    """One layer's matrices; `stem` is what its tensors' names begin with."""
    architecture, what = ARCHITECTURES[name], quote(stem)
    widths = [_width(file, f"{name}.attention.{part}_length") for part in ("key", "value")]
    weights: QKV
    biases: OptionalQKV
    if f"{stem}_qkv.weight" in file.entries:
        fused, bias = file.read(f"{stem}_qkv.weight"), _optional(file, f"{stem}_qkv.bias")
        parts = partial(
            split_rows,
            file.path.name,
            what,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=widths[0],
            d_value=widths[1],
        )
        weights = parts(fused)
        biases = (None, None, None) if bias is None else parts(bias)
    else:
        q, k, v = (file.read(f"{stem}_{part}.weight") for part in "qkv")
        b_q, b_k, b_v = (_optional(file, f"{stem}_{part}.bias") for part in "qkv")
        weights, biases = (q, k, v), (b_q, b_k, b_v)
    d_head = len(weights[0]) // n_heads
    found = [d_head, len(weights[2]) // n_kv_heads]
    if any(width not in (None, there) for width, there in zip(widths, found, strict=True)):
        raise damaged(
            file.path.name,
            f"{what} has keys and values of widths {found}, and its header says {widths}",
        )
    gain = _optional(file, f"{stem}_norm.weight")
    gains = gain, _optional(file, "enc.output_norm.weight") if stem.endswith("cross_attn") else gain
    rope = None if turning is None else turning.rope(file, architecture, number, d_head)
    read = build_projections(
        file.path.name, what, weights, biases, n_heads, n_kv_heads, gains, rope
    )
    return _in_order(read) if architecture.shuffled else read


def _in_order(read: Projections) -> Projections:
    """Queries and keys with the dimensions of a head as before the converter shuffled them."""
    d_head = read.W_Q.shape[-1]
    if d_head % 2:
        return read  # nothing turns in pairs there, and nothing was shuffled
    order = np.r_[0:d_head:2, 1:d_head:2]
    return replace(
        read,
        W_Q=read.W_Q[..., order],
        W_K=read.W_K[..., order],
        b_Q=None if read.b_Q is None else read.b_Q[:, order],
        b_K=None if read.b_K is None else read.b_K[:, order],
    )


def _optional(file: GgufFile, name: str) -> Array | None:
    return file.read(name) if name in file.entries else None
