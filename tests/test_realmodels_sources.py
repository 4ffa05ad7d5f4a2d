"""Where models come from, and the command that measures them."""

import json
import math
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from family_models import settings
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from attnkit.__main__ import main
from attnkit.realmodels import Unreadable, measure_model, open_model
from attnkit.realmodels import atlas as measuring
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.revisions import OVER_TRAINING, describe_training, trainings
from attnkit.realmodels.sources import READ, find_files
from attnkit.training.summary import fixed

L, H, M = 2, 3, 33


def write_bert(folder, seed=7):
    """Write a small BERT of Gaussian matrices, as the library names them."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    tensors = {
        f"encoder.layer.{layer}.attention.self.{role}.weight": generator.standard_normal((M, M))
        for layer in range(L)
        for role in ("query", "key", "value")
    }
    save_file(tensors, folder / "model.safetensors")
    config = settings(f"num_hidden_layers={L} num_attention_heads={H} hidden_size={M}")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **config}))


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


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    """The model nearest to its top is read, and a note names the others.

    One without __init__.py may have several places; here only the second has a model.
    """
    package = tmp_path / "holds_models"
    for place in ("a/b/deep", "near", "c/deep"):
        write_bert(package / place)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "one" / "in_places").mkdir(parents=True)
    write_bert(tmp_path / "two" / "in_places" / "weights")
    for place in (tmp_path, tmp_path / "two", tmp_path / "one"):
        monkeypatch.syspath_prepend(place)
    assert find_files("holds_models").parent == package / "near"
    model = open_model("holds_models")
    assert model.name == "holds_models"
    assert model.notes[0].endswith("'holds_models/c/deep', 'holds_models/a/b/deep'.")
    assert find_files("holds_models/a/b/deep").parent == package / "a" / "b" / "deep"
    assert open_model("holds_models/a/b/deep").name == "deep"
    assert "holds_models" not in sys.modules
    assert open_model("in_places").family == "bert"


def test_a_folder_is_called_by_its_name_however_it_is_given(bert, monkeypatch):
    """Also as the place where one is, or from one's home."""
    monkeypatch.chdir(bert)
    monkeypatch.setenv("HOME", str(bert.parent))
    for source in (".", "./", "model.safetensors", "~/tiny-bert", "~/tiny-bert/model.safetensors"):
        model = open_model(source)
        assert (model.name, model.family, model.format) == ("tiny-bert", "bert", "safetensors")
        assert [(layer.index, layer.n_heads) for layer in model.layers] == [(0, H), (1, H)]
    (bert / "pandas").mkdir()  # a folder here comes before a package of that name
    assert "holds nothing" in refusal("pandas")
    (bert / "pandas").rmdir()
    (bert / "config.json").unlink()
    assert refusal(".").startswith("tiny-bert: ")
    (bert / "model.safetensors").unlink()
    assert refusal("./") == "tiny-bert: holds nothing; allowed are " + READ
    assert refusal("/").startswith("/: ")


def _raise(error):
    def fail(*_, **__):
        raise error

    return fail


def test_a_source_that_cannot_be_looked_at_is_told(bert, monkeypatch):
    """A folder, a configuration or a package that the system does not let us see."""
    for method, source, said in (
        ("iterdir", bert.parent, "source: "),
        ("read_bytes", bert, "config.json: "),
        ("rglob", "json", ""),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, _raise(PermissionError(13, "Permission denied")))
            assert refusal(source).startswith(said)
            assert "cannot be opened (Permission denied)" in refusal(source)


