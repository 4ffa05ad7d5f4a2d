"""The Atlas page without a browser: its sentences, its link, its figures, and measuring a model."""

import json
import random
import re

import numpy as np
import pytest
from idle import DASHBOARD, PATIENCE, idle_service, show
from made_atlas import READER, TOYS, WRITER, heads_of, made_atlas, made_toys
from safetensors.numpy import save_file
from streamlit.testing.v1 import AppTest

from attnkit.figures.groups import number_text
from attnkit.realmodels import shipped, toys
from attnkit.realmodels.answer import answer_sentences, caveats, conclusion, overlap_line
from attnkit.realmodels.atlas import PLACE, Atlas
from attnkit.realmodels.base import Unreadable
from attnkit.realmodels.measures import MEASURES, OF_ACTIVATIONS
from attnkit.ui.atlas import SECTIONS, Head
from attnkit.ui.head_portrait import TIED
from attnkit.ui.measured_models import measured_models
from attnkit.ui.model_measurement import ModelMeasurement

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


@pytest.fixture
def hosted(tmp_path_factory):
    """A copy that many people visit."""
    with idle_service(tmp_path_factory.mktemp("hosted"), hosted="true"):
        yield


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
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": 6,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


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


def section(tab, name):
    """Open a section, or close the open one."""
    tab.button_group(key="atlas_section").set_value(name)
    return show(tab)


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


def without(monkeypatch, change):
    """Ship the atlas with a table that was changed."""
    table = made_atlas().table.copy()
    change(table)
    monkeypatch.setattr(shipped, "load_atlas", lambda: Atlas(table, made_atlas().arrays))


def test_the_page_concludes_in_one_sentence_and_opens_one_section_at_a_time(local_copy):
    """The sentence comes first, then its numbers; the address names the section.

    The head that opens is the one whose measure is farthest from its chance level.
    """
    tab, table = open_atlas(), made_atlas().table
    assert texts(tab).index(text_with(tab, conclusion(table))) == 0
    text_with(tab, overlap_line(table))
    assert answer_sentences(table)[0] not in " ".join(texts(tab))
    assert link(tab) == {}
    assert [header.value for header in tab.subheader] == ["Every head", "By model and kind"]
    heads = table[table["head"].notna() & ~table["folded"] & (table["offset"] == 0)]
    away = (heads["overlap_qk"] - heads["overlap_qk_random"]).abs()
    row = heads.loc[away.idxmax()]
    assert link(section(tab, "models"))["show"] == "models"
    assert link(section(tab, None)) == {}
    tab = section(tab, "head")
    assert link(tab) == {"head": "/".join(str(row[name]) for name in PLACE)}
    assert [header.value for header in tab.subheader][2:] == [SECTIONS["head"]]
    assert "| Median of its kind |" in text_with(tab, "| Measure | Here |")
    assert link(section(tab, None)).get("show") == "overview"


FOLDS = {"overview": 2, "head": 5, "measures": 3, "models": 3, "numbers": 2, "own": 2}
"""Folds with numbers on the page, by the section that is open."""


def test_every_figure_has_words_with_a_number_and_a_fold_with_its_numbers(local_copy):
    """The alternative text of a figure has a number; its table is made when the fold is opened.

    The section of numbers has the sentences and what is to be kept in mind.
    """
    shown = set()
    for name in {**SECTIONS, **FOLDS}:
        tab = open_atlas(show=name)
        figures = {element.key for element in tab.get("bidi_component")}
        figures = {key for key in figures if key and key.startswith("atlas_")}
        for key in figures:
            assert re.search(r"\d", drawn(tab, key)["alt"]), key
        folds = [fold for fold in tab.expander if fold.label == "Numbers"]
        assert len(folds) == FOLDS[name], name
        assert not any(fold.dataframe for fold in folds)
        shown |= figures
        if name == "numbers":
            text_with(tab, "\n\n".join(answer_sentences(made_atlas().table)))
            for caveat in caveats(made_atlas().table):
                text_with(tab, caveat)
    assert len(shown) == 7


def test_a_link_keeps_the_axes_and_the_two_models(local_copy):
    """Choices of all sections are in the link, and a new visitor finds them."""
    tab = open_atlas(show="measures")
    assert not {"x", "y", "one", "other"} & set(link(tab))
    tab = section(choose(tab, x="cos_kv", y="rank_q"), "models")
    sent = link(choose(tab, other=f"{WRITER}, cross"))
    assert {"x", "y", "other"} <= set(sent)
    tab = open_atlas(**sent)
    assert link(tab) == sent
    assert f"{WRITER}, cross" in drawn(tab, "atlas_depth")["alt"]
    title = drawn(section(tab, "measures"), "atlas_scatter")["title"]
    assert title == f"{MEASURES['rank_q'].title} against {MEASURES['cos_kv'].title}"


