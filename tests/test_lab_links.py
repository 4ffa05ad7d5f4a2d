"""The link of the Lab: it sets every widget, follows every change, and names what is wrong."""

import re

import pytest
from visiting import disabled, drawn, plain_text, show, visit, widget

from attnkit.experiment.experiment import Experiment, from_params

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

LINK = {
    "v": "1",
    "task": "phonebook",
    "sharing": "Q=K,Q=K=V,QKV n_heads=4 kv_heads=2",
    "n_seeds": "3",
    "first_seed": "17",
    "equal": "parameters",
    "n_entries": "5",
    "n_values": "13",
    "d_model": "48",
    "n_heads": "2",
    "d_mlp": "24",
    "positions": "learned",
    "causal": "true",
    "self_mask": "true",
    "steps": "70",
    "learning_rate": "0.001",
}
"""Settings of every kind, none at its default."""


def test_a_link_sets_every_widget():
    """A link sets every widget: numbers, switches, choices, the task and the variants."""
    tab = visit(**LINK)
    assert not tab.warning
    assert tab.session_state["lab"].experiment == from_params(LINK)
    assert drawn(tab, "gallery")["current"] == "phonebook"
    assert tab.button_group(key="set_sharing").value == [
        "Q=K",
        "Q=K=V",
        "QKV n_heads=4 kv_heads=2",
    ]
    for name, value in from_params(LINK).settings().items():
        if name not in ("task", "sharing", "earlier_steps"):
            assert widget(tab, name).value == value, name
    assert tab.query_params == LINK


def test_changed_widgets_are_written_to_the_link():
    """A changed widget enters the link, and leaves it with its default value."""
    tab = visit(v="1", task="directed", steps="600", sharing="QKV,Q=K,K=V,Q=V,Q=K=V")
    assert tab.query_params == {}
    for name, value, text in [
        ("learning_rate", 0.01, "0.01"),
        ("causal", True, "true"),
        ("positions", "learned", "learned"),
        ("sharing", ["Q=V", "QKV"], "QKV,Q=V"),  # in their own order
    ]:
        default = widget(tab, name).value
        widget(tab, name).set_value(value)
        assert show(tab).query_params == {"v": "1", name: text}
        widget(tab, name).set_value(default)
        assert show(tab).query_params == {}


def test_a_link_changed_from_outside_is_followed():
    """A link that the browser's history or a preset has changed sets the widgets."""
    tab = visit(v="1", d_head="8")
    tab.query_params = {"v": "1", "task": "mutual", "d_head": "4"}
    show(tab)
    assert tab.session_state["lab"].experiment == Experiment(task="mutual", d_head=4)
    assert tab.number_input(key="set_d_head").value == 4
    assert drawn(tab, "gallery")["current"] == "mutual"


def test_a_click_with_the_address_of_a_moment_ago_changes_nothing_back():
    """An address that the browser sent before it received the new one undoes no change."""
    tab = visit(v="1", d_head="8")
    tab.number_input(key="set_d_head").set_value(9)
    show(tab)
    tab.query_params = {"v": "1", "d_head": "8"}
    assert show(tab).query_params == {"v": "1", "d_head": "9"}
    assert tab.number_input(key="set_d_head").value == 9


def test_a_broken_link_names_its_fields_once_and_takes_their_defaults():
    """All other fields are kept, and values of a link are no markup: they add no text or links."""
    wrong = "[free](https://example.org) **now** :red[x] <b>"
    tab = visit(v="1", steps=wrong, stepz="3", sharing="Q=K,Q-K=V", d_mlp="8")
    (warning,) = tab.warning
    for named in ("steps: got '[free]", "stepz: got '3', allowed a known", "sharing: got 'Q-K=V'"):
        assert named in plain_text(warning).replace("\u2060", "")
    assert "\\[free\\]\\(https" in warning.value
    assert not re.search(r"(?<!\\)[\[\]*<>]", warning.value)
    experiment = tab.session_state["lab"].experiment
    assert experiment == Experiment(sharing="Q=K", d_mlp=8)
    assert not tab.error
    assert not tab.button(key="train").disabled
    assert from_params(tab.query_params) == experiment
    assert not show(tab).warning


def test_settings_that_contradict_each_other_name_the_field():
    """Contradicting settings name the field and disable training; the link keeps valid values."""
    tab = visit(v="1", d_head="8")
    tab.number_input(key="set_n_names").set_value(6)
    show(tab)
    assert len(tab.error) == 1
    assert "Entries: 8 is not allowed. Allowed: at most “Names” (6)." in plain_text(tab.error[0])
    assert disabled(tab) >= {"train", "step", "reset", "new_seeds"}
    assert tab.query_params == {"v": "1", "d_head": "8"}
    tab.number_input(key="set_n_entries").set_value(6)
    show(tab)
    assert not tab.error
    assert not tab.button(key="train").disabled
    assert tab.query_params == {"v": "1", "d_head": "8", "n_entries": "6", "n_names": "6"}
    tab.button_group(key="set_sharing").set_value([])
    assert plain_text(show(tab).error[0]) == "Choose at least one variant."
    assert tab.button(key="train").disabled
