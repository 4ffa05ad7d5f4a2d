"""Text forms of an experiment (link and JSON), and its hash."""

import json
import os
import re
import subprocess
import sys
from itertools import combinations

import pytest
from setting_values import KNOWN, every_setting, every_task, other_value, with_value

from attnkit.experiment.experiment import DEFAULT_TASK, Experiment, from_text
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import TASKS
from attnkit.variants.sharing import Sharing


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_numbers_can_be_given_as_text(task, setting):
    """Values can be given as text, as links and command lines do."""
    value = other_value(setting)
    text = str(value).lower() if setting.kind is bool else str(value)
    experiment, _ = with_value(task, setting, text)
    assert experiment is None or experiment.settings()[setting.name] == value


@every_task
def test_parameters_of_the_default_name_only_the_task(task):
    """The default experiment has an empty link, and that of another task names it alone."""
    params = Experiment(task=task).to_params()
    assert params == ({} if task == DEFAULT_TASK else {"v": "1", "task": task})
    assert (Experiment(task=task).to_text() == "") == (task == DEFAULT_TASK)


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_parameters_hold_only_what_was_changed(task, setting):
    """One changed setting is one entry of the link, beside version and task."""
    experiment, companions = with_value(task, setting, other_value(setting))
    if experiment is None:
        return
    params = experiment.to_params()
    assert set(params) - {"v", "task"} == {setting.name, *companions}
    assert all(isinstance(value, str) for value in params.values())
    assert params["v"] == "1"


def test_what_came_later_is_told_where_a_task_has_it_otherwise():
    """JSON holds n_train=0 for a task whose own default is another number."""
    endless = Experiment(task="reverse", n_train=0)
    assert "n_train" in json.loads(endless.to_json())
    assert from_text(endless.to_json()) == endless


def test_the_link_reads_as_typed():
    """A link keeps commas, and writes truth values as words."""
    experiment = Experiment(sharing=["QKV", "Q=K"], causal=True, learning_rate=0.01)
    assert experiment.to_text() == "v=1&sharing=QKV,Q%3DK&causal=true&learning_rate=0.01"


def test_a_link_may_begin_with_a_question_mark():
    """A link is read with the question mark that an address has before it."""
    assert from_text("?d_head=3") == Experiment(d_head=3)


def test_the_version_is_checked():
    """A link of another version is refused, and the error says which one is read."""
    with pytest.raises(InvalidExperiment, match="v: got '2', allowed 1"):
        from_text("v=2&d_head=3")


def test_json_is_canonical():
    """JSON has sorted keys, the version and every setting; newer settings only if changed."""
    text = Experiment(sharing="Q=K").to_json()
    flat = json.loads(text)
    assert list(flat) == sorted(flat)
    later = {"equal", "blocks", "schedule", "warm_up", "clip", "n_train", "earlier_steps"}
    assert set(flat) == {"v", *KNOWN} - later
    assert "equal" in json.loads(Experiment(equal="parameters").to_json())
    assert flat["sharing"] == ["Q=K"]


@pytest.mark.parametrize(("task", "setting"), every_setting())
def test_hash_changes_with_every_setting(task, setting):
    """A change of any setting changes the hash."""
    changed, companions = with_value(task, setting, other_value(setting))
    assert changed is None or changed.hash != Experiment(task=task, **companions).hash


def test_hash_changes_with_task_and_sharing():
    """All tasks and all sets of sharings have different hashes."""
    hashes = {Experiment(task=task).hash for task in TASKS}
    chosen = [some for n in range(1, 5) for some in combinations(Sharing, n)]
    hashes |= {Experiment(sharing=some).hash for some in chosen}
    assert len(hashes) == len(TASKS) + len(chosen)


def test_hash_does_not_depend_on_the_order_or_spelling_of_settings():
    """An experiment has one hash, however its settings were ordered and spelt."""
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
    """Hashes of earlier versions stay the same, so that stored results are found again."""
    assert Experiment(task=task).hash == expected


def test_hash_is_the_same_in_every_process():
    """The hash has sixteen hexadecimal digits, and does not depend on the process."""
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
