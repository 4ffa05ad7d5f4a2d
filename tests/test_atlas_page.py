"""The Atlas page without a browser: its flow, its link, and measuring a model."""

import re
import shutil
import subprocess
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from family_models import built, save_tokenizer
from idle import PATIENCE, idle_service, link_of, open_page, show
from made_atlas import READER, TOYS, WRITER, heads_of, made_atlas, made_toys
from model_files import write
from safetensors.numpy import save
from visiting import drawn, press

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.figures.groups import number_text
from attnkit.realmodels import shipped, toys
from attnkit.realmodels.answer import answer_sentences, caveats, conclusion, overlap_line
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.measures import MEASURES, TIES
from attnkit.training.summary import fixed
from attnkit.ui.atlas.choice import SECTIONS
from attnkit.ui.atlas.measured_models import measured_models
from attnkit.ui.atlas.model_measurement import ModelMeasurement

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def small_atlas(monkeypatch, tmp_path_factory):
    """Replace the shipped atlas by a small one, and keep uploads in the test's folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("uploads")))
    monkeypatch.setattr(shipped, "load_atlas", made_atlas)
    monkeypatch.setattr(toys, "toy_table", made_toys)


@pytest.fixture(scope="module")
def local_copy(tmp_path_factory):
    """A copy that one person runs for themselves."""
    with idle_service(tmp_path_factory.mktemp("store")):
        yield


def choose(tab, **wanted):
    """Set lists, switches and buttons by the end of their keys, one after the other."""
    for name, value in wanted.items():
        kind = tab.toggle if name in ("fold", "toys") else tab.selectbox
        kind = tab.button_group if name in ("section", "offset", "once", "tie") else kind
        kind(key=f"atlas_{name}").set_value(value)
        show(tab)
    return tab


def texts(tab):
    """Return all texts of the page without Markdown escapes, and formulas as they are typed."""
    kinds = (tab.markdown, tab.caption, tab.warning, tab.error, tab.info, tab.success)
    found = [re.sub(r"\\(\W|_)", r"\1", element.value) for kind in kinds for element in kind]
    return [re.sub(r"\$(W_.*?)\$", r"\1", text).replace(r"^\top", "ᵀ") for text in found]


def text_with(tab, words):
    """Return the only text that has the words."""
    (text,) = [text for text in texts(tab) if words in text]
    return text


def test_the_page_concludes_and_opens_one_section_at_a_time(local_copy):
    """Each has a link and figures with descriptions; tables are made when opened."""
    tab, table, shown = open_page("atlas"), made_atlas().table, set()
    assert texts(tab).index(text_with(tab, conclusion(table))) == 0
    text_with(tab, overlap_line(table))
    assert link_of(tab) == {}
    for name in SECTIONS:
        assert link_of(choose(tab, section=name))["show" if name != "head" else "head"]
        if name == "numbers":
            text_with(tab, "\n\n".join(answer_sentences(table)))
            assert [caveat for caveat in caveats(table) if caveat not in " ".join(texts(tab))] == []
        elif name == "tying":
            row = text_with(tab, f"{READER} encoder (10)")
            heads = heads_of(table, model=READER)
            medians = [fixed(heads[name].median(), 2) for name in TIES]
            assert re.search(r" \S+ \| ".join(medians), row)
            assert "| reverse | 90% (10%) |" in text_with(tab, "| toy |")
        keys = [element.key or "" for element in tab.get("bidi_component")]
        figures = {key for key in keys if key.startswith("atlas_")}
        for key in figures - shown:
            assert re.search(r"\d", drawn(tab, key)["alt"]), key
        folds = [fold for fold in tab.expander if fold.label == "Numbers"]
        assert len(folds) >= 2, name
        assert not any(fold.dataframe for fold in folds)
        shown |= figures
    assert len(shown) == 7
    assert link_of(choose(tab, section=None))["show"] == "overview"
    assert link_of(choose(tab, section="tying", tie="tie_kv"))["measure"] == "tie_kv"
    assert drawn(tab, "atlas_grid")["measure"] == MEASURES["tie_kv"].title


def test_a_link_shows_a_head_and_two_models_and_a_faulty_one_is_told_once(local_copy):
    """Choices of all sections are in the link; pages remember them."""
    sent = {"head": f"{READER}/encoder/1/3", "measure": "symmetry"}
    tab = open_page("atlas", **sent)
    (row,) = heads_of(made_atlas().table, model=READER, layer=1, head=3).itertuples()
    assert number_text(row.symmetry) in text_with(tab, f"{READER}, encoder, layer 1, head 3")
    assert drawn(tab, "atlas_grid")["chosen"] == [READER, "encoder", 1, 3]
    assert f"head 3. {100 * (1 + row.symmetry) / 2:.0f}%" in drawn(tab, "atlas_split")["alt"]
    assert link_of(tab) == sent
    assert link_of(choose(tab, head_model=WRITER))["head"] == f"{WRITER}/causal/1/3"
    choose(tab, section="measures", x="cos_kv", y="rank_q")
    title = drawn(tab, "atlas_scatter")["save"]["title"]
    assert all(MEASURES[name].title in title for name in ("cos_kv", "rank_q"))
    sent = link_of(choose(tab, section="models", other=f"{WRITER}, cross"))
    assert {"head", "measure", "show", "x", "y", "other"} == set(sent)
    for page in ("guide", "atlas"):
        tab.query_params.clear()
        show(tab.switch_page(f"pages/{page}.py"))
    assert link_of(tab) == sent
    tab = open_page("atlas", **sent, offset="7")
    assert "offset='7'" in text_with(tab, "The link ")
    assert link_of(tab) == sent
    assert f"{WRITER}, cross" in drawn(tab, "atlas_depth")["alt"]
    assert "The link " not in " ".join(texts(show(tab)))


def test_settings_change_what_is_counted_and_shown(local_copy):
    """Folded gains, the distance, shared heads per query head, and our own models."""
    table = made_atlas().table
    tab = open_page("atlas", measure="cos_qk", head=f"{WRITER}/causal/1/2")
    notes = []
    for fold, offset in ((True, 0), (False, 4)):
        choose(tab, fold=fold, offset=offset)
        wanted = table[(table["folded"] == fold) & (table["offset"] == offset)]
        here = (wanted["kind"] == "causal") & (wanted["layer"] == 1) & (wanted["head"] == 2)
        found = drawn(tab, "atlas_grid")["panels"][1]["values"][1][2]
        assert found == pytest.approx(wanted[here]["cos_qk"].item(), rel=1e-3)
        notes.append("distance 0" in " ".join(texts(tab)))
    assert notes == [False, True]  # pictures are of tokens at distance 0
    choose(tab, head_model=READER, measure="overlap_kv", toys=True)
    assert "6 heads" in drawn(tab, "atlas_strips")["alt"]
    assert "18 heads" in drawn(choose(tab, once=False), "atlas_strips")["alt"]
    assert {"offset": "4", "kv": "query", "toys": "1"}.items() <= link_of(tab).items()
    assert models_in(tab)[-2:] == list(TOYS)
    text_with(choose(tab, head_model=TOYS[1]), "only its numbers were kept")
    assert "toys" not in link_of(choose(tab, toys=False))


def test_a_hosted_copy_measures_nothing_and_a_damaged_atlas_is_told(tmp_path, monkeypatch):
    """A copy that many people visit shows the command instead of a field and an upload."""
    with idle_service(tmp_path, hosted="true"):
        commands = {"own": "models PATH", "sentence": "sentence MODEL", "training": "models FOLDER"}
        for name, command in commands.items():
            tab = open_page("atlas", show=name)
            assert any(f"python -m attnkit {command}" in code.value for code in tab.code)
            keys = {widget.key for widget in (*tab.text_input, *tab.text_area, *tab.button)}
            assert not keys & {"own_source", "own_measure", "sentence_source", "sentence_read"}
            assert not tab.get("file_uploader")
        damaged = Unreadable("shipped.parquet: not an atlas")
        monkeypatch.setattr(shipped, "load_atlas", Mock(side_effect=damaged))
        said = " ".join(texts(open_page("atlas")))
        assert "cannot be read" in said
        assert "parquet" not in said


# measuring a model


@pytest.fixture
def tiny_model(tmp_path):
    """A folder as `transformers` writes it: one BERT layer of two heads, whose W_K is its W_V."""
    q, k = np.random.default_rng(0).standard_normal((2, 6, 6))
    stem = "encoder.layer.0.attention.self."
    named = {f"{stem}{role}.weight": w for role, w in {"query": q, "key": k, "value": k}.items()}
    config = {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1}
    files = {"model.safetensors": save(named), "config.json": {"model_type": "bert", **config}}
    return write(tmp_path / "tiny-bert", files).parent


def measured(tab, source):
    """Measure a folder, wait for the end, and draw the page."""
    tab.text_input(key="own_source").set_value(str(source))
    press(tab, "own_measure").session_state["model_measurement"]._process.wait(PATIENCE)
    return show(tab)


def models_in(tab):
    """Return the models of the grid."""
    return [panel["model"] for panel in drawn(tab, "atlas_grid")["panels"]]


def test_a_folder_is_measured_and_joins_the_figures_until_the_server_forgets_it(
    local_copy, tiny_model
):
    """Its link, and no other, shows it to others."""
    tab = press(open_page("atlas", measure="cos_qk", show="own"), "own_measure")
    assert "model_measurement" not in tab.session_state
    tab = measured(tab, tiny_model)
    message = text_with(tab, "Measured: tiny-bert, 2 heads")
    assert "W_K and as W_V" in message
    sent = link_of(tab)
    assert models_in(open_page("atlas", **sent))[-1] == models_in(tab)[-1] == "tiny-bert"
    del sent["mine"]
    assert set(models_in(open_page("atlas", **sent))) == {READER, WRITER}
    choose(tab, section="head", head_model="tiny-bert")
    assert "tiny-bert" in drawn(tab, "atlas_split")["alt"]
    sent = link_of(tab)
    measured_models.clear()
    tab = open_page("atlas", **sent)
    assert f"head='{sent['head']}'" in text_with(tab, "no longer has")
    assert "mine" not in link_of(tab)


def test_checkpoints_are_shown_over_training(local_copy, tiny_model):
    """A sentence names the first revision and the last, however the folders are sorted."""
    for step in (20, 3):
        shutil.copytree(tiny_model, tiny_model.parent / f"run/checkpoint-{step}")
    tab = measured(open_page("atlas", show="own"), tiny_model.parent / "run")
    choose(tab, section="training")
    finding = text_with(tab, "run, encoder, from checkpoint-3 to checkpoint-20")
    assert drawn(tab, "atlas_training")["alt"] in finding


def test_why_nothing_was_measured_is_said_plainly(local_copy, tmp_path):
    """An option is only a name, a stop is no error, and no message names a file of the server."""
    tab = open_page("atlas", show="own")
    text_with(measured(tab, f"--out={tmp_path}/x.parquet; touch {tmp_path}/y"), "got '--out=")
    assert list(tmp_path.iterdir()) == []
    measuring = tab.session_state["model_measurement"] = ModelMeasurement(str(tmp_path))
    measuring.stop()
    assert (measuring.moving, measuring.problem, measuring.layers) == (False, "Stopped.", (0, 0))
    with pytest.raises(Unreadable, match="Stopped"):
        measuring.atlas()
    assert text_with(show(tab), "Stopped") == "Stopped."
    assert not tab.error
    assert not tab.button(key="own_measure").disabled
    measuring = ModelMeasurement(str(tmp_path / "upload"))
    for name, error, shown in (
        ("my.gguf", "upload: damaged", "upload: damaged"),
        ("blorp", "out of memory", "blorp: out of memory"),
        ("/data/m", "source: got '/data/m', but", "source: got '/data/m', but"),
        ("m", FileNotFoundError(2, "No such file", "/secret/a.gguf"), "m: No such file"),
        ("m", "m: holds secret.txt, which is not read; allowed are GGUF", ""),
        ("m", "m: No such file: '/home/me/secret.gguf'", ""),
    ):
        measuring.name = name
        message = measuring.problem_of(Unreadable(error) if isinstance(error, str) else error)
        assert message.startswith("m: ") if not shown else message == shown
        assert not re.search(r"secret|a\.gguf", message)


@pytest.fixture
def inline_reader(monkeypatch, run):
    """Read sentences without processes: the command runs anew with each line and those before."""

    def start(command, *, stderr, **_):
        typed, process = BytesIO(), Mock()

        def flush():
            monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(typed.getvalue())))
            code, _, errors = run(*command[3:])
            Path(stderr.name).write_text(errors)
            process.poll.return_value = code if code and "error: line " not in errors else None

        process.poll.return_value, process.stdin.flush = None, flush
        process.stdin.write = typed.write
        return process

    monkeypatch.setattr(subprocess, "Popen", start)


def test_a_sentence_is_read_and_a_wrong_one_loses_nothing(local_copy, inline_reader, tmp_path):
    """The model is loaded once; its figures stay beside a message about what came later."""
    built("gpt2", tmp_path / "tiny-gpt")
    save_tokenizer(tmp_path / "tiny-gpt")
    tab = open_page("atlas", show="sentence")

    def read(sentence, source=str(tmp_path / "tiny-gpt")):
        tab.text_input(key="sentence_source").set_value(source)
        tab.text_area(key="sentence_text").set_value(sentence)
        return show(press(tab, "sentence_read")).session_state["atlas_sentence"]

    def shown():
        (figures,) = [one for one in tab.get("bidi_component") if one.key == "sentence"]
        return InspectionResult.from_bytes(figures.proto.bytes).header["request"]

    assert "got '', allowed a sentence" in read("").problem
    assert read("the word1", "").problem == "Name a model."
    process = read("<b>the</b> word1 $x$").process
    assert shown()["sentence"] == "<b>the</b> word1 $x$"
    assert read("word2 the word3 the").process is process
    for label, index in (("layer", 1), ("head", 2)):
        tab.selectbox(key=f"sentence_{label}").set_value(index)
        show(tab)
    state = read("word1")
    assert "is 1 token, allowed" in state.problem
    assert state.process is process  # the model stays in memory
    assert "no such file or folder" in read("word1 the", "/no/such/model").problem
    assert shown() == {"layer": 1, "head": 2, "sentence": "word2 the word3 the"}
    assert not tab.button(key="sentence_read").disabled
