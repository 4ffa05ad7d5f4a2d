"""Experiments: their settings and runs, their text forms, and errors about wrong ones."""

import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_experiments import mixed, problem_of, sizes
from searching import briefly

from attnkit.experiment.experiment import (
    DEFAULT_TASK,
    Experiment,
    default_settings,
    from_params,
    from_text,
    full_size,
    settings,
)
from attnkit.experiment.training_settings import TrainingSettings
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import TASKS
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import Sharing
from attnkit.variants.size import Size

KNOWN = ["task", "sharing", *settings(DEFAULT_TASK)]

# Settings to change together with one, so that it can reach its bounds on the default task.
COMPANIONS = {
    "n_entries": {"n_names": 64},
    "n_names": {"n_entries": 4},
    "n_train": {"n_seeds": 1},
    "d_model": {"n_seeds": 1},
    "d_mlp": {"n_seeds": 1},
    "steps": {"evaluate_every": 50},
}


def test_runs_are_sharings_times_seeds():
    """Runs are ordered by sharing, then by seed; the default has five of each."""
    experiment = Experiment()
    assert experiment.task.name == DEFAULT_TASK == "directed"
    assert (experiment.sharing, [*experiment.seeds]) == (tuple(Sharing), [0, 1, 2, 3, 4])
    experiment = Experiment(sharing=["Q=V", "QKV"], n_seeds=2, first_seed=7)
    assert experiment.runs == [("QKV", 7), ("QKV", 8), ("Q=V", 7), ("Q=V", 8)]
    assert experiment.n_runs == 4


@pytest.mark.parametrize("task", TASKS)
def test_settings_are_those_of_the_task_flat_and_described(task):
    """Defaults are a task's overrides, then those of the fields; all have bounds or choices."""
    experiment, own = Experiment(task=task), TASKS[task].overrides
    found = {**experiment.size.model_dump(), **experiment.training.model_dump()}
    fields = {**Size.model_fields, **TrainingSettings.model_fields}
    assert found == {name: own.get(name, info.default) for name, info in fields.items()}
    flat = experiment.settings()
    assert flat == default_settings(task)
    full = full_size(task).replace(equal="parameters")
    assert from_text(full.to_json()) == from_text(full.to_text()) == full
    assert list(flat) == ["task", "sharing", *settings(task)]
    for setting in settings(task).values():
        assert setting.label
        assert setting.help.endswith(".")
        assert setting.default == flat[setting.name]
        if setting.kind in (int, float):
            assert setting.low <= setting.default <= setting.high
        else:
            assert setting.kind is bool or setting.default in setting.choices
    assert settings(task)["positions"].choices == tuple(POSITIONS)


def test_settings_win_over_a_task_and_decide_about_its_plateau():
    """A task object can be given, flat settings win over its dials, and nothing else changes."""
    task = TASKS["mutual"](n_entries=6, n_values=11)
    experiment = Experiment(task=task, n_values=13, n_seeds=3)
    assert experiment.task == TASKS["mutual"](n_entries=6, n_values=13)
    assert experiment.replace(steps=7).settings() == {**experiment.settings(), "steps": 7}
    # A plateau is claimed for the bare model, which cannot break the symmetry.
    assert Experiment().plateau == 0.5 + 0.5 / 32
    given = {"n_heads": 2, "n_layers": 2, "d_mlp": 7, "causal": True, "positions": "learned"}
    for name, value in {**given, "self_mask": False, "task": "mutual"}.items():
        assert Experiment(**{name: value}).plateau is None, name


def test_the_written_forms_are_canonical():
    """Links name what differs as it is typed, JSON all but newer settings; hashes stay."""
    assert Experiment().to_params() == {}
    assert Experiment(task="mqar").to_params() == {"v": "1", "task": "mqar"}
    experiment = Experiment(sharing=["QKV", "Q=K"], causal=True, learning_rate=0.01)
    assert experiment.to_text() == "v=1&sharing=QKV,Q%3DK&causal=true&learning_rate=0.01"
    assert from_text("learning_rate=1e-2&sharing=q=k, qkv,q=k&causal=TRUE") == experiment
    with pytest.raises(InvalidExperiment, match="v: got '2', allowed 1"):
        from_text("v=2&d_head=3")
    flat = json.loads(Experiment(sharing="Q=K").to_json())
    assert list(flat) == sorted(flat)
    later = {"equal", "blocks", "schedule", "warm_up", "clip", "n_train", "earlier_steps"}
    assert set(flat) == {"v", *KNOWN} - later - {"longer_test"}
    assert flat["sharing"] == ["Q=K"]
    # A newer setting is written if it differs from the earlier versions, not from the task's own.
    for given_, name in (({"equal": "parameters"}, "equal"), ({"task": "reverse"}, "n_train")):
        assert name in json.loads(Experiment(n_train=0, **given_).to_json())
    hashes = [Experiment(task=task).hash for task in ("directed", "phonebook", "dual_role")]
    assert hashes == ["b2c01a25d9b0cc17", "0ca2867a94b5451a", "bc1c689e6025c9a8"]


