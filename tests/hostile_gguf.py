"""Damaged GGUF files.

The writer is as short as the format, and writes false headers as well as true ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile_case import CUTS, INF, NAN, Case, weights, write_case

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

LAST = "blk.1.attn_v.weight"


def encode_text(value: str | bytes, length: int | None = None) -> bytes:
    """Encode a string of GGUF; `length` may differ from its true length."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def encode_value(kind: int, value: Any) -> bytes:
    """Encode a value of GGUF after its type; bytes are written unchanged."""
    start = struct.pack("<I", kind)
    if isinstance(value, bytes):
        return start + value
    if kind == 8:
        return start + encode_text(value)
    if kind == 9:
        inner, items = value
        body = b"".join(encode_value(inner, item)[4:] for item in items)
        return start + struct.pack("<IQ", inner, len(items)) + body
    return start + struct.pack("<" + NUMBER[kind], value)


def llama_tensors(**instead: Any) -> dict[str, tuple[tuple[int, ...], int, bytes]]:
    """Return shape, type and bytes of the tensors of two layers, by name.

    Each layer has four query heads of width two, which share two key and value heads.
    """
    tensors = {}
    for layer in range(2):
        tensors[f"blk.{layer}.attn_norm.weight"] = ((32,), 0, weights(32).tobytes())
        for part, rows in (("q", 8), ("k", 4), ("v", 4)):
            stem = f"blk.{layer}.attn_{part}.weight"
            tensors[stem] = ((rows, 32), 0, weights(rows, 32).tobytes())
    return tensors | instead


def gguf_file(
    keys: dict[str, tuple[int, Any]] | None = None,
    tensors: dict[str, tuple[tuple[int, ...], int, bytes]] | None = None,
    *,
    start: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_keys: int | None = None,
    claims: dict[str, dict[str, Any]] | None = None,
    more_keys: bytes = b"",
    alignment: int = 32,
) -> bytes:
    """Encode a GGUF file.

    Args:
        keys: Type and value of each key.
        tensors: Shape, type and bytes of each tensor.
        start: Magic bytes.
        version: Version of the format.
        n_tensors: Number of tensors that the header claims.
        n_keys: Number of keys that the header claims.
        claims: False entries of a tensor's header: name, rank, dims, kind, offset.
        more_keys: Encoded key to write after the others.
        alignment: Bytes to which each tensor is aligned.
    """
    keys = KEYS if keys is None else keys
    tensors = llama_tensors() if tensors is None else tensors
    head = (
        b"".join(encode_text(name) + encode_value(*value) for name, value in keys.items())
        + more_keys
    )
    data = b""
    for name, (shape, kind, raw) in tensors.items():
        data += bytes(-len(data) % alignment)
        claimed = (claims or {}).get(name, {})
        dims = claimed.get("dims", shape[::-1])
        head += claimed.get("name", encode_text(name))
        head += struct.pack("<I", claimed.get("rank", len(dims)))
        head += b"".join(struct.pack("<Q", side) for side in dims)
        head += struct.pack("<IQ", claimed.get("kind", kind), claimed.get("offset", len(data)))
        data += raw
    counts = (
        len(tensors) if n_tensors is None else n_tensors,
        len(keys) + bool(more_keys) if n_keys is None else n_keys,
    )
    head = start + struct.pack("<IQQ", version, *counts) + head
    return head + bytes(-len(head) % alignment) + data


