"""The pages Guide and Variants: presets, tour, the catalogue's card, its search and its words."""

import random

import pytest
from idle import idle_service, link_of, open_page, show
from visiting import drawn, plain_text, said

from attnkit.examples import load_variants
from attnkit.experiment.links import read_link
from attnkit.figures.diagram import LEGEND
from attnkit.ui.lab.presets import PRESETS
from attnkit.variants import CATALOGUE, OPTIONS, register

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def _copy(tmp_path_factory):
    with idle_service(tmp_path_factory.mktemp("store")):
        yield


def test_the_guide_offers_every_preset_and_begins_the_tour():
    """Every preset opens its experiment; the tour begins in the Lab without another press."""
    tab = open_page("guide")
    presets = tab.button_group(key="preset")
    assert list(presets.options) == [preset.title for preset in PRESETS]
    for preset in PRESETS:
        link = read_link(preset.params, lambda _: None)
        assert (link.experiment, link.problems) == (preset.experiment, []), preset.title
    presets.set_value(preset.title)
    assert preset.guess in said(show(tab))
    assert preset.look in said(tab)
    next(button for button in tab.button if "tour" in button.label).click()
    tour = drawn(show(tab), "tour")
    assert tour["requests"] == 1
    assert len(tour["stops"]) == 6


def linked_variant(tab):
    """Return the variant that the address names; without one it means the first."""
    return link_of(tab).get("variant", next(iter(CATALOGUE.values())).name)


def test_the_catalogue_is_listed_and_searched():
    """An alias finds variants, the first of which is open; nonsense is answered."""
    tab = open_page("variants")
    table = tab.dataframe[0].value
    assert table["name"].tolist() == [named.name for named in CATALOGUE.values()]
    assert (table["parameters"] > 0).all()
    assert tab.code[0].value == linked_variant(tab) == "QKV"
    for word in OPTIONS:
        assert f"| `{word}` |" in said(tab)
    tab.text_input(key="variants_search").set_value("multi-query")
    assert show(tab).dataframe[0].value["name"].tolist() == ["MQA", "K=V + MQA"]
    assert tab.code[0].value == "QKV n_heads=4 kv_heads=1"
    assert linked_variant(tab) == "MQA"
    tab.text_input(key="variants_search").set_value("no such thing")
    assert not show(tab).dataframe
    assert "No variant has “no such thing”" in plain_text(tab.info[0])
    assert tab.code[0].value == "QKV n_heads=4 kv_heads=1"


def test_the_card_says_all_about_the_variant_of_the_link(seed):
    """Text form, explanation, diagram, accuracy, source and link; a wrong name is no markup."""
    tab = open_page("variants", variant="K=V kv_heads=1 n_heads=4")  # a text form is an entry's
    assert linked_variant(tab) == "K=V + MQA"
    for named in random.Random(seed).sample(list(CATALOGUE.values()), 3):
        tab.query_params["variant"] = named.name
        text = said(show(tab))
        assert not tab.warning
        assert tab.code[0].value == named.variant
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
    tab = open_page("variants", variant="<b>*x*</b>")
    assert "has variant='<b>*x*</b>'" in plain_text(tab.warning[0]).replace("\u2060", "")
    assert "\\<b\\>" in tab.warning[0].value
    assert tab.code[0].value == "QKV"
    assert not show(tab).warning


def test_variants_of_others_are_listed_also_without_recorded_accuracies(monkeypatch, untouched):
    """The page says why one does not fit the default sizes; a command makes the accuracies."""
    load_variants.cache_clear()
    monkeypatch.setattr("attnkit.examples.VARIANTS", "missing.json")
    try:
        register("Of my own", "QKV kv_heads=3", "why", "me")
        tab = open_page("variants", variant="of my own")
    finally:
        load_variants.cache_clear()
    table = tab.dataframe[0].value
    assert (table["name"].iloc[-1], table["family"].iloc[-1]) == ("Of my own", "Own")
    assert any("kv_heads=3 does not divide" in caption.value for caption in tab.caption)
    assert table["accuracy"].isna().all()
    assert "Accuracy" not in said(tab)
