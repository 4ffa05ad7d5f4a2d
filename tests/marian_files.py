"""Writer of small Marian models: weights and configuration of a transformer, as *.bin and *.npz.

The writer follows the source of Marian and shares nothing with the reader: `saveItems` in
src/common/binary.cpp, and `packAndSave` in src/tensors/cpu/expression_graph_packable.h.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

FLOAT32, INT8 = 0x404, 0x101
INTGEMM8, INTGEMM16 = 0x4101, 0x4102

OPTIONS = {
    "type": "transformer",
    "dim-emb": 42,
    "dim-vocabs": [61, 61],
    "enc-depth": 2,
    "dec-depth": 2,
    "tied-embeddings-all": True,
    "transformer-heads": 3,
    "transformer-no-projection": False,
    "transformer-dim-ffn": 37,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-tied-layers": [],
    "transformer-guided-alignment-layer": "last",
    "transformer-preprocess": "",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "version": "v1.11.0 f00a062 2022-02-08 08:39:24 -0800",
}

PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}


def configuration(**instead: Any) -> str:
    """Write options as Marian does; `_` in a keyword stands for `-`, and None removes an option."""
    options = OPTIONS | {name.replace("_", "-"): value for name, value in instead.items()}
    lines = []
    for name, value in options.items():
        if isinstance(value, list):
            lines += [f"{name}:", *([f"  - {item}" for item in value] or ["  []"])]
        elif isinstance(value, bool):
            lines.append(f"{name}: {str(value).lower()}")
        elif value is not None:
            lines.append(f"{name}: {value}" if value != "" else f'{name}: ""')
    return "\n".join(lines)


def transformer(
    d_model: int = 42, d_ffn: int = 37, *, n_encoder: int = 2, n_decoder: int = 2, suffix: str = ""
) -> dict[str, np.ndarray]:
    """Return random weights of a translator by name; norms of pre-norm models end with "_pre"."""
    draw = np.random.default_rng(7).standard_normal
    shapes = {"Wemb": (61, d_model), "decoder_ff_logit_out_b": (1, 61)}
    stacks = (("encoder", n_encoder, ("self",)), ("decoder", n_decoder, ("self", "context")))
    for stack, n_layers, attentions in stacks:
        for block in (f"{stack}_l{i}" for i in range(1, n_layers + 1)):
            for scope in (f"{block}_{attention}" for attention in attentions):
                shapes |= {f"{scope}_W{role}": (d_model, d_model) for role in "qkvo"}
                shapes |= {f"{scope}_b{role}": (1, d_model) for role in "qkvo"}
                shapes |= {f"{scope}_Wo_ln_{p}{suffix}": (1, d_model) for p in ("scale", "bias")}
            shapes |= {f"{block}_ffn_W1": (d_model, d_ffn), f"{block}_ffn_b1": (1, d_ffn)}
            shapes |= {f"{block}_ffn_W2": (d_ffn, d_model), f"{block}_ffn_b2": (1, d_model)}
            shapes |= {f"{block}_ffn_ffn_ln_{p}{suffix}": (1, d_model) for p in ("scale", "bias")}
        if suffix:
            shapes |= {f"{stack}_top_ln_{p}": (1, d_model) for p in ("scale", "bias")}
    return {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}


def numbers_and_multiplier(weight: np.ndarray, number: int) -> tuple[np.ndarray, np.float32]:
    """Return the integers that Marian stores for a weight, and what it multiplied it by."""
    is_byte = number % 256 == 1
    multiplier = np.float32(127 / np.abs(weight).max()) if is_byte else np.float32(1024)
    return np.rint(weight * multiplier).astype("<i1" if is_byte else "<i2"), multiplier


def encoded(name: str, value: np.ndarray, number: int) -> bytes:
    """Return the bytes of a tensor, without padding."""
    if number == FLOAT32:
        return value.astype("<f4").tobytes()
    if number == INT8:
        return value.astype("<i1").tobytes()
    numbers, multiplier = numbers_and_multiplier(value, number)
    ordered = numbers if "Wemb" in name else np.ascontiguousarray(numbers.T)
    return ordered.tobytes() + struct.pack("<f", multiplier)


def with_configuration(tensors: Mapping[str, np.ndarray], text: str | bytes | None) -> dict:
    """Return the tensors and that of a configuration, which ends with a zero; None for none."""
    if text is None:
        return dict(tensors)
    raw = (text.encode() if isinstance(text, str) else text) + b"\0"
    return {**tensors, "special:model.yml": np.frombuffer(raw, np.int8)}


def bin_file(
    tensors: Mapping[str, np.ndarray],
    text: str | bytes | None = None,
    *,
    number: int = FLOAT32,
    alignment: int = 256,
    claims: Mapping[str, Mapping[str, Any]] | None = None,
) -> bytes:
    """Encode a *.bin of Marian.

    Args:
        number: Number of the type of all weights `_W…` and `Wemb`; other tensors are float32.
        alignment: Bytes to which every tensor's data is filled up; the configuration's is not.
        claims: False entries of a tensor's header: name, number; `raw` replaces its bytes.
    """
    entries, names, shapes, data = [], b"", b"", b""
    for name, value in with_configuration(tensors, text).items():
        claimed = (claims or {}).get(name, {})
        is_weight = name.find("_W") in (len(name) - 3, len(name) - 2) or name == "Wemb"
        true_number = INT8 if value.dtype == np.int8 else number if is_weight else FLOAT32
        raw = claimed.get("raw", encoded(name, value, true_number))
        raw += b"\xaa" * (-len(raw) % alignment if value.dtype != np.int8 else 0)
        said = claimed.get("name", name.encode() + b"\0")
        entries += [len(said), claimed.get("number", true_number), value.ndim, len(raw)]
        names, data = names + said, data + raw
        shapes += struct.pack(f"<{value.ndim}i", *value.shape)
    head = struct.pack(f"<{2 + len(entries)}Q", 1, len(entries) // 4, *entries) + names + shapes
    n_zeros = 256 - (len(head) + 8) % 256
    return head + struct.pack("<Q", n_zeros) + bytes(n_zeros) + data


def npz_file(tensors: Mapping[str, np.ndarray], text: str | bytes | None = None) -> bytes:
    """Encode a *.npz of Marian."""
    file = io.BytesIO()
    np.savez(file, **with_configuration(tensors, text))
    return file.getvalue()
