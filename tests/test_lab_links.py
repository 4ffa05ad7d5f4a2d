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


def test_the_link_keeps_only_what_differs_from_the_defaults():
    """The link holds changed settings only, and is empty for the default experiment."""
    assert visit(v="1", steps="600", d_head="8", sharing="QKV,Q=K,K=V,Q=V,Q=K=V").query_params == {
        "v": "1",
        "d_head": "8",
    }
    assert visit(v="1", task="directed", steps="600").query_params == {}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("d_head", 9, "9"),
        ("learning_rate", 0.01, "0.01"),
        ("causal", True, "true"),
        ("positions", "learned", "learned"),
        ("equal", "kv_cache", "kv_cache"),
    ],
)
def test_a_changed_widget_is_written_to_the_link(name, value, text):
    """A changed widget enters the link, and leaves it with its default value."""
    tab = visit()
    default = widget(tab, name).value
    widget(tab, name).set_value(value)
    assert show(tab).query_params == {"v": "1", name: text}
    widget(tab, name).set_value(default)
    assert show(tab).query_params == {}


def test_chosen_sharings_are_written_to_the_link_in_their_order():
    """The link names sharings in their own order, whichever was clicked first."""
    tab = visit()
    tab.button_group(key="set_sharing").set_value(["Q=V", "QKV"])
    assert show(tab).query_params == {"v": "1", "sharing": "QKV,Q=V"}


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


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"v": "1", "steps": "abc"}, "steps: got 'abc', allowed a whole number"),
        ({"v": "1", "steps": "0"}, "steps: got '0', allowed a whole number from 1 to 50000"),
        ({"v": "1", "steps": ""}, "steps: got '', allowed a whole number from 1 to 50000"),
        ({"v": "1", "stepz": "3"}, "stepz: got '3', allowed a known setting"),
        ({"v": "1", "causal": "maybe"}, "causal: got 'maybe', allowed true or false"),
        ({"v": "1", "positions": "gps"}, "positions: got 'gps', allowed none or learned or rope"),
        ({"v": "1", "equal": "all"}, "equal: got 'all', allowed nothing or parameters"),
        ({"v": "7"}, "v: got '7', allowed 1"),
        ({"v": "1", "task": "chess"}, "task: got 'chess', allowed "),
        ({"v": "1", "sharing": ""}, "sharing: got '', but"),
        ({"v": "1", "sharing": "Q-K=V"}, "sharing: got 'Q-K=V', but 'Q-K=V' is unknown"),
        ({"v": "1", "sharing": "QKV kv_heads=2"}, "but kv_heads=2 does not divide n_heads=1"),
        ({"v": "1", "n_entries": "12", "n_names": "8"}, "n_entries: got 12, allowed at most"),
        ({"v": "1", "first_seed": "9" * 99}, "first_seed: got '999"),
        ({"v": "1", "task": "mutual", "n_entries": "7"}, "n_entries: got '7', allowed an even"),
        ({"v": "1", "set_steps": "<b>5</b>"}, "set_steps: got '<b>5</b>', allowed"),
    ],
)
def test_a_broken_link_names_the_field_and_takes_its_default(params, named):
    """A broken link names the field, takes its default, and keeps all other fields."""
    tab = visit(**{**params, "d_mlp": "8"})
    assert len(tab.warning) == 1
    assert named in plain_text(tab.warning[0])
    experiment = tab.session_state["lab"].experiment
    assert experiment.size.d_mlp == 8
    for name in params.keys() - {"v", "task", "n_names"}:
        kept = experiment.settings().get(name)
        assert kept == Experiment(task=experiment.task.name).settings().get(name), name
    assert not tab.error
    assert not tab.button(key="train").disabled
    assert from_params(tab.query_params) == experiment


def test_values_of_a_link_are_no_markup():
    """Values of a link are escaped in the warning, so that they add no text and no links."""
    tab = visit(v="1", steps="[free](https://example.org) **now** :red[x] <b>")
    assert "\\[free\\]\\(https" in tab.warning[0].value
    assert not re.search(r"(?<!\\)[\[\]*<>]", tab.warning[0].value)


def test_the_warning_goes_away_with_the_next_run():
    """The warning about a broken link is shown once."""
    tab = visit(v="1", steps="abc")
    assert tab.warning
    assert not show(tab).warning


# settings that do not fit


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


def test_no_sharing_is_an_error():
    """Without any variant there is an error, and Train is disabled."""
    tab = visit()
    tab.button_group(key="set_sharing").set_value([])
    show(tab)
    assert plain_text(tab.error[0]) == "Choose at least one variant."
    assert tab.button(key="train").disabled
