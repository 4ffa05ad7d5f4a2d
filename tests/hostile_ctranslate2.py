"""Damaged files model.bin of CTranslate2.

The writer is as short as the format, and writes false headers as well as true ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile_case import CUTS, INF, NAN, Case, weights, write_case

CT_TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}

SELF = "decoder/layer_0/self_attention"

CROSS = "decoder/layer_0/attention"


def decoder_tensors(**instead: Any) -> dict[str, np.ndarray]:
    """Return the tensors of a decoder's layer with three heads of width two.

    Values of `instead` replace tensors by name; None removes one.
    """
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


def encode_text(value: str, length: int | None = None) -> bytes:
    """Encode a string of CTranslate2; `length` may differ from its true length."""
    raw = value.encode() + b"\0"
    return struct.pack("<H", len(raw) if length is None else length) + raw


def model_bin(
    tensors: dict[str, np.ndarray] | None = None,
    aliases: dict[str, str] | None = None,
    *,
    version: int = 6,
    n_tensors: int | None = None,
    n_aliases: int | None = None,
    claims: dict[str, dict[str, Any]] | None = None,
    built: bytes | None = None,
) -> bytes:
    """Encode a file model.bin.

    Args:
        tensors: Values of each tensor.
        aliases: Second names of tensors.
        version: Version of the format.
        n_tensors: Number of tensors that the header claims.
        n_aliases: Number of aliases that the file claims.
        claims: False entries of a tensor's header: name, rank, dims, kind, size.
        built: Encoded name of the model's class.
    """
    tensors = decoder_tensors() if tensors is None else tensors
    aliases = aliases or {}
    out = struct.pack("<I", version) + (encode_text("TransformerSpec") if built is None else built)
    out += struct.pack("<II", 7, len(tensors) if n_tensors is None else n_tensors)
    for name, values in tensors.items():
        claimed = (claims or {}).get(name, {})
        dims = claimed.get("dims", values.shape)
        out += claimed.get("name", encode_text(name))
        out += struct.pack("B", claimed.get("rank", len(dims)))
        out += b"".join(struct.pack("<I", side) for side in dims)
        out += struct.pack(
            "<BI",
            claimed.get("kind", CT_TYPES[values.dtype.name]),
            claimed.get("size", values.nbytes),
        )
        out += values.tobytes()
    out += struct.pack("<I", len(aliases) if n_aliases is None else n_aliases)
    return out + b"".join(encode_text(a) + encode_text(n) for a, n in aliases.items())


def ctranslate2_cases(folder: Path) -> Iterator[Case]:
    """Write files model.bin that are cut off, damaged in header or numbers, or pickles."""
    file = model_bin()

    def case(damage: str, data: bytes) -> Case:
        return write_case(folder, f"ctranslate2-{damage}", "model.bin", data)

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: i * len(file) // CUTS])
    yield case("zip", b"PK\3\4" + bytes(200))
    yield case("pickle", b"\x80\x02cposix\nsystem\nX\x04\0\0\0exit\x85R.")
    yield case("old-pickle", b"cposix\nsystem\n(S'exit'\ntR.")
    yield case("text", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    for version in (0, 1, 3, 7, 6 << 24, 2**32 - 1):
        yield case(f"version-{version}", model_bin(version=version))
    for n in (len(decoder_tensors()) + 1, 2**14 + 1, 2**31, 2**32 - 1):
        yield case(f"tensors-{n}", model_bin(n_tensors=n))
        yield case(f"aliases-{n}", model_bin(n_aliases=n))
    yield case("built-length", model_bin(built=encode_text("Spec", 65535)))
    w = f"{SELF}/linear_0/weight"
    for damage, claims in {
        "twice": {"name": encode_text(f"{SELF}/layer_norm/gamma")},
        "no-name": {"name": encode_text("")},
        "name-length": {"name": encode_text("n", 65535)},
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
        yield case(f"weight-{damage}", model_bin(claims={w: claims}))
    yield case("alias-of-nothing", model_bin(aliases={"a": "b"}))
    yield case("alias-of-itself", model_bin(aliases={"a": "a"}))
    yield case("alias-again", model_bin(aliases={w: f"{CROSS}/linear_0/weight"}))
    yield case("no-tensors", model_bin({}))
    for damage, instead in {
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
        yield case(damage, model_bin(decoder_tensors(**instead)))
    scales = {f"{w}{'_scale' * i}": np.ones((18, 6), np.int8) for i in range(1, 2000)}
    yield case(
        "scales-of-scales", model_bin(decoder_tensors(**{w: np.ones((18, 6), np.int8)}, **scales))
    )
    layer = "decoder/layer_{}/self_attention/linear_0/weight"
    many = {layer.format(i): np.float32(0) for i in range(2**14 - 1)}
    yield case("many-layers", model_bin({"decoder/num_heads": np.int16(3), **many}))
