"""Where models come from, and the command that measures them."""

import json
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from attnkit.__main__ import main
from attnkit.realmodels import Unreadable, measure_model, open_model
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.sources import READ, find_files

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


def test_other_models_of_a_package_are_named(tmp_path, monkeypatch):
    """In a note; that nearest to the top is read."""
    for place in ("a/b/deep", "near", "c/deep"):
        write_bert(tmp_path / "holds_models" / place)
    (tmp_path / "holds_models" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_files("holds_models") == tmp_path / "holds_models" / "near"
    (note,) = open_model("holds_models").notes
    assert note.endswith("'holds_models/c/deep', 'holds_models/a/b/deep'.")
    assert find_files("holds_models/a/b/deep") == tmp_path / "holds_models" / "a" / "b" / "deep"
    assert open_model("holds_models/a/b/deep").name == "deep"


def test_every_place_of_a_package_is_searched(tmp_path, monkeypatch):
    """One without __init__.py may have several; here only the second has a model."""
    (tmp_path / "one" / "in_places").mkdir(parents=True)
    write_bert(tmp_path / "two" / "in_places" / "weights")
    for place in ("two", "one"):
        monkeypatch.syspath_prepend(tmp_path / place)
    assert open_model("in_places").family == "bert"


def test_a_pickle_is_never_opened(tmp_path):
    """The message says how to convert it."""
    for name in ("pytorch_model.bin", "model.pt", "weights.ckpt"):
        path = tmp_path / name
        path.write_bytes(b"\x80\x04evil")
        assert "save_pretrained" in refusal(path)
    assert "save_pretrained" in refusal(tmp_path)


def test_what_is_not_read_is_not_called_a_pickle(tmp_path):
    """Alone or in its folder."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"weights")
    for source in (path, tmp_path):
        said = refusal(source)
        assert "is not read; allowed are *.safetensors" in said
        assert "pickle" not in said


def test_a_folder_is_called_by_its_name_however_it_is_given(bert, monkeypatch):
    """Also as the place where one is, or from one's home."""
    monkeypatch.chdir(bert)
    monkeypatch.setenv("HOME", str(bert.parent))
    for source in (".", "./", "model.safetensors", "~/tiny-bert", "~/tiny-bert/model.safetensors"):
        assert open_model(source).name == "tiny-bert"
    (bert / "pandas").mkdir()  # a folder here comes before a package of that name
    assert "holds nothing" in refusal("pandas")
    (bert / "pandas").rmdir()
    (bert / "config.json").unlink()
    assert refusal(".").startswith("tiny-bert: ")
    (bert / "model.safetensors").unlink()
    assert refusal("./") == "tiny-bert: holds nothing; allowed are " + READ
    assert refusal("/").startswith("/: ")


def test_a_source_that_cannot_be_looked_at_is_told(bert, monkeypatch):
    """Nobody's home, none at all, and what the system does not let us see."""
    assert "a home folder that does not exist" in refusal("~nosuchuser/x")
    assert "is empty; allowed are" in refusal("")
    for method, said in (("iterdir", "source: "), ("read_bytes", "config.json: ")):
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, _forbid)
            source = bert if method == "read_bytes" else bert.parent
            assert refusal(source).startswith(said)
            assert "cannot be opened (Permission denied)" in refusal(source)


def _forbid(*_):
    raise PermissionError(13, "Permission denied")


