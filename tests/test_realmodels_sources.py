"""Where models come from, and the command that measures them."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from attnkit.__main__ import main
from attnkit.realmodels import Unreadable, open_model
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.sources import find_files

L, H, M = 2, 3, 33
CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": L,
    "num_attention_heads": H,
    "hidden_size": M,
}


def write_bert(folder, scale=1.0):
    """A small BERT of Gaussian matrices, as the library names them."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(7)
    tensors = {
        f"encoder.layer.{layer}.attention.self.{role}.{what}": scale
        * generator.standard_normal((M, M) if what == "weight" else M).astype(np.float32)
        for layer in range(L)
        for role in ("query", "key", "value")
        for what in ("weight", "bias")
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return tensors


@pytest.fixture
def bert(tmp_path):
    """A folder with a model."""
    write_bert(tmp_path / "tiny-bert")
    return tmp_path / "tiny-bert"


def refusal(source):
    """Why a source cannot be opened; one line."""
    with pytest.raises(Unreadable) as caught:
        open_model(str(source))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_and_its_file_are_the_same_model(bert):
    """Both are called as the folder is."""
    for source in (bert, bert / "model.safetensors"):
        model = open_model(str(source))
        assert model.name == "tiny-bert"
        assert (model.family, model.format) == ("bert", "safetensors")
        assert [(layer.index, layer.n_heads) for layer in model.layers] == [(0, H), (1, H)]


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    """The model nearest to its top."""
    package = tmp_path / "holds_a_model"
    write_bert(package / "deep" / "weights")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_model("holds_a_model").name == "holds_a_model"
    assert "holds_a_model" not in sys.modules


def test_a_path_comes_before_a_package(bert, monkeypatch):
    """A folder of that name here is meant."""
    monkeypatch.chdir(bert.parent)
    bert.rename(bert.parent / "pandas")
    assert find_files("pandas").is_dir()


def test_a_pickle_is_never_opened(tmp_path):
    """The message says how to convert it."""
    for name in ("pytorch_model.bin", "model.pt", "weights.ckpt"):
        path = tmp_path / name
        path.write_bytes(b"\x80\x04evil")
        assert "save_pretrained" in refusal(path)
    assert "save_pretrained" in refusal(tmp_path)


def test_what_is_not_there_is_told_with_what_would_do(tmp_path, bert):
    """The source, what was found, what is allowed."""
    assert "no such file or folder" in refusal("nosuchthing")
    assert len(refusal("x" * 5000)) < 200
    assert "no such file or folder" in refusal("a\0b")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "nothing" in refusal(empty)
    (empty / "notes.txt").write_text("words")
    assert "notes.txt" in refusal(empty)
    assert "allowed" in refusal(empty / "notes.txt")
    assert "installed package without" in refusal("json")
    (bert / "config.json").unlink()
    assert "config.json" in refusal(bert)


def test_the_hub_without_a_network_is_told(monkeypatch):
    """In one line."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.snapshot_download", _fail)
    assert "is there a network" in refusal("nobody/no-such-model")


def _fail(*_, **__):
    raise ConnectionError("no route")


def test_two_gguf_files_are_one_too_many(tmp_path):
    """The one that is meant is to be named."""
    for name in "ab":
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    assert "name the one" in refusal(tmp_path)


# the command


def test_the_command_writes_a_row_per_head_and_per_layer(bert, tmp_path, capsys):
    """And prints a table."""
    out, portraits = tmp_path / "atlas.parquet", tmp_path / "heads.safetensors"
    assert main(["models", str(bert), "--out", str(out), "--portraits", str(portraits)]) == 0
    table = pd.read_parquet(out)
    assert table["head"].notna().sum() == L * H
    assert table["head"].isna().sum() == L
    assert "tiny-bert encoder (6)" in capsys.readouterr().out
    atlas = Atlas.load(out, portraits)
    assert atlas.portrait("tiny-bert", "encoder", 1, 2).shown > 0


def test_every_setting_gives_rows_of_its_own(bert, tmp_path):
    """Without rotary positions there are no offsets."""
    out = tmp_path / "atlas.parquet"
    assert main(["models", str(bert), "--out", str(out), "--every-setting"]) == 0
    table = pd.read_parquet(out)
    assert sorted(set(zip(table["folded"], table["offset"], strict=True))) == [
        (False, 0),
        (True, 0),
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nosuchthing"], "nosuchthing"),
        ([], "MODEL"),
        (["{bert}", "--out", "atlas.csv"], ".parquet"),
        (["{bert}", "--out", "nowhere/atlas.parquet"], "does not exist"),
        (["{bert}", "--offset", "many"], "--offset"),
        (["{bert}", "--readme", "nosuch.md"], "--readme"),
    ],
)
def test_bad_input_is_one_line(bert, monkeypatch, capsys, arguments, named):
    """Exit code 2, and the field is named."""
    monkeypatch.chdir(bert.parent)
    assert main(["models", *(text.format(bert=bert) for text in arguments)]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1


def test_a_damaged_atlas_is_told(tmp_path):
    """Not a traceback of the library."""
    path = tmp_path / "atlas.parquet"
    path.write_bytes(b"PAR1 but no more")
    with pytest.raises(Unreadable, match=r"atlas\.parquet"):
        Atlas.load(path)


def test_a_model_measured_again_takes_its_own_place(bert, tmp_path):
    """Joined atlases hold every model once."""
    paths = [tmp_path / f"{n}.parquet" for n in range(2)]
    for path in paths:
        main(["models", str(bert), "--out", str(path)])
    first, again = (Atlas.load(path) for path in paths)
    assert len(first.joined(again).table) == len(first.table)
