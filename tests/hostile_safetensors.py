"""Damaged safetensors files, configurations and indices.

The writer is as short as the format, and writes false headers as well as true ones.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile_case import CUTS, HUGE, INF, NAN, Case, weights, write_case

BERT = {
    "model_type": "bert",
    "hidden_size": 6,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
}

LAST = "encoder.layer.1.attention.self.value.weight"

FIRST = "encoder.layer.0.attention.self.query.weight"


def bert_tensors(**instead: Any) -> dict[str, np.ndarray]:
    """Return the tensors of two layers with two heads; `instead` replaces some by name."""
    tensors = {}
    for layer in range(2):
        for part in ("query", "key", "value"):
            stem = f"encoder.layer.{layer}.attention.self.{part}"
            tensors |= {f"{stem}.weight": weights(6, 6), f"{stem}.bias": weights(6)}
    return tensors | instead


def header_of(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the header of a safetensors file with these tensors."""
    header, end = {}, 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [end, end + values.nbytes],
        }
        end += values.nbytes
    return header


def encode(header: Any, data: bytes, length: int | None = None) -> bytes:
    """Encode a safetensors file; `length` may differ from the header's true length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def bert_file(**instead: Any) -> bytes:
    """Encode a safetensors file of BERT's tensors; `instead` replaces some by name."""
    tensors = bert_tensors(**instead)
    return encode(header_of(tensors), b"".join(v.tobytes() for v in tensors.values()))


def safetensors_cases(folder: Path) -> Iterator[Case]:
    """Write safetensors files that are cut off, or have a false header or invalid numbers."""
    file, name = bert_file(), "model.safetensors"

    def case(damage: str, data: bytes, config: Any = BERT) -> Case:
        return write_case(folder, f"safetensors-{damage}", name, data, config__json=config)

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: i * len(file) // CUTS])
    tensors = bert_tensors()
    data = b"".join(v.tobytes() for v in tensors.values())
    header = header_of(tensors)
    text = json.dumps(header).encode()
    for length in (0, 1, len(text) - 1, len(text) + 1, len(text) + 8, 10**8 + 1, HUGE, 2**64 - 1):
        yield case(f"length-{length}", encode(header, data, length))
    for damage, raw in {
        "no-json": b"{'encoder': 1}",
        "list": b"[1, 2, 3]",
        "number": b"12",
        "nothing": b"null",
        "deep": b"[" * 100_000,
        "deep-object": b'{"a":' * 50_000,
        "not-utf-8": b'{"\xff\xfe": {}}',
        "zeros": bytes(97),
        "twice": b"{" + text[1:-1] + b"," + text[1:],
        "infinity": text.replace(b"[6, 6]", b"[6, Infinity]"),
        "digits": text.replace(b"[6, 6]", b"[6, " + b"9" * 5000 + b"]"),
    }.items():
        yield case(f"header-{damage}", encode(raw, data))
    for damage, claims in {
        "overlap": {"data_offsets": [4, 148]},
        "backwards": {"data_offsets": [144, 0]},
        "beyond": {"data_offsets": [len(data), len(data) + 144]},
        "far-beyond": {"data_offsets": [HUGE - 144, HUGE]},
        "negative": {"data_offsets": [-144, 0]},
        "real": {"data_offsets": [0.0, 144.0]},
        "text": {"data_offsets": ["0", "144"]},
        "one": {"data_offsets": [0]},
        "short": {"data_offsets": [0, 140]},
        "huge-shape": {"shape": [2**62, 2**62]},
        "large-shape": {"shape": [2**31, 2**31]},
        "overflow-shape": {"shape": [2**32, 2**32, 2]},
        "negative-shape": {"shape": [-6, -6]},
        "real-shape": {"shape": [6.5, 6]},
        "text-shape": {"shape": ["6", 6]},
        "deep-shape": {"shape": [6, 6] + [1] * 253},
        "flat-shape": {"shape": [36]},
        "other-shape": {"shape": [4, 9]},
        "empty-shape": {"shape": [0, 6]},
        "no-shape": {"shape": None},
        "unknown-type": {"dtype": "F99"},
        "half-type": {"dtype": "F16"},
        "double-type": {"dtype": "F64"},
        "whole-type": {"dtype": "I32"},
        "no-type": {"dtype": None},
    }.items():
        yield case(f"first-{damage}", encode({**header, FIRST: {**header[FIRST], **claims}}, data))
    yield case("first-number", encode({**header, FIRST: 5}, data))
    yield case("first-missing", encode({k: v for k, v in header.items() if k != FIRST}, data))
    yield case("first-null", encode({**header, FIRST: None}, data))
    yield case("more-data", file + bytes(64))
    yield case("no-tensors", encode({}, b""))
    yield case("many-names", many_names())
    for bad in (NAN, INF, -INF):
        yield case(f"weight-{bad}", bert_file(**{LAST: weights(6, 6, bad=bad)}))
        bias = LAST.replace("weight", "bias")
        yield case(f"bias-{bad}", bert_file(**{bias: weights(6, bad=bad)}))
    yield case("narrow", bert_file(**{LAST: weights(6, 5)}))
    yield case("few-rows", bert_file(**{LAST: weights(5, 6)}))
    yield case("three-axes", bert_file(**{LAST: weights(6, 6, 2)}))
    yield case("long-bias", bert_file(**{LAST.replace("weight", "bias"): weights(7)}))
    yield from configuration_cases(folder, file)
    yield from index_cases(folder, file)