def test_a_link_shows_a_head(local_copy):
    """A link outlines a head in the grid and shows it below; a model's name may have a slash."""
    tab = open_atlas(head=f"{READER}/encoder/1/3", measure="symmetry")
    (row,) = heads_of(made_atlas().table, model=READER, layer=1, head=3).itertuples()
    assert number_text(row.symmetry) in text_with(
        tab, f"Outlined: {READER}, encoder, layer 1, head 3"
    )
    assert drawn(tab, "atlas_grid")["chosen"] == [READER, "encoder", 1, 3]
    assert [tab.selectbox(key=f"atlas_head_{name}").value for name in Head._fields] == [
        *(READER, "encoder", 1, 3)
    ]
    assert (
        f"layer 1, head 3. {100 * (1 + row.symmetry) / 2:.0f}%" in drawn(tab, "atlas_split")["alt"]
    )
    assert link(tab) == {"head": f"{READER}/encoder/1/3", "measure": "symmetry"}


FAULTS = {
    "head": ("nonsense", "head='nonsense'. Allowed: model/kind/layer/head"),
    "kv": ("twice", "kv='twice'. Allowed: once, query"),
    "fold": ("7", "fold='7'. Allowed: 0, 1"),
    "toys": ("yes", "toys='yes'. Allowed: 0, 1"),
    "x": ("cos", "x='cos'. Allowed: cos_qk"),
    "y": ("cos", "y='cos'. Allowed: cos_qk"),
    "show": ("all", "show='all'. Allowed: overview, head, measures"),
    "one": ("Nobody", f"one='Nobody'. Allowed: {READER}, encoder; {WRITER}, causal"),
    "other": ("Nobody", "other='Nobody'. Allowed: Made"),
    "mine": ("gone", "The link shows a measured model that this server no longer has"),
    "measure": ("<b>x</b>", "measure='<b>x</b>'. Allowed: cos_qk"),
    "offset": ("7", "offset='7'. Allowed: 0, 1, 4, 16"),
}


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (
            {name: value for name, (value, _) in FAULTS.items()},
            [told for _, told in FAULTS.values()],
        ),
        (
            {"head": f"{READER}/encoder/1/99"},
            [f"but there is no such head here; shown is {READER}/encoder/1/0."],
        ),
        (
            {"head": "No such model/causal/0/0"},
            ["there is no such head here; shown is Made", "measured is in their full link only."],
        ),
        ({"head": "a" * 4000 + "/b/1/1"}, ["…"]),
        ({"head": "a/b/" + "9" * 5000 + "/1"}, ["head='a/b/999999999/1'"]),
    ],
    ids=["all fields", "head", "model", "long", "large"],
)
def test_a_faulty_link_is_told_and_the_page_opens(local_copy, params, named):
    """A faulty link names each field and its value, and the page opens with its defaults."""
    tab = open_atlas(**params)
    message = text_with(tab, "The link ")
    assert [words for words in named if words not in message] == []
    assert link(tab).get("head", "Made").startswith("Made")
    assert "The link " not in " ".join(texts(show(tab)))


def test_lists_choose_a_head_as_the_grid_does_and_pages_remember_it(local_copy):
    """Another model keeps the layer and head it has in common; so does another page."""
    tab = open_atlas(head=f"{READER}/encoder/1/4", measure="rank_q", fold="1", offset="4")
    assert link(choose(tab, head_model=WRITER))["head"] == f"{WRITER}/causal/1/4"
    assert "The link" not in " ".join(texts(tab))
    before = link(choose(tab, head_kind="cross"))
    assert before["head"] == f"{WRITER}/cross/0/0"
    for page in ("guide", "atlas"):
        tab.query_params.clear()
        show(tab.switch_page(f"pages/{page}.py"))
    assert link(tab) == before
    assert tab.selectbox(key="atlas_measure").value == "rank_q"
    assert tab.toggle(key="atlas_fold").value


