"""Where models come from: folders, packages and a simulated hub; and the command that measures."""

import json
import math
import re
import subprocess
import sys
import threading
import zlib
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import huggingface_hub.file_download
import numpy as np
import pandas as pd
import pytest
from family_models import assert_heads
from hypothesis import given
from hypothesis import strategies as st
from model_files import Sizes, gguf_file, index_file, llama, llama_tensors, write
from safetensors.numpy import save

from attnkit.__main__ import main
from attnkit.realmodels import Unreadable, measure_model, open_model
from attnkit.realmodels import atlas as measuring
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.hub import revisions_of
from attnkit.realmodels.revisions import OVER_TRAINING, describe_training, trainings
from attnkit.realmodels.sources import READ, find_files
from attnkit.training.summary import fixed

L, H, M = 2, 3, 33


def write_bert(folder, seed=7):
    """Write a small BERT of Gaussian matrices, as the library names them, and return its folder."""
    generator = np.random.default_rng(seed)
    tensors = {
        f"encoder.layer.{layer}.attention.self.{role}.weight": generator.standard_normal((M, M))
        for layer in range(L)
        for role in ("query", "key", "value")
    }
    config = {"num_hidden_layers": L, "num_attention_heads": H, "hidden_size": M}
    config["model_type"] = "bert"
    return write(folder, {"model.safetensors": save(tensors), "config.json": config}).parent


@pytest.fixture
def bert(tmp_path):
    """A folder with a model."""
    return write_bert(tmp_path / "tiny-bert")


def refusal(source):
    """Return why a source cannot be opened; one line."""
    with pytest.raises(Unreadable) as caught:
        open_model(str(source))
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    """The model nearest to its top is read; one without __init__.py may have several places."""
    package = tmp_path / "holds_models"
    for place in ("a/b/deep", "near", "c/deep", "../two/in_places/weights"):
        write_bert(package / place)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "one" / "in_places").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "two", tmp_path / "one"):
        monkeypatch.syspath_prepend(place)
    assert find_files("holds_models").parent == package / "near"
    model = open_model("holds_models")
    assert model.name == "holds_models"
    assert model.notes[0].endswith("'holds_models/c/deep', 'holds_models/a/b/deep'.")
    assert open_model("holds_models/a/b/deep").name == "deep"
    assert "holds_models" not in sys.modules
    assert open_model("in_places").family == "bert"


def test_a_folder_is_called_by_its_name_however_it_is_given(bert, monkeypatch):
    """Also as the place where one is, or from one's home."""
    monkeypatch.chdir(bert)
    monkeypatch.setenv("HOME", str(bert.parent))
    for source in (".", "model.safetensors", "~/tiny-bert/model.safetensors"):
        model = open_model(source)
        assert (model.name, model.family, model.format) == ("tiny-bert", "bert", "safetensors")
        assert [(layer.index, layer.n_heads) for layer in model.layers] == [(0, H), (1, H)]
    (bert / "config.json").unlink()
    assert "config.json" in refusal(".")
    (bert / "model.safetensors").unlink()
    assert refusal("./") == "tiny-bert: holds nothing; allowed are " + READ


def test_what_is_not_there_or_not_read_is_told(tmp_path, bert):
    """The source, what was found, and what is allowed; of a pickle alone, how to convert it."""
    (tmp_path / "nothing").mkdir()
    names = "pickles/pytorch_model.bin pickles/model.pt notes.txt onnx/model.onnx two/a.gguf "
    names += "two/b.gguf even/a.safetensors even/b.safetensors"
    write(tmp_path, dict.fromkeys(names.split(), b"\x80\x04evil"))
    for source, says in (
        ("nosuchthing", "no such file"),
        ("~nosuchuser/x", "home folder"),
        ("", "is empty"),
        ("a\0b", "no such file"),
        ("json", "package without"),
        (tmp_path / "nothing", "nothing"),
        (tmp_path / "notes.txt", "allowed are *.safetensors"),
        (tmp_path / "onnx", "'model.onnx'"),
        (tmp_path / "two", "2 GGUF files; name the one"),
        (tmp_path / "even", "2 safetensors files; name the one that is meant: 'a.s"),
        *((tmp_path / name, "save_pretrained") for name in ("pickles", *names.split()[:2])),
    ):
        said = refusal(source)
        assert says in said
        assert ("pickle" in said or "save_pretrained" in said) == (says == "save_pretrained")
    assert len(refusal("x" * 5000)) < 200


