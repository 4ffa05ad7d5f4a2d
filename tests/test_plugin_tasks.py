"""Tasks of one's own: the example of docs/tasks.md, and what is refused."""

import re
import sys

import pytest
from documents import example_task

from attnkit.__main__ import main
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS, register_task
from attnkit.tasks.phonebook import Phonebook
from attnkit.training import train


@pytest.fixture(autouse=True)
def forgotten(untouched):
    """Forget the module of a task, too."""
    yield
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


def own_task(**members):
    """A class of a task that nobody has registered."""
    body = {"name": "own", "__module__": "my_tasks", "__annotations__": {}, **members}
    return type("Own", (Phonebook,), body)


def test_a_task_that_cannot_be_registered_is_told_why():
    """A task without a text, with a bad name, or with a name that is taken replaces nothing."""
    before = dict(TASKS)
    for members, told in [
        *(({name: None}, f"{name}: Own") for name in ("title", "question", "source", "family")),
        ({"name": None}, "name: Own"),
        *(({"name": name}, f"name: got {name!r}") for name in ("Mine", "my task", "", "9")),
        ({"family": "Riddles"}, "family: got 'Riddles'"),
        ({"name": "phonebook"}, "attnkit.tasks.phonebook.Phonebook"),
        ({"name": "phonebook", "__qualname__": "Phonebook"}, "attnkit.tasks.phonebook.Phonebook"),
    ]:
        with pytest.raises(ValueError, match=re.escape(told)):
            register_task(own_task(**members))
        assert before == TASKS


def test_a_new_version_of_a_class_replaces_it():
    """So that a cell of a notebook can be run twice."""
    versions = [own_task(__module__="__main__", name="mine") for _ in range(2)]
    for version in versions:
        register_task(version)
    assert TASKS["mine"] is versions[1]
