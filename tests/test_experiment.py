"""Experiments: defaults, flat settings, runs and plateau."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from setting_values import every_task

from attnkit.experiment.experiment import Experiment, default_settings, settings
from attnkit.experiment.training_settings import TrainingSettings
from attnkit.tasks import TASKS
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import Sharing
from attnkit.variants.size import Size


def test_default_is_the_directed_task_with_all_sharings():
    """The default experiment is the directed task with all sharings and seeds 0 to 4."""
    experiment = Experiment()
    assert experiment.task.name == "directed"
    assert experiment.sharing == tuple(Sharing)
    assert list(experiment.seeds) == [0, 1, 2, 3, 4]
    assert experiment.n_seeds == 5
    assert experiment.plateau == 0.5 + 0.5 / 32


@every_task
def test_a_task_brings_its_own_sizes_and_training(task):
    """Defaults are a task's overrides, then those of the fields; a setting wins over both."""
    experiment = Experiment(task=task)
    given = {**experiment.size.model_dump(), **experiment.training.model_dump()}
    own = TASKS[task].overrides
    fields = {**Size.model_fields, **TrainingSettings.model_fields}
    assert given == {name: own.get(name, info.default) for name, info in fields.items()}
    assert experiment.settings() == default_settings(task)
    assert Experiment(task=task, d_head=6).size.d_head == 6


def test_a_task_with_dials_can_be_given():
    """A task object can be given, and flat settings win over its dials."""
    task = TASKS["mutual"](n_entries=6, n_values=11)
    assert Experiment(task=task).task == task
    assert Experiment(task=task, n_values=13).task.n_values == 13


@every_task
def test_settings_are_flat_complete_and_described(task):
    """All settings are plain values that make the experiment again, with label, help and bounds."""
    experiment = Experiment(task=task, sharing="K=V", n_seeds=3, causal=True)
    flat = experiment.settings()
    assert list(flat) == ["task", "sharing", *settings(task)]
    assert all(isinstance(value, (int, float, str, list)) for value in flat.values())
    assert Experiment(**flat) == experiment
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
    assert settings(task)["positions"].choices == tuple(POSITIONS)


def test_replace_changes_only_what_it_is_told():
    """`replace` changes the given settings and keeps all others."""
    experiment = Experiment(n_seeds=3, d_head=5)
    changed = experiment.replace(steps=7)
    assert changed.settings() == {**experiment.settings(), "steps": 7}
    assert experiment.training.steps == 600


def test_an_experiment_is_a_frozen_value():
    """It cannot be changed, can be a key, and travels to another process."""
    experiment = Experiment(task="phonebook", n_seeds=3)
    with pytest.raises(ValidationError, match="frozen"):
        experiment.n_seeds = 4
    assert {experiment: 1}[Experiment(task="phonebook", n_seeds=3)] == 1
    assert pickle.loads(pickle.dumps(experiment)) == experiment


def test_runs_are_sharings_times_seeds():
    """Runs are ordered by sharing, then by seed from the first seed on."""
    experiment = Experiment(sharing=["Q=V", "QKV"], n_seeds=2, first_seed=7)
    assert experiment.n_runs == 4
    assert experiment.runs == [("QKV", 7), ("QKV", 8), ("Q=V", 7), ("Q=V", 8)]


@given(st.lists(st.sampled_from(Sharing), min_size=1), st.booleans(), st.booleans(), st.booleans())
def test_sharings_are_a_set_in_any_spelling(chosen, lower, spaced, joined):
    """Case, spaces, order and repetition of sharings do not matter, as a list or as one text."""
    texts = [text.lower() if lower else text.value for text in chosen]
    texts = [" ".join(text) if spaced else text for text in texts]
    experiment = Experiment(sharing=",".join(texts) if joined else texts)
    assert experiment.sharing == tuple(sharing for sharing in Sharing if sharing in chosen)


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
    """Experiments that can break the symmetry, or were not observed, have no plateau."""
    assert Experiment(**given).plateau is None
