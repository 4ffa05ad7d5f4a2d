"""Reader of GGUF files, the format of llama.cpp.

The package `gguf` dequantises the blocks of bytes. llama.cpp's converter changes two things in the
weights of Hugging Face models. In Llama's layout it shuffles the rows of Q and K within each head,
so that the two dimensions of a rotary pair are neighbours; this is undone here. Gemma's norms are
stored with their 1 added, so that nothing needs to be added here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import gguf
import gguf.quants
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
from attnkit.realmodels.binary_file import BinaryFile, check_finite, damaged
from attnkit.realmodels.gguf_header import Value, read_header
from attnkit.realmodels.notes import BIASED, CAPPED, NORMED, WINDOWED, quantised, scaled
from attnkit.realmodels.rows import QKV, OptionalQKV, build_projections, check_n_layers, split_rows


@dataclass(frozen=True, eq=False)
class GgufFile(BinaryFile):
    """GGUF file whose header has been read; it is a `TensorFile`.

    Attributes:
        metadata: Values of the header's keys, without the tokenizer.
    """

    metadata: Mapping[str, Value]

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """Read one tensor in single precision; the file is open only during this call.

        Raises:
            Unreadable: If the tensor is missing, of an unsupported type, or not finite.
        """
        raw, entry = self.read_bytes(name), self.entries[name]
        with np.errstate(all="ignore"):  # `check_finite` finds damaged scales
            try:
                values = gguf.quants.dequantize(
                    raw.reshape(*entry.shape[:-1], -1), gguf.GGMLQuantizationType[entry.type]
                )
            except NotImplementedError as error:
                raise Unreadable(
                    f"{self.path.name} has {quote(name)} in {entry.type}, which is not "
                    "read; convert the model to F16 or Q8_0"
                ) from error
        values = np.asarray(values, np.float32).reshape(entry.shape)
        return check_finite(values, self.path.name, name)


def open_gguf(path: Path) -> GgufFile:
    """Read a GGUF file's header.

    Raises:
        Unreadable: If it is not a GGUF file, has another version, or is damaged.
    """
    metadata, entries = read_header(path)
    return GgufFile(path, entries, metadata)


@dataclass(frozen=True)
class Architecture:
    """Facts about a model that follow from its architecture and are not in the GGUF file.

    Attributes:
        kind: Kind of the layers in blocks that belong neither to an encoder nor to a decoder.
        rotary: Whether positions are rotary.
        shuffled: Whether the converter shuffles the rows of Q and K.
        global_every: The last of every so many layers attends globally; the others attend within
            a window and have another rotary base. None if all layers are alike.
    """

    kind: Kind = Kind.CAUSAL
    rotary: bool = True
    shuffled: bool = False
    global_every: int | None = None


ARCHITECTURES = {
    "llama": Architecture(shuffled=True),  # also models of the same layout: Mistral, SmolLM2 …
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "phi3": Architecture(),
    "gemma": Architecture(),
    "gemma2": Architecture(),
    "gemma3": Architecture(global_every=6),
    "gpt2": Architecture(rotary=False),
    "bert": Architecture(Kind.ENCODER, rotary=False),
    "nomic-bert": Architecture(Kind.ENCODER),
    "t5": Architecture(rotary=False),
    "t5encoder": Architecture(rotary=False),
}
"""Architectures that are read, by the value of the key general.architecture."""

DEFAULT_LOCAL_BASE = 10_000.0

QUERY_WEIGHT = re.compile(r"(enc\.|dec\.|)blk\.(\d{1,6})\.(cross_attn|attn)_(?:q|qkv)\.weight")
"""Name of the weight that computes an attention layer's queries."""

UNQUANTISED = ("F32", "F16", "BF16")

TYPE_SUFFIX = re.compile(r"[-._](i?q\d\w*|b?f\d+|mxfp4)$", re.IGNORECASE)
"""End of a file's name that states its number type."""