def gguf_cases(folder: Path) -> Iterator[Case]:
    """Write GGUF files that are cut off, or have a false header or invalid numbers."""
    file = gguf_file()

    def case(damage: str, data: bytes) -> Case:
        return write_case(folder, f"gguf-{damage}", "model.gguf", data)

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: i * len(file) // CUTS])
    for start in (b"GGML", b"ggjt", b"FUGG", b"\0\0\0\0", b"PK\3\4"):
        yield case(f"magic-{start!r}", gguf_file(start=start))
    for version in (0, 1, 4, 3 << 24, 2**32 - 1):
        yield case(f"version-{version}", gguf_file(version=version))
    for n in (len(llama_tensors()) + 1, 2**14 + 1, 2**32, 2**63, 2**64 - 1):
        yield case(f"tensors-{n}", gguf_file(n_tensors=n))
        yield case(f"keys-{n}", gguf_file(n_keys=n))
    for damage, raw in {
        "no-name": encode_text("") + encode_value(4, 1),
        "long-name": encode_text("n" * 5000) + encode_value(4, 1),
        "name-length": encode_text("n", 2**63) + encode_value(4, 1),
        "name-length-2": encode_text("n", 2**64 - 1) + encode_value(4, 1),
        "again": encode_text("llama.block_count") + encode_value(4, 1),
        "type-13": encode_text("n") + struct.pack("<IQ", 13, 0),
        "type-huge": encode_text("n") + struct.pack("<IQ", 2**32 - 1, 0),
        "text-length": encode_text("n") + struct.pack("<I", 8) + encode_text("t", 2**63),
        "text-length-2": encode_text("n") + struct.pack("<I", 8) + encode_text("t", 2**64 - 1),
        "list-of-lists": encode_text("n") + struct.pack("<IIQ", 9, 9, 2**40),
        "lists": encode_text("n") + struct.pack("<IIQ", 9, 9, 1) * 2000,
        "list-type": encode_text("n") + struct.pack("<IIQ", 9, 99, 3),
        "list-length": encode_text("n") + struct.pack("<IIQ", 9, 4, 2**62),
        "list-length-2": encode_text("n") + struct.pack("<IIQ", 9, 12, 2**64 - 1),
        "byte-list": encode_text("n") + struct.pack("<IIQ", 9, 0, 2**63),
        "texts": encode_text("n") + struct.pack("<IIQ", 9, 8, 2**40),
        "texts-2": encode_text("n") + struct.pack("<IIQ", 9, 8, 2**64 - 1),
        "text-in-list": encode_text("n") + struct.pack("<IIQQ", 9, 8, 2, 2**63),
        "empty-texts": encode_text("n") + struct.pack("<IIQ", 9, 8, 2**21) + bytes(2**24),
    }.items():
        yield case(f"key-{damage}", gguf_file(more_keys=raw))
    for kind, alignment in ((4, 0), (4, 3), (4, 48), (4, 2**31), (8, "32"), (5, -32), (6, 32.0)):
        keys = {**KEYS, "general.alignment": (kind, alignment)}
        yield case(f"alignment-{alignment}-{kind}", gguf_file(keys))
    q = "blk.0.attn_q.weight"
    for damage, claims in {
        "twice": {"name": encode_text("blk.0.attn_k.weight")},
        "no-name": {"name": encode_text("")},
        "name-length": {"name": encode_text("blk", 2**64 - 1)},
        "long-name": {"name": encode_text("b" * 2000)},
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
        yield case(f"q-{damage}", gguf_file(claims={q: claims}))
    for bad in (NAN, INF, -INF):
        last = ((4, 32), 0, weights(4, 32, bad=bad).tobytes())
        yield case(f"weight-{bad}", gguf_file(tensors=llama_tensors(**{LAST: last})))
        last = ((4, 32), 1, weights(4, 32, bad=bad).astype(np.float16).tobytes())
        yield case(f"half-{bad}", gguf_file(tensors=llama_tensors(**{LAST: last})))
        scale = np.float16(bad).tobytes() + bytes(range(32))
        last = ((4, 32), 8, scale * 4)
        yield case(f"scale-{bad}", gguf_file(tensors=llama_tensors(**{LAST: last})))
        norm = ((32,), 0, weights(32, bad=bad).tobytes())
        yield case(
            f"gain-{bad}", gguf_file(tensors=llama_tensors(**{"blk.1.attn_norm.weight": norm}))
        )
    for damage, shape in {"width": (4, 64), "rows": (5, 32), "bias": (3,), "norm": (31,)}.items():
        name = {"bias": "blk.1.attn_v.bias", "norm": "blk.1.attn_norm.weight"}.get(damage, LAST)
        tensor = (shape, 0, weights(*shape).tobytes())
        yield case(f"other-{damage}", gguf_file(tensors=llama_tensors(**{name: tensor})))
    for part in "kv":
        fewer = {k: v for k, v in llama_tensors().items() if f"attn_{part}" not in k}
        yield case(f"no-{part}", gguf_file(tensors=fewer))
    yield case("no-tensors", gguf_file(tensors={}))
    yield case("no-attention", gguf_file(tensors={"token_embd.weight": llama_tensors()[q]}))
    layers = {f"blk.{i}.attn_q.weight": ((1,), 0, bytes(4)) for i in range(2**14 - 1)}
    yield case(
        "many-layers",
        gguf_file(tensors=layers, alignment=4, keys={**KEYS, "general.alignment": (4, 4)}),
    )
    arch = "general.architecture"
    for kind, value in ((8, "mamba"), (8, "x" * 10**5), (8, "a\nb"), (4, 5), (9, (8, ["llama"]))):
        yield case(
            f"architecture-{str(value)[:9]}-{kind}", gguf_file({**KEYS, arch: (kind, value)})
        )
    yield case("architecture-missing", gguf_file({k: v for k, v in KEYS.items() if k != arch}))
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
            yield case(f"{field}-{i}", gguf_file({**KEYS, f"llama.{field}": value}))
    yield case("heads-missing", gguf_file({k: v for k, v in KEYS.items() if "head" not in k}))
    yield case("one-of-three", gguf_file({**KEYS, "split.count": (2, 3)}))
    for i, factors in enumerate(([1.0, 1.0], [0.0], [-1.0], [NAN])):
        raw = np.array(factors, np.float32)
        tensor = (raw.shape, 0, raw.tobytes())
        yield case(
            f"factors-{i}", gguf_file(tensors=llama_tensors(**{"rope_freqs.weight": tensor}))
        )
