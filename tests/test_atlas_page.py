"""The Atlas page without a browser: its flow, its link, and measuring a model.

Its figures, and what a link may say, are tested without it in `test_atlas`.
"""

import json
import random
import re

import numpy as np
import pytest
from idle import DASHBOARD, PATIENCE, idle_service, show
from made_atlas import READER, TOYS, WRITER, heads_of, made_atlas, made_toys
from safetensors.numpy import save_file
from streamlit.testing.v1 import AppTest
from test_atlas import UploadedFile

from attnkit.figures.groups import number_text
from attnkit.realmodels import shipped, toys
from attnkit.realmodels.answer import answer_sentences, caveats, conclusion, overlap_line
from attnkit.realmodels.atlas import PLACE, Atlas
from attnkit.realmodels.base import Unreadable
from attnkit.realmodels.measures import MEASURES
from attnkit.ui.atlas import SECTIONS
from attnkit.ui.head_portrait import TIED
from attnkit.ui.measured_models import measured_models
from attnkit.ui.model_measurement import ModelMeasurement, keep_upload

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


def open_atlas(**params):
    """Open the Atlas with a link, as the first page of a tab."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    tab.query_params.update(params)
    return show(tab.switch_page("pages/atlas.py"))


def choose(tab, **wanted):
    """Choose in lists by the end of their keys, one after the other."""
    for name, value in wanted.items():
        tab.selectbox(key=f"atlas_{name}").set_value(value)
        show(tab)
    return tab


def switch(tab, **wanted):
    """Set switches and buttons by the end of their keys, all at once."""
    for name, value in wanted.items():
        kind = tab.toggle if name in ("fold", "toys") else tab.button_group
        kind(key=f"atlas_{name}").set_value(value)
    return show(tab)


def section(tab, name):
    """Open a section, or close the open one."""
    return switch(tab, section=name)


def texts(tab):
    """Return all texts of the page without Markdown escapes, and formulas as they are typed."""
    kinds = (tab.markdown, tab.caption, tab.warning, tab.error, tab.info, tab.success)
    found = [re.sub(r"\\(\W|_)", r"\1", element.value) for kind in kinds for element in kind]
    return [re.sub(r"\$(W_.*?)\$", r"\1", text).replace(r"^\top", "ᵀ") for text in found]


def text_with(tab, words):
    """Return the only text that has the words."""
    (text,) = [text for text in texts(tab) if words in text]
    return text


def drawn(tab, key):
    """Return the data that were sent to a component."""
    (proto,) = [element.proto for element in tab.get("bidi_component") if element.key == key]
    return json.loads(proto.bytes)


def link(tab):
    """Return the address as one value per name."""
    params = tab.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in params}


FOLDS = {"overview": 2, "head": 5, "measures": 3, "models": 3, "numbers": 2, "own": 2}
"""Folds with numbers on the page, by the section that is open."""


def test_the_page_concludes_in_one_sentence_and_opens_one_section_at_a_time(local_copy):
    """Each has a link of its own, and a table under every figure, made when it is opened."""
    tab, table, shown = open_atlas(), made_atlas().table, set()
    assert texts(tab).index(text_with(tab, conclusion(table))) == 0
    text_with(tab, overlap_line(table))
    assert link(tab) == {}
    for name in ["overview", *SECTIONS]:
        if name != "overview":
            assert link(section(tab, name))["show" if name != "head" else "head"]
        if name == "models":
            assert answer_sentences(table)[0] not in " ".join(texts(tab))
        elif name == "numbers":
            text_with(tab, "\n\n".join(answer_sentences(table)))
            assert [caveat for caveat in caveats(table) if caveat not in " ".join(texts(tab))] == []
        elif name == "head":
            heads = heads_of(table)
            away = (heads["overlap_qk"] - heads["overlap_qk_random"]).abs()
            farthest = heads.loc[away.idxmax(), list(PLACE)]
            assert link(tab) == {"head": "/".join(map(str, farthest))}
            assert "| Median of its kind |" in text_with(tab, "| Measure | Here |")
        figures = {element.key or "" for element in tab.get("bidi_component")}
        figures = {key for key in figures if key.startswith("atlas_")}
        for key in figures:
            assert re.search(r"\d", drawn(tab, key)["alt"]), key
        folds = [fold for fold in tab.expander if fold.label == "Numbers"]
        assert len(folds) == FOLDS[name], name
        assert not any(fold.dataframe for fold in folds)
        shown |= figures
    assert len(shown) == 7
    assert link(section(tab, None))["show"] == "overview"


def test_a_link_shows_a_head_and_two_models_and_a_faulty_one_is_told_once(local_copy):
    """Choices of all sections are in the link; pages remember them."""
    tab = open_atlas(head=f"{READER}/encoder/1/3", measure="symmetry")
    (row,) = heads_of(made_atlas().table, model=READER, layer=1, head=3).itertuples()
    words = text_with(tab, f"Outlined: {READER}, encoder, layer 1, head 3")
    assert number_text(row.symmetry) in words
    assert drawn(tab, "atlas_grid")["chosen"] == [READER, "encoder", 1, 3]
    assert f"head 3. {100 * (1 + row.symmetry) / 2:.0f}%" in drawn(tab, "atlas_split")["alt"]
    assert link(tab) == {"head": f"{READER}/encoder/1/3", "measure": "symmetry"}
    assert link(choose(tab, head_model=WRITER))["head"] == f"{WRITER}/causal/1/3"
    choose(section(tab, "measures"), x="cos_kv", y="rank_q")
    sent = link(choose(section(tab, "models"), other=f"{WRITER}, cross"))
    assert {"head", "measure", "show", "x", "y", "other"} == set(sent)
    for page in ("guide", "atlas"):
        tab.query_params.clear()
        show(tab.switch_page(f"pages/{page}.py"))
    assert link(tab) == sent
    tab = open_atlas(**sent, offset="7")
    assert "offset='7'" in text_with(tab, "The link ")
    assert link(tab) == sent
    assert f"{WRITER}, cross" in drawn(tab, "atlas_depth")["alt"]
    title = drawn(section(tab, "measures"), "atlas_scatter")["title"]
    assert title == f"{MEASURES['rank_q'].title} against {MEASURES['cos_kv'].title}"
    assert "The link " not in " ".join(texts(tab))


def test_settings_change_what_is_counted_and_shown(local_copy):
    """Folded gains, the distance, shared heads per query head, and our own models."""
    words = "The pictures are of tokens at distance 0."
    tab, table = open_atlas(measure="cos_qk", head=f"{WRITER}/causal/1/2"), made_atlas().table
    known = heads_of(table, model=READER, layer=0, head=0)["cos_qk"].item()
    for fold, offset in ((True, 0), (False, 4)):
        switch(tab, fold=fold, offset=offset)
        wanted = table[(table["folded"] == fold) & (table["offset"] == offset)]
        here = (wanted["kind"] == "causal") & (wanted["layer"] == 1) & (wanted["head"] == 2)
        panels = drawn(tab, "atlas_grid")["panels"]
        expected = wanted[here]["cos_qk"].item()
        assert panels[1]["values"][1][2] == pytest.approx(expected, rel=1e-3)
        assert panels[0]["values"][0][0] == pytest.approx(known, rel=1e-3)
        assert (words in texts(tab)) == (offset == 4)
    assert words not in texts(choose(tab, head_model=READER))
    choose(tab, measure="overlap_kv")
    assert "6 heads" in drawn(tab, "atlas_strips")["alt"]
    assert "18 heads" in drawn(switch(tab, once=False), "atlas_strips")["alt"]
    switch(choose(tab, measure="cos_qk"), toys=True)
    assert {"offset": "4", "kv": "query", "toys": "1"}.items() <= link(tab).items()
    assert [panel["model"] for panel in drawn(tab, "atlas_grid")["panels"]][-2:] == list(TOYS)
    assert "toy Q=K, encoder: median 1.00" in drawn(tab, "atlas_strips")["alt"]
    assert "only its numbers were kept" in " ".join(texts(choose(tab, head_model=TOYS[1])))
    assert "toys" not in link(switch(tab, toys=False))
    assert "The link" not in " ".join(texts(tab))


def test_what_is_not_defined_or_not_measured_is_said(local_copy, monkeypatch, seed, long):
    """Keys that are values, a measure that no model has; the random level is a head's own."""
    table = made_atlas().table.copy()
    tied = (table["model"] == WRITER) & (table["kind"] == "causal") & (table["layer"] == 1)
    table.loc[tied, "tied"] = "K=V"
    table.loc[tied, [name for name in MEASURES if name.endswith(("_qv", "_kv"))]] = np.nan
    here = (table["model"] == READER) & (table["layer"] == 1) & (table["head"] == 3)
    table.loc[here, ["symmetry_random", "symmetry_random_sd"]] = 0.23, 0.17
    monkeypatch.setattr(shipped, "load_atlas", lambda: Atlas(table, made_atlas().arrays))
    tab = open_atlas(measure="cos_kv", head=f"{WRITER}/causal/1/2")
    assert f"in 1 of 4 layers of {WRITER}: comparisons" in text_with(tab, "W_V in 1 of")
    text_with(tab, TIED)
    assert TIED not in texts(choose(tab, head_layer=0))
    tab = open_atlas(head=f"{READER}/encoder/1/3", measure="symmetry")
    assert "(random 0.23 ± 0.17)" in text_with(tab, "Outlined:")
    for measure in list(MEASURES) if long else random.Random(seed).sample(list(MEASURES), 3):
        assert link(choose(tab, measure=measure)).get("measure", "overlap_qk") == measure
    text_with(choose(tab, measure="act_cka_qk"), "None of these models has this measure")
    assert "atlas_strips" not in {element.key for element in tab.get("bidi_component")}


