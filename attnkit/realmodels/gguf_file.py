"""Reader of GGUF files, the format of llama.cpp.

The package `gguf` dequantises the blocks of bytes. llama.cpp's converter changes two things in the
weights of Hugging Face models. In Llama's layout it shuffles the rows of Q and K within each head,
so that the two dimensions of a rotary pair are neighbours; this is undone here. Gemma's norms are
stored with their 1 added, so that nothing needs to be added here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import gguf
import gguf.quants
import numpy as np

from attnkit.realmodels.base import Array, Kind, RealModel, Rope
from attnkit.realmodels.configuration import Configuration
from attnkit.realmodels.errors import Unreadable, quote
from attnkit.realmodels.gguf_header import read_header
from attnkit.realmodels.layers import (
    Linear,
    Norm,
    StoredLayer,
    attention_layers,
    find_layers,
    layer_from_shapes,
)
from attnkit.realmodels.notes import BIASED, CAPPED, NORMED, WINDOWED, quantised, scaled
from attnkit.realmodels.tensors import TensorEntry, TensorFile


def open_gguf(path: Path) -> tuple[TensorFile, Configuration]:
    """Read the tensors' entries and the keys of a GGUF file, without the tokenizer's.

    Raises:
        Unreadable: If it is not a GGUF file, has another version, or is damaged.
    """
    metadata, entries = read_header(path)
    return TensorFile(path.name, entries, partial(_load, entries)), Configuration(
        metadata, path.name
    )


def _load(entries: Mapping[str, TensorEntry], name: str) -> Array:
    """Read one tensor in single precision."""
    entry = entries[name]
    raw = entry.read_bytes().reshape(*entry.shape[:-1], -1)
    with np.errstate(all="ignore"):  # the caller finds damaged scales
        try:
            values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[entry.type])
        except NotImplementedError as error:
            raise Unreadable(
                f"{entry.path.name} has {quote(name)} in {entry.type}, which is not read; convert "
                "the model to F16 or Q8_0"
            ) from error
        return np.asarray(values, np.float32).reshape(entry.shape)


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

QUERY_WEIGHT = re.compile(
    r"(?P<prefix>(?P<stack>enc\.|dec\.|)blk\.(?P<block>\d{1,6})\.(?P<attention>cross_attn|attn))"
    r"_(?P<role>q|qkv)\.weight"
)
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
    file, keys = open_gguf(path)
    family = keys.word("general.architecture", ARCHITECTURES)
    if keys.number("split.count", default=1) > 1:
        raise Unreadable(
            f"{path.name} is one file of a model in several files; join them with "
            "llama-gguf-split --merge"
        )
    matches = find_layers(file, QUERY_WEIGHT)
    is_scaled = _is_scaled(file, keys, family)
    stored = (_stored_layer(file, keys, family, match, is_scaled) for match in matches)
    layers = attention_layers(file, stored)
    notes = tuple(_notes(file, keys, family, [match["prefix"] for match in matches]))
    notes += (scaled(),) if is_scaled else ()
    return RealModel(_model_name(path, keys), family, "GGUF", layers, notes)


def _model_name(path: Path, keys: Configuration) -> str:
    """Return the file's name without its type, or general.name if the file has a generic name."""
    stem = TYPE_SUFFIX.sub("", path.stem)
    _, name = keys.find("general.name")
    generic = stem.lower() in ("model", "ggml-model", "ggml", "gguf")
    return name if generic and isinstance(name, str) and name else stem


def _notes(
    file: TensorFile, keys: Configuration, family: str, prefixes: list[str]
) -> Iterator[str]:
    weights = [f"{prefix}_{role}.weight" for prefix in prefixes for role in ("q", "k", "v", "qkv")]
    types = {file.entries[w].type for w in weights if w in file.entries} - set(UNQUANTISED)
    if types:
        yield quantised(types)
    if any(f"{prefix}_{r}_norm.weight" in file.entries for prefix in prefixes for r in "qk"):
        yield NORMED
    if any(f"{prefix}_rel_b.weight" in file.entries for prefix in prefixes):
        yield BIASED
    for key, note in (("attn_logit_softcapping", CAPPED), ("attention.sliding_window", WINDOWED)):
        if keys.find(f"{family}.{key}")[1]:
            yield note


