"""The pages Guide and Variants: presets, tasks, and the catalogue, its search and its words."""

import random

import pytest
from streamlit.testing.v1 import AppTest
from visiting import DASHBOARD, PATIENCE, drawn, plain_text, show

from attnkit.examples import load_variants
from attnkit.experiment.links import read_link
from attnkit.figures.diagram import LEGEND
from attnkit.ui.presets import PRESETS
from attnkit.variants import CATALOGUE, OPTIONS, register

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def test_the_guide_offers_every_preset_explains_the_words_and_begins_the_tour():
    """It may be the first page; the tour begins in the Lab without another press."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    show(tab.switch_page("pages/guide.py"))
    assert tab.title[0].value == "Guide"
    presets = tab.button_group(key="preset")
    assert list(presets.options) == [preset.title for preset in PRESETS]
    last = PRESETS[-1]
    presets.set_value(last.title)
    show(tab)
    text = " ".join(element.value for element in tab.markdown)
    assert last.guess in text
    assert last.look in text
    assert "| asymmetry |" in text
    next(button for button in tab.button if "tour" in button.label).click()
    tour = drawn(show(tab), "tour")
    assert tour["requests"] == 1
    assert len(tour["stops"]) == 6


def test_every_preset_is_a_link_without_problems():
    """It opens its experiment as it was meant."""
    for preset in PRESETS:
        link = read_link(preset.params, lambda _: None)
        assert (link.experiment, link.problems) == (preset.experiment, []), preset.title


def visit_variants(**params):
    """Open the Variants page with a link."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    tab.switch_page("pages/variants.py")
    tab.query_params.update(params)
    return show(tab)


def text_of(tab):
    """Return all that is said on the page."""
    return " ".join(element.value for element in (*tab.markdown, *tab.caption))


def opened_variant(tab):
    """Return the text form on the card, which is the first code on the page."""
    return tab.code[0].value


def write(tab, text):
    """Write into the search box."""
    tab.text_input(key="variants_search").set_value(text)
    return show(tab)


def linked_variant(tab):
    """Return the variant that the address names; without one it means the first."""
    value = tab.query_params.get("variant", next(iter(CATALOGUE.values())).name)
    return value if isinstance(value, str) else value[0]


def test_the_variants_page_lists_the_catalogue_and_every_word():
    """The table has every variant; the first one is open, and every word is explained."""
    tab = visit_variants()
    table = tab.dataframe[0].value
    assert table["name"].tolist() == [named.name for named in CATALOGUE.values()]
    assert table["family"].tolist() == [named.family for named in CATALOGUE.values()]
    assert (table["parameters"] > 0).all()
    assert opened_variant(tab) == "QKV"
    assert linked_variant(tab) == "QKV"
    for word in OPTIONS:
        assert f"| `{word}` |" in text_of(tab)


def test_the_card_says_all_about_the_variant_of_the_link(seed):
    """The card has text form, explanation, diagram, accuracy and source, and its link."""
    tab = visit_variants(variant="K=V kv_heads=1 n_heads=4")  # a text form is an entry's
    assert linked_variant(tab) == "K=V + MQA"
    for named in random.Random(seed).sample(list(CATALOGUE.values()), 3):
        tab.query_params["variant"] = named.name
        text = text_of(show(tab))
        assert not tab.warning
        assert opened_variant(tab) == named.variant
        assert f"**{named.name}**" in text
        assert named.explanation in text
        assert f"Source: {named.source}" in text
        assert "Accuracy on the task “Phone book”:" in text
        assert LEGEND in text
        assert drawn(tab, "diagram")["diagram"].startswith("<svg")
        assert linked_variant(tab) == named.name
        (link,) = (element.proto for element in tab.get("page_link"))
        others = named.variant != "QKV"
        assert link.label == ("Compare with QKV in the Lab" if others else "Open in the Lab")
    tab = visit_variants(variant="<b>*x*</b>")
    assert "asks for the variant “<b>*x*</b>”" in plain_text(tab.warning[0]).replace("\u2060", "")
    assert "\\<b\\>" in tab.warning[0].value
    assert opened_variant(tab) == "QKV"
    assert not show(tab).warning


def test_the_variants_page_is_searched():
    """An alias finds variants, the first of which is open; nonsense is answered."""
    tab = write(visit_variants(), "multi-query")
    assert tab.dataframe[0].value["name"].tolist() == ["MQA", "K=V + MQA"]
    assert opened_variant(tab) == "QKV n_heads=4 kv_heads=1"
    assert linked_variant(tab) == "MQA"
    write(tab, "no such thing")
    assert not tab.dataframe
    assert "No variant has “no such thing”" in plain_text(tab.info[0])
    assert opened_variant(tab) == "QKV n_heads=4 kv_heads=1"
    assert len(write(tab, "").dataframe[0].value) == len(CATALOGUE)


def test_the_variants_page_does_without_recorded_accuracies(monkeypatch):
    """The page opens without recorded accuracies, which a command makes."""
    load_variants.cache_clear()
    monkeypatch.setattr("attnkit.examples.VARIANTS", "missing.json")
    tab = visit_variants()
    load_variants.cache_clear()
    assert "Accuracy" not in text_of(tab)
    assert tab.dataframe[0].value["accuracy"].isna().all()


def test_the_variants_page_lists_what_others_register():
    """The page lists registered variants, and why one does not fit the default sizes."""
    before = dict(CATALOGUE)
    try:
        register("Of my own", "QKV kv_heads=3", "why", "me")
        tab = visit_variants(variant="of my own")
    finally:
        CATALOGUE.clear()
        CATALOGUE.update(before)
    last = tab.dataframe[0].value.iloc[-1]
    assert (last["name"], last["family"]) == ("Of my own", "Own")
    assert any("kv_heads=3 does not divide" in caption.value for caption in tab.caption)
