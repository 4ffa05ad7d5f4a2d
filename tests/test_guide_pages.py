"""The pages Guide and Variants: presets, tasks, and the catalogue with every word."""

import pytest
from streamlit.testing.v1 import AppTest
from visiting import DASHBOARD, PATIENCE, drawn, show, visit

from attnkit.examples import load_variants
from attnkit.tasks import TASKS
from attnkit.ui.presets import PRESETS
from attnkit.variants import CATALOGUE, OPTIONS, register

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def test_the_guide_offers_every_preset_and_explains_the_words():
    """The Guide lists every preset, shows the chosen one, and has the words."""
    tab = show(visit().switch_page("pages/guide.py"))
    assert tab.title[0].value == "Guide"
    presets = tab.button_group(key="preset")
    assert [option.content for option in presets.options] == [preset.title for preset in PRESETS]
    last = PRESETS[-1]
    show(presets.set_value(last.title))
    text = " ".join(element.value for element in tab.markdown)
    assert last.guess in text
    assert last.look in text
    assert "| asymmetry |" in text


def test_the_guide_begins_the_tour_in_the_lab():
    """The button opens the Lab, and the tour begins there without another press."""
    tab = show(visit().switch_page("pages/guide.py"))
    next(button for button in tab.button if "tour" in button.label).click()
    show(tab)
    tour = drawn(tab, "tour")
    assert tour["begin"]
    assert len(tour["stops"]) == 6
    assert not drawn(show(tab), "tour")["begin"]


def test_the_gallery_shows_every_task_with_its_question_and_source():
    """The Lab's gallery has a card for every task."""
    families = drawn(visit(), "gallery")["families"]
    cards = [card for family in families for card in family["tasks"]]
    for card, (name, task) in zip(cards, TASKS.items(), strict=True):
        assert (card["name"], card["question"]) == (name, task.question)
        assert card["source"] == task.source


def test_the_guide_can_be_the_first_page():
    """The Guide opens from a link without a visit to the Lab."""
    tab = AppTest.from_file(DASHBOARD, default_timeout=PATIENCE)
    assert show(tab.switch_page("pages/guide.py")).title[0].value == "Guide"


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.title)
def test_every_preset_opens_as_it_was_meant(preset):
    """The link of a preset opens its experiment without warnings or errors."""
    tab = visit(**preset.params)
    assert not tab.warning
    assert not tab.error
    assert tab.session_state["lab"].experiment == preset.experiment


def test_the_variants_page_shows_the_catalogue_and_every_word():
    """The page shows every variant with text form, explanation and source, and every word."""
    tab = show(visit().switch_page("pages/variants.py"))
    text = " ".join(element.value for element in (*tab.markdown, *tab.caption))
    codes = [code.value for code in tab.code]
    for named in CATALOGUE.values():
        assert named.variant in codes
        assert f"**{named.name}**" in text
        assert named.explanation in text
        assert f"Source: {named.source}" in text
    for word in OPTIONS:
        assert f"| `{word}` |" in text
    assert "Accuracy 100%." in text
    links = [link.proto for link in tab.get("page_link")]
    assert len([link for link in links if "QKV in the Lab" in link.label]) == len(CATALOGUE) - 1


def test_the_variants_page_does_without_recorded_accuracies(monkeypatch):
    """The page opens without recorded accuracies, which a command makes."""
    load_variants.cache_clear()
    monkeypatch.setattr("attnkit.examples.VARIANTS", "missing.json")
    tab = show(visit().switch_page("pages/variants.py"))
    load_variants.cache_clear()
    assert not any("Accuracy" in caption.value for caption in tab.caption)


def test_the_variants_page_lists_what_others_register():
    """The page lists registered variants, and why one does not fit the default sizes."""
    before = dict(CATALOGUE)
    try:
        register("Of my own", "QKV kv_heads=3", "why", "me")
        tab = show(visit().switch_page("pages/variants.py"))
    finally:
        CATALOGUE.clear()
        CATALOGUE.update(before)
    assert "Own" in [heading.value for heading in tab.subheader]
    assert any("kv_heads=3 does not divide" in caption.value for caption in tab.caption)
