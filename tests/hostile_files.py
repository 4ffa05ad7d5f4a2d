"""Small model files of the three formats, whole and with one lie each.

`whole(folder)` and `hostile(folder)` write them, and give name and path of each. The writers are as
short as the formats, and write whatever they are told.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

F32, NAN, INF = "F32", float("nan"), float("inf")
HUGE = 2**63 - 1
CUTS = 24
"""At how many places each format is cut off."""

Case = tuple[str, Path]


def put(folder: Path, case: str, name: str, data: bytes, **beside: Any) -> Case:
    """A file in a folder of its own, with JSON or bytes beside it."""
    home = folder / "".join(c if c.isalnum() or c in "-_." else "-" for c in case)
    home.mkdir()
    (home / name).write_bytes(data)
    for other, content in beside.items():
        is_raw = isinstance(content, bytes)
        path = home / other.replace("__", ".")
        path.write_bytes(content if is_raw else json.dumps(content).encode())
    return case, home / name


def weights(*shape: int, bad: float | None = None) -> np.ndarray:
    """Drawn numbers; one of them may be told."""
    values = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    if bad is not None:
        values.flat[-1] = bad
    return values


# safetensors ------------------------------------------------------------------------------------

BERT = {
    "model_type": "bert",
    "hidden_size": 6,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
}


def bert_tensors(**instead: Any) -> dict[str, np.ndarray]:
    """Two layers of two heads; `instead` of the value's weight in the last layer."""
    tensors = {}
    for layer in range(2):
        for part in ("query", "key", "value"):
            stem = f"encoder.layer.{layer}.attention.self.{part}"
            tensors |= {f"{stem}.weight": weights(6, 6), f"{stem}.bias": weights(6)}
    return tensors | instead


LAST = "encoder.layer.1.attention.self.value.weight"
FIRST = "encoder.layer.0.attention.self.query.weight"


def st_header(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a safetensors file's header says of these."""
    header, end = {}, 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": F32,
            "shape": list(values.shape),
            "data_offsets": [end, end + values.nbytes],
        }
        end += values.nbytes
    return header


def st_bytes(header: Any, data: bytes, length: int | None = None) -> bytes:
    """A safetensors file; the header may be bytes, and its length a lie."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def st_file(**instead: Any) -> bytes:
    """A safetensors file of BERT's tensors."""
    tensors = bert_tensors(**instead)
    return st_bytes(st_header(tensors), b"".join(v.tobytes() for v in tensors.values()))


