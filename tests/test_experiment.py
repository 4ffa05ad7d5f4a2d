"""Settings of an experiment: defaults, bounds, text forms, hash, and what its runs cost."""

import json
import os
import pickle
import re
import subprocess
import sys
from itertools import combinations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.experiment.experiment import (
    DEFAULT_TASK,
    Experiment,
    Size,
    Training,
    default_settings,
    from_params,
    from_text,
    settings,
)
from attnkit.experiment.links import from_broken_params, is_link_field
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.model.model import Model
from attnkit.tasks import TASKS
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import Sharing

every_task = pytest.mark.parametrize("task", TASKS)
KNOWN = ["task", "sharing", *settings(DEFAULT_TASK)]


def problem_of(**given):
    """The only problem of wrong settings."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(**given)
    (problem,) = caught.value.problems
    assert str(caught.value) == str(problem)
    return problem


def other_value(setting):
    """An allowed value that is not the default."""
    if setting.kind is bool:
        return not setting.default
    if setting.choices:
        return next(choice for choice in setting.choices if choice != setting.default)
    return setting.high if setting.default != setting.high else setting.low


COMPANIONS = {
    "n_entries": {"n_names": 64},
    "n_names": {"n_entries": 4},
    "n_train": {"n_seeds": 1},
    "d_model": {"n_seeds": 1},
    "d_mlp": {"n_seeds": 1},
    "steps": {"evaluate_every": 50},
}
"""What else must be set for a setting to reach its bounds on the default task."""


def every_setting():
    """(task, setting): all of the default task, and the dials of every other."""
    return [
        pytest.param(task, setting, id=f"{task}-{setting.name}")
        for task in TASKS
        for setting in settings(task).values()
        if (task == DEFAULT_TASK and setting.name != "earlier_steps")
        or setting.name in TASKS[task].model_fields
    ]


def with_value(task, setting, value):
    """The experiment, and what was given; None if the value alone does not go with the others."""
    companions = COMPANIONS.get(setting.name, {}) if task == DEFAULT_TASK else {"n_seeds": 1}
    given = {"task": task, **companions, setting.name: value}
    try:
        return Experiment(**given), companions
    except InvalidExperiment as error:
        if task == DEFAULT_TASK or not all(problem.others for problem in error.problems):
            raise
        return None, companions


# Defaults


def test_default_is_the_directed_task_with_all_sharings():
    """What the page opens with."""
    experiment = Experiment()
    assert experiment.task.name == "directed"
    assert experiment.sharing == tuple(Sharing)
    assert experiment.n_seeds == 5
    assert list(experiment.seeds) == [0, 1, 2, 3, 4]


@every_task
def test_a_task_brings_its_own_sizes_and_training(task):
    """What a task overrides is the default, the rest comes from the fields."""
    experiment = Experiment(task=task)
    given = {**experiment.size.model_dump(), **experiment.training.model_dump()}
    own = TASKS[task].overrides
    fields = {**Size.model_fields, **Training.model_fields}
    assert given == {name: own.get(name, info.default) for name, info in fields.items()}


@every_task
def test_default_settings_are_those_of_the_default_experiment(task):
    """One place says what the defaults are."""
    assert Experiment(task=task).settings() == default_settings(task)


@every_task
def test_a_setting_overrides_the_default_of_its_task(task):
    """What is given wins."""
    assert Experiment(task=task, d_head=6).size.d_head == 6


def test_a_task_with_dials_can_be_given():
    """Python users may build the task themselves; flat settings win over its dials."""
    task = TASKS["mutual"](n_entries=6, n_values=11)
    assert Experiment(task=task).task == task
    assert Experiment(task=task, n_values=13).task.n_values == 13


@every_task
def test_settings_are_flat_and_complete(task):
    """Every setting is a plain value, and they build the same experiment."""
    experiment = Experiment(task=task, sharing="K=V", n_seeds=3, causal=True)
    flat = experiment.settings()
    assert list(flat) == ["task", "sharing", *settings(task)]
    assert all(isinstance(value, (int, float, str, list)) for value in flat.values())
    assert Experiment(**flat) == experiment


def test_replace_changes_only_what_it_is_told():
    """All other settings stay."""
    experiment = Experiment(n_seeds=3, d_head=5)
    changed = experiment.replace(steps=7)
    assert changed.settings() == {**experiment.settings(), "steps": 7}
    assert experiment.training.steps == 600


def test_an_experiment_is_frozen_and_hashable():
    """It can be a key of a cache."""
    experiment = Experiment()
    with pytest.raises(ValidationError, match="frozen"):
        experiment.n_seeds = 3
    assert {experiment: 1}[Experiment()] == 1


def test_an_experiment_can_be_pickled():
    """It travels to another process."""
    experiment = Experiment(task="phonebook", n_seeds=3)
    assert pickle.loads(pickle.dumps(experiment)) == experiment


def test_runs_are_sharings_times_seeds():
    """Ordered by sharing, then seed, from the first seed on."""
    experiment = Experiment(sharing=["Q=V", "QKV"], n_seeds=2, first_seed=7)
    assert experiment.n_runs == 4
    assert experiment.runs == [("QKV", 7), ("QKV", 8), ("Q=V", 7), ("Q=V", 8)]


# Sharing texts


@given(st.lists(st.sampled_from(Sharing), min_size=1), st.booleans(), st.booleans(), st.booleans())
def test_sharings_are_a_set_in_any_spelling(chosen, lower, spaced, joined):
    """Case, spaces, order and repetition do not matter, as a list or as one text."""
    texts = [text.lower() if lower else text.value for text in chosen]
    texts = [" ".join(text) if spaced else text for text in texts]
    experiment = Experiment(sharing=",".join(texts) if joined else texts)
    assert experiment.sharing == tuple(sharing for sharing in Sharing if sharing in chosen)


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
    """Whatever was given instead; of several, the one that is wrong."""
    problem = problem_of(sharing=wrong)
    assert problem.field == "sharing"
    assert problem.value == named
    assert all(sharing in problem.allowed for sharing in Sharing)


# Bounds


def bounds():
    """(task, name, value, allowed) just outside of every bound of every number."""
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
    """Field, value and the allowed range or multiple."""
    problem = problem_of(task=task, **{setting.name: value})
    assert problem == Problem(setting.name, value, setting.allowed)
    assert f"{setting.name}: got {value}" in str(problem)
    assert f"{setting.low:g} to {setting.high:g}" in str(problem)


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_the_bounds_themselves_are_allowed(task, setting):
    """Every number can be its lowest and its highest, everything can be its other value."""
    ends = (setting.low, setting.high) if setting.low is not None else (other_value(setting),)
    for value in ends:
        experiment, _ = with_value(task, setting, value)
        assert experiment is None or experiment.settings()[setting.name] == value


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_a_value_of_another_kind_is_named_with_what_is_allowed(task, setting):
    """A text, nothing, NaN, a list where a number, a truth value or a choice is wanted."""
    for value in ("some", "", None, float("nan"), float("inf"), [3], {}):
        problem = problem_of(task=task, **{setting.name: value})
        assert (problem.field, problem.allowed) == (setting.name, setting.allowed)
        assert problem.value is value


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_numbers_can_be_given_as_text(task, setting):
    """Links and command lines carry texts."""
    value = other_value(setting)
    text = str(value).lower() if setting.kind is bool else str(value)
    experiment, _ = with_value(task, setting, text)
    assert experiment is None or experiment.settings()[setting.name] == value


@pytest.mark.parametrize("task", ["directed", "mutual", "phonebook"])
def test_more_entries_than_names_are_refused(task):
    """A book needs as many names: the error names both settings."""
    problem = problem_of(task=task, n_entries=8, n_names=7)
    assert str(problem) == "n_entries: got 8, allowed at most n_names (7)"


def test_every_wrong_field_is_named():
    """Two mistakes in different groups are two problems."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(n_values=3, d_model=17, steps=0)
    assert {problem.field for problem in caught.value.problems} == {"n_values", "d_model", "steps"}
    assert str(caught.value).count("allowed") == 3