def _stored_layer(
    file: TensorFile, keys: Configuration, family: str, match: re.Match[str], is_scaled: bool
) -> StoredLayer:
    """Return names and shapes of the tensors of a layer, from the name of its first weight."""
    architecture, prefix, block = ARCHITECTURES[family], match["prefix"], int(match["block"])
    is_cross = match["attention"] == "cross_attn"
    kind = {"enc.": Kind.ENCODER, "dec.": Kind.CAUSAL}.get(match["stack"], architecture.kind)
    own, key = keys.of_layer(block), f"{family}.attention"
    n_heads = own.count(f"{key}.head_count")
    n_kv_heads = own.count(f"{key}.head_count_kv", default=n_heads)
    roles = ("qkv",) if match["role"] == "qkv" else tuple("qkv")
    layer = layer_from_shapes(
        file,
        Kind.CROSS if is_cross else kind,
        tuple(Linear(r, f"{prefix}_{r}.weight", f"{prefix}_{r}.bias") for r in roles),
        n_heads,
        n_kv_heads,
        d_head=own.count(f"{key}.key_length", default=0),
        d_value=own.count(f"{key}.value_length", default=0),
    )
    norm = Norm(f"{prefix}_norm.weight")
    norms = norm, Norm("enc.output_norm.weight") if is_cross else norm
    present = [norm if norm.weight in file.entries else None for norm in norms]
    rope = None
    if architecture.rotary and not is_scaled:
        rope = _rope(file, own, family, block, layer.d_head)
    return replace(
        layer,
        norm=present[0],
        kv_norm=present[1],
        rope=rope,
        # Without pairs of dimensions, the converter has not shuffled them.
        shuffled=architecture.shuffled and layer.d_head % 2 == 0,
    )


def _is_scaled(file: TensorFile, keys: Configuration, family: str) -> bool:
    """Return whether rotary positions are scaled by a rule that is not read."""
    if not ARCHITECTURES[family].rotary:
        return False
    _, scaling = keys.find(f"{family}.rope.scaling.type")
    return scaling not in (None, "linear", "none") or "rope_factors_long.weight" in file.entries


def _rope(file: TensorFile, keys: Configuration, family: str, block: int, d_head: int) -> Rope:
    """Return the rotary positions of one block, in Hugging Face's order of dimensions."""
    architecture, key = ARCHITECTURES[family], f"{family}.rope"
    n = keys.count(f"{key}.dimension_count", default=d_head)
    if n > d_head or n % 2 or d_head % 2:
        raise Unreadable(
            f"{file.name}: {key}.dimension_count is {n:,}; of a head's {d_head:,} dimensions, an "
            "even number must rotate"
        )
    every = architecture.global_every
    if every is not None and (block + 1) % every != 0:
        base, scale = keys.number(f"{key}.freq_base_swa", default=DEFAULT_LOCAL_BASE), 1.0
    else:
        base, scale = keys.number(f"{key}.freq_base", default=10_000.0), 1.0
        names = f"{key}.scaling.factor", f"{key}.scale_linear"
        if keys.find(*names)[1] and keys.find(f"{key}.scaling.type")[1] != "none":
            scale = 1 / keys.number(*names)  # a factor of 0 means none
    frequencies = scale * base ** (-np.arange(0, n, 2) / n)
    if "rope_freqs.weight" in file.entries:
        file.check_shape("rope_freqs.weight", frequencies.shape, f"{n} dimensions rotate")
        factors = file.read("rope_freqs.weight")
        if (factors <= 0).any():
            raise Unreadable(f"{file.name}: rope_freqs.weight must hold {n // 2} positive factors")
        frequencies /= factors
    if architecture.shuffled:
        # The two dimensions of a pair are half a head apart, even if not all of them rotate.
        frequencies = np.pad(frequencies, (0, (d_head - n) // 2))
    return Rope(frequencies)
