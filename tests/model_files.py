"""Small model files of every format, and where the numbers of their headers stand.

The writers are as short as the formats and share nothing with the readers. A written file knows
where each number of its header is, so that it can be made false.
That of Marian follows its source, `saveItems` in src/common/binary.cpp.
"""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save


@dataclass(frozen=True)
class Sizes:
    """Shape of a small model."""

    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    d_head: int = 2
    d_model: int = 32

    def drawn(self, rng):
        """Return random rows of W_Q, W_K and W_V of every layer, (h·d, m), by letters."""
        heads = {"q": self.n_heads, "k": self.n_kv_heads, "v": self.n_kv_heads}
        return [
            {p: normal(rng, n * self.d_head, self.d_model) for p, n in heads.items()}
            for _ in range(self.n_layers)
        ]


@dataclass(frozen=True)
class File:
    """A model file: place and `struct` code of each number in its header, and files beside it.

    What lies beside is bytes, or a value to be written as JSON.
    """

    name: str
    data: bytes
    fields: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)

    def with_field(self, name, value):
        """Return the content with another value of a field."""
        place, code = self.fields[name]
        raw = struct.pack("<" + code, value)
        return self.data[:place] + raw + self.data[place + len(raw) :]


class Writer:
    """Bytes of a file, and the places of their fields."""

    def __init__(self, start=b""):
        self.data, self.fields = bytearray(start), {}

    def number(self, name, code, value):
        """Write a number, and remember its place by its name."""
        self.fields[name] = (len(self.data), code)
        self.data += struct.pack("<" + code, value)

    def text(self, name, code, value, end=b""):
        """Write a text after its length."""
        raw = value.encode() + end
        self.number(f"{name} length", code, len(raw))
        self.data += raw


def normal(rng, *shape):
    """Return random numbers in single precision."""
    return rng.standard_normal(shape).astype(np.float32)


def matrices_of(layer):
    """Return letters and rows of the matrices that a layer has."""
    return [(p, w) for p, w in layer.items() if p in "qkv"]


def gain_of(layer, sizes):
    """Return the gain of the norm before a layer."""
    return layer.get("gain", np.ones(sizes.d_model, np.float32))


# safetensors


def llama(sizes):
    """Return the configuration of a Llama."""
    return {
        "model_type": "llama", "hidden_size": sizes.d_model, "num_hidden_layers": sizes.n_layers,
        "num_attention_heads": sizes.n_heads, "num_key_value_heads": sizes.n_kv_heads,
        "head_dim": sizes.d_head,
    }  # fmt: skip


