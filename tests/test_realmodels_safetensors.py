"""Safetensors files: one tensor at a time, alone or sharded, and no damaged one is believed."""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from attnkit.realmodels.base import CONVERT, Unreadable
from attnkit.realmodels.safetensors_file import open_safetensors


def _tensors(seed=5):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(3, 5)).astype(np.float32) for name in ("one", "two", "three")}


def _sharded(folder, **where):
    """Two files and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = _tensors()
    shards = {"one": "a.safetensors", "two": "b.safetensors", "three": "b.safetensors"} | where
    for file in ("a.safetensors", "b.safetensors"):
        save_file({n: w for n, w in tensors.items() if shards[n] == file} or tensors, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    return index


def _header(text, numbers=b"", length=None):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    n = len(text) if length is None else length
    return n.to_bytes(8, "little") + text + numbers


def _entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _id(value):
    """A case is called by what is said of it."""
    return value if isinstance(value, str) else ""


def _read_all(path):
    """Every tensor of a model."""
    file = open_safetensors(path)
    return [file.read(name) for name in file.shapes]


def _message(path):
    """What is said of a file that must not be read."""
    with pytest.raises(Unreadable) as error:
        _read_all(path)
    said = str(error.value)
    assert said.isprintable()
    assert len(said) < 400
    assert str(Path(path).parent) not in said
    return said


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda d: d.__name__
)
def test_floats_are_read_in_single_precision(dtype, tmp_path):
    """Of four widths, each number the nearest there is."""
    stored = {name: w.astype(dtype) for name, w in _tensors().items()}
    save_file(stored, tmp_path / "model.safetensors")
    file = open_safetensors(tmp_path / "model.safetensors")
    assert dict(file.shapes) == dict.fromkeys(stored, (3, 5))
    for name, w in stored.items():
        assert file.read(name).dtype == np.float32
        assert np.array_equal(file.read(name), w.astype(np.float32))


@pytest.mark.parametrize("given", ["folder", "index"])
def test_shards_are_one_file(given, tmp_path):
    """By the folder or by the index."""
    index = _sharded(tmp_path / "model")
    file = open_safetensors(index if given == "index" else index.parent)
    assert sorted(file.shapes) == ["one", "three", "two"]
    assert all(np.array_equal(file.read(name), w) for name, w in _tensors().items())


def test_what_a_folder_holds_is_found(tmp_path):
    """model.safetensors before an index, an index before other files; never a guess."""
    with pytest.raises(Unreadable, match=r"no \.safetensors file in this folder") as error:
        open_safetensors(tmp_path)
    assert CONVERT in str(error.value)
    save_file(_tensors(1), tmp_path / "odd.safetensors")
    assert np.array_equal(open_safetensors(tmp_path).read("one"), _tensors(1)["one"])
    save_file(_tensors(2), tmp_path / "even.safetensors")
    assert "'even.safetensors', 'odd.safetensors'" in _message(tmp_path)
    _sharded(tmp_path)
    assert np.array_equal(open_safetensors(tmp_path).read("one"), _tensors()["one"])
    save_file(_tensors(3), tmp_path / "model.safetensors")
    assert np.array_equal(open_safetensors(tmp_path).read("one"), _tensors(3)["one"])


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_file_is_open_only_while_one_is_read(tmp_path):
    """What one layer needed does not stay mapped."""
    save_file(_tensors(), tmp_path / "model.safetensors")
    file = open_safetensors(tmp_path)
    kept = [file.read(name) for name in file.shapes]
    assert len(kept) == 3
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert not any(tmp_path in Path(p).parents for p in _open_files())


def _open_files():
    return [p.resolve() for p in Path("/proc/self/fd").iterdir()]


def test_the_hubs_own_cache_is_read(tmp_path):
    """There a model's files are links into a folder of contents beside it."""
    snapshot, blobs = (
        tmp_path / "models--a--b" / "snapshots" / "0f",
        tmp_path / "models--a--b/blobs",
    )
    index = _sharded(snapshot)
    blobs.mkdir()
    for file in snapshot.iterdir():
        file.rename(blobs / file.name)
        file.symlink_to(blobs / file.name)
    assert np.array_equal(open_safetensors(index).read("two"), _tensors()["two"])


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "/etc/passwd", "x/../../a.safetensors", "..\\a", "c:a", ".."]
)
def test_an_index_names_files_of_its_folder_only(name, tmp_path):
    """Whatever a file says, no other is opened."""
    save_file(_tensors(), tmp_path / "a.safetensors")
    assert "must lie in the same folder" in _message(_sharded(tmp_path / "model", one=name))


def test_an_index_names_no_link_out_of_its_folder(tmp_path):
    """A link may point anywhere."""
    save_file(_tensors(), tmp_path / "a.safetensors")
    index = _sharded(tmp_path / "model", one="link.safetensors")
    (index.parent / "link.safetensors").symlink_to(tmp_path / "a.safetensors")
    assert "is a link out of the folder" in _message(index)
    (index.parent / "link.safetensors").unlink()
    (index.parent / "link.safetensors").symlink_to("link.safetensors")
    assert "model.safetensors.index.json" in _message(index)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (b"", "not JSON"),
        (b"[]", "weight_map is missing"),
        (b"{}", "weight_map is missing"),
        (b'{"weight_map": [1]}', "weight_map is missing"),
        (b'{"weight_map": {"one": 7}}', "the file of 'one' is 7; it must be a file's name"),
        (b'{"weight_map": {"one": "none.safetensors"}}', "'none.safetensors' is not there"),
        (b'{"weight_map": {"one": "\\u0000"}}', "damaged, or not a safetensors file"),
        (b'{"weight_map": {"four": "a.safetensors"}}', "no tensor 'four', which the index says"),
        (b'{"weight_map": {"one": "a.safetensors"}', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b" " * 9_000_000, "larger than 8,000,000 bytes"),
    ],
    ids=_id,
)
def test_a_damaged_index_is_refused(index, says, tmp_path):
    """With what is wrong in it."""
    path = _sharded(tmp_path)
    path.write_bytes(index)
    assert says in _message(path)


