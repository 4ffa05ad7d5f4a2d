"""Text forms of an experiment (link and JSON), and its hash."""

import json
import os
import subprocess
import sys
from itertools import combinations

import pytest
from setting_values import KNOWN, every_setting, other_value, with_value

from attnkit.experiment.experiment import DEFAULT_TASK, Experiment, from_text
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import TASKS
from attnkit.variants.sharing import Sharing


def test_parameters_of_the_default_name_only_the_task():
    """The default experiment has an empty link, and that of another task names it alone."""
    for task in TASKS:
        default, experiment = task == DEFAULT_TASK, Experiment(task=task)
        assert experiment.to_params() == ({} if default else {"v": "1", "task": task})
        assert (experiment.to_text() == "") == default


def test_one_changed_setting_is_one_entry_of_the_link_and_another_hash():
    """A value can be given as text, too, as links and command lines do."""
    for task, setting in every_setting():
        value = other_value(setting)
        text = str(value).lower() if setting.kind is bool else str(value)
        experiment, companions = with_value(task, setting, value)
        assert with_value(task, setting, text)[0] == experiment
        if experiment is None:
            continue
        assert experiment.settings()[setting.name] == value
        params = experiment.to_params()
        assert set(params) - {"v", "task"} == {setting.name, *companions}
        assert all(isinstance(value, str) for value in params.values())
        assert params["v"] == "1"
        assert experiment.hash != Experiment(task=task, **companions).hash


def test_what_came_later_is_told_where_a_task_has_it_otherwise():
    """JSON holds n_train=0 for a task whose own default is another number."""
    endless = Experiment(task="reverse", n_train=0)
    assert "n_train" in json.loads(endless.to_json())
    assert from_text(endless.to_json()) == endless


def test_the_link_reads_as_typed():
    """A link keeps commas, writes truth values as words, and may begin with a question mark."""
    experiment = Experiment(sharing=["QKV", "Q=K"], causal=True, learning_rate=0.01)
    assert experiment.to_text() == "v=1&sharing=QKV,Q%3DK&causal=true&learning_rate=0.01"
    assert from_text("?d_head=3") == Experiment(d_head=3)
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


def test_hash_is_the_same_in_every_version_and_process():
    """Stored results are found again; two processes of other hash seeds agree."""
    expected = ["b2c01a25d9b0cc17", "0ca2867a94b5451a"]
    assert [Experiment(task=task).hash for task in ("directed", "phonebook")] == expected
    code = "from attnkit import Experiment as E; print(E().hash, E(task='phonebook').hash)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected
