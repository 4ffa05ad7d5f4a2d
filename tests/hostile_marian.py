"""Damaged *.bin and *.npz of Marian."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from hostile_case import CUTS, INF, NAN, Case, weights, write_case
from marian_files import (
    INT8,
    INTGEMM8,
    bin_file,
    configuration,
    npz_file,
    transformer,
    with_configuration,
)

SIZES = {"d_model": 6, "d_ffn": 5, "n_encoder": 1, "n_decoder": 1}

TEXT = configuration(**{"dim-emb": 6, "enc-depth": 1, "dec-depth": 1})

Q, LAST = "encoder_l1_self_Wq", "decoder_l1_context_Wv"

YML = "special:model.yml"

TEXTS = {
    "none": None,
    "empty": "",
    "zeros": b"\0" * 300,
    "not-utf-8": TEXT.encode() + b"\nname: \xff\xfe",
    "json": '{"type": "transformer"}',
    "twice": TEXT + "\ntype: transformer",
    "no-option": "type\n" + TEXT,
    "item-first": "  - 1\n" + TEXT,
    "tag": "!!python/object/apply:os.system ['true']\n" + TEXT,
    "tab": TEXT + "\n\tmore: 1\n}",
    "heads-0": TEXT.replace("heads: 3", "heads: 0"),
    "heads-negative": TEXT.replace("heads: 3", "heads: -3"),
    "heads-4": TEXT.replace("heads: 3", "heads: 4"),
    "heads-huge": TEXT.replace("heads: 3", "heads: " + "9" * 5000),
    "heads-many": TEXT.replace("heads: 3", "heads: 999999"),
    "heads-fraction": TEXT.replace("heads: 3", "heads: 3.0"),
    "heads-true": TEXT.replace("heads: 3", "heads: true"),
    "heads-list": TEXT.replace("heads: 3", "heads: [3]"),
    "heads-anchor": TEXT.replace("heads: 3", "heads: &a 3"),
    "depth-0": TEXT.replace("enc-depth: 1", "enc-depth: 0"),
    "depth-2": TEXT.replace("enc-depth: 1", "enc-depth: 2"),
    "depth-many": TEXT.replace("dec-depth: 1", "dec-depth: 1000000"),
    "depth-huge": TEXT.replace("dec-depth: 1", "dec-depth: " + "1" * 10**5),
    "tied-huge": TEXT.replace("  []", "  - 999999999"),
    "tied-words": TEXT.replace("  []", "  - one"),
    "tied-true": TEXT.replace("  []", "  - true"),
    "tied-many": TEXT.replace("  []", "\n".join(["  - 1"] * 10_000)),
    "tied-text": TEXT.replace("  []", "  one\n  two"),
    "type": TEXT.replace("type: transformer", "type: amun"),
    "pre-norm": TEXT.replace('preprocess: ""', "preprocess: n"),
    "pre-norm-number": TEXT.replace('preprocess: ""', "preprocess: 7"),
    "rnn": TEXT.replace("self-attention", "rnn"),
    "autoreg": TEXT.replace("self-attention", "attention\\nof\\nits own"),
    "pool": TEXT + "\ntransformer-pool: perhaps",
    "long": TEXT + "\n" + "# x\n" * 2**17,
}
"""Configurations that are refused."""


def small(**instead: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the tensors of one encoder and one decoder layer with three heads of width two.

    Values of `instead` replace tensors by name; None removes one.
    """
    tensors = {name: value for name, value in transformer(**SIZES).items() if "ffn" not in name}
    return {name: value for name, value in (tensors | instead).items() if value is not None}


