"""Reader of Marian's models: *.bin, also as Bergamot and Firefox Translations ship them, and *.npz.

*.bin, which marian-conv writes; all lengths are u64:

    version, number of tensors
    per tensor: length of its name, type, rank, size in bytes
    names, each with a closing zero; dimensions i32; length of the padding, padding
    data of the tensors, one after the other; each may be followed by bytes without a meaning

*.npz, which Marian's training writes, is a file of NumPy. A weight is a matrix of inputs × outputs.
A tensor of bytes, special:model.yml, is the configuration in YAML. Quantised weights, intgemm8 and
intgemm16, are stored transposed and hold round(weight × multiplier); the multiplier is behind the
numbers.

Source: src/common/binary.cpp, src/common/types.h, src/models/transformer.h and
src/tensors/cpu/expression_graph_packable.h of marian-nmt/marian-dev and browsermt/marian-dev.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from attnkit.foundation.documents import check_depth
from attnkit.realmodels.base import Array, Kind, Projections, RealModel
from attnkit.realmodels.binary import (
    Stored,
    TensorFile,
    check_n_entries,
    layers_of,
    open_header,
    projections,
    split_heads,
)
from attnkit.realmodels.errors import Unreadable, damaged, listing, quote, reading
from attnkit.realmodels.notes import REPEATED, quantised

CONFIGURATION = "special:model.yml"
_VERSION, _ENCRYPTED = 1, 2
_QUERY_WEIGHT = re.compile(r"((encoder|decoder)_l(\d{1,6})_(self|context))_Wq")
_TYPES = {
    kind + n_bytes: f"{name}{8 * n_bytes}"
    for kind, name in ((0x100, "int"), (0x200, "uint"), (0x400, "float"))
    for n_bytes in ((2, 4, 8) if name == "float" else (1, 2, 4, 8))
}
_TYPES |= {0x4101: "intgemm8", 0x4102: "intgemm16"}  # browsermt's numbers
_TYPES |= {0x10001: "intgemm8", 0x10002: "intgemm16"}  # marian-nmt's numbers
_TRANSPOSABLE = 16
"""Divisor of both sides of every quantised weight that marian-conv does not mix up."""

_NORM_NAMES = {"n": "ln", "r": "rms"}
"""Part of a norm's name, by its letter in an option such as `transformer-preprocess`."""

_FIRST_NORMALISED_KEYS = (1, 11)
"""First version in which the norm before self-attention also precedes its keys and values."""

_QUERIES_ONLY = (
    "Self-attention normalises what its queries read, but not what its keys and values read, as "
    "Marian did before version 1.11."
)
_DECODER_NOTES = {
    "rnn": "The decoder has a recurrent unit in place of self-attention, so no layer is causal.",
    "average-attention": "The decoder averages earlier positions in place of self-attention; no "
    "layer is causal.",
}
_MAX_CONFIGURATION_BYTES = 2**18


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Loader of YAML without aliases, which Marian never writes; a few could stand for billions."""

    def fetch_alias(self) -> None:
        """Refuse an alias."""
        raise ValueError("it has an alias, which Marian never writes")


def is_marian(path: Path) -> bool:
    """Return whether a file begins like a Marian *.bin, or is a *.npz with a configuration."""
    if path.suffix not in (".bin", ".npz"):
        return False
    try:
        with reading(path):
            if path.suffix == ".npz":
                with zipfile.ZipFile(path) as archive:
                    return f"{CONFIGURATION}.npy" in archive.namelist()
            with path.open("rb") as file:
                start = file.read(8)
    except Unreadable:
        return False
    return start in (struct.pack("<Q", version) for version in (_VERSION, _ENCRYPTED))


def open_marian(path: Path) -> TensorFile:
    """Read the header and the configuration of a Marian file.

    Raises:
        Unreadable: If it is not such a file, is encrypted, or contradicts itself.
    """
    entries = _npz_entries(path) if path.suffix == ".npz" else _bin_entries(path)
    load = partial(_load_array if path.suffix == ".npz" else _load_tensor, entries)
    if CONFIGURATION not in entries:
        raise Unreadable(
            f"{path.name} has no {CONFIGURATION}, which says how many heads the model has; take "
            "the file that Marian's training or marian-conv wrote"
        )
    with reading(path):
        text = load(CONFIGURATION).tobytes().rstrip(b"\0")
        is_short = len(text) <= _MAX_CONFIGURATION_BYTES
        options = _Loader(text).get_single_data() if is_short else None
        check_depth(options)
    if not isinstance(options, dict):
        raise damaged(path.name, f"its {CONFIGURATION} has {len(text):,} bytes and no options")
    return TensorFile(path.name, entries, options, load)


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a tensor's shape; Marian stores vectors as matrices of one row."""
    return shape[1:] if len(shape) == 2 and shape[0] == 1 else shape