def gguf_model(path: Path) -> RealModel:
    """Find the attention layers of the model in a GGUF file; only the header is read.

    Raises:
        Unreadable: As by `open_gguf`, or if the architecture is not in `ARCHITECTURES` or the
            header contradicts it.
    """
    file = open_gguf(path)
    family = file.metadata.get("general.architecture")
    if not isinstance(family, str) or family not in ARCHITECTURES:
        raise Unreadable(
            f"{path.name}: the architecture {quote(family)} is not read; those read are "
            + ", ".join(ARCHITECTURES)
        )
    if _number(file, "split.count", 1) > 1:
        raise Unreadable(
            f"{path.name} is one file of a model in several files; join them with "
            "llama-gguf-split --merge"
        )
    architecture = ARCHITECTURES[family]
    kinds = list(Kind)
    layer_keys = set()  # index of the kind, block and prefix of every layer
    for tensor in file.entries:
        if match := QUERY_WEIGHT.fullmatch(tensor):
            stack, block, attention = match.groups()
            kind = {"enc.": Kind.ENCODER, "dec.": Kind.CAUSAL}.get(stack, architecture.kind)
            kind = Kind.CROSS if attention == "cross_attn" else kind
            layer_keys.add((kinds.index(kind), int(block), f"{stack}blk.{block}.{attention}"))
    if not layer_keys:
        raise Unreadable(f"{path.name} has no attention by name; it has {listing(file.entries)}")
    check_n_layers(path.name, len(layer_keys))
    rotary, rotary_notes = _rotary_settings(file, family, architecture)
    layers = []
    indices = {kind: count() for kind in Kind}
    for kind_index, block, prefix in sorted(layer_keys):
        kind = kinds[kind_index]
        n_heads = _positive_integer(file, f"{family}.attention.head_count", block)
        n_kv_heads = _positive_integer(file, f"{family}.attention.head_count_kv", block, n_heads)
        if n_heads % n_kv_heads:
            raise damaged(
                path.name, f"{n_heads} query heads cannot share {n_kv_heads} key and value heads"
            )
        read = partial(_read, file, family, prefix, block, n_heads, n_kv_heads, rotary)
        layers.append(AttentionLayer(kind, next(indices[kind]), n_heads, n_kv_heads, read))
    prefixes = [prefix for *_, prefix in layer_keys]
    notes = (*_notes(file, family, prefixes), *rotary_notes)
    return RealModel(_model_name(file), family, "GGUF", tuple(layers), notes)


def _model_name(file: GgufFile) -> str:
    """Return the file's name without its type, or general.name if the file has a generic name."""
    stem = TYPE_SUFFIX.sub("", file.path.stem)
    name = file.metadata.get("general.name")
    generic = stem.lower() in ("model", "ggml-model", "ggml", "gguf")
    return " ".join(name.split())[:80] if generic and isinstance(name, str) and name else stem


def _notes(file: GgufFile, family: str, prefixes: list[str]) -> tuple[str, ...]:
    weights = [f"{prefix}_{role}.weight" for prefix in prefixes for role in ("q", "k", "v", "qkv")]
    types = {file.entries[w].type for w in weights if w in file.entries} - set(UNQUANTISED)
    applies = {
        NORMED: any(
            f"{prefix}_{role}_norm.weight" in file.entries for prefix in prefixes for role in "qk"
        ),
        BIASED: any(f"{prefix}_rel_b.weight" in file.entries for prefix in prefixes),
        CAPPED: _number(file, f"{family}.attn_logit_softcapping", 0) > 0,
        WINDOWED: _number(file, f"{family}.attention.sliding_window", 0) > 0,
    }
    notes = [note for note, does_apply in applies.items() if does_apply]
    return (*([quantised(types)] if types else []), *notes)


def _number(file: GgufFile, key: str, default: float) -> float:
    """Return a key's number, or the default if the key is missing."""
    value = file.metadata.get(key, default)
    if isinstance(value, bool | str | list) or not math.isfinite(value):
        raise damaged(file.path.name, f"{key} is {quote(value)} and not a number")
    return value


def _positive_integer(file: GgufFile, key: str, block: int = 0, default: int | None = None) -> int:
    """Return a key's integer, which holds for all blocks, or the item of its list for one block."""
    value = file.metadata.get(key, default)
    if isinstance(value, list):
        value = value[block] if block < len(value) else None
    if type(value) is not int or not 0 < value < 2**16:
        raise damaged(
            file.path.name, f"{key} is {quote(value)}, but it must be a positive whole number"
        )
    return value


def _optional_width(file: GgufFile, key: str) -> int | None:
    return _positive_integer(file, key) if key in file.metadata else None


