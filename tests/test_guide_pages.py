"""The pages Guide and Variants: presets, tour, the catalogue's table, card and search."""

import random
import re

import pytest
from idle import idle_service, link_of, open_page, show
from visiting import drawn, plain_text, said

from attnkit.examples import RecordedAccuracy, RecordedVariants, load_variants
from attnkit.experiment.links import read_link
from attnkit.figures.diagram import LEGEND
from attnkit.ui.lab.presets import PRESETS
from attnkit.ui.reference.variant_table import (
    accuracy_in_words,
    catalogue_table,
    conclusion,
    short_source,
)
from attnkit.variants import CATALOGUE, OPTIONS, Named, Variant
from attnkit.variants.names import find

FIVE = [find(name) for name in ("QKV", "Q=K", "MQA", "K=V", "GQA")]
THREE = FIVE[:3]


def recorded(*means):
    """Accuracies of the first variants, with an interval of ten points on each side."""
    accuracy = {
        entry.variant.value: RecordedAccuracy(m, max(m - 0.1, 0), min(m + 0.1, 1), m >= 0.98)
        for entry, m in zip(FIVE, means, strict=False)
    }
    return RecordedVariants("phonebook", 600, 5, 0.98, accuracy)


def test_the_sentence_counts_and_names_what_falls_short():
    """It holds for any recorded accuracies, also if some variants were not measured."""
    for n_entries, means, told in (
        (3, (1.0, 1.0, 0.98), "All 3 .* 98% .*”."),
        (3, (1.0, 0.5, 1.0), r"2 of 3 .*; Q=K \(50%\) does not."),
        (3, (1.0, 0.5, 0.25), r"1 of 3 .*; MQA \(25%\) and Q=K \(50%\) do not."),
        (3, (), "There are 3 .*"),
        (5, (1.0, 0.5, 0.25, 0.75, 0.125), r"1 of 5 .* GQA \(12%\), MQA \(25%\) and Q=K \(50%\)."),
    ):
        assert re.fullmatch(told, conclusion(FIVE[:n_entries], recorded(*means)))


def test_rows_have_costs_accuracies_and_an_interval_where_seeds_differ():
    """Accuracies are whole numbers, so that the column sorts; only 100% is told as 100."""
    table = catalogue_table(THREE, recorded(1.0, 0.999))
    assert table["accuracy"].tolist()[:2] == [100, 99]
    assert table["accuracy"].isna().tolist() == [False, False, True]
    assert table["interval"].tolist() == ["90 to 100%", "90 to 100%", ""]
    assert table["kv_cache"].tolist() == [16, 16, 16]
    source = "reported: Thin Keys, arXiv 2603.04427 (abstract)"
    odd = catalogue_table([Named("Odd", Variant("QKV kv_heads=3"), "", source)], None)
    assert odd[["name", "source"]].to_numpy().tolist() == [["Odd", "Thin Keys"]]
    assert odd[["accuracy", "parameters", "kv_cache"]].isna().all(axis=None)  # it does not fit
    assert (
        short_source("Borji 2023, arXiv 1; Li et al. 2026, arXiv 2") == "Borji 2023; Li et al. 2026"
    )
    assert re.search("50% .*40 to 60%.* 98%", accuracy_in_words(THREE[0], recorded(0.5)))
    assert accuracy_in_words(find("QKV"), load_variants()).endswith("”: 100%.")
    assert accuracy_in_words(find("QKV"), None) == ""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy for oneself whose training process computes nothing."""
    with idle_service(tmp_path_factory.mktemp("store")):
        yield


@pytest.mark.server
@pytest.mark.usefixtures("copy")
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
    assert (tour["requests"], len(tour["stops"])) == (1, 6)


@pytest.mark.server
@pytest.mark.usefixtures("copy")
def test_the_catalogue_is_listed_searched_and_has_a_card_for_each_variant(seed):
    """An alias finds variants, the first of which is open; a wrong name is no markup."""
    tab = open_page("variants", variant="K=V kv_heads=1 n_heads=4")  # a text form is an entry's
    assert link_of(tab)["variant"] == "K=V + MQA"
    table = tab.dataframe[0].value
    assert table["name"].tolist() == [named.name for named in CATALOGUE.values()]
    assert (table["parameters"] > 0).all()
    for word in OPTIONS:
        assert f"| `{word}` |" in said(tab)
    for named in random.Random(seed).sample(list(CATALOGUE.values())[1:], 2):
        tab.query_params["variant"] = named.name
        text = said(show(tab))
        assert not tab.warning
        assert tab.code[0].value == named.variant
        for told in (named.name, named.explanation, named.source, LEGEND, "Accuracy"):
            assert told in text
        assert drawn(tab, "diagram")["diagram"].startswith("<svg")
        assert link_of(tab)["variant"] == named.name
        assert len(tab.get("page_link")) == 1
    tab.text_input(key="variants_search").set_value("multi-query")
    assert show(tab).dataframe[0].value["name"].tolist() == ["MQA", "K=V + MQA"]
    assert (tab.code[0].value, link_of(tab)["variant"]) == ("QKV n_heads=4 kv_heads=1", "MQA")
    tab.text_input(key="variants_search").set_value("no such thing")
    assert not show(tab).dataframe
    assert "no such thing" in plain_text(tab.info[0])
    assert tab.code[0].value == "QKV n_heads=4 kv_heads=1"
    tab = open_page("variants", variant="<b>*x*</b>")
    assert "\\<b\\>" in tab.warning[0].value
    assert tab.code[0].value == "QKV"
    assert not show(tab).warning