def _npz_entries(path: Path) -> dict[str, Stored]:
    entries = {}
    with reading(path), zipfile.ZipFile(path) as archive:
        check_n_entries(path.name, len(archive.infolist()), "tensors")
        for member in archive.infolist():
            if member.file_size > path.stat().st_size:
                raise Unreadable(
                    f"{path.name} has {quote(member.filename)} compressed, which Marian never "
                    "writes; load the file with numpy.load and save it with numpy.savez"
                )
            with archive.open(member) as file:
                old = np.lib.format.read_magic(file) == (1, 0)
                kinds = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
                shape, _, dtype = kinds[not old](file)
            name = member.filename.removesuffix(".npy")
            entries[name] = Stored(_shape(shape), str(dtype), path)
    return entries


def _load_array(entries: Mapping[str, Stored], name: str) -> Array:
    entry = entries[name]
    with reading(entry.path), np.load(entry.path, allow_pickle=False) as archive:
        return _checked(np.asarray(archive[name]), entry, name).reshape(entry.shape)


def _checked(values: Array, entry: Stored, name: str) -> Array:
    """Return the values of a weight, or the bytes of the configuration, unchanged."""
    if values.dtype.kind != "f" and name != CONFIGURATION:
        raise damaged(entry.path.name, f"{quote(name)} is in {values.dtype}, as no weights are")
    return values


def _bin_entries(path: Path) -> dict[str, Stored]:
    with open_header(path) as cursor:
        version = cursor.number("Q")
        if version == _ENCRYPTED:
            raise Unreadable(
                f"{path.name} is an encrypted Marian model; convert it with marian-conv without a "
                "key"
            )
        if version != _VERSION:
            raise damaged(path.name, f"it has version {version:,} of Marian's format, not 1")
        n_tensors = cursor.count("Q", "tensors")
        headers = [[cursor.number("Q") for _ in range(4)] for _ in range(n_tensors)]
        names = [cursor.text(n_bytes) for n_bytes, *_ in headers]
        shapes = [_shape(cursor.shape("i", rank)) for _, _, rank, _ in headers]
        cursor.skip(cursor.number("Q"))
        entries = {}
        for name, shape, (_, number, _, n_bytes) in zip(names, shapes, headers, strict=True):
            if number not in _TYPES:
                raise Unreadable(
                    f"{path.name} has {quote(name)} in type {number:#x}, which is not known or for "
                    "one kind of processor; convert the *.npz again with marian-conv --gemm-type "
                    "intgemm8"
                )
            kind, start = _TYPES[number], cursor.position
            more = 4 if kind.startswith("intgemm") else 0
            dtype = np.dtype(kind.replace("intgemm", "int"))
            needed = min(n_bytes, int(dtype.itemsize * np.prod(shape, dtype=object)) + more)
            entries[name] = cursor.tensor(name, shape, kind, needed, more)
            cursor.skip(n_bytes - (cursor.position - start))
        return entries


def _load_tensor(entries: Mapping[str, Stored], name: str) -> Array:
    """Read a tensor of a *.bin; quantised ones are divided by their multiplier."""
    entry = entries[name]
    raw, file, shape = entry.read_bytes(), entry.path.name, entry.shape
    if not entry.type.startswith("intgemm"):
        return _checked(raw.view(np.dtype(entry.type)), entry, name).reshape(shape)
    if any(side % _TRANSPOSABLE for side in shape):
        raise Unreadable(
            f"{file} has {quote(name)} of shape {shape} in {entry.type}; marian-conv mixes up such "
            f"weights unless both sides are multiples of {_TRANSPOSABLE}; use the *.npz from which "
            "this file was made"
        )
    multiplier = raw[-4:].view("<f4")
    if not 0 < multiplier[0] < np.inf:
        raise damaged(file, f"the multiplier of {quote(name)} is {multiplier[0]:g}")
    values = raw[:-4].view(entry.type.replace("intgemm", "int")).astype(np.float32) / multiplier
    transposed: Array = values.reshape(shape[::-1]).T
    return transposed


def marian_model(path: Path) -> RealModel:
    """Find the attention layers of the model in a Marian file; only header and options are read.

    Raises:
        Unreadable: As by `open_marian`, or if the model is not a transformer or the file does not
            hold the layers that its configuration states.
    """
    file = open_marian(path)
    scopes = _scopes(file)
    n = file.count("transformer-heads")
    found = [(kind, n, n, partial(_read, file, kind, scope)) for scope, kind in scopes.items()]
    name = path.resolve().parent.name
    return RealModel(name, "marian", "Marian", layers_of(file, found), tuple(_notes(file, scopes)))


