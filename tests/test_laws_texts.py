"""Round trip: every text form of an experiment is read back as it was, and others are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_experiments import experiments
from searching import briefly

from attnkit.experiment.experiment import Experiment, from_params, from_text
from attnkit.foundation.settings import InvalidExperiment


@given(experiments(), st.randoms(use_true_random=False))
@briefly(50)
def test_round_trip(experiment, chance):
    """Through link, query string, parameters, settings, and JSON in any order and with spaces.

    A link holds exactly the settings that differ from the defaults of its task.
    """
    text, link = experiment.to_json(), experiment.to_text()
    items = list(json.loads(text).items())
    chance.shuffle(items)
    again = [from_text(link), from_text(f"?{link}"), from_params(experiment.to_params())]
    again += [from_text(text), from_text("\n " + json.dumps(dict(items), indent=2))]
    for found in (*again, Experiment(**experiment.settings())):
        assert found == experiment
        assert found.hash == experiment.hash
        assert found.to_json() == text
    default = Experiment(task=experiment.task.name).settings()
    changed = {name for name, value in experiment.settings().items() if value != default[name]}
    if experiment.task.name != Experiment().task.name:
        changed.add("task")
    assert set(experiment.to_params()) - {"v"} == changed


@given(experiments(), st.data())
@briefly(25)
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
    ["{", '{"d_head": 3} and more', '{"d_head": ' + "1" * 5000 + "}", '{"a":' * 10**5],
    ids=["open", "more", "long", "deep"],
)
def test_broken_json_says_so(text):
    """The error of broken JSON is short and begins with the text or the setting."""
    with pytest.raises(InvalidExperiment, match=r"^(text|d_head): got ") as caught:
        from_text(text)
    assert len(str(caught.value)) < 300


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)
FIELDS = st.sampled_from(["task", "sharing", "d_head", "causal", "positions", "v"])


@given(st.text() | st.dictionaries(FIELDS, ANYTHING, min_size=1))
@briefly(100)
def test_anything_else_is_refused_in_our_words(given):
    """Any text or JSON gives an experiment, or an error about what was given."""
    try:
        read = from_text(given if isinstance(given, str) else json.dumps(given))
    except InvalidExperiment as error:
        assert all(problem.allowed for problem in error.problems)  # noqa: PT017
        if isinstance(given, dict):
            assert {problem.field for problem in error.problems} <= set(given)  # noqa: PT017
    else:
        assert isinstance(read, Experiment)