def test_every_wrong_field_is_named_whatever_group_it_is_in():
    """Seeds and sharings are checked together with sizes, unknown names with known ones."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(d_model=17, n_seeds=0, sharing="VQK", d_hed=3)
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"d_model", "n_seeds", "sharing", "d_hed"}


def test_an_experiment_too_large_for_memory_is_refused():
    """The error says what to lower."""
    problem = problem_of(n_seeds=20, n_heads=8, n_layers=4, n_entries=16, batch_size=512)
    assert problem.field == "n_seeds"
    assert re.fullmatch(r"at most \d+ at these sizes", problem.allowed)


def test_more_evaluations_than_a_page_can_take_are_refused():
    """The error says how far apart they must be."""
    problem = problem_of(steps=20_000, evaluate_every=1)
    assert (problem.field, problem.allowed) == ("evaluate_every", "at least 5 for 20000 steps")


def test_an_unknown_setting_suggests_the_close_one():
    """A typing error is pointed out."""
    problem = problem_of(d_hed=8)
    assert (problem.field, problem.value) == ("d_hed", 8)
    assert "did you mean d_head?" in problem.allowed


def test_an_unknown_setting_without_a_close_one_lists_all():
    """Nothing is suggested that does not fit."""
    problem = problem_of(zzz=8)
    assert all(name in problem.allowed for name in KNOWN)


@pytest.mark.parametrize("task", ["directd", "", None, 5])
def test_an_unknown_task_lists_those_there_are(task):
    """Whatever was given instead."""
    problem = problem_of(task=task)
    assert (problem.field, problem.value) == ("task", task)
    assert all(name in problem.allowed for name in TASKS)


@pytest.mark.parametrize("task", [[], {}, ["directed"]])
def test_a_task_that_is_no_text_is_named(task):
    """JSON can hold a list where a name belongs."""
    assert problem_of(task=task).field == "task"


def test_a_long_value_is_shortened():
    """An error stays one line."""
    problem = problem_of(causal="x" * 1000)
    assert len(str(problem)) < 120
    assert "..." in str(problem)


def test_an_error_can_be_pickled():
    """It travels from a training process to its page."""
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(n_seeds=0)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.problems == caught.value.problems
    assert str(copy) == str(caught.value)


@every_task
def test_settings_describe_every_control(task):
    """Label, help, default, bounds or choices of each."""
    for setting in settings(task).values():
        assert setting.label
        assert setting.help.endswith(".")
        assert setting.default == default_settings(task)[setting.name]
        if setting.kind in (int, float):
            assert setting.low <= setting.default <= setting.high
        elif setting.kind is str:
            assert setting.default in setting.choices
        else:
            assert setting.kind is bool


# Text forms


@every_task
def test_parameters_of_the_default_name_only_the_task(task):
    """The default experiment of the default task is the empty link."""
    params = Experiment(task=task).to_params()
    assert params == ({} if task == DEFAULT_TASK else {"v": "1", "task": task})
    assert (Experiment(task=task).to_text() == "") == (task == DEFAULT_TASK)


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_parameters_hold_only_what_was_changed(task, setting):
    """One changed setting is one entry beside version and task."""
    experiment, companions = with_value(task, setting, other_value(setting))
    if experiment is None:
        return
    params = experiment.to_params()
    assert set(params) - {"v", "task"} == {setting.name, *companions}
    assert all(isinstance(value, str) for value in params.values())
    assert params["v"] == "1"


def test_what_came_later_is_told_where_a_task_has_it_otherwise():
    """REVERSE has a stock by default, so none must be said, and read back."""
    endless = Experiment(task="reverse", n_train=0)
    assert "n_train" in json.loads(endless.to_json())
    assert from_text(endless.to_json()) == endless


def test_the_link_reads_as_typed():
    """Commas stay, truth values are words."""
    experiment = Experiment(sharing=["QKV", "Q=K"], causal=True, learning_rate=0.01)
    assert experiment.to_text() == "v=1&sharing=QKV,Q%3DK&causal=true&learning_rate=0.01"


def test_a_link_may_begin_with_a_question_mark():
    """As copied from an address."""
    assert from_text("?d_head=3") == Experiment(d_head=3)


def test_the_version_is_checked():
    """A link of another version is refused, and says which is read."""
    with pytest.raises(InvalidExperiment, match="v: got '2', allowed 1"):
        from_text("v=2&d_head=3")


def test_json_is_canonical():
    """Sorted keys, the version, every setting; one that came later only if it says something."""
    text = Experiment(sharing="Q=K").to_json()
    flat = json.loads(text)
    assert list(flat) == sorted(flat)
    later = {"equal", "blocks", "schedule", "warm_up", "clip", "n_train", "earlier_steps"}
    assert set(flat) == {"v", *KNOWN} - later
    assert "equal" in json.loads(Experiment(equal="parameters").to_json())
    assert flat["sharing"] == ["Q=K"]


# Reading a broken link


def test_broken_parameters_keep_the_good_fields():
    """Wrong and unknown fields take their defaults and are reported, the others stay."""
    given = {"task": "mutual", "d_head": "3", "n_seeds": "99", "stepz": "3", "steps": "x"}
    experiment, problems = from_broken_params(given)
    assert experiment == Experiment(task="mutual", d_head=3)
    assert {problem.field for problem in problems} == {"n_seeds", "stepz", "steps"}


@every_task
def test_good_parameters_have_no_problems(task):
    """Nothing is reported where nothing is wrong."""
    experiment = Experiment(task=task, n_seeds=3, sharing="K=V", positions="learned")
    assert from_broken_params(experiment.to_params()) == (experiment, [])


def test_broken_task_takes_the_default():
    """The settings stay where the default task has them."""
    experiment, problems = from_broken_params({"task": "taxes", "d_head": "3"})
    assert experiment == Experiment(d_head=3)
    assert [problem.field for problem in problems] == ["task"]


def test_broken_version_is_reported_and_the_rest_is_read():
    """A link of another version is read as far as possible."""
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
    """Fewer names than default entries, too much at once: innocent fields are not lost."""
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
    """Any link opens a page: with an experiment, and a problem for all of ours not taken."""
    experiment, problems = from_broken_params(params)
    assert isinstance(experiment, Experiment)
    assert all(problem.allowed and str(problem) for problem in problems)
    if not problems:
        ours = {name: value for name, value in params.items() if is_link_field(name)}
        assert from_params(ours) == experiment


@given(st.data())
def test_a_broken_field_costs_no_other(data):
    """Good settings survive any set of wrong values and misspelt names beside them."""
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


def test_positions_are_those_of_the_registry():
    """What a variant may say of positions, an experiment may say of all."""
    assert settings("directed")["positions"].choices == tuple(POSITIONS)


@pytest.mark.parametrize("wrong", ["banana", "QKV n_heads=3 kv_heads=2", "mqa kv_heads=3"])
def test_a_wrong_variant_in_a_link_costs_no_other(wrong):
    """The good ones stay; the wrong one is told."""
    experiment, problems = from_broken_params({"sharing": f"Q=K,{wrong},QKV"})
    assert experiment.sharing == ("QKV", "Q=K")
    assert [problem.field for problem in problems] == ["sharing"]


# Hash


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_hash_changes_with_every_setting(task, setting):
    """Another experiment is another hash."""
    changed, companions = with_value(task, setting, other_value(setting))
    assert changed is None or changed.hash != Experiment(task=task, **companions).hash


def test_hash_changes_with_task_and_sharing():
    """All tasks and all sets of sharings differ."""
    hashes = {Experiment(task=task).hash for task in TASKS}
    chosen = [some for n in range(1, 5) for some in combinations(Sharing, n)]
    hashes |= {Experiment(sharing=some).hash for some in chosen}
    assert len(hashes) == len(TASKS) + len(chosen)


def test_hash_does_not_depend_on_the_order_or_spelling_of_settings():
    """The same experiment, however it was written."""
    experiment = Experiment(task="mutual", sharing=["QKV", "Q=K"], learning_rate=0.01, n_seeds=3)
    flat = experiment.settings()
    assert Experiment(**dict(reversed(flat.items()))).hash == experiment.hash
    shuffled = json.dumps(dict(reversed(json.loads(experiment.to_json()).items())), indent=3)
    assert from_text(shuffled).hash == experiment.hash
    spelt = from_text("n_seeds=3&learning_rate=1e-2&sharing=q=k, qkv,q=k&task=mutual")
    assert spelt.hash == experiment.hash


@pytest.mark.parametrize(
    ("task", "expected"), [("directed", "b2c01a25d9b0cc17"), ("phonebook", "0ca2867a94b5451a")]
)
def test_hash_is_that_of_earlier_versions(task, expected):
    """What was stored is found again, whatever settings have been added since."""
    assert Experiment(task=task).hash == expected


def test_hash_is_the_same_in_every_process():
    """Stored results are found by it: sixteen hexadecimal digits that depend on content alone."""
    code = "import attnkit; print(attnkit.Experiment(task='mutual', n_seeds=3).hash)"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    expected = Experiment(task="mutual", n_seeds=3).hash
    assert printed == [expected, expected]
    assert re.fullmatch("[0-9a-f]{16}", expected)


# What runs cost


@pytest.mark.parametrize("sharing", Sharing)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"task": "phonebook", "n_entries": 5, "n_names": 11, "n_values": 7, "d_head": 3},
        {"n_heads": 3, "d_head": 5, "n_layers": 2, "positions": "learned"},
        {"d_model": 48, "d_mlp": 17, "n_layers": 3, "positions": "learned", "n_heads": 2},
    ],
    ids=["default", "phonebook", "heads", "mlp"],
)
def test_parameter_count_is_that_of_the_real_tensors(sharing, given):
    """Counted without building a model, beside other sharings or alone."""
    for beside in (Sharing, [sharing]):
        experiment = Experiment(sharing=beside, n_seeds=2, **given)
        model = Model(experiment, experiment.seeds, torch.device("cpu"))
        own = model.run_parameters(2 * model.variants.index(sharing))
        count = sum(value.numel() for value in own.values())
        assert experiment.costs(sharing).parameters == count


@pytest.mark.parametrize("sharing", Sharing)
def test_each_tied_role_saves_one_matrix_per_layer(sharing):
    """d_model × heads × head width fewer numbers."""
    experiment = Experiment(n_layers=3, n_heads=2, d_head=5)
    saved = experiment.costs(Sharing.QKV).parameters - experiment.costs(sharing).parameters
    assert saved == (3 - sharing.n_matrices) * 3 * 32 * 2 * 5


@pytest.mark.parametrize(
    ("sharing", "floats"), [("QKV", 60), ("Q=K", 60), ("K=V", 30), ("Q=V", 60), ("Q=K=V", 30)]
)
def test_cache_holds_keys_and_values_of_every_head_and_layer(sharing, floats):
    """3 layers × 2 heads × 5 numbers, twice unless keys are values."""
    experiment = Experiment(n_layers=3, n_heads=2, d_head=5)
    assert experiment.costs(sharing).kv_cache == floats


def test_plateau_is_that_of_the_task_in_the_bare_model():
    """The default directed experiment stays at one half and a bit."""
    assert Experiment().plateau == 0.5 + 0.5 / 32


@pytest.mark.parametrize(
    "given",
    [
        {"task": "mutual"},
        {"task": "phonebook"},
        {"n_heads": 2},
        {"n_layers": 2},
        {"d_mlp": 7},
        {"self_mask": False},
        {"causal": True},
        {"positions": "learned"},
    ],
    ids=str,
)
def test_plateau_is_claimed_for_the_bare_model_only(given):
    """Anything that could break the symmetry, or was not observed, has none."""
    assert Experiment(**given).plateau is None