@dataclass(frozen=True)
class RotarySettings:
    """Rotary positions as the header describes them.

    Attributes:
        base: Base of the frequencies.
        local_base: Base of the frequencies in layers that attend within a window.
        scale: Factor of all frequencies, except in layers that attend within a window.
        n_dims: Number of a head's dimensions that rotate; all of them if None.
    """

    base: float
    local_base: float
    scale: float
    n_dims: int | None

    def rope(self, file: GgufFile, architecture: Architecture, block: int, d_head: int) -> Rope:
        """Return the rotary positions of one block, in Hugging Face's order of dimensions."""
        n = d_head if self.n_dims is None else self.n_dims
        if n > d_head or n % 2 or d_head % 2:
            raise damaged(
                file.path.name, f"{n:,} of a head's {d_head:,} dimensions cannot rotate in pairs"
            )
        every = architecture.global_every
        local = every is not None and (block + 1) % every != 0
        base, scale = (self.local_base, 1.0) if local else (self.base, self.scale)
        frequencies = scale * base ** (-np.arange(0, n, 2) / n)
        if (factors := _optional(file, "rope_freqs.weight")) is not None:
            if factors.shape != frequencies.shape or (factors <= 0).any():
                raise damaged(
                    file.path.name, f"rope_freqs.weight must hold {n // 2} positive factors"
                )
            frequencies /= factors
        if architecture.shuffled:
            # The two dimensions of a pair are half a head apart, even if not all of them rotate.
            frequencies = np.pad(frequencies, (0, (d_head - n) // 2))
        return Rope(frequencies)


def _rotary_settings(
    file: GgufFile, family: str, architecture: Architecture
) -> tuple[RotarySettings | None, tuple[str, ...]]:
    """Return the rotary settings, and a note if they have a scaling that is not read."""
    if not architecture.rotary:
        return None, ()
    key = f"{family}.rope"
    scaling = file.metadata.get(f"{key}.scaling.type", "linear")
    if scaling not in ("linear", "none") or "rope_factors_long.weight" in file.entries:
        return None, (scaled(),)
    factor = _number(file, f"{key}.scaling.factor", _number(file, f"{key}.scale_linear", 1))
    settings = RotarySettings(
        base=_number(file, f"{key}.freq_base", 10_000),
        local_base=_number(file, f"{key}.freq_base_swa", DEFAULT_LOCAL_BASE),
        scale=1 / factor if factor and scaling == "linear" else 1.0,  # a factor of 0 means none
        n_dims=_optional_width(file, f"{key}.dimension_count"),
    )
    if min(settings.base, settings.local_base, settings.scale) <= 0:
        raise damaged(file.path.name, f"a base or factor in the keys {key}.* is not positive")
    return settings, ()


def _read(
    file: GgufFile,
    family: str,
    prefix: str,
    block: int,
    n_heads: int,
    n_kv_heads: int,
    rotary: RotarySettings | None,
) -> Projections:
    """Read the layer whose tensors have names with this prefix."""
    architecture, what = ARCHITECTURES[family], quote(prefix)
    widths = [_optional_width(file, f"{family}.attention.{key}_length") for key in ("key", "value")]
    weights: QKV
    biases: OptionalQKV
    if f"{prefix}_qkv.weight" in file.entries:
        fused, bias = file.read(f"{prefix}_qkv.weight"), _optional(file, f"{prefix}_qkv.bias")
        weights = split_rows(file.path.name, what, fused, n_heads, n_kv_heads, *widths)
        biases = (None, None, None)
        if bias is not None:
            biases = split_rows(file.path.name, what, bias, n_heads, n_kv_heads, *widths)
    else:
        q, k, v = (file.read(f"{prefix}_{role}.weight") for role in "qkv")
        b_q, b_k, b_v = (_optional(file, f"{prefix}_{role}.bias") for role in "qkv")
        weights, biases = (q, k, v), (b_q, b_k, b_v)
    d_head = len(weights[0]) // n_heads
    actual = [d_head, len(weights[2]) // n_kv_heads]
    if any(width not in (None, n) for width, n in zip(widths, actual, strict=True)):
        raise damaged(
            file.path.name,
            f"{what} has keys and values of widths {actual}, but the header says {widths}",
        )
    gain = _optional(file, f"{prefix}_norm.weight")
    cross = prefix.endswith("cross_attn")
    gains = gain, _optional(file, "enc.output_norm.weight") if cross else gain
    rope = None if rotary is None else rotary.rope(file, architecture, block, d_head)
    layer = build_projections(
        file.path.name, what, weights, biases, n_heads, n_kv_heads, gains, rope
    )
    return _unshuffled(layer) if architecture.shuffled else layer


def _unshuffled(layer: Projections) -> Projections:
    """Return the layer with the dimensions of Q and K in the order before the conversion."""
    d_head = layer.W_Q.shape[-1]
    if d_head % 2:
        return layer  # dimensions cannot form pairs, so the converter has not shuffled them
    order = np.r_[0:d_head:2, 1:d_head:2]
    return replace(
        layer,
        W_Q=layer.W_Q[..., order],
        W_K=layer.W_K[..., order],
        b_Q=None if layer.b_Q is None else layer.b_Q[:, order],
        b_K=None if layer.b_K is None else layer.b_K[:, order],
    )


def _optional(file: GgufFile, name: str) -> Array | None:
    return file.read(name) if name in file.entries else None
