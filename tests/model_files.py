"""Small model files of every format, and what of them can be damaged.

The writers are as short as the formats and share nothing with the readers. A written file knows
where the numbers of its header stand, so that each of them can be made false.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from marian_files import bin_file, configuration, npz_file, transformer

Rows = list[dict[str, np.ndarray]]
"""Rows of W_Q, W_K and W_V of each layer, (h·d, m), by the letters q, k and v."""


@dataclass(frozen=True)
class Sizes:
    """Shape of a small model; Marian's is as wide as its heads, each of which has its own keys."""

    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    d_head: int = 2
    d_model: int = 32

    def drawn(self, rng: np.random.Generator) -> Rows:
        """Return random rows of every layer."""
        heads = {"q": self.n_heads, "k": self.n_kv_heads, "v": self.n_kv_heads}
        return [
            {p: normal(rng, n * self.d_head, self.d_model) for p, n in heads.items()}
            for _ in range(self.n_layers)
        ]


@dataclass(frozen=True)
class File:
    """A model file.

    Attributes:
        fields: Place and `struct` code of each number in the header, by name.
        beside: Files in the same folder, by name: bytes, or values to be written as JSON.
        header: The header, if it is JSON.
    """

    name: str
    data: bytes
    fields: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    header: Any = None

    def with_field(self, name: str, value: float) -> bytes:
        """Return the content with another value of a field."""
        place, code = self.fields[name]
        raw = struct.pack("<" + code, value)
        return self.data[:place] + raw + self.data[place + len(raw) :]


class Writer:
    """Bytes of a file, and the places of their fields."""

    def __init__(self, start: bytes = b"") -> None:
        self.data, self.fields = bytearray(start), {}

    def number(self, name: str, code: str, value: float) -> None:
        """Write a number, and remember its place by its name."""
        self.fields[name] = (len(self.data), code)
        self.data += struct.pack("<" + code, value)

    def text(self, name: str, code: str, value: str, end: bytes = b"") -> None:
        """Write a text after its length."""
        raw = value.encode() + end
        self.number(f"{name} length", code, len(raw))
        self.data += raw


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random numbers in single precision."""
    return rng.standard_normal(shape).astype(np.float32)


# safetensors


def llama(sizes: Sizes) -> dict[str, Any]:
    """Return the configuration of a Llama."""
    return {
        "model_type": "llama",
        "hidden_size": sizes.d_model,
        "num_hidden_layers": sizes.n_layers,
        "num_attention_heads": sizes.n_heads,
        "num_key_value_heads": sizes.n_kv_heads,
        "head_dim": sizes.d_head,
    }


def encode(header: Any, data: bytes, length: int | None = None) -> bytes:
    """Encode a safetensors file; `length` may differ from the header's true length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors_file(sizes: Sizes, rows: Rows, **instead: np.ndarray) -> File:
    """Write a Llama; `instead` replaces tensors by name."""
    tensors = {}
    for i, layer in enumerate(rows):
        stem = f"model.layers.{i}."
        tensors[f"{stem}input_layernorm.weight"] = np.ones(sizes.d_model, np.float32)
        tensors |= {f"{stem}self_attn.{p}_proj.weight": w for p, w in layer.items()}
    header, data = {}, b""
    for name, values in (tensors | instead).items():
        raw = values.tobytes()
        ends = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": ends}
        data += raw
    beside = {"config.json": llama(sizes)}
    return File("model.safetensors", encode(header, data), {"header": (0, "Q")}, beside, header)


def index_file(sizes: Sizes, rows: Rows) -> File:
    """Write the same model as an index of one file."""
    part = safetensors_file(sizes, rows)
    beside = {**part.beside, "part.safetensors": part.data}
    index = {"weight_map": dict.fromkeys(part.header, "part.safetensors")}
    name = "model.safetensors.index.json"
    return File(name, json.dumps(index).encode(), beside=beside, header=index)


# GGUF

GGUF_CODES = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}

Tensor = tuple[tuple[int, ...], int, bytes]
"""Shape, type and bytes of a tensor."""


