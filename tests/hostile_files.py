"""Damaged model files: drawn from a seed, with one false number, or built to take a reader down."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from marian_files import INTGEMM8, bin_file
from model_files import (
    CROSS,
    SELF,
    File,
    Rows,
    Sizes,
    ctranslate2_file,
    encode,
    floats,
    gguf_file,
    index_file,
    llama,
    marian_bin,
    marian_npz,
    marian_text,
    normal,
    safetensors_file,
    small_marian,
)

NAN, INF = float("nan"), float("inf")
RNG = np.random.default_rng(7)
SIZES = Sizes()
ROWS = SIZES.drawn(RNG)
TEXT = marian_text(SIZES)

Q, W = "blk.0.attn_q.weight", f"{SELF.format(0)}/linear_0/weight"
MARIAN_Q = "encoder_l1_self_Wq"


def marian_tensors(sizes: Sizes, rows: Rows) -> dict[str, np.ndarray]:
    """Return Marian's tensors of three stacks with the same rows."""
    scopes = [("encoder_l{}_self", rows), ("decoder_l{}_self", rows), ("decoder_l{}_context", rows)]
    weights = {
        f"{scope.format(i)}_W{p}": np.ascontiguousarray(w.T)
        for scope, layers in scopes
        for i, layer in enumerate(layers, 1)
        for p, w in layer.items()
    }
    known = small_marian(sizes)
    missing = {f"{scope.format(1)}_W{p}" for scope, _ in scopes for p in "qkv"} - set(weights)
    return {name: value for name, value in (known | weights).items() if name not in missing}


WRITERS: dict[str, Callable[[Sizes, Rows], File]] = {
    "safetensors": safetensors_file,
    "index": index_file,
    "gguf": gguf_file,
    "ctranslate2": ctranslate2_file,
    "marian bin": lambda s, rows: marian_bin(marian_tensors(s, rows), marian_text(s)),
    "marian npz": lambda s, rows: marian_npz(marian_tensors(s, rows), marian_text(s)),
}


def square(sizes: Sizes) -> Sizes:
    """Return sizes that Marian can have."""
    return replace(sizes, n_kv_heads=sizes.n_heads, d_model=sizes.n_heads * sizes.d_head)


def intact(name: str, sizes: Sizes = SIZES, rows: Rows | None = None) -> File:
    """Write an undamaged file of a format."""
    sizes = square(sizes) if name.startswith("marian") else sizes
    return WRITERS[name](sizes, sizes.drawn(np.random.default_rng(7)) if rows is None else rows)


def write(folder: Path, case: int, file: File) -> Path:
    """Write a file into a folder of its own, and return its path."""
    home = folder / str(case)
    home.mkdir()
    for name, content in {**file.beside, file.name: file.data}.items():
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        (home / name).write_bytes(raw)
    return home / file.name


# drawn

ODD = (0, -2, 5, 2**31, 2**63 - 1, 10**400, "2", None, [2], {}, True, 2.5, NAN, INF, "a\n\x1b[31m")
WORDS = (b": ", b"\n", b"[", b"&a ", b"!!", b"99999999", b"- ", b"-1", b"\t", b"\xff", b"true")


