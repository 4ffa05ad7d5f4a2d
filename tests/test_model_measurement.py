"""Measuring a model without the page: its process, its errors, and the files of an upload."""

import re
from pathlib import Path

import pytest
from idle import PATIENCE
from made_atlas import READER, WRITER, made_atlas

from attnkit.realmodels.base import Unreadable
from attnkit.ui.model_measurement import (
    ENDINGS,
    ModelMeasurement,
    keep_upload,
    under_free_names,
    upload_problem,
)

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def uploads(monkeypatch, tmp_path_factory):
    """The folder of this test, in which uploads and measured tables stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("uploads")))


class _File:
    """Stand-in for an uploaded file."""

    def __init__(self, name, content=b"x"):
        self.name, self._content = name, content

    def getbuffer(self):
        return memoryview(self._content)


@pytest.mark.parametrize(
    ("name", "error", "shown"),
    [
        ("blorp", "source: got 'blorp', but", "source: got 'blorp', but"),
        ("/a/numpy", "numpy: holds nothing", "numpy: holds nothing"),
        ("my.gguf", "upload: damaged", "upload: damaged"),
        ("blorp", "out of memory", "blorp: out of memory"),
    ],
)
def test_an_error_names_its_source_once(tmp_path, name, error, shown):
    """An error names its source exactly once."""
    measuring = ModelMeasurement(str(tmp_path / "upload"), name=name)
    assert measuring.problem_of(Unreadable(error)) == shown


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (Unreadable("m: 2 GGUF files; name the one that is meant: a.gguf, b.gguf"), "is meant"),
        (
            Unreadable("m: holds secret.txt, which is not read; allowed are GGUF"),
            "allowed are GGUF",
        ),
        (Unreadable("m: secret.bin, a.pt cannot be read; convert it"), "convert it"),
        (Unreadable("m: No such file: '/home/me/secret.gguf'"), "'a file of the server'"),
        (FileNotFoundError(2, "No such file", "/tmp/secret/atlas.parquet"), "m: No such file"),
        (Unreadable("source: got '/data/m', but"), "source: got '/data/m', but"),
    ],
)
def test_an_error_lists_no_files_of_the_server(tmp_path, error, shown):
    """An error names what the visitor named, and no file beside it."""
    name = "/data/m" if "/data/m" in str(error) else "m"
    message = ModelMeasurement(str(tmp_path / "m"), name=name).problem_of(error)
    assert message.endswith(shown)
    assert not re.search(r"secret|a\.gguf|a\.pt|parquet", message)


def test_uploads_replace_no_model():
    """An upload whose name is taken gets a number, and its pictures move with it."""
    found = under_free_names(made_atlas(), [READER, f"{READER} (2)"])
    assert list(found.table["model"].unique()) == [f"{READER} (3)", WRITER]
    moved = found.portrait(f"{READER} (3)", "encoder", 1, 2)
    assert (moved.matrix == made_atlas().portrait(READER, "encoder", 1, 2).matrix).all()
    assert found.portrait(READER, "encoder", 1, 2) is None
    assert len(found.arrays) == len(made_atlas().arrays)


def test_model_is_no_name():
    """A file called `model` gives the upload no name, as most weight files are called so."""
    _, source = keep_upload([_File("model.safetensors"), _File("config.json")], "model")
    assert Path(source).name == "upload"


def test_what_is_measured_can_be_stopped(tmp_path):
    """A measurement stops at once, and reports that it was stopped."""
    measuring = ModelMeasurement(str(tmp_path))
    assert measuring.layers == (0, 0)
    measuring.stop()
    assert not measuring.moving
    assert measuring.problem == "Stopped."
    with pytest.raises(Unreadable, match="Stopped"):
        measuring.atlas()


def test_a_session_that_is_gone_measures_no_more(tmp_path):
    """The process and the folder of a measurement end with its object."""
    measuring = ModelMeasurement(str(tmp_path))
    process, folder = measuring._process, measuring._table.parent
    del measuring
    assert process.poll() is not None
    assert not folder.exists()


def test_a_source_is_never_an_option(tmp_path):
    """A source that looks like an option or a shell command is taken as a name."""
    measuring = ModelMeasurement(f"--out={tmp_path}/x.parquet; touch {tmp_path}/y")
    measuring._process.wait(PATIENCE)
    assert "source: got '--out=" in measuring.problem
    assert list(tmp_path.iterdir()) == []


def test_uploads_get_names_of_our_own():
    """Uploaded files are stored under fixed names, whatever paths theirs contain."""
    files = [_File("../../evil.safetensors", b"weights"), _File("some.json", b"{}")]
    kept, source = keep_upload(files, "../../evil")
    assert [path.name for path in kept.iterdir()] == ["evil"]
    assert Path(source) == kept / "evil"
    found = {path.name: path.read_bytes() for path in Path(source).iterdir()}
    assert found == {"config.json": b"{}", "model.safetensors": b"weights"}


@pytest.mark.parametrize("ending", ["gguf", "bin", "npz"])
def test_a_file_that_is_a_model_alone_is_named_by_its_file(ending):
    """A GGUF or Marian file alone is a model, named by its file."""
    kept, source = keep_upload([_File(f"a model.{ending}")], "a model")
    assert Path(source) == kept / "a-model" / f"a-model.{ending}"


def test_an_uploaded_pickle_is_refused_by_its_content():
    """A pickle called *.bin is kept as bytes only, and the message says how to convert it."""
    kept, source = keep_upload([_File("a.bin", b"\x80\x02cposix\nsystem\n.")], "a")
    measuring = ModelMeasurement(source, name="a.bin", folder=kept)
    measuring._process.wait(PATIENCE)
    assert "a.bin is a pickle" in measuring.problem


@pytest.mark.parametrize(
    ("names", "good"),
    [
        (["a.gguf"], True),
        (["a.safetensors", "config.json"], True),
        (["a.safetensors"], False),
        (["a.gguf", "b.gguf"], False),
        (["a.bin"], True),
        (["a.npz"], True),
        (["a.bin", "a.npz"], False),
        (["a.pt"], False),
    ],
)
def test_what_can_be_no_model_is_refused_before_it_is_kept(names, good):
    """Files that cannot be a model are refused by their names."""
    assert (upload_problem(names) == "") == good


def test_uploads_are_of_kinds_that_are_read():
    """Uploads are limited to the formats that are read."""
    assert set(ENDINGS) == {"safetensors", "json", "gguf", "bin", "npz"}