def floats(values: np.ndarray) -> Tensor:
    """Return a tensor in single precision."""
    return values.shape, 0, values.astype(np.float32).tobytes()


def gguf_file(
    sizes: Sizes,
    rows: Rows,
    keys: Mapping[str, tuple[int, Any] | None] | None = None,
    tensors: Mapping[str, Tensor | None] | None = None,
    more: bytes = b"",
) -> File:
    """Write a Llama as llama.cpp does, which interleaves the halves of each query and key head.

    `keys` and `tensors` are added or changed, or removed by None; `more` is an encoded key.
    """
    all_keys = {
        "general.architecture": (8, "llama"),
        "llama.block_count": (4, sizes.n_layers),
        "llama.attention.head_count": (4, sizes.n_heads),
        "llama.attention.head_count_kv": (4, sizes.n_kv_heads),
        "llama.attention.key_length": (4, sizes.d_head),
        "llama.rope.freq_base": (6, 1e4),
        "tokenizer.ggml.tokens": (9, (8, ["a", "bc", ""])),
        "tokenizer.ggml.scores": (9, (6, [1.0, 2.0])),
        **(keys or {}),
    }
    all_tensors: dict[str, Tensor | None] = {}
    for i, layer in enumerate(rows):
        all_tensors[f"blk.{i}.attn_norm.weight"] = floats(np.ones(sizes.d_model))
        for p, w in layer.items():
            halves = w.reshape(-1, 2, sizes.d_head // 2, sizes.d_model).swapaxes(1, 2)
            stored = w if p == "v" else halves.reshape(w.shape)
            all_tensors[f"blk.{i}.attn_{p}.weight"] = floats(stored)
    known = {name: value for name, value in all_keys.items() if value is not None}
    held = {name: t for name, t in (all_tensors | dict(tensors or {})).items() if t is not None}
    out = Writer(b"GGUF")
    out.number("version", "I", 3)
    out.number("tensors", "Q", len(held))
    out.number("keys", "Q", len(known) + bool(more))
    for name, (kind, value) in known.items():
        out.text(f"key {name}", "Q", name)
        out.number(f"type of {name}", "I", kind)
        gguf_value(out, name, kind, value)
    out.data += more
    data, align = b"", 32
    for name, (shape, kind, raw) in held.items():
        data += bytes(-len(data) % align)
        out.text(name, "Q", name)
        out.number(f"{name} rank", "I", len(shape))
        for axis, side in enumerate(shape[::-1]):
            out.number(f"{name} side {axis}", "Q", side)
        out.number(f"{name} type", "I", kind)
        out.number(f"{name} offset", "Q", len(data))
        data += raw
    out.data += bytes(-len(out.data) % align)
    return File("model.gguf", bytes(out.data) + data, out.fields)


def gguf_value(out: Writer, name: str, kind: int, value: Any) -> None:
    """Write a value of GGUF."""
    if kind == 8:
        out.text(name, "Q", value)
    elif kind == 9:
        inner, items = value
        out.number(f"{name} items' type", "I", inner)
        out.number(f"{name} items", "Q", len(items))
        for i, item in enumerate(items):
            gguf_value(out, f"{name} {i}", inner, item)
    else:
        out.number(name, GGUF_CODES[kind], value)


# CTranslate2

CT2_TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}
CT2_CODES = {"float32": "f", "int8": "b", "int16": "h", "int32": "i"}
SELF = "decoder/layer_{}/self_attention"
CROSS = "decoder/layer_0/attention"


