"""Safetensors files: alone or sharded, of every number type, and what is said of damaged ones."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from model_files import encode
from safetensors.numpy import save_file

from attnkit.realmodels.base import CONVERT, Unreadable
from attnkit.realmodels.safetensors_file import open_safetensors


def tensors(seed=5):
    """Three random matrices by name."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(3, 5)).astype(np.float32) for name in ("one", "two", "three")}


def sharded(folder, **where):
    """Write two files, and return their index."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = {"one": "a.safetensors", "two": "b.safetensors", "three": "b.safetensors"} | where
    for file in ("a.safetensors", "b.safetensors"):
        own = {n: w for n, w in tensors().items() if shards[n] == file}
        save_file(own or tensors(), folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    return index


def entry(dtype, shape, begin, end):
    """An entry of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def message(path):
    """Return what is said of a file that must not be read."""
    with pytest.raises(Unreadable) as error:
        [file.read(name) for file in [open_safetensors(path)] for name in file.shapes]
    said = str(error.value)
    assert said.isprintable()
    assert len(said) < 400
    assert str(Path(path).parent) not in said
    return said


def test_floats_of_four_widths_are_read_in_single_precision(tmp_path):
    """Each number is the nearest in single precision, and no file stays open or mapped."""
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        stored = {name: w.astype(dtype) for name, w in tensors().items()}
        save_file(stored, tmp_path / "model.safetensors")
        file = open_safetensors(tmp_path / "model.safetensors")
        assert dict(file.shapes) == dict.fromkeys(stored, (3, 5))
        for name, w in stored.items():
            assert file.read(name).dtype == np.float32
            assert np.array_equal(file.read(name), w.astype(np.float32))
    if Path("/proc/self/maps").exists():
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()
        assert not any(tmp_path in p.resolve().parents for p in Path("/proc/self/fd").iterdir())


def test_what_a_folder_holds_is_found(tmp_path):
    """A model.safetensors comes before an index, an index before other files; never a guess.

    In the hub's own cache, files are links into a folder of contents beside it.
    """
    assert CONVERT in message(tmp_path)
    save_file(tensors(1), tmp_path / "odd.safetensors")
    assert np.array_equal(open_safetensors(tmp_path).read("one"), tensors(1)["one"])
    save_file(tensors(2), tmp_path / "even.safetensors")
    assert "'even.safetensors', 'odd.safetensors'" in message(tmp_path)
    sharded(tmp_path)
    file = open_safetensors(tmp_path)
    assert sorted(file.shapes) == ["one", "three", "two"]
    assert all(np.array_equal(file.read(name), w) for name, w in tensors().items())
    save_file(tensors(3), tmp_path / "model.safetensors")
    assert np.array_equal(open_safetensors(tmp_path).read("one"), tensors(3)["one"])
    index = sharded(tmp_path / "models--a--b/snapshots/0f")
    blobs = tmp_path / "models--a--b/blobs"
    blobs.mkdir()
    for file in index.parent.iterdir():
        file.rename(blobs / file.name)
        file.symlink_to(blobs / file.name)
    assert np.array_equal(open_safetensors(index).read("two"), tensors()["two"])


def test_damaged_files_are_refused_with_what_is_wrong_in_them(tmp_path):
    """The message is that of the library for a header, and ours for an index and for values."""
    path = sharded(tmp_path)
    for index, says in (
        (b"", "is damaged: Expecting value"),
        (b"[]", "weight_map is missing"),
        (b'{"weight_map": [1]}', "weight_map is missing"),
        (b'{"weight_map": {"one": 7}}', "the file of 'one' is 7, which is not there"),
        (b'{"weight_map": {"one": "none.safetensors"}}', "'none.safetensors', which is not there"),
        (b'{"weight_map": {"one": "\\u0000"}}', "which is not there"),
        (b'{"weight_map": {"four": "a.safetensors"}}', "no tensor 'four', which the index says"),
        (b"\xff\xfe\x00", "is damaged"),
        (b"[" * 1_000_000, "is damaged"),
        (b" " * 9_000_000, "larger than 8,000,000 bytes"),
    ):
        path.write_bytes(index)
        assert says in message(path)
    path, one = tmp_path / "model.safetensors", entry("F32", [2], 0, 8)
    for stored, says in (
        (b"", "header too small"),
        (encode({"a": one}, bytes(4)), "not fully covered"),
        (encode({"a": one}, b"", length=2**64 - 1), "header too large"),
        (encode({"a": one, "b": entry("F32", [2], 4, 12)}, bytes(12)), "invalid offset"),
        (encode({"a": entry("F32", [2**40, 2**40], 0, 8)}, bytes(8)), "overflow"),
        (encode({"a": entry("F32", [0, 2**62], 0, 0)}, b""), "is damaged"),
        (encode(b'{"a":' + b"[" * 10**6, b""), "recursion limit"),
        (encode(b'{"\xff":1}', b""), "invalid UTF-8"),
        (encode({"a": entry("I8", [2], 0, 2)}, bytes(2)), "'a' is of type I8 (quantised"),
        (encode({"a": entry("F4", [2], 0, 1)}, bytes(1)), "one of F64, F32, F16, BF16"),
        (encode({"a": one}, np.float32([1, -np.inf]).tobytes()), "'a' holds numbers that are not"),
        (encode({"a": entry("F64", [1], 0, 8)}, np.float64([1e300]).tobytes()), "not finite"),
    ):
        path.write_bytes(stored)
        assert says in message(path)
    path.unlink()
    assert "model.safetensors is not a file" in message(path)
    path.mkdir()
    assert "no .safetensors file in this folder" in message(path)


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    """Shapes were read when it was opened."""
    path = tmp_path / "model.safetensors"
    save_file(tensors(), path)
    file = open_safetensors(path)
    with pytest.raises(Unreadable, match="there is no tensor 'four'"):
        file.read("four")
    save_file({"one": np.ones((2, 2), np.float32)}, path)
    with pytest.raises(Unreadable, match="changed while it was read"):
        file.read("one")
    with pytest.raises(Unreadable, match="is damaged"):
        file.read("two")