def test_an_index_of_very_many_files_is_refused(tmp_path):
    """Each would have to be opened."""
    path = _sharded(tmp_path)
    path.write_text(json.dumps({"weight_map": {str(i): f"{i}.safetensors" for i in range(1_001)}}))
    assert "names 1,001 files; at most 1,000" in _message(path)


_ENTRY = _entry("F32", [2], 0, 8)


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (b"", "header would be 0 bytes"),
        (b"abc", "header would be 6,513,249 bytes"),
        (_header({"a": _ENTRY}, bytes(4)), "not fully covered"),
        (_header({"a": _ENTRY}, bytes(12)), "not fully covered"),
        (_header({"a": _ENTRY}, bytes(8), length=10**8), "header would be 100,000,000 bytes"),
        (_header({"a": _ENTRY}, length=2**64 - 1), "cut short, or not a safetensors file"),
        (_header(b" " * 5_000_000), "at most 4,000,000 are read"),
        (_header({"a": _ENTRY, "b": _entry("F32", [2], 4, 12)}, bytes(12)), "invalid offset"),
        (_header({"a": _entry("F32", [2**40, 2**40], 0, 8)}, bytes(8)), "overflow"),
        (_header({"a": _entry("F32", [0, 2**62], 0, 0)}), "too big"),
        (_header({"a": _entry("F32", [-2], 0, 8)}, bytes(8)), "expected usize"),
        (_header(b'{"a":' + b"[" * 10**6), "recursion limit"),
        (_header(b"[1]"), "invalid type"),
        (_header(b'{"\xff":1}'), "invalid UTF-8"),
        (_header({"a": _entry("F99", [2], 0, 8)}, bytes(8)), "unknown variant"),
        (
            _header(b'{"a":%b,"a":%b}' % ((json.dumps(_ENTRY).encode(),) * 2), bytes(8)),
            "the name 'a' occurs twice",
        ),
        (_header({"a": _entry("I8", [2], 0, 2)}, bytes(2)), "'a' is of type I8 (quantised"),
        (_header({"a": _entry("F8_E4M3", [2], 0, 2)}, bytes(2)), "one of F64, F32, F16, BF16"),
        (_header({"a": _entry("F4", [2], 0, 1)}, bytes(1)), "'a' is of type F4"),
        (_header({"a": _ENTRY}, np.float32([1, np.nan]).tobytes()), "'a' holds numbers that are"),
        (_header({"a": _ENTRY}, np.float32([1, -np.inf]).tobytes()), "not finite"),
        (_header({"a": _entry("F64", [1], 0, 8)}, np.float64([1e300]).tobytes()), "not finite"),
    ],
    ids=_id,
)
def test_a_damaged_file_is_refused(stored, says, tmp_path):
    """With what is wrong in it, on one line, without a path of this machine."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(stored)
    assert says in _message(path)


def test_what_is_no_file_is_refused(tmp_path):
    """Nothing there, a folder that is called like a file, or a tensor that is not in it."""
    assert "there is no such file" in _message(tmp_path / "none.safetensors")
    (tmp_path / "model.safetensors").mkdir()
    assert "no .safetensors file in this folder" in _message(tmp_path / "model.safetensors")
    save_file(_tensors(), tmp_path / "a.safetensors")
    with pytest.raises(Unreadable, match="there is no tensor 'four'"):
        open_safetensors(tmp_path / "a.safetensors").read("four")


def test_a_tensor_of_gigabytes_is_refused(tmp_path):
    """It is refused by its shape; the file is sparse."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(_header({"a": _entry("F16", [2**15, 2**15], 0, 2**31)}))
    with path.open("ab") as file:
        file.truncate(path.stat().st_size + 2**31)
    assert "at most 536,870,912 numbers are read" in _message(path)


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    """Shapes were read when it was opened."""
    path = tmp_path / "model.safetensors"
    save_file(_tensors(), path)
    file = open_safetensors(path)
    save_file({"one": np.ones((2, 2), np.float32)}, path)
    with pytest.raises(Unreadable, match="changed while it was read"):
        file.read("one")
    with pytest.raises(Unreadable, match="damaged, or not a safetensors file"):
        file.read("two")


_WHOLE = save(_tensors(), {"format": "np"})


@given(data=st.data())
def test_any_change_of_a_byte_is_read_or_refused(data, tmp_path_factory):
    """Nothing but Unreadable is raised, whatever is changed, cut off or put in."""
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    at = data.draw(st.integers(0, len(_WHOLE) - 1))
    changed = data.draw(st.sampled_from([_WHOLE[:at], _WHOLE[:at] + b"\xff", _WHOLE]))
    put = data.draw(st.binary(max_size=3))
    path.write_bytes(changed[:at] + put + changed[at + len(put) :])
    try:
        assert all(np.isfinite(w).all() for w in _read_all(path))
    except Unreadable as error:
        said = str(error)
    else:
        said = ""
    assert said == "" or said.isprintable()