def test_without_the_extra_a_model_is_refused_in_one_line_and_the_page_needs_nothing(bert):
    """In a process of its own: what draws the shipped measures needs nothing."""
    program = (
        "import sys; sys.modules['transformers'] = None\n"
        "import attnkit.figures.atlas, attnkit.realmodels.shipped as s; s.load_atlas()\n"
        "assert 'torch' not in sys.modules\n"
        "from attnkit.__main__ import main\n"
        f"sys.exit(main(['models', {str(bert)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "error: source: reading a model needs the extra `models`: pip install" in done.stderr


def test_the_command_writes_a_row_per_head_and_per_layer(bert, tmp_path, run):
    """And prints a table. Models of one name are told apart; joined tables hold each once."""
    out, portraits = tmp_path / "atlas.parquet", tmp_path / "heads.safetensors"
    command = ("models", str(bert), "--out", str(out), "--portraits", str(portraits))
    code, printed, _ = run(*command, "--every-setting")
    assert code == 0
    atlas = Atlas.load(out, portraits)
    heads, folded = atlas.table["head"].notna(), atlas.table["folded"]
    assert list(atlas.table["offset"].unique()) == [0]  # there are no rotary positions
    assert [sum(rows) for rows in (heads, ~heads, folded)] == [2 * L * H, 2 * L, L * (H + 1)]
    assert printed.count("tiny-bert encoder (6)") == 2
    own = atlas.table[heads & ~folded]
    assert f"| {fixed(own['tie_qk'].median(), 2)} (0.8" in printed
    assert atlas.portrait("tiny-bert", "encoder", 1, 2).shown > 0
    code, _, error = run("models", str(bert), "--offset", "4")
    assert (code, "rotary positions" in error) == (2, True)
    assert error.count("\n") == 1  # the progress bar leaves no line
    other = write_bert(tmp_path / "other" / "tiny-bert")
    assert run("models", str(bert), str(other), "--out", str(out))[0] == 0
    both = Atlas.load(out)
    assert list(both.table["model"].unique()) == ["tiny-bert", "tiny-bert (2)"]
    assert len(both.joined(both).table) == len(both.table)


def test_checkpoints_are_set_side_by_side_over_training(tmp_path, run):
    """A folder of them stands for all, in the order of their steps, as a table and as figures."""
    for seed, step in enumerate((1000, 500, 20)):
        write_bert(tmp_path / "run" / f"checkpoint-{step}", seed)
    out = {end: str(tmp_path / f"t.{end}") for end in ("parquet", "csv", "html")}
    source, other = str(tmp_path / "run"), str(write_bert(tmp_path / "tiny-bert"))
    code, said, _ = run("models", source, other, "--out", out["parquet"], "--training", out["csv"])
    rows, table = pd.read_csv(out["csv"]), pd.read_parquet(out["parquet"])
    assert (code, list(rows["step"])) == (0, [20, 20, 500, 500, 1000, 1000])
    for row in rows.itertuples():
        own = table[(table["model"] == f"run@{row.revision}") & (table["layer"] == row.layer)]
        layer, heads = own[own["head"].isna()].iloc[0], own[own["head"].notna()]
        expected = layer["symmetry"], layer["cos_qk"], heads["overlap_qk"].mean()
        assert (row.symmetry, row.cos_qk, row.overlap_qk) == pytest.approx(expected)
    first, last = (rows[rows["step"] == step]["symmetry"].median() for step in (20, 1000))
    assert re.search(f"checkpoint-20 .* {fixed(first, 2)} .*{fixed(last, 2)} ", said)
    rows.loc[rows["step"] == 1000, list(OVER_TRAINING)] = math.nan  # it has diverged
    assert describe_training(rows)[0].endswith("checkpoint-1000.")
    some = f"{source}@checkpoint-500,checkpoint-20"
    assert run("models", some, "--training", out["html"])[0] == 0
    drawn = Path(out["html"]).read_text(encoding="utf-8")
    assert re.match("<!doctype html>.*run over its training", drawn, re.DOTALL)
    assert 'src="http' not in drawn
    assert run("models", other, "--training", out["html"])[0] == 2


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
    """Finished models are kept; only missing layers are measured, and the table is the same."""
    second = write_bert(tmp_path / "second", 8)
    whole = Atlas.together([measure_model(open_model(str(one))) for one in (bert, second)]).table
    out, measured, measure = tmp_path / "atlas.parquet", [], measuring.measure_layer
    command = ["models", str(bert), str(second), "--out", str(out)]

    def counted(weights, *, most=99):
        if len(measured) == most:
            raise KeyboardInterrupt
        measured.append(weights)
        return measure(weights)

    monkeypatch.setattr(measuring, "measure_layer", partial(counted, most=L + 1))
    assert main(command) == 130
    assert list(pd.read_parquet(out)["model"].unique()) == ["tiny-bert"]
    assert len(list(tmp_path.glob("atlas.parquet.*.layers/*"))) == 1
    monkeypatch.setattr(measuring, "measure_layer", counted)
    assert main(command) == 0
    assert len(measured) == L + 1 + L + L - 1
    pd.testing.assert_frame_equal(pd.read_parquet(out), whole)
    assert list(tmp_path.glob("atlas.parquet.*")) == []


def test_a_full_disk_loses_nothing(bert, tmp_path, monkeypatch, run):
    """The old file stays whole until the new one is."""
    out = tmp_path / "atlas.parquet"
    measure_model(open_model(str(bert))).save(out)
    before = out.read_bytes()

    def fail(path, data):
        path.write_text("part")
        if len(data) > 5000:
            raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        code, _, errors = run("models", str(bert), "--out", str(out))
    assert (code, out.read_bytes()) == (2, before)
    assert "atlas.parquet', but it cannot be written (No space left" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["atlas.parquet", "tiny-bert"]
    out.write_bytes(before[:-9])
    with pytest.raises(Unreadable, match=r"atlas\.parquet"):
        Atlas.load(out)


# the hub


class Hub:
    """Files by name, revision and model; names of gated models; and what was requested."""

    def __init__(self):
        self.models, self.gated, self.requests = {}, set(), []

    def add(self, name, files, revision="main"):
        """Add a model; what is not bytes is written as JSON."""
        raw = {n: x if isinstance(x, bytes) else json.dumps(x).encode() for n, x in files.items()}
        self.models.setdefault(name, {})[revision] = raw

    def answer(self, path):
        """Return the status, the code of an error, and the content."""
        pattern = r"(?:/api/models)?/([^/]+/[^/]+)(?:/(revision|refs|resolve)/?([^/]*)/?(.*))?"
        name, what, revision, file = re.fullmatch(pattern, unquote(path)).groups("")
        if name not in self.models:
            return 401, "RepoNotFound", b""
        if what == "refs":
            names = self.models[name]
            refs = [{"name": r, "ref": f"refs/heads/{r}", "targetCommit": r} for r in names]
            return 200, "", json.dumps({"branches": refs, "tags": [], "converts": []}).encode()
        files = self.models[name].get(revision or "main")
        if files is None:
            return 404, "RevisionNotFound", b""
        if what != "resolve":
            siblings = [{"rfilename": file} for file in files]
            info = {"id": name, "sha": revision or "main", "siblings": siblings}
            return 200, "", json.dumps(info).encode()
        if name in self.gated:
            return 401, "GatedRepo", b""
        return (200, "", files[file]) if file in files else (404, "EntryNotFound", b"")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that the library talks to instead of the real one, with an empty cache."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlsplit(self.path).path
            status, code, raw = hub.answer(path)
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if wanted and status == 200:
                start, end, size = int(wanted[1]), int(wanted[2]) + 1, len(raw)
                status, raw = (206, raw[start:end]) if start < len(raw) else (416, b"")
            if "/resolve/" in path:
                hub.requests.append((unquote(path.rpartition("/")[2]), len(raw)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.send_header("ETag", f'"{zlib.crc32(path.encode())}"')
            self.send_header("X-Repo-Commit", path.split("/resolve/")[-1].partition("/")[0])
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(raw)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    hub.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=hub.server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{hub.server.server_port}"
    for name, value in {
        "ENDPOINT": address,
        "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


SIZES = Sizes()
ROWS = SIZES.drawn(np.random.default_rng(7))
CONFIG = {"config.json": llama(SIZES)}
INDEXED, GGUF = index_file(SIZES, ROWS), gguf_file(SIZES, ROWS)["model.gguf"]
assert_read = partial(assert_heads, rows=ROWS)
COPIES = {
    "model.safetensors": b"stray", "consolidated.safetensors": b"c", "model.fp16.safetensors": b"h",
    "consolidated.safetensors.index.json": {"weight_map": {"a": "none.safetensors"}},
    "original/consolidated.00.pth": b"o", "pytorch_model.bin": b"p", "tokenizer.json": b"{}",
    "modeling_own.py": b"", "model.onnx": b"",
}  # fmt: skip
"""Files beside the weights that must not be fetched, or not be taken for the model."""


def test_what_the_hub_has_is_read_and_what_it_refuses_says_what_to_do(hub):
    """Revisions, GGUF files by type, addresses from a browser, copies beside shards, and gates."""
    hub.add("o/many", INDEXED | COPIES)
    hub.add("o/many", INDEXED, "step1000")
    hub.add("o/gated", INDEXED)
    hub.gated.add("o/gated")
    hub.add("o/gguf", {"m-Q4_K_M.gguf": GGUF, "m-Q8_0.gguf": GGUF, "mmproj-F16.gguf": b""})
    hub.add("o/inner", {f"0_Transformer/{name}": raw for name, raw in INDEXED.items()})
    hub.add("o/pickle", {"config.json": {}, "pytorch_model.bin": b"p"})
    for source, name in (
        ("o/many", "many"),
        ("o/many@step1000", "many@step1000"),
        ("https://huggingface.co/o/many/tree/step1000?x=1", "many@step1000"),
        ("o/gguf:q4_k_m", "m"),
        ("hf.co/o/gguf/blob/main/m-Q8_0.gguf", "m"),
        ("o/inner", "inner"),
        ("o/inner:0_Transformer", "inner"),
    ):
        model = open_model(source)
        assert_read(model)
        assert model.name == name, source
    for source, says in (
        ("o/gated", "https://huggingface.co/o/gated"),
        ("o/none", "no model of that name"),
        ("o/many@step7", "no revision 'step7'; it has 'main', 'step1000'"),
        ("o/gguf", "2 GGUF files"),
        ("o/gguf:Q2_K", "nothing called 'Q2_K'"),
        ("o/pickle", "'pytorch_model.bin' cannot be read"),
    ):
        assert says in refusal(source), source
    assert revisions_of("o/many@step1000,main:x") == ["o/many@step1000:x", "o/many@main:x"]
    fetched = {name for name, _ in hub.requests}
    assert not fetched & {name.rpartition("/")[2] for name in COPIES}
    whole = find_files("o/many")
    assert {path.name for path in whole.parent.iterdir()} == {*INDEXED, "tokenizer.json"}
    assert_read(open_model(str(whole)))  # links into the hub's own cache
    hub.requests.clear()
    assert_read(open_model("o/gguf:q8_0"))  # all of it is here already
    assert hub.requests == []
    hub.server.shutdown()
    hub.server.server_close()
    assert_read(open_model("o/many"))  # without a network
    assert "cannot be reached (ConnectError)" in refusal("o/elsewhere")


def test_of_many_shards_only_the_bytes_of_attention_are_fetched(hub, tmp_path):
    """Shards that hold experts only are not opened; after a stop, the rest is fetched."""
    n_layers = 9
    sizes, files, places = Sizes(n_layers=n_layers, d_model=64), {}, {}
    tensors = llama_tensors(sizes, rows := sizes.drawn(np.random.default_rng(3)))
    for i in range(n_layers):
        own = {name: w for name, w in tensors.items() if f"layers.{i}." in name}
        for part, held in enumerate((own, {})):
            expert = {f"e{i}.{part}.weight": np.zeros((200, 200), np.float32)}
            shard = f"model-{2 * i + part + 1:05}-of-00018.safetensors"
            files[shard] = save(held | expert)
            places |= dict.fromkeys(held | expert, shard)
    files |= {"config.json": llama(sizes), "model.safetensors.index.json": {"weight_map": places}}
    assert_heads(open_model(str(write(tmp_path / "here", files).parent)), rows)
    hub.add("o/large", files)
    model = open_model("o/large")
    opened = sum(n for _, n in hub.requests)
    for layer in model.layers[:4]:
        layer.read()
    assert_heads(open_model("o/large"), rows)
    assert {name for name, _ in hub.requests if "of-00018" in name} == {
        f"model-{2 * i + 1:05}-of-00018.safetensors" for i in range(n_layers)
    }
    sent = sum(n for _, n in hub.requests)
    assert sent - opened == sum(w.nbytes for w in tensors.values())
    assert sent < sum(len(raw) for raw in hub.models["o/large"]["main"].values()) / 3


# folders


def test_folders_as_people_have_them_are_read(tmp_path):
    """Two indexes, an inner folder, copies, layers that only train, models of images and text."""
    plain, llava = llama_tensors(SIZES, ROWS), {"model_type": "llava", "text_config": llama(SIZES)}
    images = {"vision_tower.layers.0.attn.qkv.weight": np.zeros((3, 3), np.float32)}
    inner = {f"language_model.{name}": w for name, w in plain.items()}
    training = {f"mtp.{name.removeprefix('model.')}": w for name, w in plain.items()}
    places = dict.fromkeys(plain, "part.safetensors")
    index = {"metadata": {"note": "x" * 9_000_000}, "weight_map": places}
    for case, files in enumerate((
        {"model.safetensors": save(plain | training), **CONFIG},
        {"model.safetensors": save(inner | images), "config.json": llava},
        INDEXED | COPIES,
        {f"0_Transformer/{name}": raw for name, raw in INDEXED.items()} | {"modules.json": []},
        INDEXED | {"model.safetensors.index.json": index},
        {"m.gguf": GGUF, "mmproj-m.gguf": b""},
        {"odd.safetensors": save(plain), **CONFIG},
        {"model.safetensors": save(plain), "odd.safetensors": b"stray", **CONFIG},
    )):  # fmt: skip
        write(tmp_path / str(case), files)
        assert_read(open_model(str(tmp_path / str(case))))
    rows = (eight := Sizes(d_head=8)).drawn(np.random.default_rng(3))
    flat = llama(eight) | {"model_type": "qwen2_vl", "vision_config": {"depth": 2}}
    flat["rope_scaling"] = {"type": "mrope", "mrope_section": [1, 1, 2]}
    files = {"model.safetensors": save(llama_tensors(eight, rows) | images), "config.json": flat}
    assert_heads(open_model(str(write(tmp_path / "flat", files).parent)), rows, 8)
    files = {"adapter_config.json": {}, "adapter_model.safetensors": save({"a": np.ones(2)})}
    assert "holds an adapter" in refusal(write(tmp_path / "adapter", files).parent)


def test_gguf_in_parts_and_with_unknown_types_is_read(tmp_path):
    """The parts are joined; one that is wrong is named, and so is an unknown type."""
    first, second = (f"m-{i}-of-00002.gguf" for i in ("00001", "00002"))
    later = [{}, ROWS[1]]
    parts = {
        name: gguf_file(SIZES, rows, {"split.count": 2})["model.gguf"]
        for name, rows in ((first, ROWS[:1]), (second, later))
    }
    for name in parts:
        assert_read(open_model(str(write(tmp_path / "parts", parts).with_name(name))))
    for wrong, says in (
        ({}, f"{second} is not there"),
        ({second: parts[second][:-40]}, f"{second} is damaged"),
        ({second: b"GGUF"}, f"{second} is damaged"),
        ({second: parts[first]}, f"'blk.0.attn_norm.weight' is in {first} already"),
        ({second: gguf_file(SIZES, later, {"split.count": 3})["model.gguf"]}, "one of '3' parts"),
        (
            {second: gguf_file(SIZES, later, architecture="qwen2")["model.gguf"]},
            f"{second} is part of another model",
        ),
    ):
        folder = tmp_path / says.replace(" ", "")
        assert says in refusal(write(folder, {first: parts[first]} | wrong).parent), says
    place = GGUF.index(name := b"blk.0.attn_q.weight") + len(name) + 20
    raw = GGUF[:place] + b"\x63" + GGUF[place + 1 :]
    assert "in type 99, which the package gguf does not know" in refusal(
        write(tmp_path / "unknown", {"m.gguf": raw})
    )