def test_settings_change_the_numbers_of_models_that_have_them(local_copy):
    """Folded gains and the distance; pictures name their distance where the table's is another."""
    words = "The pictures are of tokens at distance 0."
    tab, table = open_atlas(measure="cos_qk", head=f"{WRITER}/causal/1/2"), made_atlas().table
    known = heads_of(table, model=READER, layer=0, head=0)["cos_qk"].item()
    for fold, offset in ((True, 0), (False, 4)):
        tab.toggle(key="atlas_fold").set_value(fold)
        tab.button_group(key="atlas_offset").set_value(offset)
        show(tab)
        wanted = table[(table["folded"] == fold) & (table["offset"] == offset)]
        here = (wanted["kind"] == "causal") & (wanted["layer"] == 1) & (wanted["head"] == 2)
        panels = drawn(tab, "atlas_grid")["panels"]
        expected = wanted[here]["cos_qk"].item()
        assert panels[1]["values"][1][2] == pytest.approx(expected, rel=1e-3)
        assert panels[0]["values"][0][0] == pytest.approx(known, rel=1e-3)
        assert (words in texts(tab)) == (offset == 4)
    assert words not in texts(open_atlas(head=f"{READER}/encoder/1/2", offset="4"))


def test_shared_heads_can_count_per_query_head(local_copy):
    """Distributions and medians can count a shared head once per query head."""
    tab = open_atlas(measure="overlap_kv")
    assert f"{WRITER}, causal: median" in drawn(tab, "atlas_strips")["alt"]
    assert "6 heads" in drawn(tab, "atlas_strips")["alt"]
    assert "kv" not in link(tab)
    tab.button_group(key="atlas_once").set_value(False)
    assert "18 heads" in drawn(show(tab), "atlas_strips")["alt"]
    assert link(tab)["kv"] == "query"


def test_the_random_level_beside_a_head_is_its_own(local_copy, monkeypatch):
    """The random level beside a head is that head's, not the mean of its kind."""

    def change(table):
        here = (table["model"] == READER) & (table["layer"] == 1) & (table["head"] == 3)
        table.loc[here, ["symmetry_random", "symmetry_random_sd"]] = 0.23, 0.17

    without(monkeypatch, change)
    tab = open_atlas(head=f"{READER}/encoder/1/3", measure="symmetry")
    assert "(random 0.23 ± 0.17)" in text_with(tab, "Outlined:")


def test_a_model_without_the_measure_is_named(local_copy, monkeypatch):
    """With the reason, instead of missing silently; where no model has it, a message says so."""
    tab = open_atlas(measure="act_cka_qk")
    text_with(tab, "None of these models has this measure")
    assert "atlas_strips" not in {element.key for element in tab.get("bidi_component")}

    def change(table):
        for name in OF_ACTIVATIONS:
            columns = [name, f"{name}_random", f"{name}_random_sd"]
            table.loc[table["model"] == WRITER, columns] = 0.5, 0.3, 0.1

    without(monkeypatch, change)
    expected = f"Not measured: {READER}, which was not run."
    tab = open_atlas(measure="act_cka_qk")
    assert text_with(tab, "Not measured") == expected
    assert "Not measured" not in " ".join(texts(choose(tab, measure="cos_qk")))


def test_layers_whose_keys_are_values_are_named(local_copy, monkeypatch):
    """The page says it below the grid, and beside a head of such a layer."""

    def change(table):
        tied = (table["model"] == WRITER) & (table["kind"] == "causal") & (table["layer"] == 1)
        table.loc[tied, "tied"] = "K=V"
        table.loc[tied, [name for name in MEASURES if name.endswith(("_qv", "_kv"))]] = np.nan

    without(monkeypatch, change)
    tab = open_atlas(measure="cos_kv", head=f"{WRITER}/causal/1/2")
    assert f"in 1 of 4 layers of {WRITER}: comparisons" in text_with(tab, "W_V in 1 of")
    text_with(tab, TIED)
    assert TIED not in texts(choose(tab, head_layer=0))


def test_our_own_models_join_all_figures(local_copy):
    """Toy models join all figures and lists when switched on, and leave them again."""
    tab = open_atlas(measure="cos_qk", show="head")
    tab.toggle(key="atlas_toys").set_value(True)
    show(tab)
    assert [panel["model"] for panel in drawn(tab, "atlas_grid")["panels"]][-2:] == list(TOYS)
    assert "toy Q=K, encoder: median 1.00" in drawn(tab, "atlas_strips")["alt"]
    assert link(tab)["toys"] == "1"
    tab.selectbox(key="atlas_head_model").set_value(TOYS[1])
    show(tab)
    assert "only its numbers were kept" in " ".join(texts(tab))
    tab.toggle(key="atlas_toys").set_value(False)
    show(tab)
    assert "toys" not in link(tab)
    assert "The link" not in " ".join(texts(tab))