def test_what_is_not_there_or_not_read_is_told(tmp_path, bert):
    """The source, what was found, and what is allowed; of a pickle alone, how to convert it."""
    names = "pickles/pytorch_model.bin pickles/model.pt pickles/weights.ckpt words/notes.txt "
    for name in (names + "onnx/model.onnx two/a.gguf two/b.gguf nothing/x").split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x80\x04evil")
    (tmp_path / "nothing" / "x").unlink()
    for source, says in (
        ("nosuchthing", "no such file"),
        ("~nosuchuser/x", "home folder"),
        ("", "is empty"),
        ("a\0b", "no such file"),
        ("json", "package without"),
        (tmp_path / "nothing", "nothing"),
        (tmp_path / "words", "'notes.txt'"),
        (tmp_path / "words/notes.txt", "allowed are *.safetensors"),
        (tmp_path / "onnx", "'model.onnx'"),
        (tmp_path / "onnx/model.onnx", "allowed are *.safetensors"),
        (tmp_path / "two", "name the one"),
        *((tmp_path / name, "save_pretrained") for name in ("pickles", *names.split()[:3])),
    ):
        said = refusal(source)
        assert says in said
        assert ("pickle" in said or "save_pretrained" in said) == (says == "save_pretrained")
    assert len(refusal("x" * 5000)) < 200
    (bert / "config.json").unlink()
    assert "config.json" in refusal(bert)


def test_the_command_writes_a_row_per_head_and_per_layer(bert, tmp_path, capsys):
    """And prints a table. Models of one name are told apart, and joined tables hold each once."""
    out, portraits = tmp_path / "atlas.parquet", tmp_path / "heads.safetensors"
    command = ["models", str(bert), "--out", str(out), "--portraits", str(portraits)]
    assert main([*command, "--every-setting"]) == 0
    table = pd.read_parquet(out)
    settings = {(False, 0), (True, 0)}  # without rotary positions there are no offsets
    assert set(zip(table["folded"], table["offset"], strict=True)) == settings
    assert table["head"].notna().sum() == 2 * L * H
    assert table["head"].isna().sum() == 2 * L
    printed = capsys.readouterr().out
    assert printed.count("tiny-bert encoder (6)") == 2
    own = table[table["head"].notna() & ~table["folded"]]
    assert f"| {fixed(own['tie_qk'].median(), 2)} (0.8" in printed
    atlas = Atlas.load(out, portraits)
    assert atlas.portrait("tiny-bert", "encoder", 1, 2).shown > 0
    assert main(["models", str(bert), "--offset", "4"]) == 2
    error = capsys.readouterr().err
    assert "rotary positions" in error
    assert error.count("\n") == 1  # the progress bar leaves no line
    write_bert(tmp_path / "other" / "tiny-bert")
    assert (
        main(["models", str(bert), str(tmp_path / "other" / "tiny-bert"), "--out", str(out)]) == 0
    )
    both = Atlas.load(out)
    assert list(both.table["model"].unique()) == ["tiny-bert", "tiny-bert (2)"]
    assert len(both.joined(both).table) == len(both.table)