def changed(rng: np.random.Generator, tree: Any) -> Any:
    """Return a copy of a JSON value in which one part is removed or replaced."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.1:
        return ODD[rng.integers(len(ODD))]
    copy = tree.copy()
    places = list(tree) if isinstance(tree, dict) else range(len(tree))
    place = places[rng.integers(len(places))]
    if rng.random() < 0.1:
        del copy[place]
    else:
        copy[place] = changed(rng, tree[place])
    return copy


def extreme(rng: np.random.Generator, code: str) -> float:
    """Return a number of a type that a header should not have."""
    if code in "fd":
        return float(rng.choice([0.0, -1.0, NAN, INF, 1e-45, 3e38]))
    bits = 8 * struct.calcsize(code)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if code.islower() else (0, 2**bits - 1)
    some = (0, 1, 3, low, high - 1, high // 2 + 1, 2 ** (bits // 2), int(rng.integers(128)))
    return min(some[rng.integers(len(some))], high)


def damaged(rng: np.random.Generator, file: File) -> tuple[str, File]:
    """Return a damaged copy of a file, and what was done to it."""
    kinds = ["bytes", "piece"] + ["field"] * 3 * bool(file.fields) + ["header"] * bool(file.header)
    kinds += ["config"] * ("config.json" in file.beside) + ["text"] * (b"dim-emb" in file.data)
    kind = kinds[rng.integers(len(kinds))]
    data, what = bytearray(file.data), kind
    reach = len(data) if rng.random() < 0.5 else min(len(data), 700)
    start = int(rng.integers(reach))
    if kind == "field":
        name = list(file.fields)[rng.integers(len(file.fields))]
        value = extreme(rng, file.fields[name][1])
        what, data = f"{name} is {value}", bytearray(file.with_field(name, value))
    elif kind == "header":
        header = changed(rng, file.header)
        raw = json.dumps(header).encode()
        n = len(json.dumps(file.header).encode())
        data = bytearray(raw if not file.fields else encode(header, file.data[8 + n :]))
    elif kind == "config":
        config = changed(rng, file.beside["config.json"])
        return f"{config}", replace(file, beside={**file.beside, "config.json": config})
    elif kind == "text":
        start = file.data.index(b"dim-emb") + int(rng.integers(500))
        word = WORDS[rng.integers(len(WORDS))]
        data[start : start + len(word)] = word
        what = f"{word!r} at {start}"
    elif kind == "piece":
        piece = data[start : start + int(rng.integers(1, 40))]
        data[start : start + len(piece)] = piece * int(rng.choice([0, 2]))
    else:
        for place in rng.integers(reach, size=rng.integers(1, 5)):
            data[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
    return what, replace(file, data=bytes(data))


# must be refused

HARMLESS = re.compile(
    r"block_count|revision|pre_norm|rotary_dim is none|type.* is one more"
    r"|(Wemb|logit|_bo|_ln_).* side \d is one more"
)
"""Numbers that are not used, of tensors that are not read, and types that are no wider."""


def false_numbers(file: File) -> Iterator[tuple[str, File]]:
    """Yield copies in which one number of the header is 0, one more, or the largest there is."""
    for name, (place, code) in file.fields.items():
        if code not in "fd":
            (true,) = struct.unpack_from("<" + code, file.data, place)
            largest = 2 ** (8 * struct.calcsize(code) - code.islower()) - 1
            for words, value in (("none", 0), ("one more", true + 1), ("the largest", largest)):
                if value != true and value <= largest:
                    yield (
                        f"{name} is {words}",
                        replace(file, data=file.with_field(name, value)),
                    )


FALSE: dict[str, dict[str, tuple[float, ...]]] = {
    "gguf": {
        "version": (1, 3 << 24),
        "tensors": (2**14 + 1,),
        f"{Q} side 0": (31, 256, 2**63, 2**64 - 8),
        f"{Q} side 1": (7, 2**32),
        f"{Q} type": (15, 26, 28),
        f"{Q} offset": (7, 2**64 - 32),
        "llama.attention.head_count": (3,),
        "llama.attention.head_count_kv": (8,),
        "llama.rope.freq_base": (0.0, -1.0, NAN, INF),
    },
    "ctranslate2": {
        "version": (1, 3, 6 << 24),
        f"{W} type": (4, 6),
        f"{W} size": (4 * 16 * 32 - 4,),
        "decoder/num_heads": (-3,),
        f"{SELF.format(1)}/rotary_base": (0.0, -1.0, NAN),
    },
    "marian bin": {
        "version": (1 << 32,),
        "padding": (2**20,),
        f"{MARIAN_Q} side 0": (-8, 16),
        f"{MARIAN_Q} type": (0x101, 0x104, 0x11001),
        f"{MARIAN_Q} size": (140, 2**30),
        "special:model.yml type": (0x404, INTGEMM8),
    },
}
"""Further values that no reader may believe."""

CONFIGS = {
    "list": [llama(SIZES)],
    "text": "llama",
    "nothing": b"",
    "deep": b"[" * 100_000,
    "large": b" " * 2**23,
    "digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 6000 + b"}",
    "not UTF-8": b'{"model_type": "\xff"}',
    "no type": {k: v for k, v in llama(SIZES).items() if k != "model_type"},
    "other type": {**llama(SIZES), "model_type": "m" * 10**5},
    "lines": {**llama(SIZES), "model_type": "be\nrt\r\x1b[31m"},
}

TEXTS = {
    "none": None,
    "empty": "",
    "not UTF-8": TEXT.encode() + b"\nname: \xff\xfe",
    "json": '{"type": "transformer"}',
    "twice": TEXT + "\ntype: transformer",
    "tag": "!!python/object/apply:os.system ['true']\n" + TEXT,
    "tab": TEXT + "\n\tmore: 1\n}",
    "huge": TEXT.replace("heads: 4", "heads: " + "9" * 5000),
    "anchor": TEXT.replace("heads: 4", "heads: &a 4"),
    "fraction": TEXT.replace("heads: 4", "heads: 4.0"),
    "deep": TEXT.replace("enc-depth: 2", "enc-depth: 1000000"),
    "tied": TEXT.replace("  []", "\n".join(["  - 1"] * 10_000)),
    "long": TEXT + "\n" + "# x\n" * 2**17,
}


def key(kind: int, *more: Any) -> bytes:
    """Encode a key of GGUF, of which the rest is given by `struct` codes and values."""
    codes, *values = more or ("",)
    return struct.pack("<Q", 1) + b"n" + struct.pack("<I" + codes, kind, *values)


def gguf_cases() -> Iterator[tuple[str, File]]:
    """Yield GGUF files that are refused for another reason than a false number."""

    def case(damage: str, **given: Any) -> tuple[str, File]:
        return f"gguf: {damage}", gguf_file(SIZES, ROWS, **given)

    yield case("lists in lists", more=key(9, "IQ", 9, 1) + struct.pack("<IQ", 9, 1) * 2000)
    yield case("empty texts", more=key(9, "IQ", 8, 2**21) + bytes(2**24))
    yield case("text in a list", more=key(9, "IQQ", 8, 2, 2**63))
    yield case("key again", more=struct.pack("<Q", 17) + b"llama.block_count" + bytes(8))
    yield case("no layers", tensors={f"blk.{i}.attn_q.weight": None for i in range(2)})
    yield case("many layers", tensors={f"blk.{i}.attn_q.weight": floats(np.ones(8))
                                       for i in range(2**14 - 20)})  # fmt: skip
    yield case("one of three files", keys={"split.count": (2, 3)})
    for alignment in ((4, 0), (4, 3), (4, 2**31), (8, "32"), (5, -32)):
        yield case(f"alignment {alignment}", keys={"general.alignment": alignment})
    for name in (None, (8, "mamba"), (8, "x" * 10**5), (8, "a\nb"), (4, 5), (9, (8, ["llama"]))):
        yield case(f"architecture {str(name)[:20]}", keys={"general.architecture": name})
    for value in (None, (8, "4"), (6, 4.0), (7, True), (9, (4, [4])), (9, (6, [4.0, 4.0]))):
        yield case(f"heads {value}", keys={"llama.attention.head_count": value})
    for value in ((6, NAN), (6, -1.0), (8, "2")):
        yield case(f"scaling {value}", keys={"llama.rope.scaling.factor": value})
    for factors in ([1.0, 1.0], [0.0], [NAN]):
        yield case(f"factors {factors}", tensors={"rope_freqs.weight": floats(np.array(factors))})
    scale = np.float16(NAN).tobytes() + bytes(range(32))
    yield case("scale", tensors={"blk.1.attn_v.weight": ((4, 32), 8, scale * 4)})
    yield case("bias", tensors={"blk.1.attn_v.bias": floats(np.ones(3))})
    yield case("norm", tensors={"blk.1.attn_norm.weight": floats(np.ones(31))})


def ctranslate2_cases() -> Iterator[tuple[str, File]]:
    """Yield files model.bin that are refused for another reason than a false number."""
    whole = np.ones((16, 32), np.int8)

    def case(damage: str, **given: Any) -> tuple[str, File]:
        return f"ctranslate2: {damage}", ctranslate2_file(SIZES, ROWS, **given)

    for pickle in (b"PK\3\4" + bytes(200), b"\x80\x02cposix\nsystem\n", b"cposix\nsystem\n(S'"):
        yield f"ctranslate2: {pickle[:9]!r}", File("model.bin", pickle)
    for aliases in ({"a": "b"}, {"a": "a"}, {W: f"{CROSS}/linear_0/weight"}):
        yield case(f"aliases {aliases}", aliases=aliases)
    scales = {f"{W}{'_scale' * i}": whole for i in range(2000)}
    yield case("scales of scales", **scales)
    layer = "decoder/layer_{}/self_attention/linear_0/weight"
    yield case("many layers", **{layer.format(i): np.float32(0) for i in range(2, 2**14 - 30)})
    for damage, instead in {
        "no heads": {"decoder/num_heads": None},
        "heads": {"decoder/num_heads": np.float32(2.5)},
        "list": {"decoder/num_heads": np.int16([4])},
        "no scale": {W: whole},
        "scale 0": {W: whole, f"{W}_scale": np.zeros(16, np.float32)},
        "short scale": {W: whole, f"{W}_scale": normal(RNG, 15)},
        "packed": {f"{W}_zero": normal(RNG, 16)},
        "bias": {f"{SELF.format(0)}/linear_0/bias": normal(RNG, 17)},
        "gain": {f"{SELF.format(0)}/layer_norm/gamma": normal(RNG, 31)},
        "half": {W: np.full((16, 32), NAN, np.float16)},
        "cross alone": {f"{CROSS}/linear_1/weight": None},
        "cross odd": {f"{CROSS}/linear_1/weight": normal(RNG, 13, 32)},
        "cross flat": {f"{CROSS}/linear_0/weight": normal(RNG, 256)},
    }.items():
        yield case(damage, **instead)


def numpy_file(shape: str, descr: str = "<f4", length: int | None = None) -> bytes:
    """Encode an array whose header says this; `length` may differ from the header's."""
    raw = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    start = b"\x93NUMPY\1\0" + struct.pack("<H", len(raw) if length is None else length)
    return start + raw + np.ones((8, 8), np.float32).tobytes()