def zip_file(
    members: Mapping[str, bytes],
    *,
    compression: int = zipfile.ZIP_STORED,
    twice: bool = False,
) -> bytes:
    """Encode a zip file; `twice` repeats the directory's entry of the first member."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
        if twice:
            archive.filelist.append(archive.filelist[0])
    return file.getvalue()


def numpy_header(text: str, length: int | None = None) -> bytes:
    """Encode the header of an array; `length` may differ from its true length."""
    raw = text.encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(raw) if length is None else length) + raw


def array_file(value: np.ndarray) -> bytes:
    """Encode an array as NumPy does."""
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


def marian_cases(folder: Path) -> Iterator[Case]:
    """Write damaged *.bin and *.npz of Marian."""
    yield from _bin_cases(folder)
    yield from _npz_cases(folder)
    for damage, text in TEXTS.items():
        for name, file in (("model.bin", bin_file), ("model.npz", npz_file)):
            yield write_case(folder, f"{name}-text-{damage}", name, file(small(), text))


def _bin_cases(folder: Path) -> Iterator[Case]:
    file = bin_file(small(), TEXT)

    def case(damage: str, data: bytes) -> Case:
        return write_case(folder, f"marian-bin-{damage}", "model.bin", data)

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: 8 + i * (len(file) - 8) // CUTS])
    for version in (0, 2, 3, 1 << 32, 2**64 - 1):
        yield case(f"version-{version}", bin_file(small(), TEXT, version=version))
    for n in (0, len(small()) + 2, 2**14 + 1, 2**32, 2**61, 2**64 - 1):
        yield case(f"tensors-{n}", bin_file(small(), TEXT, n_tensors=n))
    for padding in (len(file), 2**63, 2**64 - 1):
        yield case(f"padding-{padding}", bin_file(small(), TEXT, padding=padding))
    for damage, claims in {
        "twice": {"name": b"encoder_l1_self_Wk\0"},
        "no-name": {"name": b"\0"},
        "empty-name": {"name": b"", "name_bytes": 0},
        "not-utf-8": {"name": b"encoder_\xff\xfe\0"},
        "zero-inside": {"name": b"encoder\0self_Wq\0"},
        "no-zero": {"name": b"encoder_l1_self_Wq"},
        "long-name": {"name": b"e" * 2000 + b"\0"},
        "name-length": {"name_bytes": 2**64 - 1},
        "name-one-more": {"name_bytes": 20},
        "rank-9": {"shape": (6, 6) + (1,) * 7},
        "rank-huge": {"rank": 2**64 - 1},
        "rank-0": {"rank": 0},
        "rank-1": {"rank": 1},
        "one-axis": {"shape": (36,)},
        "three-axes": {"shape": (6, 3, 2)},
        "side-0": {"shape": (6, 0)},
        "side-negative": {"shape": (-6, -6)},
        "side-huge": {"shape": (2**31 - 1, 6)},
        "sides-huge": {"shape": (2**31 - 1,) * 8},
        "other-sides": {"shape": (9, 4)},
        "few-rows": {"shape": (12, 3)},
        "size-0": {"size": 0},
        "size-short": {"size": 140},
        "size-huge": {"size": 2**64 - 1},
        "size-long": {"size": 2**30},
        "type-0": {"number": 0},
        "type-huge": {"number": 2**64 - 1},
        "type-int8": {"number": INT8},
        "type-int32": {"number": 0x104},
        "type-double": {"number": 0x408, "raw": b""},
        "half-nan": {"number": 0x402, "raw": np.full(36, NAN, np.float16).tobytes()},
        "double-huge": {"number": 0x408, "raw": np.full(36, 1e300).tobytes()},
        "prepared": {"number": 0x11001},
        "no-multiplier": {"number": INTGEMM8, "raw": bytes(36)},
        **{
            f"multiplier-{value}": {
                "number": INTGEMM8,
                "raw": b"\1" * 36 + struct.pack("<f", value),
            }
            for value in (0.0, -8.0, NAN, INF, 1e-45)
        },
    }.items():
        is_padded = damage != "no-multiplier"
        data = bin_file(small(), TEXT, claims={Q: claims}, alignment=256 if is_padded else 1)
        yield case(f"q-{damage}", data)
    for damage, claims in {
        "float": {"number": 0x404, "shape": (len(TEXT) // 4,)},
        "intgemm": {"number": INTGEMM8, "shape": (len(TEXT) - 4,)},
        "long": {"shape": (2**20,)},
        "huge": {"shape": (2**31 - 1,), "size": 2**31 - 1},
    }.items():
        yield case(f"yml-{damage}", bin_file(small(), TEXT, claims={YML: claims}))
    for bad in (NAN, INF, -INF):
        tensors = small(**{LAST: weights(6, 6, bad=bad)})
        yield case(f"weight-{bad}", bin_file(tensors, TEXT))
        bias = small(**{"encoder_l1_self_bk": weights(1, 6, bad=bad)})
        yield case(f"bias-{bad}", bin_file(bias, TEXT))
    for damage, instead in {
        "no-k": {"encoder_l1_self_Wk": None},
        "no-bias": {"encoder_l1_self_bk": None},
        "no-layer": {Q: None},
        "wide": {"encoder_l1_self_Wk": weights(6, 8)},
        "deep": {"encoder_l1_self_Wk": weights(7, 6)},
        "odd": {LAST: weights(6, 7)},
        "bias-long": {"encoder_l1_self_bq": weights(1, 7)},
        "another-layer": {"encoder_l2_self_Wq": weights(6, 6)},
    }.items():
        yield case(damage, bin_file(small(**instead), TEXT))
    yield case("no-tensors", bin_file({}, TEXT))
    many = {f"encoder_l{i}_self_Wq": weights(1, 1) for i in range(1, 2**14 - 1)}
    yield case("many-layers", bin_file(many, TEXT, alignment=1))


def _npz_cases(folder: Path) -> Iterator[Case]:
    members = {
        f"{name}.npy": array_file(value)
        for name, value in with_configuration(small(), TEXT).items()
    }
    file = npz_file(small(), TEXT)

    def case(damage: str, data: bytes) -> Case:
        return write_case(folder, f"marian-npz-{damage}", "model.npz", data)

    def with_q(damage: str, raw: bytes) -> Case:
        return case(f"q-{damage}", zip_file({**members, f"{Q}.npy": raw}))

    for i in range(CUTS):
        yield case(f"cut-{i}", file[: i * len(file) // CUTS])
    yield case("pickle", b"\x80\x02cposix\nsystem\nX\x04\0\0\0exit\x85R.")
    yield case("text", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    yield case("empty", zip_file({}))
    yield case("no-configuration", npz_file(small(), None))
    yield case("compressed", zip_file(members, compression=zipfile.ZIP_DEFLATED))
    bomb = {**members, f"{Q}.npy": numpy_header(_described("<f4", "(5000, 5000)")) + bytes(10**8)}
    yield case("bomb", zip_file(bomb, compression=zipfile.ZIP_DEFLATED))
    yield case("twice", zip_file(members, twice=True))
    start = file.rindex(b"PK\5\6")
    for damage, place, raw in (
        ("directory-size", start + 12, struct.pack("<I", 2**32 - 1)),
        ("directory-place", start + 16, struct.pack("<I", 2**32 - 1)),
        ("directory-at-0", start + 16, struct.pack("<I", 0)),
        ("member-size", file.index(b"PK\1\2") + 20, struct.pack("<II", 2**31, 2**31)),
        ("member-sizes", file.index(b"PK\1\2") + 20, struct.pack("<II", 200, 100)),
        ("member-place", file.index(b"PK\1\2") + 42, struct.pack("<I", 2**31)),
        ("member-encrypted", file.index(b"PK\1\2") + 8, struct.pack("<H", 1)),
        ("member-method", file.index(b"PK\1\2") + 10, struct.pack("<H", 99)),
        ("member-moved", file.rindex(b"PK\1\2") + 42, struct.pack("<I", 0)),
        ("local-header", 0, b"KP"),
        ("local-name", 26, struct.pack("<H", 65535)),
    ):
        yield case(damage, file[:place] + raw + file[place + len(raw) :])
    yield with_q("no-header", bytes(200))
    yield with_q("short", b"\x93NUMPY")
    yield with_q("version-2", b"\x93NUMPY\2\0" + bytes(200))
    yield with_q("object", array_file(np.zeros((6, 6), "S3")))
    yield with_q("columns", array_file(np.asfortranarray(weights(6, 6))))
    yield with_q("nan", array_file(weights(6, 6, bad=NAN)))
    yield with_q("int", array_file(np.ones((6, 6), np.int8)))
    data = weights(6, 6).tobytes()
    for damage, text in {
        "big-endian": _described(">f4", "(6, 6)"),
        "object": _described("|O", "(6, 6)"),
        "no-type": _described("<f3", "(6, 6)"),
        "wide-type": _described("<f9", "(6, 6)"),
        "sides": _described("<f4", "(6, 7)"),
        "huge": _described("<f4", "(999999999999, 999999999999)"),
        "digits": _described("<f4", "(" + "9" * 900 + ", 6)"),
        "negative": _described("<f4", "(-6, -6)"),
        "no-side": _described("<f4", "(6, , 6)"),
        "zero": _described("<f4", "(0, 6)"),
        "ranks": _described("<f4", "(" + "1, " * 200 + ")"),
        "code": "{'descr': __import__('os').system('true'), 'shape': (6, 6), }",
        "nested": "(" * 900,
    }.items():
        yield with_q(f"header-{damage}", numpy_header(text) + data)
    for length in (0, 10, 65535):
        header = numpy_header(_described("<f4", "(6, 6)"), length)
        yield with_q(f"header-length-{length}", header + data)


def _described(descr: str, shape: str) -> str:
    """Write the description of an array as NumPy does."""
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
