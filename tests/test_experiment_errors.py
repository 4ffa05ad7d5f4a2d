"""Wrong settings: the error names the field, its value and what is allowed."""

import pickle
import re

import pytest
from setting_values import KNOWN, every_setting, other_value, with_value

from attnkit.experiment.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment, Problem
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


def bounds():
    """Yield (task, setting, value) for values just outside every bound of every number."""
    for task, setting in (param.values for param in every_setting()):
        if setting.low is None:
            continue
        step = 1 if setting.kind is int else 1e-6
        outside = [setting.low - step, setting.high + step]
        if setting.multiple_of:
            outside.append(setting.low + 1)
        for value in outside:
            yield pytest.param(task, setting, value, id=f"{task}-{setting.name}-{value:g}")


@pytest.mark.parametrize(("task", "setting", "value"), list(bounds()))
def test_a_value_out_of_bounds_is_named_with_what_is_allowed(task, setting, value):
    """The error names the field, the value, and the allowed range or multiple."""
    problem = problem_of(task=task, **{setting.name: value})
    assert problem == Problem(setting.name, value, setting.allowed)
    assert f"{setting.name}: got {value}" in str(problem)
    assert f"{setting.low:g} to {setting.high:g}" in str(problem)


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_the_bounds_themselves_are_allowed(task, setting):
    """A number can be its lowest and its highest value, other settings their other value."""
    ends = (setting.low, setting.high) if setting.low is not None else (other_value(setting),)
    for value in ends:
        experiment, _ = with_value(task, setting, value)
        assert experiment is None or experiment.settings()[setting.name] == value


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_a_value_of_another_kind_is_named_with_what_is_allowed(task, setting):
    """The error of a value of the wrong type names the field and what is allowed."""
    for value in ("some", "", None, float("nan"), float("inf"), [3], {}):
        problem = problem_of(task=task, **{setting.name: value})
        assert (problem.field, problem.allowed) == (setting.name, setting.allowed)
        assert problem.value is value


@pytest.mark.parametrize("task", ["directed", "mutual", "phonebook"])
def test_more_entries_than_names_are_refused(task):
    """A book needs as many names as entries, and the error names both settings."""
    problem = problem_of(task=task, n_entries=8, n_names=7)
    assert str(problem) == "n_entries: got 8, allowed at most n_names (7)"


def test_every_wrong_field_is_named():
    """Three mistakes in different groups of settings are three problems."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(n_values=3, d_model=17, steps=0)
    assert {problem.field for problem in caught.value.problems} == {"n_values", "d_model", "steps"}
    assert str(caught.value).count("allowed") == 3


def test_every_wrong_field_is_named_whatever_group_it_is_in():
    """Sizes, seeds, sharings and unknown names are checked together."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(d_model=17, n_seeds=0, sharing="VQK", d_hed=3)
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"d_model", "n_seeds", "sharing", "d_hed"}


def test_an_experiment_too_large_for_memory_is_refused():
    """An experiment that needs too much memory is refused with the most seeds that fit."""
    problem = problem_of(n_seeds=20, n_heads=8, n_layers=4, n_entries=16, batch_size=512)
    assert problem.field == "n_seeds"
    assert re.fullmatch(r"at most \d+ at these sizes", problem.allowed)


def test_more_evaluations_than_a_page_can_take_are_refused():
    """Too many evaluations are refused with the least number of steps between them."""
    problem = problem_of(steps=20_000, evaluate_every=1)
    assert (problem.field, problem.allowed) == ("evaluate_every", "at least 5 for 20000 steps")


def test_an_unknown_setting_suggests_the_close_one():
    """The error of a misspelt setting suggests the right name."""
    problem = problem_of(d_hed=8)
    assert (problem.field, problem.value) == ("d_hed", 8)
    assert "did you mean d_head?" in problem.allowed


def test_an_unknown_setting_without_a_close_one_lists_all():
    """The error of an unknown setting lists all names if none is close."""
    problem = problem_of(zzz=8)
    assert all(name in problem.allowed for name in KNOWN)


@pytest.mark.parametrize("task", ["directd", "", None, 5])
def test_an_unknown_task_lists_those_there_are(task):
    """The error of an unknown task lists all tasks."""
    problem = problem_of(task=task)
    assert (problem.field, problem.value) == ("task", task)
    assert all(name in problem.allowed for name in TASKS)


@pytest.mark.parametrize("task", [[], {}, ["directed"]])
def test_a_task_that_is_no_text_is_named(task):
    """A task given as a list or object, as JSON can hold, is a problem of the field `task`."""
    assert problem_of(task=task).field == "task"


def test_a_long_value_is_shortened():
    """The message of a problem with a long value stays short."""
    problem = problem_of(causal="x" * 1000)
    assert len(str(problem)) < 120
    assert "..." in str(problem)


def test_an_error_can_be_pickled():
    """An error can travel from a training process to its page."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(n_seeds=0)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.problems == caught.value.problems
    assert str(copy) == str(caught.value)
