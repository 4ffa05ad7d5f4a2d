"""The commands that list tasks, variants and help, and the one that makes examples."""

import json
import re

import pytest

import attnkit as ak
from attnkit import examples
from attnkit.examples import default_of
from attnkit.tasks import FAMILIES, TASKS
from attnkit.variants import CATALOGUE, OPTIONS
from attnkit.variants.sharing import Sharing

# tasks


def as_typed(value):
    """Return a value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_tasks_lists_every_task_under_its_family(run):
    """`tasks` lists texts, chance, dials and, in one line each, the other settings of a task."""
    code, output, _ = run("tasks")
    lines = output.splitlines()
    assert code == 0
    headings = [line for line in lines if line in FAMILIES]
    assert headings == [family for family in FAMILIES if family in headings]
    for name, task in TASKS.items():
        (at,) = (i for i, line in enumerate(lines) if line.startswith(f"{name} "))
        assert f"{task.title}. {task.question}" in lines[at]
        assert f"From: {task.source}. chance {task().chance:.3f}" in lines[at + 1]
        assert [line for line in lines[:at] if line in FAMILIES][-1] == task.family
        entry = output.split(f"\n{name} ")[1].split("\n\n")[0].splitlines()
        if task.full_size:
            full = entry.pop().removeprefix("    full size: ")
            assert dict(pair.split("=") for pair in full.split()).keys() == task.full_size.keys()
        dials = [line.split()[:2] for line in entry[2:-1]]
        assert dials == [[dial, as_typed(value)] for dial, value in task().model_dump().items()]
        others = dict(pair.split("=") for pair in entry[-1].removeprefix("    with ").split())
        assert others.keys() == task.overrides.keys()
    assert "(a whole number from 4 to 16)" in output
    assert "(next or masked)" in output
    for name in ("language", "translation"):  # so that machines can be compared
        assert f"hash of the text {TASKS[name]().fingerprint}" in output


def test_tasks_of_one_name_lists_all_its_settings(run):
    """`tasks NAME` lists all settings of that task and no other task."""
    code, output, _ = run("tasks", "phonebook")
    lines = output.splitlines()
    assert code == 0
    assert lines[0].startswith("phonebook ")
    shown = {line.split()[0]: line.split()[1] for line in lines[2:]}
    for name, value in ak.Experiment(task="phonebook").settings().items():
        if name not in ("task", "sharing"):
            assert shown[name] == as_typed(value)
    assert "a whole number from 1 to 64" in output


def test_tasks_as_json_lists_what_train_accepts(run):
    """`tasks --json` has settings that `train` accepts, with dials apart."""
    code, output, _ = run("tasks", "--json")
    listing = json.loads(output)
    assert code == 0
    assert listing.keys() == TASKS.keys()
    for name, entry in listing.items():
        task = TASKS[name]()
        for key in ("title", "question", "family", "source", "chance", "loss_to_beat"):
            assert entry[key] == getattr(task, key)
        assert entry["dials"] == task.model_dump()
        chosen = {**entry["dials"], **entry["settings"]}
        assert len(chosen) == len(entry["dials"]) + len(entry["settings"])
        assert ak.Experiment(task=name, **chosen) == ak.Experiment(task=name)
    assert json.loads(run("tasks", "phonebook", "--json")[1]) == {"phonebook": listing["phonebook"]}


def test_examples_of_named_tasks_are_made_alone(run, tmp_path, monkeypatch):
    """`examples NAME` writes the example of that task only."""
    train = ak.training.train
    short = {"steps": 2, "evaluate_every": 1, "n_seeds": 1, "sharing": "QKV"}
    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    monkeypatch.setattr(
        "attnkit.training.train", lambda one, **given: train(one.replace(**short), **given)
    )
    assert run("examples", "dictionary")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["dictionary.safetensors"]


# variants


def test_variants_lists_the_catalogue_and_every_word(run):
    """One line has text form, costs, source and accuracy of a variant; words have their help."""
    code, output, _ = run("variants")
    assert code == 0
    assert len(CATALOGUE) >= 25
    for named in CATALOGUE.values():
        (line,) = (x for x in output.splitlines() if x.startswith(f"{named.name:22} "))
        costs = default_of(named.variant).costs(named.variant)
        for part in (named.variant, str(costs.parameters), str(costs.kv_cache), named.source):
            assert part in line
        assert re.search(r"[01]\.\d{3} \[|not measured", line)
    assert "reach 0.98" in output
    for name, option in OPTIONS.items():
        assert any(line.split()[0] == name for line in output.splitlines() if line.strip())
        assert option.help in output


def test_variants_as_json_can_be_trained(run):
    """Every text form of `variants --json` is a valid sharing."""
    code, output, _ = run("variants", "--json")
    listing = json.loads(output)
    assert code == 0
    assert len(listing) == len(CATALOGUE)
    for entry in listing:
        assert ak.Experiment(sharing=[entry["variant"]]).sharing == (entry["variant"],)
        assert entry["accuracy"] is None or 0 < entry["accuracy"] <= 1
    assert {entry["engine"] for entry in listing} == {"kernel", "torch"}


def test_a_module_that_cannot_be_imported_is_bad_input(run, monkeypatch):
    """A module that cannot be imported is one line that names the variable and the module."""
    monkeypatch.setenv("ATTNKIT_MODULES", "nowhere_to_be_found")
    code, _, errors = run("tasks")
    assert code == 2
    assert "ATTNKIT_MODULES: 'nowhere_to_be_found' cannot be imported" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["tasks", "--help"]])
def test_help_is_printed(run, arguments):
    """`--help` prints the usage and no errors; that of `train` names all tasks and sharings."""
    code, output, errors = run(*arguments)
    assert code == 0
    assert "usage: python -m attnkit" in output
    assert errors == ""
    if arguments[0] == "train":
        assert [name for name in [*TASKS, *Sharing] if name not in output] == []
