"""Small model files of every format: contents by name, that of the model first.

What is not bytes is written as JSON. GGUF is written with its package; the writer of Marian's
files follows its source, `saveItems` in src/common/binary.cpp.
"""

import io
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
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
            {
                p: rng.standard_normal((n * self.d_head, self.d_model)).astype(np.float32)
                for p, n in heads.items()
            }
            for _ in range(self.n_layers)
        ]


def write(folder, files):
    """Write files into a folder, and return the path of the first one."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder / next(iter(files))


def parts_of(layer, sizes):
    """Return the arrays of a layer by letter, and the gain of the norm before it by "norm"."""
    gain = layer.get("gain", np.ones(sizes.d_model, np.float32))
    return {"norm": gain} | {p: w for p, w in layer.items() if p in "qkv"} if layer else {}


# safetensors


def llama(sizes):
    """Return the configuration of a Llama."""
    return {
        "model_type": "llama", "hidden_size": sizes.d_model, "num_hidden_layers": sizes.n_layers,
        "num_attention_heads": sizes.n_heads, "num_key_value_heads": sizes.n_kv_heads,
        "head_dim": sizes.d_head,
    }  # fmt: skip


def encode(header, data):
    """Encode a safetensors file."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def llama_tensors(sizes, rows):
    """Return the tensors of a Llama by name."""
    return {
        f"model.layers.{i}.{'input_layernorm' if p == 'norm' else f'self_attn.{p}_proj'}.weight": w
        for i, layer in enumerate(rows)
        for p, w in parts_of(layer, sizes).items()
    }


def safetensors_file(sizes, rows):
    """Write a Llama."""
    return {"model.safetensors": save(llama_tensors(sizes, rows)), "config.json": llama(sizes)}


def index_file(sizes, rows):
    """Write the same model as an index of one file."""
    names = dict.fromkeys(llama_tensors(sizes, rows), "part.safetensors")
    content, config = safetensors_file(sizes, rows).values()
    index = {"model.safetensors.index.json": {"weight_map": names}}
    return index | {"part.safetensors": content, "config.json": config}


# GGUF


def gguf_bytes(architecture, keys, tensors, quantised=None):
    """Write keys and tensors as GGUF; tensors of bytes are of a quantised type."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        writer = gguf.GGUFWriter(path, architecture)
        for name, value in keys.items():
            kind = {int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
            getattr(writer, f"add_{kind}")(name, value)
        for name, rows in tensors.items():
            raw_type = quantised if rows.dtype == np.uint8 else None
            writer.add_tensor(name, np.ascontiguousarray(rows), raw_dtype=raw_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def gguf_file(sizes, rows, keys=None, more=None, architecture="llama", quantised=None):
    """Write a model with other keys and more tensors.

    That of a Llama is as from llama.cpp, which interleaves the halves of each query and key head.
    """
    own = {
        "block_count": sizes.n_layers,
        "embedding_length": sizes.d_model,
        "attention.head_count": sizes.n_heads,
        "attention.head_count_kv": sizes.n_kv_heads,
        "attention.key_length": sizes.d_head,
        "rope.freq_base": 1e4,
    }
    keys = {f"{architecture}.{name}": value for name, value in own.items()} | (keys or {})
    keys |= {"tokenizer.ggml.tokens": ["a", "bc", ""], "tokenizer.ggml.scores": [1.0, 2.0]}
    tensors = dict(more or {})
    for i, layer in enumerate(rows):
        for p, w in parts_of(layer, sizes).items():
            if p in "qk" and architecture == "llama":
                halves = w.reshape(-1, 2, sizes.d_head // 2, sizes.d_model).swapaxes(1, 2)
                w = halves.reshape(w.shape)
            tensors[f"blk.{i}.attn_{p}.weight"] = w
    return {"model.gguf": gguf_bytes(architecture, keys, tensors, quantised)}


# Marian

OPTIONS = {
    "type": "transformer", "enc-depth": 2, "dec-depth": 2, "transformer-heads": 3,
    "transformer-decoder-autoreg": "self-attention", "transformer-preprocess": "",
    "transformer-postprocess-top": "", "version": "v1.11.0 f00a062 2022-02-08 08:39:24 -0800",
}  # fmt: skip
MARIAN_Q = "encoder_l1_self_Wq"


def translator(d_model=12):
    """Return random weights of a translator's attention by name; `MARIAN_Q` is the first."""
    rng, shapes = np.random.default_rng(7), {}
    for name in ("encoder_l{}_self", "decoder_l{}_self", "decoder_l{}_context"):
        for scope in (name.format(block) for block in (1, 2)):
            shapes |= {f"{scope}_W{role}": (d_model, d_model) for role in "qkv"}
            shapes |= {f"{scope}_b{role}": (1, d_model) for role in "qkv"}
            shapes[f"{scope}_Wo_ln_scale_pre"] = (1, d_model)
    shapes["encoder_top_ln_scale"] = (1, d_model)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def rounded_step(weight, number_type):
    """Return the distance of two values of a weight that Marian has rounded."""
    return np.abs(weight).max() / 127 if number_type % 256 == 1 else 2.0**-10


def marian_file(name="model.bin", more=None, save=np.savez, d_model=12, rounded=None, **options):
    """Write a translator with other options and more tensors, as a *.npz or *.bin.

    `_` in the name of an option stands for `-`. Data in a *.bin is filled up to 256 bytes, and
    `rounded` is the number type of its weights, if they are rounded: transposed, and followed by
    what they were multiplied by.
    """
    options = OPTIONS | {key.replace("_", "-"): value for key, value in options.items()}
    text = np.frombuffer(yaml.safe_dump(options).encode() + b"\0", np.int8)
    held = translator(d_model) | (more or {}) | {"special:model.yml": text}
    if name.endswith(".npz"):
        file = io.BytesIO()
        save(file, **held)
        return {name: file.getvalue()}
    heads = names = sides = data = b""
    for key, value in held.items():
        raw, number_type = value.tobytes(), 0x101 if value.dtype == np.int8 else 0x404
        if rounded is not None and key[-3:-1] == "_W":
            number_type, one = rounded, rounded_step(value, rounded)
            raw = np.rint(value.T / one).astype(f"<i{rounded % 256}").tobytes()
            raw += struct.pack("<f", 1 / one)
        raw += b"\xaa" * (-len(raw) % 256)
        heads += struct.pack("<4Q", len(key) + 1, number_type, value.ndim, len(raw))
        names += key.encode() + b"\0"
        sides += struct.pack(f"<{value.ndim}i", *value.shape)
        data += raw
    start = struct.pack("<2Q", 1, len(held)) + heads + names + sides
    return {name: start + struct.pack("<Q3x", 3) + data}