def test_a_package_or_download_that_cannot_be_looked_at_is_told(tmp_path, monkeypatch):
    """As a folder is."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: tmp_path)
    for method, source in (("rglob", "json"), ("iterdir", "nobody/tiny")):
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, _forbid)
            assert "cannot be opened (Permission denied)" in refusal(source)


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


def test_a_hubs_model_comes_with_what_runs_it(tmp_path, monkeypatch):
    """Weights, configuration and tokenizer; no pickle, and no program."""
    pytest.importorskip("huggingface_hub")
    asked = []

    def download(name, allow_patterns, **_):
        asked.extend(allow_patterns)
        write_bert(tmp_path / "snapshot")
        return str(tmp_path / "snapshot")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert open_model("nobody/tiny").name == "tiny"
    wanted = (
        "model-00001-of-00002.safetensors model.safetensors.index.json config.json vocab.txt "
        "tokenizer.json tokenizer_config.json vocab.json merges.txt special_tokens_map.json "
        "added_tokens.json spiece.model tokenizer.model model.npz model.enfr.intgemm.alphas.bin"
    )
    for name in wanted.split():
        assert any(fnmatch(name, pattern) for pattern in asked), name
    for name in ("pytorch_model.bin", "modeling_own.py", "model.onnx", "tf_model.h5"):
        assert not any(fnmatch(name, pattern) for pattern in asked), name


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
    command = ["models", str(bert), "--out", str(out), "--portraits", str(portraits)]
    assert main([*command, "--every-setting"]) == 0
    table = pd.read_parquet(out)
    settings = {(False, 0), (True, 0)}  # without rotary positions there are no offsets
    assert set(zip(table["folded"], table["offset"], strict=True)) == settings
    assert table["head"].notna().sum() == 2 * L * H
    assert table["head"].isna().sum() == 2 * L
    assert "tiny-bert encoder (6)" in capsys.readouterr().out
    atlas = Atlas.load(out, portraits)
    assert atlas.portrait("tiny-bert", "encoder", 1, 2).shown > 0


def test_bad_input_is_one_line(bert, monkeypatch, capsys):
    """Exit code 2, and the field is named."""
    monkeypatch.chdir(bert.parent)
    for arguments, named in (
        (["nosuchthing"], "nosuchthing"),
        ([], "MODEL"),
        (["{bert}", "--out", "atlas.csv"], ".parquet"),
        (["{bert}", "--out", "nowhere/atlas.parquet"], "does not exist"),
        (["{bert}", "--offset", "many"], "--offset"),
        (["{bert}", "--offset", "9" * 5000], "--offset"),
        (["{bert}", "--offset", "4"], "rotary positions"),
        (["{bert}", "--out", "/proc/atlas.parquet"], "got '/proc/atlas.parquet', but it cannot"),
        (["{bert}", "--table", "nosuch.md"], "--table"),
        (["{bert}", "--table", "nosuch.md", "--fold"], "leave out --fold"),
        (["{bert}", "--ship"], "--ship"),
    ):
        assert main(["models", *(text.format(bert=bert) for text in arguments)]) == 2
        said = capsys.readouterr().err
        assert named in said
        assert said.count("\n") == 1


def test_what_is_finished_is_kept_when_interrupted(bert, tmp_path, monkeypatch):
    """Exit code 130."""
    write_bert(tmp_path / "second")
    calls = iter([measure_model, _interrupt])
    monkeypatch.setattr(
        "attnkit.realmodels.atlas.measure_model", lambda *given, **more: next(calls)(*given, **more)
    )
    out = tmp_path / "atlas.parquet"
    assert main(["models", str(bert), str(tmp_path / "second"), "--out", str(out)]) == 130
    assert list(pd.read_parquet(out)["model"].unique()) == ["tiny-bert"]


def _interrupt(*_, **__):
    raise KeyboardInterrupt


def test_what_was_there_stays_whole_until_the_new_one_is(bert, tmp_path, monkeypatch, capsys):
    """A disk that is full in the middle leaves the old file."""
    out = tmp_path / "atlas.parquet"
    main(["models", str(bert), "--out", str(out)])
    before = out.read_bytes()

    def fail(self, path, **_):
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(pd.DataFrame, "to_parquet", fail)
    capsys.readouterr()
    assert main(["models", str(bert), "--out", str(out)]) == 2
    assert "atlas.parquet', but it cannot be written (No space left" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["atlas.parquet", "tiny-bert"]


def test_a_damaged_atlas_is_told(tmp_path):
    """Not a traceback of the library."""
    path = tmp_path / "atlas.parquet"
    path.write_bytes(b"PAR1 but no more")
    with pytest.raises(Unreadable, match=r"atlas\.parquet"):
        Atlas.load(path)


def test_models_of_one_name_are_told_apart(bert, tmp_path):
    """The second gets a number; joined atlases hold a model that is measured again once."""
    write_bert(tmp_path / "other" / "tiny-bert")
    out = tmp_path / "atlas.parquet"
    sources = [str(bert), str(tmp_path / "other" / "tiny-bert")]
    assert main(["models", *sources, "--out", str(out)]) == 0
    both = Atlas.load(out)
    assert list(both.table["model"].unique()) == ["tiny-bert", "tiny-bert (2)"]
    assert len(both.joined(both).table) == len(both.table)