def _scopes(file: TensorFile) -> dict[str, Kind]:
    """Return the start of every layer's names as the configuration states them, and its kind.

    Raises:
        Unreadable: If the file does not hold exactly these layers.
    """
    model, depth = _word(file, "type", "transformer", "lm-transformer"), file.count("dec-depth")
    kinds = {
        "encoder_self": Kind.ENCODER,
        "decoder_self": Kind.CAUSAL,
        "decoder_context": Kind.CROSS,
    }
    blocks = sorted(set(_tied_layers(file, depth))) or range(1, depth + 1)
    decoder = _word(
        file, "transformer-decoder-autoreg", "self-attention", *_DECODER_NOTES,
        default="self-attention",
    )  # fmt: skip
    of = {"encoder_self": (), "decoder_self": blocks if decoder == "self-attention" else ()}
    if model == "transformer":
        of["encoder_self"] = range(1, file.count("enc-depth") + 1)
        pooled = file.settings.get("transformer-pool", False)
        of |= {} if pooled else {"decoder_context": blocks}
    wanted = {
        f"{stack}_l{i}_{what}": kinds[f"{stack}_{what}"]
        for stack, what in (name.split("_") for name in of)
        for i in list(of[f"{stack}_{what}"])[: 2**12]
    }
    present = {match[1] for match in map(_QUERY_WEIGHT.fullmatch, file.entries) if match}
    if wanted.keys() != present:
        raise damaged(
            file.name,
            f"its {CONFIGURATION} and its weights disagree about the layers "
            f"{listing(sorted(wanted.keys() ^ present))}",
        )
    return wanted


def _word(file: TensorFile, name: str, *allowed: str, default: str = "") -> str:
    value = file.settings.get(name) or default
    if value not in allowed:
        raise Unreadable(
            f"{file.name}: {name} is {quote(value)}; it must be one of {', '.join(allowed)}"
        )
    return str(value)


def _tied_layers(file: TensorFile, n_layers: int) -> list[int]:
    """Return the number of the weights that each layer of the decoder uses; empty for its own."""
    tied: Any = file.settings.get("transformer-tied-layers") or []
    if tied and not (
        isinstance(tied, list)
        and len(tied) == n_layers
        and all(type(i) is int and 1 <= i <= n_layers for i in tied)
    ):
        raise Unreadable(
            f"{file.name}: transformer-tied-layers is {quote(tied)}; it must list a layer from 1 "
            f"to {n_layers:,} for each of the decoder's {n_layers:,} layers"
        )
    return list(tied)


def _notes(file: TensorFile, scopes: Mapping[str, Kind]) -> Iterator[str]:
    types = {file.entries[f"{scope}_Wq"].type for scope in scopes}
    if types := {name for name in types if name.startswith("intgemm")}:
        yield quantised(types)
    decoder = file.settings.get("transformer-decoder-autoreg")
    if decoder in _DECODER_NOTES:
        yield _DECODER_NOTES[decoder]
    tied = _tied_layers(file, file.count("dec-depth"))
    if len(set(tied)) < len(tied):
        yield REPEATED
    if _norm_name(file, "transformer-preprocess") and not _normalises_keys(file):
        yield _QUERIES_ONLY


def _norm_name(file: TensorFile, option: str) -> str:
    """Return the part of a norm's name if an option's last operation is a norm; otherwise "".

    An option is a row of letters, such as "dan" for dropout, addition and layer norm; dropout
    happens in training only.
    """
    operations = str(file.settings.get(option) or "").replace("d", "")
    return _NORM_NAMES.get(operations[-1:], "")


def _normalises_keys(file: TensorFile) -> bool:
    """Return whether the norm before self-attention also precedes keys and values."""
    version = re.match(r"v?([0-9]{1,4})\.([0-9]{1,4})", str(file.settings.get("version") or ""))
    return version is None or (int(version[1]), int(version[2])) >= _FIRST_NORMALISED_KEYS


def _read(file: TensorFile, kind: Kind, scope: str) -> Projections:
    """Read one layer, whose names begin with `scope`."""
    parts = {role: file.read(f"{scope}_W{role}").T for role in "qkv"}
    n = file.count("transformer-heads")
    matrices = split_heads(file, parts, n, n)
    gain = gain_kv = None
    if name := _norm_name(file, "transformer-preprocess"):
        gain = file.read(f"{scope}_Wo_{name}_scale_pre", (parts["q"].shape[1],))
        if kind != Kind.CROSS:
            gain_kv = gain if _normalises_keys(file) else None
        elif top := _norm_name(file, "transformer-postprocess-top"):
            gain_kv = file.read(f"encoder_top_{top}_scale", (parts["k"].shape[1],))
    return projections(matrices, gain, gain_kv)