def encode(header, data, length=None):
    """Encode a safetensors file; `length` may differ from the header's true length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def llama_tensors(sizes, rows):
    """Return the tensors of a Llama by name."""
    tensors = {}
    for stem, layer in ((f"model.layers.{i}.", layer) for i, layer in enumerate(rows)):
        tensors[f"{stem}input_layernorm.weight"] = gain_of(layer, sizes)
        tensors |= {f"{stem}self_attn.{p}_proj.weight": w for p, w in matrices_of(layer)}
    return tensors


def safetensors_file(sizes, rows):
    """Write a Llama."""
    fields, beside = {"header": (0, "Q")}, {"config.json": llama(sizes)}
    return File("model.safetensors", save(llama_tensors(sizes, rows)), fields, beside)


def index_file(sizes, rows):
    """Write the same model as an index of one file."""
    part = safetensors_file(sizes, rows)
    names = dict.fromkeys(llama_tensors(sizes, rows), "part.safetensors")
    beside = {**part.beside, "part.safetensors": part.data}
    return File(
        "model.safetensors.index.json", json.dumps({"weight_map": names}).encode(), {}, beside
    )


# GGUF

GGUF_CODES = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}


def floats(values):
    """Return shape, type and bytes of a tensor in single precision."""
    return values.shape, 0, values.astype(np.float32).tobytes()


def gguf_file(sizes, rows, keys=None, tensors=None, more=b""):
    """Write a Llama as llama.cpp does, which interleaves the halves of each query and key head.

    `keys` and `tensors` are added or changed, or removed by None; `more` is an encoded key.
    """
    all_keys = {
        "general.architecture": (8, "llama"),
        "llama.block_count": (4, sizes.n_layers),
        "llama.embedding_length": (4, sizes.d_model),
        "llama.attention.head_count": (4, sizes.n_heads),
        "llama.attention.head_count_kv": (4, sizes.n_kv_heads),
        "llama.attention.key_length": (4, sizes.d_head),
        "llama.rope.freq_base": (6, 1e4),
        "tokenizer.ggml.tokens": (9, (8, ["a", "bc", ""])),
        "tokenizer.ggml.scores": (9, (6, [1.0, 2.0])),
    } | (keys or {})
    all_tensors = {}
    for i, layer in enumerate(rows):
        all_tensors[f"blk.{i}.attn_norm.weight"] = floats(gain_of(layer, sizes))
        for p, w in matrices_of(layer):
            halves = w.reshape(-1, 2, sizes.d_head // 2, sizes.d_model).swapaxes(1, 2)
            stored = w if p == "v" else halves.reshape(w.shape)
            all_tensors[f"blk.{i}.attn_{p}.weight"] = floats(stored)
    known = {name: value for name, value in all_keys.items() if value is not None}
    held = {name: t for name, t in (all_tensors | (tensors or {})).items() if t is not None}
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


def gguf_value(out, name, kind, value):
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


# Marian

FLOAT32, INT8 = 0x404, 0x101

OPTIONS = {
    "type": "transformer", "dim-emb": 42, "dim-vocabs": [61, 61], "enc-depth": 2, "dec-depth": 2,
    "tied-embeddings-all": True, "transformer-heads": 3, "transformer-no-projection": False,
    "transformer-dim-ffn": 37, "transformer-ffn-depth": 2, "transformer-ffn-activation": "relu",
    "transformer-decoder-autoreg": "self-attention", "transformer-tied-layers": [],
    "transformer-guided-alignment-layer": "last", "transformer-preprocess": "",
    "transformer-postprocess-emb": "d", "transformer-postprocess": "dan",
    "transformer-postprocess-top": "", "version": "v1.11.0 f00a062 2022-02-08 08:39:24 -0800",
}  # fmt: skip


def configuration(**instead):
    """Write options as YAML; `_` in a keyword stands for `-`, and None removes an option."""
    options = OPTIONS | {name.replace("_", "-"): value for name, value in instead.items()}
    return yaml.safe_dump({name: value for name, value in options.items() if value is not None})


def transformer(suffix=""):
    """Return random weights of a translator by name; norms of pre-norm models end with "_pre"."""
    draw, d_model, d_ffn = np.random.default_rng(7).standard_normal, 42, 37
    shapes = {"Wemb": (61, d_model), "decoder_ff_logit_out_b": (1, 61)}
    for stack, attentions in (("encoder", ("self",)), ("decoder", ("self", "context"))):
        for block in (f"{stack}_l1", f"{stack}_l2"):
            norms = [f"{block}_ffn_ffn"]
            for scope in (f"{block}_{attention}" for attention in attentions):
                shapes |= {f"{scope}_W{role}": (d_model, d_model) for role in "qkvo"}
                shapes |= {f"{scope}_b{role}": (1, d_model) for role in "qkvo"}
                norms.append(f"{scope}_Wo")
            shapes |= {f"{block}_ffn_W1": (d_model, d_ffn), f"{block}_ffn_b1": (1, d_ffn)}
            shapes |= {f"{block}_ffn_W2": (d_ffn, d_model), f"{block}_ffn_b2": (1, d_model)}
            parts = [f"{norm}_ln_{part}{suffix}" for norm in norms for part in ("scale", "bias")]
            shapes |= dict.fromkeys(parts, (1, d_model))
        if suffix:
            shapes |= {f"{stack}_top_ln_{p}": (1, d_model) for p in ("scale", "bias")}
    return {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}


def with_configuration(tensors, text):
    """Return the tensors and that of a configuration, which ends with a zero."""
    return {**tensors, "special:model.yml": np.frombuffer(text.encode() + b"\0", np.int8)}


def bin_file(tensors, text):
    """Write a *.bin of Marian, in which every tensor's data is filled up to 256 bytes."""
    out, held, names, data = Writer(), with_configuration(tensors, text), b"", b""
    out.number("version", "Q", 1)
    out.number("tensors", "Q", len(held))
    for name, value in held.items():
        kind, said = INT8 if value.dtype == np.int8 else FLOAT32, name.encode() + b"\0"
        raw = value.tobytes()
        raw += b"\xaa" * (-len(raw) % 256 if kind == FLOAT32 else 0)
        out.number(f"{name} name", "Q", len(said))
        out.number(f"{name} type", "Q", kind)
        out.number(f"{name} rank", "Q", value.ndim)
        out.number(f"{name} size", "Q", len(raw))
        names, data = names + said, data + raw
    out.data += names
    for name, value in held.items():
        for axis, side in enumerate(value.shape):
            out.number(f"{name} side {axis}", "i", side)
    n_zeros = 256 - (len(out.data) + 8) % 256
    out.number("padding", "Q", n_zeros)
    return File("model.bin", bytes(out.data) + bytes(n_zeros) + data, out.fields)


def npz_file(tensors, text):
    """Write a *.npz of Marian."""
    file = io.BytesIO()
    np.savez(file, **with_configuration(tensors, text))
    return File("model.npz", file.getvalue())
