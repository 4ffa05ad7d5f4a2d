"""Measuring a model without the page: its process, its errors, and that it ends."""

import re
from pathlib import Path

import pytest
from idle import PATIENCE

from attnkit.realmodels.base import Unreadable
from attnkit.ui.model_measurement import ModelMeasurement, keep_upload

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def uploads(monkeypatch, tmp_path_factory):
    """The folder of this test, in which uploads and measured tables stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("uploads")))


def test_an_error_names_its_source_once_and_no_file_beside_it(tmp_path):
    """A visitor reads what they named themselves, and learns of no other file of the server."""
    measuring = ModelMeasurement(str(tmp_path / "upload"))
    for name, error, shown in (
        ("blorp", Unreadable("source: got 'blorp', but"), "source: got 'blorp', but"),
        ("/a/numpy", Unreadable("numpy: holds nothing"), "numpy: holds nothing"),
        ("my.gguf", Unreadable("upload: damaged"), "upload: damaged"),
        ("blorp", Unreadable("out of memory"), "blorp: out of memory"),
        ("/data/m", Unreadable("source: got '/data/m', but"), "source: got '/data/m', but"),
        ("m", FileNotFoundError(2, "No such file", "/secret/a.gguf"), "m: No such file"),
        ("m", Unreadable("m: 2 GGUF files; name the one that is meant: a.gguf, b.gguf"), ""),
        ("m", Unreadable("m: holds secret.txt, which is not read; allowed are GGUF"), ""),
        ("m", Unreadable("m: secret.bin, a.pt cannot be read; convert it"), ""),
        ("m", Unreadable("m: No such file: '/home/me/secret.gguf'"), ""),
    ):
        measuring.name = name
        message = measuring.problem_of(error)
        assert message.startswith("m: ") if not shown else message == shown
        assert not re.search(r"secret|a\.gguf|a\.pt", message)


def test_what_is_measured_can_be_stopped_and_ends_with_its_session(tmp_path):
    """It stops at once and says so; process and folder end with the object of a session."""
    measuring = ModelMeasurement(str(tmp_path))
    assert measuring.layers == (0, 0)
    measuring.stop()
    assert not measuring.moving
    assert measuring.problem == "Stopped."
    with pytest.raises(Unreadable, match="Stopped"):
        measuring.atlas()
    measuring = ModelMeasurement(str(tmp_path))
    process, folder = measuring._process, measuring._table.parent
    del measuring
    assert process.poll() is not None
    assert not folder.exists()


def test_a_source_is_never_an_option_and_an_upload_never_a_program(tmp_path):
    """What looks like an option or a command is a name; a pickle called *.bin is only bytes.

    Two processes import the library, which takes some seconds.
    """
    kept, source = keep_upload([_File("a.bin", b"\x80\x02cposix\nsystem\n.")], "a")
    pickled = ModelMeasurement(source, name="a.bin", folder=kept)
    measuring = ModelMeasurement(f"--out={tmp_path}/x.parquet; touch {tmp_path}/y")
    for one in (measuring, pickled):
        one._process.wait(PATIENCE)
    assert "source: got '--out=" in measuring.problem
    assert list(tmp_path.iterdir()) == []
    assert "a.bin is a pickle" in pickled.problem


class _File:
    """Stand-in for an uploaded file."""

    def __init__(self, name, content=b"x"):
        self.name, self._content = name, content

    def getbuffer(self):
        return memoryview(self._content)


def test_uploads_get_names_of_our_own():
    """Files are stored under fixed names, whatever paths theirs contain; `model` is no name."""
    files = [_File("../../evil.safetensors", b"weights"), _File("some.json", b"{}")]
    kept, source = keep_upload(files, "../../evil")
    assert [path.name for path in kept.iterdir()] == ["evil"]
    assert Path(source) == kept / "evil"
    found = {path.name: path.read_bytes() for path in Path(source).iterdir()}
    assert found == {"config.json": b"{}", "model.safetensors": b"weights"}
    _, source = keep_upload([_File("model.safetensors"), _File("config.json")], "model")
    assert Path(source).name == "upload"
    for ending in ("gguf", "bin", "npz"):  # such a file alone is a model, named by its file
        kept, source = keep_upload([_File(f"a model.{ending}")], "a model")
        assert Path(source) == kept / "a-model" / f"a-model.{ending}"