def test_every_measure_can_be_shown(local_copy, seed, long):
    """Every measure can be shown, whichever numbers are missing; by day, three that are drawn."""
    measures = list(MEASURES) if long else random.Random(seed).sample(list(MEASURES), 3)
    tab = open_atlas()
    for measure in measures:
        assert link(choose(tab, measure=measure)).get("measure", "overlap_qk") == measure


def test_a_damaged_atlas_is_told(local_copy, monkeypatch):
    """A damaged atlas shows an error without its file, and a model can still be measured."""

    def fail():
        raise Unreadable("shipped.parquet: not an atlas")

    monkeypatch.setattr(shipped, "load_atlas", fail)
    tab = open_atlas()
    text_with(tab, "The numbers of the real models that ship with this copy cannot be read.")
    assert "parquet" not in " ".join(texts(tab))
    assert tab.button(key="own_measure")


# measuring a model


def press(tab, key):
    """Press a button."""
    tab.button(key=key).click()
    return show(tab)


def measured(tab, source):
    """Measure a folder, wait for the end, and draw the page."""
    tab.text_input(key="own_source").set_value(str(source))
    press(tab, "own_measure").session_state["model_measurement"]._process.wait(PATIENCE)
    return show(tab)


def test_a_folder_is_measured_and_joins_the_figures_until_the_server_forgets_it(
    local_copy, tiny_model
):
    """A measured folder joins figures and lists; its link, and no other, shows it to others.

    It takes a few seconds, because the measurement is a process of its own.
    """
    tab = open_atlas(measure="cos_qk", show="own")
    tab = measured(tab, tiny_model)
    message = text_with(tab, "Measured: tiny-bert, 2 heads")
    assert "Choose it under One head and Two models" in message
    assert "shows this model to everybody you send it to" in message
    assert "Notes: In some or all layers, one matrix serves as W_K and as W_V" in message
    text_with(tab, "in all layers of tiny-bert")
    panels = drawn(tab, "atlas_grid")["panels"]
    assert [(p["model"], p["kind"]) for p in panels][-1] == ("tiny-bert", "encoder")
    sent = link(tab)
    assert len(sent["mine"]) >= 20

    again = open_atlas(**sent)
    assert [p["model"] for p in drawn(again, "atlas_grid")["panels"]][-1] == "tiny-bert"
    assert link(again) == sent
    others = {name: value for name, value in sent.items() if name != "mine"}
    models = {p["model"] for p in drawn(open_atlas(**others), "atlas_grid")["panels"]}
    assert models == {READER, WRITER}

    choose(section(tab, "head"), head_model="tiny-bert")
    assert "tiny-bert" in drawn(tab, "atlas_split")["alt"]
    text_with(tab, "shows this model to everybody you send it to")
    assert "send it on" not in " ".join(texts(tab))
    text_with(choose(tab, head_model=READER), "names this head: send it on")

    measured_models.clear()
    tab = open_atlas(**{**sent, "head": "tiny-bert/encoder/0/0"})
    problem = text_with(tab, "The link shows a measured model that this server no longer has")
    assert "head='tiny-bert/encoder/0/0', but there is no such head here" in problem
    assert "mine" not in link(tab)


def test_why_nothing_was_measured_is_said_plainly(local_copy, tmp_path):
    """A failure shows the one line of its command; without a source no process starts.

    A stopped measurement is no error, and another one can begin.
    """
    tab = press(open_atlas(show="own"), "own_measure")
    text_with(tab, "Name a model or upload one")
    assert "model_measurement" not in tab.session_state
    tab = measured(tab, tmp_path)
    message = text_with(tab, f"{tmp_path.name}: ")
    assert message.count(tmp_path.name) == 1
    measuring = tab.session_state["model_measurement"] = ModelMeasurement(str(tmp_path))
    measuring.stop()
    measuring.stopped = True  # if it had failed before
    show(tab)
    assert text_with(tab, "Stopped") == "Stopped."
    assert not tab.error
    assert not tab.button(key="own_measure").disabled


def test_a_hosted_copy_measures_nothing(hosted):
    """A hosted copy shows the command, folded, instead of a field and an upload."""
    tab = open_atlas(show="own")
    text_with(tab, "Off on this copy")
    assert any("python -m attnkit models PATH" in code.value for code in tab.code)
    assert not [w for w in tab.text_input if w.key == "own_source"]
    assert not tab.get("file_uploader")
    assert "own_measure" not in {button.key for button in tab.button}
