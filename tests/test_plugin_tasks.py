"""Tasks of one's own: the example of docs/tasks.md, and what is refused."""

import re
import sys

import pytest
from documents import example_task

from attnkit.__main__ import main
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS, Task, register_task
from attnkit.tasks.phonebook import Phonebook
from attnkit.training import train


@pytest.fixture(autouse=True)
def untouched():
    """What a test registers is gone after it."""
    before = dict(TASKS)
    yield
    TASKS.clear()
    TASKS.update(before)
    sys.modules.pop("my_task", None)


def test_the_example_trains_in_python():
    """QKV learns it; it is found by name."""
    exec(example_task(), {"__name__": "my_task"})
    result = train(Experiment(task="largest", sharing=["QKV"], n_seeds=1, d_model=16))
    assert result.snapshot.history["accuracy"][-1, 0] > 0.9


def test_the_example_is_known_to_the_command_line(tmp_path, monkeypatch, capsys):
    """Listed with its dials, and trained, where the environment names its module."""
    (tmp_path / "my_task.py").write_text(example_task(), encoding="utf-8")
    monkeypatch.setenv("ATTNKIT_MODULES", "my_task")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["tasks"]) == 0
    assert re.search(r"^largest +Largest\. Which number", capsys.readouterr().out, re.MULTILINE)
    assert main("train --task largest --seeds 1 --steps 2".split()) == 0
    assert "largest: 5 runs, step 2 of 2" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["title", "question", "source", "family"])
def test_a_task_says_what_it_is(missing):
    """The message names what is missing."""
    said = {"name": "mine", "title": "Mine", "question": "?", "source": "me", "family": "Lists"}
    del said[missing]
    with pytest.raises(ValueError, match=f"{missing}: Mine has none, allowed a text"):
        register_task(type("Mine", (Task,), {**said, "__annotations__": {}}))


@pytest.mark.parametrize("name", ["Mine", "my task", "", "9"])
def test_a_task_needs_a_name_that_can_be_typed(name):
    """Small letters, digits, underscores."""
    own = type("Own", (Phonebook,), {"__annotations__": {}})
    own.name = name
    with pytest.raises(ValueError, match=r"name: got .*, allowed small letters"):
        register_task(own)


def test_a_name_is_taken_once():
    """Another class of the same name would hide the first."""
    with pytest.raises(ValueError, match=r"but attnkit\.tasks\.phonebook\.Phonebook has this name"):
        register_task(type("Own", (Phonebook,), {"__annotations__": {}}))


def test_a_family_must_be_known():
    """A task must stand under a heading."""
    own = type("Own", (Phonebook,), {"__annotations__": {}})
    own.name, own.family = "own", "Riddles"
    with pytest.raises(ValueError, match="family: got 'Riddles', allowed Questions people ask"):
        register_task(own)


def test_a_class_of_the_same_name_in_another_module_is_refused():
    """It does not silently replace the shipped one, and the message names both origins."""
    other = type("Phonebook", (Phonebook,), {"__annotations__": {}, "__module__": "my_tasks"})
    message = r"got 'phonebook' from my_tasks\.Phonebook, but attnkit\.tasks\.phonebook\.Phonebook"
    with pytest.raises(ValueError, match=message):
        register_task(other)


def test_a_new_version_of_a_class_replaces_it():
    """So that a cell of a notebook can be run twice."""
    versions = [
        type(
            "Mine", (Phonebook,), {"__annotations__": {}, "__module__": "__main__", "name": "mine"}
        )
        for _ in range(2)
    ]
    try:
        for version in versions:
            register_task(version)
        assert TASKS["mine"] is versions[1]
    finally:
        TASKS.pop("mine", None)