def ctranslate2_file(
    sizes: Sizes, rows: Rows, aliases: Mapping[str, str] | None = None, **instead: Any
) -> File:
    """Write a decoder; `instead` replaces tensors by name, and None removes one."""
    tensors = {
        "decoder/num_heads": np.int16(sizes.n_heads),
        "decoder/pre_norm": np.int8(1),
        f"{CROSS}/layer_norm/gamma": np.ones(sizes.d_model, np.float32),
    }
    tensors |= {f"{CROSS}/linear_0/weight": rows[0]["q"]}
    tensors |= {f"{CROSS}/linear_1/weight": np.concatenate([rows[0]["q"]] * 2)}
    for i, layer in enumerate(rows):
        stem = SELF.format(i)
        tensors |= {
            f"{stem}/num_heads_kv": np.int32(sizes.n_kv_heads),
            f"{stem}/head_dim": np.int32(sizes.d_head),
            f"{stem}/rotary_dim": np.int32(sizes.d_head),
            f"{stem}/rotary_base": np.float32(1e4),
            f"{stem}/layer_norm/gamma": np.ones(sizes.d_model, np.float32),
            f"{stem}/linear_0/weight": np.concatenate(list(layer.values())),
        }
    held = {name: np.asarray(v) for name, v in (tensors | instead).items() if v is not None}
    out = Writer()
    out.number("version", "I", 6)
    out.text("class", "H", "TransformerSpec", b"\0")
    out.number("revision", "I", 7)
    out.number("tensors", "I", len(held))
    for name, values in held.items():
        out.text(name, "H", name, b"\0")
        out.number(f"{name} rank", "B", values.ndim)
        for axis, side in enumerate(values.shape):
            out.number(f"{name} side {axis}", "I", side)
        out.number(f"{name} type", "B", CT2_TYPES[values.dtype.name])
        out.number(f"{name} size", "I", values.nbytes)
        if values.ndim:
            out.data += values.tobytes()
        else:
            out.number(name, CT2_CODES[values.dtype.name], values.item())
    out.number("aliases", "I", len(aliases or {}))
    for alias, name in (aliases or {}).items():
        out.text(f"alias {alias}", "H", alias, b"\0")
        out.text(f"target {alias}", "H", name, b"\0")
    return File("model.bin", bytes(out.data), out.fields)


# Marian


def small_marian(sizes: Sizes, **instead: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return an encoder's and a decoder's tensors; `instead` replaces some, None removes one."""
    n = sizes.n_layers
    tensors = transformer(sizes.n_heads * sizes.d_head, 5, n_encoder=n, n_decoder=n)
    tensors = {name: value for name, value in tensors.items() if "ffn" not in name} | instead
    return {name: value for name, value in tensors.items() if value is not None}


def marian_text(sizes: Sizes, **instead: Any) -> str:
    """Return the configuration of that model."""
    depths = {"enc_depth": sizes.n_layers, "dec_depth": sizes.n_layers}
    heads = {"transformer_heads": sizes.n_heads, "dim_emb": sizes.n_heads * sizes.d_head}
    return configuration(**depths | heads | instead)


def marian_bin(tensors: Mapping[str, np.ndarray], text: str | bytes | None, **more: Any) -> File:
    """Write a *.bin, and where its numbers stand."""
    data = bin_file(tensors, text, **more)
    names = [*tensors, *([] if text is None else ["special:model.yml"])]
    fields = {"version": (0, "Q"), "tensors": (8, "Q")}
    place = 16 + 32 * len(names) + sum(len(name) + 1 for name in names)
    for i, name in enumerate(names):
        parts = enumerate(("name", "type", "rank", "size"))
        fields |= {f"{name} {part}": (16 + 32 * i + 8 * j, "Q") for j, part in parts}
        for axis in range(tensors[name].ndim if name in tensors else 1):
            fields[f"{name} side {axis}"] = (place, "i")
            place += 4
    return File("model.bin", data, fields | {"padding": (place, "Q")})


def marian_npz(tensors: Mapping[str, np.ndarray], text: str | bytes | None) -> File:
    """Write a *.npz; the numbers are those of the archive's directory."""
    data = npz_file(tensors, text)
    end, first, last = data.rindex(b"PK\5\6"), data.index(b"PK\1\2"), data.rindex(b"PK\1\2")
    fields = {
        "directory size": (end + 12, "I"),
        "directory place": (end + 16, "I"),
        "member flags": (first + 8, "H"),
        "member method": (first + 10, "H"),
        "member size": (first + 20, "I"),
        "member full size": (first + 24, "I"),
        "member place": (first + 42, "I"),
        "last member place": (last + 42, "I"),
        "local start": (0, "H"),
        "local name": (26, "H"),
    }
    return File("model.npz", data, fields)
