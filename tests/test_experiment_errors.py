"""Wrong settings: the error names the field, its value and what is allowed."""

import pickle
import re

import pytest
from random_tasks import limits
from setting_values import KNOWN, every_setting, other_value, with_value

from attnkit.experiment.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment, Problem, dial, disagreement
from attnkit.tasks import TASKS
from attnkit.variants.sharing import Sharing


def problem_of(**given):
    """Return the only problem of wrong settings."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(**given)
    (problem,) = caught.value.problems
    assert str(caught.value) == str(problem)
    return problem


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("", ""),
        ("Q-K=V", "Q-K=V"),
        ("QKV,", ""),
        ([], ""),
        (["QKV", "VKQ"], "VKQ"),
        (5, "5"),
        (None, "None"),
    ],
)
def test_a_wrong_sharing_names_those_there_are(wrong, named):
    """The error holds the wrong entry and lists all sharings, whatever was given."""
    problem = problem_of(sharing=wrong)
    assert problem.field == "sharing"
    assert problem.value == named
    assert all(sharing in problem.allowed for sharing in Sharing)


def test_a_value_out_of_bounds_is_named_with_what_is_allowed():
    """Just outside of every bound of every number, and beside every step."""
    for task, setting in every_setting():
        if setting.low is None:
            continue
        step = 1 if setting.kind is int else 1e-6
        outside = [setting.low - step, setting.high + step]
        if setting.multiple_of:
            outside.append(setting.low + 1)
        for value in outside:
            problem = problem_of(task=task, **{setting.name: value})
            assert problem == Problem(setting.name, value, setting.allowed)
            assert f"{setting.name}: got {value}" in str(problem)
            assert f"{setting.low:g} to {setting.high:g}" in str(problem)


def test_the_bounds_themselves_are_allowed():
    """A number can be its lowest and its highest value, other settings their other value."""
    for task, setting in every_setting():
        bounded = setting.low is not None
        for value in (setting.low, setting.high) if bounded else (other_value(setting),):
            experiment, _ = with_value(task, setting, value)
            assert experiment is None or experiment.settings()[setting.name] == value


def test_a_value_of_another_kind_is_named_with_what_is_allowed():
    """The error of a value of the wrong type names the field and what is allowed."""
    for task, setting in every_setting():
        for value in ("some", "", None, float("nan"), float("inf"), [3], {}):
            problem = problem_of(task=task, **{setting.name: value})
            assert (problem.field, problem.allowed) == (setting.name, setting.allowed)
            assert problem.value is value


def test_every_wrong_field_is_named_whatever_group_it_is_in():
    """Dials, sizes, seeds, training, sharings and unknown names are checked together."""
    wrong = {"n_values": 3, "d_model": 17, "n_seeds": 0, "steps": 0, "sharing": "VQK", "d_hed": 3}
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(**wrong)
    assert {problem.field for problem in caught.value.problems} == wrong.keys()
    assert str(caught.value).count("allowed") >= len(wrong) - 1
    copy = pickle.loads(pickle.dumps(caught.value))  # to a page from the training process
    assert copy.problems == caught.value.problems
    assert str(copy) == str(caught.value)


def test_an_experiment_too_large_for_memory_is_refused():
    """An experiment that needs too much memory is refused with the most seeds that fit."""
    problem = problem_of(n_seeds=20, n_heads=8, n_layers=4, n_entries=16, batch_size=512)
    assert problem.field == "n_seeds"
    assert re.fullmatch(r"at most \d+ at these sizes", problem.allowed)


def test_more_evaluations_than_a_page_can_take_are_refused():
    """Too many evaluations are refused with the least number of steps between them."""
    problem = problem_of(steps=20_000, evaluate_every=1)
    assert (problem.field, problem.allowed) == ("evaluate_every", "at least 5 for 20000 steps")


def test_an_unknown_setting_suggests_the_close_one_or_lists_all():
    """The error of a misspelt setting suggests the right name, else it lists all."""
    problem = problem_of(d_hed=8)
    assert (problem.field, problem.value) == ("d_hed", 8)
    assert "did you mean d_head?" in problem.allowed
    assert all(name in problem_of(zzz=8).allowed for name in KNOWN)


@pytest.mark.parametrize("task", ["directd", "", None, 5, [], {}, ["directed"]])
def test_an_unknown_task_lists_those_there_are(task):
    """Also a list or an object, as JSON can hold."""
    problem = problem_of(task=task)
    assert problem.field == "task"
    if not isinstance(task, list | dict):
        assert problem.value == task
        assert all(name in problem.allowed for name in TASKS)


def test_a_long_value_is_shortened():
    """The message of a problem with a long value stays short."""
    told = str(problem_of(causal="x" * 1000))
    assert len(told) < 120
    assert "..." in told


def test_a_disagreement_and_a_dial_carry_their_texts():
    """Fields, values, bounds and what is allowed are read from them."""
    error = disagreement("n_entries", 9, "at most n_names (8)", "n_names")
    assert error.message() == "n_entries: got 9, allowed at most n_names (8)"
    assert error.context["others"] == ("n_names",)
    info = dial(3, "Label", "Help.", ge=2, le=5)
    assert (info.default, info.title, info.description) == (3, "Label", "Help.")
    assert limits(info) == {"ge": 2, "le": 5}
