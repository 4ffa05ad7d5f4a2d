"""Broken links: good fields are kept, and every other field is reported."""

import pytest
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from setting_values import KNOWN, every_task, other_value

from attnkit.experiment.experiment import Experiment, from_params, settings
from attnkit.experiment.links import from_broken_params, is_link_field
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import TASKS


def test_broken_parameters_keep_the_good_fields():
    """Wrong and unknown fields take their defaults and are reported, and all others are kept."""
    given = {"task": "mutual", "d_head": "3", "n_seeds": "99", "stepz": "3", "steps": "x"}
    experiment, problems = from_broken_params(given)
    assert experiment == Experiment(task="mutual", d_head=3)
    assert {problem.field for problem in problems} == {"n_seeds", "stepz", "steps"}


@every_task
def test_good_parameters_have_no_problems(task):
    """Parameters without a mistake have no problems."""
    experiment = Experiment(task=task, n_seeds=3, sharing="K=V", positions="learned")
    assert from_broken_params(experiment.to_params()) == (experiment, [])


def test_broken_task_takes_the_default():
    """An unknown task becomes the default task, and its settings are kept."""
    experiment, problems = from_broken_params({"task": "taxes", "d_head": "3"})
    assert experiment == Experiment(d_head=3)
    assert [problem.field for problem in problems] == ["task"]


def test_broken_version_is_reported_and_the_rest_is_read():
    """A link of another version is reported, and its settings are read."""
    experiment, problems = from_broken_params({"v": "0", "d_head": "3"})
    assert experiment == Experiment(d_head=3)
    assert [problem.field for problem in problems] == ["v"]


@pytest.mark.parametrize(
    "given",
    [
        {"n_names": "7"},
        {"n_seeds": "9", "n_heads": "8", "n_layers": "4", "n_entries": "16", "batch_size": "512"},
        {
            "task": "phonebook",
            "n_heads": "8",
            "n_layers": "4",
            "n_entries": "16",
            "batch_size": "512",
        },
    ],
    ids=["names", "seeds", "cost"],
)
def test_broken_parameters_keep_the_good_fields_when_others_disagree(given):
    """Good settings are kept beside some that disagree or are too large together."""
    experiment, problems = from_broken_params({**given, "learning_rate": "0.01"})
    assert experiment.training.learning_rate == 0.01
    assert problems


@given(
    st.dictionaries(
        st.sampled_from([*KNOWN, "v", "self", "size", "training", "settings"]) | st.text(),
        st.sampled_from(["1", "4", "16", "99999", "-1", "QKV", "mutual", "true", "learned"])
        | st.text(),
        max_size=7,
    )
)
@examples(max_examples=300)
def test_broken_parameters_never_raise(params):
    """Any parameters give an experiment, and a problem for every field that is not used."""
    experiment, problems = from_broken_params(params)
    assert isinstance(experiment, Experiment)
    assert all(problem.allowed and str(problem) for problem in problems)
    if not problems:
        ours = {name: value for name, value in params.items() if is_link_field(name)}
        assert from_params(ours) == experiment


@given(st.data())
def test_a_broken_field_costs_no_other(data):
    """Good settings survive any wrong values and misspelt names beside them."""
    task = data.draw(st.sampled_from(list(TASKS)))
    names = [
        name for name in settings(task) if name not in ("n_entries", "n_names", "steps", "n_seeds")
    ]
    good = data.draw(st.sets(st.sampled_from(names), max_size=4))
    bad = data.draw(st.sets(st.sampled_from([*names, "stepz", "n_eads", "power_b"]))) - good
    params = {name: str(other_value(settings(task)[name])).lower() for name in good}
    params |= dict.fromkeys(bad, "wrong")
    try:
        expected = Experiment(task=task, **{name: params[name] for name in good})
    except InvalidExperiment:  # each is good, together they cost too much
        assume(False)
    experiment, problems = from_broken_params({"task": task, **params})
    assert experiment == expected
    assert {problem.field for problem in problems} == bad


@pytest.mark.parametrize("wrong", ["banana", "QKV n_heads=3 kv_heads=2", "mqa kv_heads=3"])
def test_a_wrong_variant_in_a_link_costs_no_other(wrong):
    """A wrong variant is reported, and the good ones beside it are kept."""
    experiment, problems = from_broken_params({"sharing": f"Q=K,{wrong},QKV"})
    assert experiment.sharing == ("QKV", "Q=K")
    assert [problem.field for problem in problems] == ["sharing"]