def zip_file(members: Mapping[str, bytes], compression: int = 0, twice: bool = False) -> bytes:
    """Encode a zip file; `twice` repeats the directory's entry of the first member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
        archive.filelist += archive.filelist[:1] * twice
    return out.getvalue()


def marian_cases() -> Iterator[tuple[str, File]]:
    """Yield *.bin and *.npz that are refused for another reason than a false number."""
    tensors = small_marian(square(SIZES))
    for damage, text in TEXTS.items():
        yield f"marian bin: {damage}", marian_bin(tensors, text)
        yield f"marian npz: {damage}", marian_npz(tensors, text)
    for damage, claims in {
        "twice": {"name": b"encoder_l1_self_Wk\0"},
        "not UTF-8": {"name": b"encoder_\xff\xfe\0"},
        "zero inside": {"name": b"encoder\0self_Wq\0"},
        "no zero": {"name": b"encoder_l1_self_Wq"},
        "half": {"number": 0x402, "raw": np.full(64, NAN, np.float16).tobytes()},
        "double": {"number": 0x408, "raw": np.full(64, 1e300).tobytes()},
        **{
            f"multiplier {x}": {"number": INTGEMM8, "raw": b"\1" * 64 + struct.pack("<f", x)}
            for x in (0.0, -8.0, NAN, INF, 1e-45)
        },
    }.items():
        yield (
            f"marian bin: {damage}",
            File("model.bin", bin_file(tensors, TEXT, claims={MARIAN_Q: claims})),
        )
    for damage, instead in {
        "no bias": {"encoder_l1_self_bk": None},
        "no layer": {MARIAN_Q: None},
        "bias": {"encoder_l1_self_bq": normal(RNG, 1, 9)},
        "another layer": {"encoder_l3_self_Wq": normal(RNG, 8, 8)},
    }.items():
        yield (
            f"marian bin: {damage}",
            marian_bin(small_marian(square(SIZES), **instead), TEXT),
        )
    many = {f"encoder_l{i}_self_Wq": np.ones((1, 1), np.float32) for i in range(1, 2**14 - 1)}
    yield "marian bin: many", File("model.bin", bin_file(many, TEXT, alignment=1))
    with zipfile.ZipFile(io.BytesIO(marian_npz(tensors, TEXT).data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for damage, data in {
        "empty": zip_file({}),
        "compressed": zip_file(members, zipfile.ZIP_DEFLATED),
        "bomb": zip_file(
            {**members, f"{MARIAN_Q}.npy": numpy_file("(5000, 5000)") + bytes(10**8)}, 8
        ),
        "twice": zip_file(members, twice=True),
        "pickle": b"\x80\x02cposix\nsystem\nX\x04\0\0\0exit\x85R.",
    }.items():
        yield f"marian npz: {damage}", File("model.npz", data)
    for raw in (
        bytes(200),
        b"\x93NUMPY",
        b"\x93NUMPY\2\0" + bytes(200),
        *(numpy_file("(8, 8)", descr) for descr in (">f4", "|O", "<f9", "<i1")),
        *(numpy_file(shape) for shape in ("(8, 9)", "(0, 8)", "(-8, -8)", "(8, , 8)", "(" * 900)),
        *(numpy_file(shape) for shape in ("(" + "9" * 900 + ", 8)", "(" + "1, " * 200 + ")")),
        *(numpy_file("(8, 8)", length=length) for length in (0, 10, 65535)),
    ):
        data = zip_file({**members, f"{MARIAN_Q}.npy": raw})
        yield f"marian npz: {raw[:90]!r}", File("model.npz", data)


def refused() -> Iterator[tuple[str, File]]:
    """Yield all files that must be refused, with what is wrong in them."""
    for name in WRITERS:
        file = intact(name)
        for what, false in false_numbers(file):
            if not HARMLESS.search(what):
                yield f"{name}: {what}", false
        for one, values in FALSE.get(name, {}).items():
            for value in values:
                data = file.with_field(one, value)
                yield f"{name}: {one} is {value}", replace(file, data=data)
    for name in WRITERS:
        sizes = square(SIZES) if name.startswith("marian") else SIZES
        for damage, change in {
            **{str(x): lambda w, x=x: w["v"].__setitem__((-1, -1), x) for x in (NAN, INF, -INF)},
            "a head more": lambda w: w.update(k=np.concatenate([w["k"], w["k"][:2]])),
            "no k": lambda w: w.pop("k"),
        }.items():
            rows = sizes.drawn(RNG)
            change(rows[0])
            yield f"{name}: {damage}", intact(name, SIZES, rows)
    file = intact("safetensors")
    for damage, config in CONFIGS.items():
        yield f"config: {damage}", replace(file, beside={"config.json": config})
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    names = encode({f"t{i}": empty for i in range(2**16)}, b"")
    yield "safetensors: many names", replace(file, data=names)
    yield from gguf_cases()
    yield from ctranslate2_cases()
    yield from marian_cases()


def special(folder: Path) -> list[Path]:
    """Make pipes, links to themselves and folders in place of model files."""
    paths = []
    makers = (os.mkfifo, lambda path: path.symlink_to(path.name), Path.mkdir)
    for i, make in enumerate(makers):
        for name in ("model.safetensors", "model.gguf", "model.bin", "model.npz"):
            home = folder / f"{i} {name}"
            home.mkdir()
            (home / "config.json").write_text(json.dumps(llama(SIZES)))
            make(home / name)
            paths.append(home / name)
    return paths
