"""Round trip: every text form of an experiment is read back as it was, and others are refused."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_experiments import experiments
from searching import briefly

from attnkit.experiment.experiment import Experiment, from_params, from_text
from attnkit.foundation.settings import InvalidExperiment

NEW = {
    "blocks": "standard",
    "schedule": "cosine",
    "warm_up": 0.125,
    "clip": 0.1 / 3,
    "n_train": 96,
    "earlier_steps": 7,
    "n_eval": 2048,
    "positions": "learned_plus",
}
"""Values of the settings that are newer than the first links."""


@pytest.mark.parametrize("name", NEW)
def test_every_later_setting_is_told(name):
    """A newer setting is written to link and JSON and read back from both."""
    task = "transfer" if name == "earlier_steps" else "directed"
    experiment = Experiment(task=task, **{name: NEW[name]})
    assert experiment.settings()[name] == NEW[name]
    assert f"{name}={NEW[name]}" in experiment.to_text()
    assert json.loads(experiment.to_json())[name] == NEW[name]
    for text in (experiment.to_text(), experiment.to_json()):
        assert from_text(text).settings()[name] == NEW[name]
        assert from_text(text) == experiment
    assert experiment.hash != Experiment(task=task).hash


@given(experiments())
@briefly(100)
def test_round_trip_through_the_link(experiment):
    """An experiment is read back from its link, its query string and its parameters."""
    assert from_text(experiment.to_text()) == experiment
    assert from_text("?" + experiment.to_text()) == experiment
    assert from_params(experiment.to_params()) == experiment


@given(experiments())
@briefly(100)
def test_round_trip_through_json(experiment):
    """JSON is canonical, and is read back in any order and with any white space."""
    text = experiment.to_json()
    assert from_text(text) == experiment
    assert from_text(text).to_json() == text
    shuffled = list(json.loads(text).items())
    random.Random(0).shuffle(shuffled)
    assert from_text("\n " + json.dumps(dict(shuffled), indent=2)) == experiment


@given(experiments())
def test_round_trip_through_settings(experiment):
    """An experiment made of another's flat settings equals it, hash included."""
    again = Experiment(**experiment.settings())
    assert again == experiment
    assert again.hash == experiment.hash


@given(experiments())
def test_links_name_only_what_differs(experiment):
    """A link holds exactly the settings that differ from the defaults of its task."""
    default = Experiment(task=experiment.task.name).settings()
    changed = {name for name, value in experiment.settings().items() if value != default[name]}
    if experiment.task.name != Experiment().task.name:
        changed.add("task")
    assert set(experiment.to_params()) - {"v"} == changed


@given(experiments(), experiments())
def test_different_experiments_have_different_texts(one, other):
    """Links, JSON texts and hashes are equal if and only if the experiments are."""
    same = one == other
    assert (one.to_text() == other.to_text()) == same
    assert (one.to_json() == other.to_json()) == same
    assert (one.hash == other.hash) == same


@given(experiments(), st.data())
def test_a_broken_text_names_the_field(experiment, data):
    """The error names one wrong value or unknown field, in a link and in JSON."""
    name = data.draw(st.sampled_from([*sorted(experiment.settings()), "colour", "v"]))
    flat = {**experiment.settings(), name: "wrong"}
    flat["sharing"] = flat["sharing"] if name == "sharing" else ",".join(flat["sharing"])
    link = "&".join(f"{key}={value}" for key, value in flat.items())
    for text in (link, json.dumps(flat)):
        with pytest.raises(InvalidExperiment) as caught:
            from_text(text)
        assert caught.value.problems[0].field == name
        assert f"{name}: got 'wrong'" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"d_head": 3',
        '{"d_head": 3} and more',
        '{"d_head": ' + "1" * 5000 + "}",
        '{"a":' * 10**5,
    ],
    ids=["open", "cut", "more", "long", "deep"],
)
def test_broken_json_says_so(text):
    """The error of broken JSON is short and begins with the text or the setting."""
    with pytest.raises(InvalidExperiment, match=r"^(text|d_head): got ") as caught:
        from_text(text)
    assert len(str(caught.value)) < 300


@given(st.text())
@briefly(150)
def test_any_other_text_is_refused_in_our_words(text):
    """Any text gives an experiment, or an error that says what is allowed."""
    try:
        assert isinstance(from_text(text), Experiment)
    except InvalidExperiment as error:
        assert all(problem.allowed for problem in error.problems)  # noqa: PT017


@given(
    st.dictionaries(
        st.sampled_from(["task", "sharing", "d_head", "causal", "positions", "v"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
            max_leaves=3,
        ),
        min_size=1,
    )
)
@briefly(150)
def test_any_other_json_is_refused_in_our_words(flat):
    """Values of every type give an experiment, or an error that names given fields only."""
    try:
        assert isinstance(from_text(json.dumps(flat)), Experiment)
    except InvalidExperiment as error:
        assert {problem.field for problem in error.problems} <= set(flat)  # noqa: PT017