def test_checkpoints_are_set_side_by_side_over_training(tmp_path, capsys):
    """A folder of them stands for all, in the order of their steps, as a table and as figures."""
    for seed, step in enumerate((1000, 500, 20)):
        write_bert(tmp_path / "run" / f"checkpoint-{step}", seed)
    write_bert(tmp_path / "tiny-bert")
    out = {end: str(tmp_path / f"t.{end}") for end in ("parquet", "csv", "svg")}
    sources = str(tmp_path / "run"), str(tmp_path / "tiny-bert")
    assert main(["models", *sources, "--out", out["parquet"], "--training", out["csv"]]) == 0
    said, rows = capsys.readouterr().out, pd.read_csv(out["csv"])
    assert list(rows["step"]) == [20, 20, 500, 500, 1000, 1000]
    assert set(rows["training"]) == {"run"}
    table = pd.read_parquet(out["parquet"])
    for row in rows.itertuples():
        own = table[(table["model"] == f"run@{row.revision}") & (table["layer"] == row.layer)]
        layer, heads = own[own["head"].isna()].iloc[0], own[own["head"].notna()]
        assert row.symmetry == pytest.approx(layer["symmetry"])
        assert row.cos_qk == pytest.approx(layer["cos_qk"])
        assert row.overlap_qk == pytest.approx(heads["overlap_qk"].mean())
    first, last = (rows[rows["step"] == step]["symmetry"].median() for step in (20, 1000))
    assert re.search(f"checkpoint-20 .* {fixed(first, 2)} .*{fixed(last, 2)} ", said)
    rows.loc[rows["step"] == 1000, list(OVER_TRAINING)] = math.nan  # it has diverged
    assert describe_training(rows)[0].endswith("checkpoint-1000.")
    nothing = rows.assign(**dict.fromkeys(OVER_TRAINING, math.nan))
    assert "no revision" in describe_training(nothing)[0]
    for step in (20, 500):
        write_bert(tmp_path / "other" / "run" / f"checkpoint-{step}")
    sources = str(tmp_path / "run"), str(tmp_path / "other" / "run")
    assert main(["models", *sources, "--training", out["csv"]]) == 0
    assert pd.read_csv(out["csv"])["training"].unique().tolist() == ["run", "run (2)"]
    some = f"{tmp_path / 'run'}@checkpoint-500,checkpoint-20"
    assert main(["models", some, "--training", out["svg"]]) == 0
    drawn = Path(out["svg"]).read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert "run over its training" in drawn
    assert main(["models", str(tmp_path / "tiny-bert"), "--training", out["svg"]]) == 2


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=6, unique=True), st.randoms())
def test_revisions_are_in_the_order_of_their_numbers(steps, random):
    """Their numbers decide, in whatever order they are given; without numbers it stays."""
    forms = ("step{}", "step{}-tokens4B", "checkpoint-{}", "global_step{}", "iter_{}", "{}")
    form = f"m@{random.choice(forms)}"
    (revisions,) = trainings([form.format(step) for step in steps]).values()
    assert [one.step for one in revisions] == sorted(steps)
    names = [f"{form.format(steps[0])}", "m@v1.0", "m", "other", "m@9f8e7d6c"]
    assert [one.label for one in trainings(names)["m"]][1:] == ["v1.0", "main", "9f8e7d6c"]
    assert all(math.isnan(one.step) for one in trainings(names)["m"])
    assert trainings(["m@step1", "n@step2"]) == {}


def test_a_stopped_measurement_goes_on(bert, tmp_path, monkeypatch):
    """The table is the same, only missing layers are measured, and other weights start anew."""
    out, whole = tmp_path / "atlas.parquet", measure_model(open_model(str(bert))).table
    measured, measure = [], measuring.measure_layer

    def counted(weights, *, most=99):
        if len(measured) == most:
            raise KeyboardInterrupt
        measured.append(weights)
        return measure(weights)

    monkeypatch.setattr(measuring, "measure_layer", partial(counted, most=1))
    assert main(["models", str(bert), "--out", str(out)]) == 130
    assert len(list(tmp_path.glob("atlas.parquet.*.layers/*"))) == 1
    monkeypatch.setattr(measuring, "measure_layer", counted)
    assert main(["models", str(bert), "--out", str(out)]) == 0
    assert len(measured) == L
    pd.testing.assert_frame_equal(pd.read_parquet(out), whole)
    assert list(tmp_path.glob("atlas.parquet.*")) == []


def test_interrupts_and_full_disks_lose_nothing(bert, tmp_path, monkeypatch, capsys):
    """Finished models are kept, and the old file stays whole until the new one is."""
    write_bert(tmp_path / "second")
    calls, out = iter([measure_model, _raise(KeyboardInterrupt())]), tmp_path / "atlas.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(
            "attnkit.realmodels.atlas.measure_model",
            lambda *given, **more: next(calls)(*given, **more),
        )
        assert main(["models", str(bert), str(tmp_path / "second"), "--out", str(out)]) == 130
    assert list(pd.read_parquet(out)["model"].unique()) == ["tiny-bert"]
    before = out.read_bytes()

    def fail(path, data):
        with path.open("wb") as file:
            file.write(data[:5000])
        if len(data) > 5000:
            raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", fail)
    capsys.readouterr()
    assert main(["models", str(bert), "--out", str(out)]) == 2
    assert "atlas.parquet', but it cannot be written (No space left" in capsys.readouterr().err
    assert out.read_bytes() == before
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["atlas.parquet", "second", "tiny-bert"]
    monkeypatch.undo()
    (tmp_path / "damaged.parquet").write_bytes(before[:-9])
    with pytest.raises(Unreadable, match=r"damaged\.parquet"):
        Atlas.load(tmp_path / "damaged.parquet")
