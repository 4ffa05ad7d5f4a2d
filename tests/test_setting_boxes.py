"""Boxes of settings: a wrong value stays, is told below its box by its label, and loses nothing."""

import re

import pytest
from idle import idle_service, show, visit

from attnkit.experiment.experiment import Experiment, settings
from attnkit.foundation.settings import Problem
from attnkit.tasks import TASKS
from attnkit.ui.controls import labels_of
from attnkit.ui.words import WORDS

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def _copy(tmp_path_factory):
    with idle_service(tmp_path_factory.mktemp("store")):
        yield


@pytest.fixture
def tab():
    """A Lab with a setting that is not the default."""
    return visit(v="1", d_head="8")


def write(tab, name, value):
    """Write into the box of a setting."""
    tab.number_input(key=f"set_{name}").set_value(value)
    return show(tab)


def below_boxes(tab):
    """Return the texts of the sidebar without the marks of Markdown."""
    texts = [re.sub(r"\\(\W|_)", r"\1", element.value) for element in tab.sidebar.markdown]
    return [text[len(":red[:material/error: ") : -1] for text in texts if text.startswith(":red")]


def test_a_wrong_value_is_told_below_its_box_and_stays_there(tab):
    """By the label on screen; nothing can be trained, and the link keeps the last valid values."""
    assert not tab.sidebar.expander[0].proto.expanded
    for name, value, said in [
        ("n_entries", 3.7, "Entries: 3.7 is not allowed. Allowed: a whole number from 4 to 16."),
        ("n_entries", None, "Entries: empty. Allowed: a whole number from 4 to 16."),
        ("n_names", 6.0, "Entries: 8 is not allowed. Allowed: at most “Names” (6)."),
        ("batch_size", 17.0, "Batch: 17 is not allowed. Allowed: a multiple of 16 from 16 to 512."),
        (
            "learning_rate",
            0.0,
            "Learning rate: 0 is not allowed. Allowed: a number from 1e-05 to 1.",
        ),
    ]:
        before = tab.number_input(key=f"set_{name}").value
        write(tab, name, value)
        assert below_boxes(tab) == [said]
        assert [re.sub(r"\\(\W|_)", r"\1", error.value) for error in tab.error] == [said]
        assert tab.number_input(key=f"set_{name}").value == value
        assert tab.button(key="train").disabled
        assert tab.session_state["lab"].experiment == Experiment(d_head=8)
        assert tab.query_params == {"v": "1", "d_head": "8"}
        if name == "batch_size":  # it stands under More, which would hide the message
            assert tab.sidebar.expander[0].proto.expanded
        write(tab, name, before)


def test_a_box_takes_a_number_as_it_was_typed(tab):
    """The browser sends 1e3 as 1000, and 3.7 as it is only if the box is not one of integers."""
    box = tab.number_input(key="set_steps").proto
    assert box.data_type == box.FLOAT
    assert not any((box.HasField("default"), box.has_min, box.has_max))
    write(tab, "steps", 1e3)
    assert tab.query_params == {"v": "1", "d_head": "8", "steps": "1000"}
    assert not tab.error


def test_every_choice_has_a_label():
    """As many labels as choices, or none at all, and no underscore on screen."""
    for task in TASKS:
        for setting in settings(task).values():
            assert len(setting.choice_labels) in (0, len(setting.choices)), setting.name
            assert not any("_" in setting.label_of(choice) for choice in setting.choices)


def test_a_problem_calls_settings_by_their_labels():
    """Fields without a label keep their names; a variant is named with its reason."""
    labels = labels_of("directed")
    problem = Problem("sharing", "Q=K kv_heads=2", "but kv_heads does not go with Q=K")
    assert (
        problem.on_screen(labels) == "Variants: Q=K kv_heads=2, but kv_heads does not go with Q=K."
    )
    problem = Problem("memory", "9 MB", "at most 5 MB on this copy")
    assert (
        problem.on_screen(labels)
        == "Memory: 9 MB is not allowed. Allowed: at most 5 MB on this copy."
    )


def test_choices_are_called_by_their_labels_and_no_tooltip_lists_values_of_links(tab):
    """Values of links and of the command line are no words for a page."""
    box = next(one for one in tab.selectbox if one.key == "set_equal")
    assert box.options == ["off", "equal parameters", "equal multiply-adds", "equal KV cache"]
    assert box.value == "nothing"
    blocks = tab.button_group(key="set_blocks")
    labels = [option.content for option in blocks.proto.options]
    assert labels == ["minimal", "standard", "standard with final norm"]
    for one in (*tab.selectbox, *tab.toggle, *tab.button_group):
        assert "Allowed" not in one.proto.help, one.key
        assert not re.search(r"[a-z]_[a-z]", one.proto.help), one.key


def test_the_words_are_explained_where_they_are_met(tab):
    """The Lab opens the glossary itself; the Guide has the same one."""
    tab.session_state["words"] = True
    (glossary,) = [one.value for one in show(tab).markdown if "| solved |" in one.value]
    assert not any(link.proto.label == "What the words mean" for link in tab.get("page_link"))
    for word in WORDS:
        assert f"| {word} |" in glossary
    tab.switch_page("pages/guide.py")
    assert any(one.value == glossary for one in show(tab).markdown)