def st_lies(folder: Path) -> Iterator[Case]:
    """Safetensors files whose headers lie, are cut off, or whose numbers are none."""
    file, name = st_file(), "model.safetensors"

    def case(what: str, data: bytes, config: Any = BERT) -> Case:
        return put(folder, f"safetensors-{what}", name, data, config__json=config)

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: i * len(file) // CUTS])
    tensors = bert_tensors()
    data = b"".join(v.tobytes() for v in tensors.values())
    header = st_header(tensors)
    text = json.dumps(header).encode()
    for length in (0, 1, len(text) - 1, len(text) + 1, len(text) + 8, 10**8 + 1, HUGE, 2**64 - 1):
        yield case(f"length-{length}", st_bytes(header, data, length))
    for what, raw in {
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
        yield case(f"header-{what}", st_bytes(raw, data))
    for what, lie in {
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
        yield case(f"first-{what}", st_bytes({**header, FIRST: {**header[FIRST], **lie}}, data))
    yield case("first-number", st_bytes({**header, FIRST: 5}, data))
    yield case("first-missing", st_bytes({k: v for k, v in header.items() if k != FIRST}, data))
    yield case("first-null", st_bytes({**header, FIRST: None}, data))
    yield case("more-data", file + bytes(64))
    yield case("no-tensors", st_bytes({}, b""))
    yield case("many-names", many_names())
    for bad in (NAN, INF, -INF):
        yield case(f"weight-{bad}", st_file(**{LAST: weights(6, 6, bad=bad)}))
        bias = LAST.replace("weight", "bias")
        yield case(f"bias-{bad}", st_file(**{bias: weights(6, bad=bad)}))
    yield case("narrow", st_file(**{LAST: weights(6, 5)}))
    yield case("few-rows", st_file(**{LAST: weights(5, 6)}))
    yield case("three-axes", st_file(**{LAST: weights(6, 6, 2)}))
    yield case("long-bias", st_file(**{LAST.replace("weight", "bias"): weights(7)}))
    yield from config_lies(folder, file)
    yield from index_lies(folder, file)


def many_names() -> bytes:
    """As many tensors as a header may name, none of them attention."""
    entry = {"dtype": F32, "shape": [0], "data_offsets": [0, 0]}
    return st_bytes({f"t{i}": entry for i in range(2**16)}, b"")


def config_lies(folder: Path, file: bytes) -> Iterator[Case]:
    """Configurations that do not fit a file that is whole."""
    wrong = (0, -2, 5, 2**31, HUGE, 10**400, "2", None, [2], {}, True, 2.5, NAN, INF, 1e308)
    for field in ("num_attention_heads", "hidden_size", "num_hidden_layers"):
        for value in wrong:
            what = f"config-{field}-{str(value)[:24]}-{type(value).__name__}"
            config = {**BERT, field: value}
            yield put(folder, what, "model.safetensors", file, config__json=config)
        config = {k: v for k, v in BERT.items() if k != field}
        yield put(folder, f"config-{field}-no", "model.safetensors", file, config__json=config)
    for what, config in {
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
        yield put(folder, f"config-{what}", "model.safetensors", file, config__json=config)
    yield put(folder, "config-missing", "model.safetensors", file)


def index_lies(folder: Path, file: bytes) -> Iterator[Case]:
    """Indices of several files that point elsewhere, or to what is not there."""
    names = list(bert_tensors())
    (folder / "elsewhere.safetensors").write_bytes(file)

    def case(what: str, index: Any) -> Case:
        index_name = "model.safetensors.index.json"
        data = index if isinstance(index, bytes) else json.dumps(index).encode()
        beside = {"config__json": BERT, "part__safetensors": file}
        return put(folder, f"index-{what}", index_name, data, **beside)

    for what, target in {
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
        yield (made := case(what, {"weight_map": dict.fromkeys(names, target)}))
        (made[1].parent / "link.safetensors").symlink_to(folder / "elsewhere.safetensors")
    part = "part.safetensors"
    yield case("other-tensors", {"weight_map": {name + "x": part for name in names}})
    yield case("no-map", {"metadata": {}})
    yield case("empty-map", {"weight_map": {}})
    yield case("map-list", {"weight_map": names})
    yield case("names", names)
    yield case("cut", json.dumps({"weight_map": dict.fromkeys(names, part)}).encode()[:-9])
    yield case("many-files", {"weight_map": {f"t{i}": f"f{i}.safetensors" for i in range(5000)}})


# GGUF -------------------------------------------------------------------------------------------

KEYS = {
    "general.architecture": (8, "llama"),
    "llama.block_count": (4, 2),
    "llama.attention.head_count": (4, 4),
    "llama.attention.head_count_kv": (4, 2),
    "llama.rope.freq_base": (6, 1e4),
    "tokenizer.ggml.tokens": (9, (8, ["a", "bc", ""])),
    "tokenizer.ggml.scores": (9, (6, [1.0, 2.0])),
}
NUMBER = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A text of GGUF; its length may be a lie."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def gg_value(kind: int, value: Any) -> bytes:
    """A value of GGUF, type first; raw bytes stay as they are."""
    start = struct.pack("<I", kind)
    if isinstance(value, bytes):
        return start + value
    if kind == 8:
        return start + text(value)
    if kind == 9:
        inner, items = value
        body = b"".join(gg_value(inner, item)[4:] for item in items)
        return start + struct.pack("<IQ", inner, len(items)) + body
    return start + struct.pack("<" + NUMBER[kind], value)


def gg_tensors(**instead: Any) -> dict[str, tuple[tuple[int, ...], int, bytes]]:
    """Two layers of four heads of two dimensions that share two: shape, type, bytes."""
    tensors = {}
    for layer in range(2):
        tensors[f"blk.{layer}.attn_norm.weight"] = ((32,), 0, weights(32).tobytes())
        for part, rows in (("q", 8), ("k", 4), ("v", 4)):
            stem = f"blk.{layer}.attn_{part}.weight"
            tensors[stem] = ((rows, 32), 0, weights(rows, 32).tobytes())
    return tensors | instead


GG_LAST = "blk.1.attn_v.weight"


def gg_file(
    keys: dict[str, tuple[int, Any]] | None = None,
    tensors: dict[str, tuple[tuple[int, ...], int, bytes]] | None = None,
    *,
    start: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_keys: int | None = None,
    lie: dict[str, dict[str, Any]] | None = None,
    more_keys: bytes = b"",
    alignment: int = 32,
) -> bytes:
    """A GGUF file; `lie`: what is claimed of a tensor: name, rank, dims, kind, offset."""
    keys = KEYS if keys is None else keys
    tensors = gg_tensors() if tensors is None else tensors
    head = b"".join(text(name) + gg_value(*value) for name, value in keys.items()) + more_keys
    data = b""
    for name, (shape, kind, raw) in tensors.items():
        data += bytes(-len(data) % alignment)
        said = (lie or {}).get(name, {})
        dims = said.get("dims", shape[::-1])
        head += said.get("name", text(name))
        head += struct.pack("<I", said.get("rank", len(dims)))
        head += b"".join(struct.pack("<Q", side) for side in dims)
        head += struct.pack("<IQ", said.get("kind", kind), said.get("offset", len(data)))
        data += raw
    counts = (
        len(tensors) if n_tensors is None else n_tensors,
        len(keys) + bool(more_keys) if n_keys is None else n_keys,
    )
    head = start + struct.pack("<IQQ", version, *counts) + head
    return head + bytes(-len(head) % alignment) + data


def gg_lies(folder: Path) -> Iterator[Case]:
    """GGUF files whose headers lie, are cut off, or whose numbers are none."""
    file = gg_file()

    def case(what: str, data: bytes) -> Case:
        return put(folder, f"gguf-{what}", "model.gguf", data)

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: i * len(file) // CUTS])
    for start in (b"GGML", b"ggjt", b"FUGG", b"\0\0\0\0", b"PK\3\4"):
        yield case(f"magic-{start!r}", gg_file(start=start))
    for version in (0, 1, 4, 3 << 24, 2**32 - 1):
        yield case(f"version-{version}", gg_file(version=version))
    for n in (len(gg_tensors()) + 1, 2**14 + 1, 2**32, 2**63, 2**64 - 1):
        yield case(f"tensors-{n}", gg_file(n_tensors=n))
        yield case(f"keys-{n}", gg_file(n_keys=n))
    for what, raw in {
        "no-name": text("") + gg_value(4, 1),
        "long-name": text("n" * 5000) + gg_value(4, 1),
        "name-length": text("n", 2**63) + gg_value(4, 1),
        "name-length-2": text("n", 2**64 - 1) + gg_value(4, 1),
        "again": text("llama.block_count") + gg_value(4, 1),
        "type-13": text("n") + struct.pack("<IQ", 13, 0),
        "type-huge": text("n") + struct.pack("<IQ", 2**32 - 1, 0),
        "text-length": text("n") + struct.pack("<I", 8) + text("t", 2**63),
        "text-length-2": text("n") + struct.pack("<I", 8) + text("t", 2**64 - 1),
        "list-of-lists": text("n") + struct.pack("<IIQ", 9, 9, 2**40),
        "lists": text("n") + struct.pack("<IIQ", 9, 9, 1) * 2000,
        "list-type": text("n") + struct.pack("<IIQ", 9, 99, 3),
        "list-length": text("n") + struct.pack("<IIQ", 9, 4, 2**62),
        "list-length-2": text("n") + struct.pack("<IIQ", 9, 12, 2**64 - 1),
        "byte-list": text("n") + struct.pack("<IIQ", 9, 0, 2**63),
        "texts": text("n") + struct.pack("<IIQ", 9, 8, 2**40),
        "texts-2": text("n") + struct.pack("<IIQ", 9, 8, 2**64 - 1),
        "text-in-list": text("n") + struct.pack("<IIQQ", 9, 8, 2, 2**63),
        "empty-texts": text("n") + struct.pack("<IIQ", 9, 8, 2**21) + bytes(2**24),
    }.items():
        yield case(f"key-{what}", gg_file(more_keys=raw))
    for kind, alignment in ((4, 0), (4, 3), (4, 48), (4, 2**31), (8, "32"), (5, -32), (6, 32.0)):
        keys = {**KEYS, "general.alignment": (kind, alignment)}
        yield case(f"alignment-{alignment}-{kind}", gg_file(keys))
    q = "blk.0.attn_q.weight"
    for what, lie in {
        "twice": {"name": text("blk.0.attn_k.weight")},
        "no-name": {"name": text("")},
        "name-length": {"name": text("blk", 2**64 - 1)},
        "long-name": {"name": text("b" * 2000)},
        "rank-0": {"dims": ()},
        "rank-5": {"dims": (32, 8, 1, 1, 1)},
        "rank-255": {"rank": 255},
        "rank-huge": {"rank": 2**32 - 1},
        "side-0": {"dims": (32, 0)},
        "side-negative": {"dims": (32, 2**64 - 8)},
        "side-huge": {"dims": (2**63, 8)},
        "product": {"dims": (2**32, 2**32)},
        "product-of-four": {"dims": (2**16,) * 4},
        "large": {"dims": (2**20, 2**20)},
        "one-more": {"dims": (32, 2**16)},
        "type-4": {"kind": 4},
        "type-99": {"kind": 99},
        "type-huge": {"kind": 2**32 - 1},
        "double": {"kind": 28, "dims": (32, 4)},
        "whole": {"kind": 26},
        "q8k": {"kind": 15, "dims": (256, 3)},
        "block": {"kind": 8, "dims": (31, 8)},
        "unaligned": {"offset": 7},
        "beyond": {"offset": 2**20},
        "far-beyond": {"offset": 2**64 - 32},
        "same-place": {"offset": 0},
        "one-axis": {"dims": (256,)},
        "three-axes": {"dims": (32, 4, 2)},
        "seven-rows": {"dims": (32, 7)},
    }.items():
        yield case(f"q-{what}", gg_file(lie={q: lie}))
    for bad in (NAN, INF, -INF):
        last = ((4, 32), 0, weights(4, 32, bad=bad).tobytes())
        yield case(f"weight-{bad}", gg_file(tensors=gg_tensors(**{GG_LAST: last})))
        last = ((4, 32), 1, weights(4, 32, bad=bad).astype(np.float16).tobytes())
        yield case(f"half-{bad}", gg_file(tensors=gg_tensors(**{GG_LAST: last})))
        scale = np.float16(bad).tobytes() + bytes(range(32))
        last = ((4, 32), 8, scale * 4)
        yield case(f"scale-{bad}", gg_file(tensors=gg_tensors(**{GG_LAST: last})))
        norm = ((32,), 0, weights(32, bad=bad).tobytes())
        yield case(f"gain-{bad}", gg_file(tensors=gg_tensors(**{"blk.1.attn_norm.weight": norm})))
    for what, shape in {"width": (4, 64), "rows": (5, 32), "bias": (3,), "norm": (31,)}.items():
        name = {"bias": "blk.1.attn_v.bias", "norm": "blk.1.attn_norm.weight"}.get(what, GG_LAST)
        tensor = (shape, 0, weights(*shape).tobytes())
        yield case(f"other-{what}", gg_file(tensors=gg_tensors(**{name: tensor})))
    for part in "kv":
        fewer = {k: v for k, v in gg_tensors().items() if f"attn_{part}" not in k}
        yield case(f"no-{part}", gg_file(tensors=fewer))
    yield case("no-tensors", gg_file(tensors={}))
    yield case("no-attention", gg_file(tensors={"token_embd.weight": gg_tensors()[q]}))
    layers = {f"blk.{i}.attn_q.weight": ((1,), 0, bytes(4)) for i in range(2**14 - 1)}
    yield case(
        "many-layers",
        gg_file(tensors=layers, alignment=4, keys={**KEYS, "general.alignment": (4, 4)}),
    )
    arch = "general.architecture"
    for kind, value in ((8, "mamba"), (8, "x" * 10**5), (8, "a\nb"), (4, 5), (9, (8, ["llama"]))):
        yield case(f"architecture-{str(value)[:9]}-{kind}", gg_file({**KEYS, arch: (kind, value)}))
    yield case("architecture-missing", gg_file({k: v for k, v in KEYS.items() if k != arch}))
    for field, values in {
        "attention.head_count": (
            (4, 0),
            (4, 3),
            (4, 2**31),
            (5, -4),
            (8, "4"),
            (6, 4.0),
            (7, True),
            (10, 2**63),
            (9, (4, [4])),
            (9, (4, [4, 0])),
            (9, (4, [])),
            (9, (6, [4.0, 4.0])),
            (9, (8, ["4"])),
        ),
        "attention.head_count_kv": ((4, 0), (4, 3), (4, 8), (4, 2**31), (5, -2), (8, "2")),
        "attention.key_length": ((4, 0), (4, 3), (4, 2**31), (5, -2), (8, "2"), (6, NAN)),
        "rope.freq_base": ((6, 0.0), (6, -1.0), (6, NAN), (6, INF), (8, "x"), (9, (6, [1.0]))),
        "rope.dimension_count": ((4, 0), (4, 1), (4, 4), (4, 2**31), (8, "2"), (5, -2)),
        "rope.scaling.factor": ((6, -1.0), (6, NAN), (6, INF), (8, "2")),
    }.items():
        for i, value in enumerate(values):
            yield case(f"{field}-{i}", gg_file({**KEYS, f"llama.{field}": value}))
    yield case("heads-missing", gg_file({k: v for k, v in KEYS.items() if "head" not in k}))
    yield case("one-of-three", gg_file({**KEYS, "split.count": (2, 3)}))
    for i, factors in enumerate(([1.0, 1.0], [0.0], [-1.0], [NAN])):
        raw = np.array(factors, np.float32)
        tensor = (raw.shape, 0, raw.tobytes())
        yield case(f"factors-{i}", gg_file(tensors=gg_tensors(**{"rope_freqs.weight": tensor})))


# CTranslate2 ------------------------------------------------------------------------------------

CT_TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}
SELF = "decoder/layer_0/self_attention"
CROSS = "decoder/layer_0/attention"


def ct_tensors(**instead: Any) -> dict[str, np.ndarray]:
    """A decoder's layer of three heads of two dimensions; a value that is None is left out."""
    tensors = {
        "decoder/num_heads": np.int16(3),
        "decoder/pre_norm": np.int8(1),
        f"{SELF}/layer_norm/gamma": weights(6),
        f"{SELF}/linear_0/weight": weights(18, 6),
        f"{SELF}/linear_0/bias": weights(18),
        f"{SELF}/rotary_dim": np.int32(2),
        f"{CROSS}/layer_norm/gamma": weights(6),
        f"{CROSS}/linear_0/weight": weights(6, 6),
        f"{CROSS}/linear_1/weight": weights(12, 6),
    }
    tensors |= instead
    return {name: np.asarray(v) for name, v in tensors.items() if v is not None}


def ct_text(value: str, length: int | None = None) -> bytes:
    """A text of CTranslate2; its length may be a lie."""
    raw = value.encode() + b"\0"
    return struct.pack("<H", len(raw) if length is None else length) + raw


def ct_file(
    tensors: dict[str, np.ndarray] | None = None,
    aliases: dict[str, str] | None = None,
    *,
    version: int = 6,
    n_tensors: int | None = None,
    n_aliases: int | None = None,
    lie: dict[str, dict[str, Any]] | None = None,
    built: bytes | None = None,
) -> bytes:
    """A model.bin; `lie` says what is claimed of a tensor: name, rank, dims, kind, size."""
    tensors = ct_tensors() if tensors is None else tensors
    aliases = aliases or {}
    out = struct.pack("<I", version) + (ct_text("TransformerSpec") if built is None else built)
    out += struct.pack("<II", 7, len(tensors) if n_tensors is None else n_tensors)
    for name, values in tensors.items():
        said = (lie or {}).get(name, {})
        dims = said.get("dims", values.shape)
        out += said.get("name", ct_text(name))
        out += struct.pack("B", said.get("rank", len(dims)))
        out += b"".join(struct.pack("<I", side) for side in dims)
        out += struct.pack(
            "<BI", said.get("kind", CT_TYPES[values.dtype.name]), said.get("size", values.nbytes)
        )
        out += values.tobytes()
    out += struct.pack("<I", len(aliases) if n_aliases is None else n_aliases)
    return out + b"".join(ct_text(a) + ct_text(n) for a, n in aliases.items())


def ct_lies(folder: Path) -> Iterator[Case]:
    """Files model.bin whose headers lie, are cut off, or whose numbers are none; and pickles."""
    file = ct_file()

    def case(what: str, data: bytes) -> Case:
        return put(folder, f"ctranslate2-{what}", "model.bin", data)

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: i * len(file) // CUTS])
    yield case("zip", b"PK\3\4" + bytes(200))
    yield case("pickle", b"\x80\x02cposix\nsystem\nX\x04\0\0\0exit\x85R.")
    yield case("old-pickle", b"cposix\nsystem\n(S'exit'\ntR.")
    yield case("text", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    for version in (0, 1, 3, 7, 6 << 24, 2**32 - 1):
        yield case(f"version-{version}", ct_file(version=version))
    for n in (len(ct_tensors()) + 1, 2**14 + 1, 2**31, 2**32 - 1):
        yield case(f"tensors-{n}", ct_file(n_tensors=n))
        yield case(f"aliases-{n}", ct_file(n_aliases=n))
    yield case("built-length", ct_file(built=ct_text("Spec", 65535)))
    w = f"{SELF}/linear_0/weight"
    for what, lie in {
        "twice": {"name": ct_text(f"{SELF}/layer_norm/gamma")},
        "no-name": {"name": ct_text("")},
        "name-length": {"name": ct_text("n", 65535)},
        "name-0": {"name": struct.pack("<H", 0)},
        "rank-9": {"dims": (18, 6) + (1,) * 7},
        "rank-255": {"rank": 255},
        "rank-0": {"rank": 0},
        "side-huge": {"dims": (2**32 - 1, 6)},
        "sides-huge": {"dims": (2**32 - 1,) * 8},
        "side-0": {"dims": (0, 6)},
        "all-huge": {"dims": (2**15, 2**15), "size": 2**32 - 1},
        "size-huge": {"size": 2**32 - 1},
        "size-0": {"size": 0},
        "size-short": {"size": 18 * 6 * 4 - 4},
        "type-6": {"kind": 6},
        "type-255": {"kind": 255},
        "type-half": {"kind": 4},
        "one-axis": {"dims": (108,)},
        "three-axes": {"dims": (18, 3, 2)},
        "other-rows": {"dims": (12, 9)},
        "few-rows": {"dims": (2, 54)},
    }.items():
        yield case(f"weight-{what}", ct_file(lie={w: lie}))
    yield case("alias-of-nothing", ct_file(aliases={"a": "b"}))
    yield case("alias-of-itself", ct_file(aliases={"a": "a"}))
    yield case("alias-again", ct_file(aliases={w: f"{CROSS}/linear_0/weight"}))
    yield case("no-tensors", ct_file({}))
    for what, instead in {
        "heads-missing": {"decoder/num_heads": None},
        "heads-0": {"decoder/num_heads": np.int16(0)},
        "heads-negative": {"decoder/num_heads": np.int16(-3)},
        "heads-5": {"decoder/num_heads": np.int16(5)},
        "heads-many": {"decoder/num_heads": np.int32(2**31 - 1)},
        "heads-nan": {"decoder/num_heads": np.float32(NAN)},
        "heads-inf": {"decoder/num_heads": np.float32(INF)},
        "heads-half": {"decoder/num_heads": np.float32(2.5)},
        "heads-list": {"decoder/num_heads": np.int16([3])},
        "kv-0": {f"{SELF}/num_heads_kv": np.int32(0)},
        "kv-2": {f"{SELF}/num_heads_kv": np.int32(2)},
        "kv-9": {f"{SELF}/num_heads_kv": np.int32(9)},
        "kv-1": {f"{SELF}/num_heads_kv": np.int32(1)},
        "width-0": {f"{SELF}/head_dim": np.int32(0)},
        "width-3": {f"{SELF}/head_dim": np.int32(3)},
        "width-huge": {f"{SELF}/head_dim": np.int32(2**31 - 1)},
        "rotary-odd": {f"{SELF}/rotary_dim": np.int32(1)},
        "rotary-wide": {f"{SELF}/rotary_dim": np.int32(4)},
        "rotary-huge": {f"{SELF}/rotary_dim": np.int32(2**31 - 1)},
        "rotary-nan": {f"{SELF}/rotary_dim": np.float32(NAN)},
        "rotary-list": {f"{SELF}/rotary_dim": np.int32([2])},
        "base-0": {f"{SELF}/rotary_base": np.float32(0)},
        "base-negative": {f"{SELF}/rotary_base": np.float32(-1)},
        "base-nan": {f"{SELF}/rotary_base": np.float32(NAN)},
        "pre-norm-nan": {"decoder/pre_norm": np.float32(NAN)},
        "weight-nan": {w: weights(18, 6, bad=NAN)},
        "weight-inf": {w: weights(18, 6, bad=INF)},
        "half-nan": {w: weights(18, 6, bad=NAN).astype(np.float16)},
        "bias-inf": {f"{SELF}/linear_0/bias": weights(18, bad=INF)},
        "gain-nan": {f"{SELF}/layer_norm/gamma": weights(6, bad=NAN)},
        "bias-long": {f"{SELF}/linear_0/bias": weights(19)},
        "bias-one": {f"{SELF}/linear_0/bias": np.float32(1)},
        "gain-long": {f"{SELF}/layer_norm/gamma": weights(7)},
        "whole": {w: np.zeros((18, 6), np.int8)},
        "whole-32": {w: np.zeros((18, 6), np.int32)},
        "scale-0": {w: np.ones((18, 6), np.int8), f"{w}_scale": np.zeros(18, np.float32)},
        "scale-nan": {w: np.ones((18, 6), np.int8), f"{w}_scale": weights(18, bad=NAN)},
        "scale-short": {w: np.ones((18, 6), np.int8), f"{w}_scale": weights(17)},
        "scale-empty": {w: np.ones((18, 6), np.int8), f"{w}_scale": weights(0)},
        "packed": {f"{w}_zero": weights(18)},
        "cross-alone": {f"{CROSS}/linear_1/weight": None},
        "cross-narrow": {f"{CROSS}/linear_1/weight": weights(10, 6)},
        "cross-odd": {f"{CROSS}/linear_1/weight": weights(13, 6)},
        "cross-flat": {f"{CROSS}/linear_0/weight": weights(36)},
        "cross-one": {f"{CROSS}/linear_0/weight": np.float32(1)},
        "cross-bias": {f"{CROSS}/linear_1/bias": weights(5)},
    }.items():
        yield case(what, ct_file(ct_tensors(**instead)))
    scales = {f"{w}{'_scale' * i}": np.ones((18, 6), np.int8) for i in range(1, 2000)}
    yield case("scales-of-scales", ct_file(ct_tensors(**{w: np.ones((18, 6), np.int8)}, **scales)))
    layer = "decoder/layer_{}/self_attention/linear_0/weight"
    many = {layer.format(i): np.float32(0) for i in range(2**14 - 1)}
    yield case("many-layers", ct_file({"decoder/num_heads": np.int16(3), **many}))


# All --------------------------------------------------------------------------------------------


def whole(folder: Path) -> list[Case]:
    """One file of each format without a lie, and one of several files."""
    tensors = bert_tensors()
    return [
        put(folder, "whole-st", "model.safetensors", st_file(), config__json=BERT),
        put(folder, "whole-gguf", "model.gguf", gg_file()),
        put(folder, "whole-bin", "model.bin", ct_file(aliases={"other": "decoder/num_heads"})),
        put(
            folder,
            "whole-index",
            "model.safetensors.index.json",
            json.dumps({"weight_map": dict.fromkeys(tensors, "part.safetensors")}).encode(),
            config__json=BERT,
            part__safetensors=st_file(),
        ),
    ]


def hostile(folder: Path) -> list[Case]:
    """Every file with a lie; pipes and links that are no files, too."""
    cases = [*st_lies(folder), *gg_lies(folder), *ct_lies(folder)]
    for name in ("model.safetensors", "model.gguf", "model.bin"):
        home = folder / f"pipe-{name}"
        home.mkdir()
        (home / "config.json").write_text(json.dumps(BERT))
        os.mkfifo(home / name)
        cases.append((f"pipe-{name}", home / name))
        home = folder / f"loop-{name}"
        home.mkdir()
        (home / name).symlink_to(name)
        cases.append((f"loop-{name}", home / name))
        home = folder / f"folder-{name}"
        (home / name).mkdir(parents=True)
        cases.append((f"folder-{name}", home / name))
    return cases


def mutated(folder: Path, n: int) -> list[Case]:
    """Whole files with some bytes of the header changed at random; some may still be whole."""
    rng = np.random.default_rng(11)
    cases = []
    for name, path in whole(folder)[:3]:
        file = path.read_bytes()
        config = {} if path.suffix != ".safetensors" else {"config__json": BERT}
        for i in range(n):
            changed = bytearray(file)
            reach = len(file) if i % 4 == 0 else min(len(file), 700)
            for place in rng.integers(0, reach, size=rng.integers(1, 5)):
                changed[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
            cases.append(put(folder, f"mutated-{name}-{i}", path.name, bytes(changed), **config))
    return cases