def test_a_damaged_atlas_is_told(local_copy, monkeypatch):
    """A damaged atlas shows an error without its file, and a model can still be measured."""

    def fail():
        raise Unreadable("shipped.parquet: not an atlas")

    monkeypatch.setattr(shipped, "load_atlas", fail)
    tab = open_atlas()
    text_with(tab, "The numbers of the real models that ship with this copy cannot be read.")
    assert "parquet" not in " ".join(texts(tab))
    assert tab.button(key="own_measure")


def test_a_hosted_copy_measures_nothing(tmp_path):
    """A copy that many people visit shows the command instead of a field and an upload."""
    with idle_service(tmp_path, hosted="true"):
        tab = open_atlas(show="own")
    text_with(tab, "Off on this copy")
    assert any("python -m attnkit models PATH" in code.value for code in tab.code)
    assert not [w for w in tab.text_input if w.key == "own_source"]
    assert not tab.get("file_uploader")
    assert "own_measure" not in {button.key for button in tab.button}


# measuring a model


@pytest.fixture
def tiny_model(tmp_path):
    """A folder as `transformers` writes it: one BERT layer of two heads, whose W_K is its W_V."""
    folder = tmp_path / "tiny-bert"
    folder.mkdir()
    rng = np.random.default_rng(0)
    own = {role: rng.standard_normal((6, 6)) for role in ("query", "key")}
    tensors = {f"{role}.weight": w for role, w in {**own, "value": own["key"]}.items()}
    tensors |= {f"{role}.bias": rng.standard_normal(6) for role in ("query", "key", "value")}
    place = "encoder.layer.0.attention.self"
    save_file(
        {f"{place}.{name}": value.astype(np.float32) for name, value in tensors.items()},
        folder / "model.safetensors",
    )
    sizes = {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = {"model_type": "bert", "architectures": ["BertModel"], **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def press(tab, key):
    """Press a button."""
    tab.button(key=key).click()
    return show(tab)


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
    """A measured folder joins figures and lists; its link, and no other, shows it to others.

    It takes a few seconds, because the measurement is a process of its own.
    """
    tab = press(open_atlas(measure="cos_qk", show="own"), "own_measure")
    text_with(tab, "Name a model or upload one")
    assert "model_measurement" not in tab.session_state
    tab = measured(tab, tiny_model)
    message = text_with(tab, "Measured: tiny-bert, 2 heads")
    assert "shows this model to everybody you send it to" in message
    assert "Notes: In some or all layers, one matrix serves as W_K and as W_V" in message
    text_with(tab, "in all layers of tiny-bert")
    assert models_in(tab)[-1] == "tiny-bert"
    sent = link(tab)
    again = open_atlas(**sent)
    assert models_in(again)[-1] == "tiny-bert"
    assert link(again) == sent
    del sent["mine"]
    assert set(models_in(open_atlas(**sent))) == {READER, WRITER}

    choose(section(tab, "head"), head_model="tiny-bert")
    assert "tiny-bert" in drawn(tab, "atlas_split")["alt"]
    text_with(tab, "shows this model to everybody you send it to")
    assert "send it on" not in " ".join(texts(tab))
    sent = link(tab)
    text_with(choose(tab, head_model=READER), "names this head: send it on")

    measured_models.clear()
    tab = open_atlas(**sent)
    problem = text_with(tab, "The link shows a measured model that this server no longer has")
    assert "head='tiny-bert/encoder/0/1', but there is no such head here" in problem
    assert "mine" not in link(tab)


def test_why_nothing_was_measured_is_said_plainly(local_copy, tmp_path):
    """An option or a pickle is only a name, a stop no error; two processes take some seconds."""
    kept, source = keep_upload([UploadedFile("a.bin", b"\x80\x02cposix\nsystem\n.")], "a")
    pickled = ModelMeasurement(source, name="a.bin", folder=kept)
    tab = measured(open_atlas(show="own"), f"--out={tmp_path}/x.parquet; touch {tmp_path}/y")
    text_with(tab, "source: got '--out=")
    assert list(tmp_path.iterdir()) == []
    pickled._process.wait(PATIENCE)
    assert "a.bin is a pickle" in pickled.problem
    measuring = tab.session_state["model_measurement"] = ModelMeasurement(str(tmp_path))
    measuring.stop()
    measuring.stopped = True  # if it had failed before
    show(tab)
    assert text_with(tab, "Stopped") == "Stopped."
    assert not tab.error
    assert not tab.button(key="own_measure").disabled


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