def many_names() -> bytes:
    """Encode a file with as many tensors as a header may name, none of them attention."""
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return encode({f"t{i}": entry for i in range(2**16)}, b"")


def configuration_cases(folder: Path, file: bytes) -> Iterator[Case]:
    """Write intact model files beside configurations that do not fit them."""
    wrong = (0, -2, 5, 2**31, HUGE, 10**400, "2", None, [2], {}, True, 2.5, NAN, INF, 1e308)
    for field in ("num_attention_heads", "hidden_size", "num_hidden_layers"):
        for value in wrong:
            damage = f"config-{field}-{str(value)[:24]}-{type(value).__name__}"
            config = {**BERT, field: value}
            yield write_case(folder, damage, "model.safetensors", file, config__json=config)
        config = {k: v for k, v in BERT.items() if k != field}
        yield write_case(
            folder, f"config-{field}-no", "model.safetensors", file, config__json=config
        )
    for damage, config in {
        "list": [BERT],
        "text": "bert",
        "number": 12,
        "null": None,
        "empty": b"",
        "cut": json.dumps(BERT).encode()[:-3],
        "not-utf-8": b'{"model_type": "\xff"}',
        "deep": b"[" * 100_000,
        "digits": b'{"model_type": "bert", "hidden_size": ' + b"9" * 6000 + b"}",
        "large": b" " * 2**23,
        "no-type": {k: v for k, v in BERT.items() if k != "model_type"},
        "other-type": {**BERT, "model_type": "mamba"},
        "long-type": {**BERT, "model_type": "m" * 10**5},
        "type-list": {**BERT, "model_type": ["bert"]},
        "type-lines": {**BERT, "model_type": "be\nrt\r\x1b[31m"},
        "other-family": {**BERT, "model_type": "llama"},
        "text-config": {**BERT, "model_type": "x", "text_config": [3]},
    }.items():
        yield write_case(folder, f"config-{damage}", "model.safetensors", file, config__json=config)
    yield write_case(folder, "config-missing", "model.safetensors", file)


def index_cases(folder: Path, file: bytes) -> Iterator[Case]:
    """Write indices of several files that name a missing file or one outside the folder."""
    names = list(bert_tensors())
    (folder / "elsewhere.safetensors").write_bytes(file)

    def case(damage: str, index: Any) -> Case:
        index_name = "model.safetensors.index.json"
        data = index if isinstance(index, bytes) else json.dumps(index).encode()
        beside = {"config__json": BERT, "part__safetensors": file}
        return write_case(folder, f"index-{damage}", index_name, data, **beside)

    for damage, target in {
        "above": "../elsewhere.safetensors",
        "far-above": "../" * 40 + "etc/passwd",
        "absolute": "/etc/passwd",
        "here": str(folder / "elsewhere.safetensors"),
        "winding": "x/../../elsewhere.safetensors",
        "windows": "..\\elsewhere.safetensors",
        "drive": "C:elsewhere.safetensors",
        "missing": "model-00002.safetensors",
        "folder": ".",
        "empty": "",
        "zero-byte": "part\0.safetensors",
        "long": "p" * 5000,
        "lines": "part\n.safetensors",
        "number": 5,
        "null": None,
        "list": ["part.safetensors"],
        "link": "link.safetensors",
        "config": "config.json",
    }.items():
        yield (made := case(damage, {"weight_map": dict.fromkeys(names, target)}))
        (made[1].parent / "link.safetensors").symlink_to(folder / "elsewhere.safetensors")
    part = "part.safetensors"
    yield case("other-tensors", {"weight_map": {name + "x": part for name in names}})
    yield case("no-map", {"metadata": {}})
    yield case("empty-map", {"weight_map": {}})
    yield case("map-list", {"weight_map": names})
    yield case("names", names)
    yield case("cut", json.dumps({"weight_map": dict.fromkeys(names, part)}).encode()[:-9])
    yield case("many-files", {"weight_map": {f"t{i}": f"f{i}.safetensors" for i in range(5000)}})
