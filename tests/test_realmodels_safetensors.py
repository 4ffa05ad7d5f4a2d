"""Safetensors files: alone or sharded, of every number type, and what is said of damaged ones."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from model_files import encode
from safetensors.numpy import save_file

from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files


def tensors(seed=5):
    """Three random matrices by name."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(3, 5)).astype(np.float32) for name in ("one", "two", "three")}


def sharded(folder):
    """Write two files, and return their index."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = {"one": "a.safetensors", "two": "b.safetensors", "three": "b.safetensors"}
    for file in set(shards.values()):
        save_file({n: w for n, w in tensors().items() if shards[n] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    return index


def entry(dtype, shape, begin, end):
    """An entry of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def message(path):
    """Return what is said of a file that must not be read."""
    with pytest.raises(Unreadable) as error:
        [file.read(name) for file in [open_safetensors(path)] for name in file.entries]
    said = str(error.value)
    assert said.isprintable()
    assert len(said) < 400
    assert str(Path(path).parent) not in said
    return said


def in_folder(folder):
    """Open the model in a folder."""
    return open_safetensors(find_files(str(folder)))


def test_floats_of_four_widths_are_read_in_single_precision(tmp_path):
    """Each number is the nearest in single precision, and no file stays open or mapped."""
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        stored = {name: w.astype(dtype) for name, w in tensors().items()}
        save_file(stored, tmp_path / "model.safetensors")
        file = open_safetensors(tmp_path / "model.safetensors")
        assert {n: e.shape for n, e in file.entries.items()} == dict.fromkeys(stored, (3, 5))
        for name, w in stored.items():
            assert file.read(name).dtype == np.float32
            assert np.array_equal(file.read(name), w.astype(np.float32))
    if Path("/proc/self/maps").exists():
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()
        assert not any(tmp_path in p.resolve().parents for p in Path("/proc/self/fd").iterdir())


def test_what_a_folder_holds_is_found(tmp_path):
    """An index comes before a stray file, which comes before other files; never a guess.

    In the hub's own cache, files are links into a folder of contents beside it.
    """
    save_file(tensors(1), tmp_path / "odd.safetensors")
    assert np.array_equal(in_folder(tmp_path).read("one"), tensors(1)["one"])
    save_file(tensors(2), tmp_path / "even.safetensors")
    with pytest.raises(Unreadable, match=r"2 safetensors files; .*'even\.s.*', 'odd\.s.*'$"):
        find_files(str(tmp_path))
    sharded(tmp_path)
    file = in_folder(tmp_path)
    assert sorted(file.entries) == ["one", "three", "two"]
    assert all(np.array_equal(file.read(name), w) for name, w in tensors().items())
    save_file(tensors(3), tmp_path / "model.safetensors")
    assert np.array_equal(in_folder(tmp_path).read("one"), tensors()["one"])
    for name in ("model.safetensors.index.json", "odd.safetensors", "even.safetensors"):
        (tmp_path / name).unlink()
    assert np.array_equal(in_folder(tmp_path).read("one"), tensors(3)["one"])
    index = sharded(tmp_path / "models--a--b/snapshots/0f")
    blobs = tmp_path / "models--a--b/blobs"
    blobs.mkdir()
    for file in index.parent.iterdir():
        file.rename(blobs / file.name)
        file.symlink_to(blobs / file.name)
    assert np.array_equal(open_safetensors(index).read("two"), tensors()["two"])


def test_damaged_files_are_refused_with_what_is_wrong_in_them(tmp_path):
    """In an index, a type or a value; headers are damaged in `test_realmodels_files`."""
    path = sharded(tmp_path)
    for index, says in (
        (b"", "is damaged: it is not JSON (Expecting value"),
        (b"[]", "weight_map is missing"),
        (b'{"weight_map": [1]}', "weight_map is missing"),
        (b'{"weight_map": {"one": 7}}', "the file of 'one' is 7, which is not there"),
        (b'{"weight_map": {"one": "none.safetensors"}}', "'none.safetensors', which is not there"),
        (b'{"weight_map": {"one": "\\u0000"}}', "which is not there"),
        (b'{"weight_map": {"four": "a.safetensors"}}', "no tensor 'four', which the index says"),
        (b"[" * 1_000_000, "is damaged"),
        (b" " * 9_000_000, "is damaged: it is not JSON"),  # a model of experts has such an index
    ):
        path.write_bytes(index)
        assert says in message(path)
    path, one = tmp_path / "model.safetensors", entry("F32", [2], 0, 8)
    for stored, says in (
        (encode({"a": entry("I8", [2], 0, 2)}, bytes(2)), "'a' is of type I8 (quantised"),
        (encode({"a": entry("F4", [2], 0, 1)}, bytes(1)), "one of F64, F32, F16, BF16"),
        (
            encode({"a": one}, np.float32([1, -np.inf]).tobytes()),
            "'a' has values that are",
        ),
        (encode({"a": entry("F64", [1], 0, 8)}, np.float64([1e300]).tobytes()), "infinite or NaN"),
    ):
        path.write_bytes(stored)
        assert says in message(path)
    path.unlink()
    assert "model.safetensors is not a file" in message(path)
    path.mkdir()
    assert "model.safetensors is not a file" in message(path)


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    """Shapes were read when it was opened."""
    path = tmp_path / "model.safetensors"
    save_file(tensors(), path)
    file = open_safetensors(path)
    with pytest.raises(Unreadable, match="has no tensor 'four'"):
        file.read("four")
    save_file({"one": np.ones((2, 2), np.float32)}, path)
    with pytest.raises(Unreadable, match=r"changed while it was read|become shorter"):
        file.read("one")
    with pytest.raises(Unreadable, match=r"changed while it was read|become shorter"):
        file.read("two")