def test_the_bounds_are_allowed_and_nothing_else_is():
    """Values just outside of a bound, between steps or of another kind are refused."""
    every_setting = [(task, setting) for task in TASKS for setting in settings(task).values()]
    for task, setting in every_setting:
        of_all = task == DEFAULT_TASK and setting.name not in ("earlier_steps", "longer_test")
        if not of_all and setting.name not in TASKS[task].model_fields:
            continue
        wrong = ["some", "", None, float("nan"), float("inf"), [3], {}]
        right = [True, False] if setting.kind is bool else setting.choices
        if setting.low is not None:
            step = 1 if setting.kind is int else 1e-6
            right = [setting.low, setting.high]
            wrong += [setting.low - step, setting.high + step]
            wrong += [setting.low + 1] if setting.multiple_of else []
            assert f"{setting.low:g} to {setting.high:g}" in setting.allowed
        beside = COMPANIONS.get(setting.name, {}) if task == DEFAULT_TASK else {"n_seeds": 1}
        for value in right:
            try:
                experiment = Experiment(**{"task": task, **beside, setting.name: value})
                assert experiment.settings()[setting.name] == value
            except InvalidExperiment as error:  # it disagrees with another setting of its task
                assert task != DEFAULT_TASK
                assert all(problem.others for problem in error.problems)  # noqa: PT017
        for value in wrong:
            problem = problem_of(task=task, **{setting.name: value})
            assert (problem.field, problem.allowed) == (setting.name, setting.allowed)
            assert problem.value is value


def test_an_unknown_name_is_told_those_there_are():
    """All sharings, tasks or settings are listed; a misspelt setting gets its name."""
    for given_, named in (("QKV,", ""), ([], ""), (["QKV", "VKQ"], "VKQ"), (5, "5")):
        problem = problem_of(sharing=given_)
        assert (problem.field, problem.value) == ("sharing", named)
        assert all(sharing in problem.allowed for sharing in Sharing)
    for task in ("directd", "", None, 5):
        problem = problem_of(task=task)
        assert problem.field == "task"
        assert all(name in problem.allowed for name in TASKS)
    assert problem_of(task={}).field == problem_of(task=["directed"]).field == "task"
    assert "d_head?" in problem_of(d_hed=8).allowed
    assert all(name in problem_of(zzz=8).allowed for name in KNOWN)
    # All wrong fields are named together, and a process can send the error.
    wrong = {"n_values": 3, "d_model": 17, "n_seeds": 0, "steps": 0, "sharing": "VQK", "d_hed": 3}
    with pytest.raises(InvalidExperiment) as caught:
        Experiment(**wrong)
    assert {problem.field for problem in caught.value.problems} == wrong.keys()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.problems, str(copy)) == (caught.value.problems, str(caught.value))


def test_an_error_is_short_and_says_the_most_that_is_possible():
    """Long values are cut; too much memory tells how many seeds fit, too many points how few."""
    assert len(str(problem_of(causal="x" * 1000))) < 120
    sizes = {"n_heads": 8, "n_layers": 4, "n_entries": 16, "batch_size": 512}
    problem = problem_of(n_seeds=20, **sizes)
    most = int(re.search(r"\d+", problem.allowed)[0])
    assert (problem.field, problem.value) == ("n_seeds", 20)
    assert Experiment(n_seeds=most, **sizes).n_seeds == most
    assert problem_of(n_seeds=most + 1, **sizes).field == "n_seeds"
    problem = problem_of(steps=20_000, evaluate_every=1)
    assert (problem.field, problem.value) == ("evaluate_every", 1)
    assert "at least 5 " in problem.allowed
    assert Experiment(steps=20_000, evaluate_every=5).training.steps == 20_000


@given(sizes() | mixed(), st.randoms(use_true_random=False))
@briefly(50)
def test_round_trip(experiment, chance):
    """Through link, query string, parameters, settings, and JSON in any order and with spaces."""
    text, link = experiment.to_json(), experiment.to_text()
    items = list(json.loads(text).items())
    chance.shuffle(items)
    again = map(from_text, (link, f"?{link}", text, "\n " + json.dumps(dict(items), indent=2)))
    others = from_params(experiment.to_params()), pickle.loads(pickle.dumps(experiment))
    for found in (*again, *others, Experiment(**experiment.settings())):
        assert found == experiment
        assert found.hash == experiment.hash
        assert found.to_json() == text
    default = Experiment(task=experiment.task.name).settings()
    changed = {name for name, value in experiment.settings().items() if value != default[name]}
    if experiment.task.name != Experiment().task.name:
        changed.add("task")
    assert set(experiment.to_params()) - {"v"} == changed


@given(sizes() | mixed(), st.data())
@briefly(25)
def test_a_broken_text_names_the_field(experiment, data):
    """The error names one wrong value or unknown field, in a link and in JSON; it is short."""
    name = data.draw(st.sampled_from([*sorted(experiment.settings()), "colour", "v"]))
    flat = experiment.settings()
    flat |= {"sharing": ",".join(flat["sharing"]), name: "wrong"}
    link = "&".join(f"{key}={value}" for key, value in flat.items())
    for text in (link, json.dumps(flat)):
        with pytest.raises(InvalidExperiment) as caught:
            from_text(text)
        assert caught.value.problems[0].field == name
        assert f"{name}: got 'wrong'" in str(caught.value)
    long = '{"d_head": ' + "1" * 5000 + "}"
    for text in ("{", '{"d_head": 3} and more', long, '{"a":' * 10**5, '{"d_head": {"a": [3]}}'):
        with pytest.raises(InvalidExperiment, match=r"^(text|d_head): got ") as caught:
            from_text(text)
        assert len(str(caught.value)) < 300
