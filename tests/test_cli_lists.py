"""The commands that list tasks, variants and help, and the one that makes examples."""

import json
import re

import attnkit as ak
from attnkit import examples
from attnkit.examples import default_of
from attnkit.tasks import FAMILIES, OWN_TASKS, TASKS
from attnkit.variants import CATALOGUE, OPTIONS
from attnkit.variants.sharing import Sharing


def as_typed(value):
    """Return a value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_tasks_lists_every_task_under_its_family(run):
    """`tasks` lists texts, chance, dials and, in one line each, the other settings of a task.

    `tasks NAME` lists all settings of that task and no other task.
    """
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
    for name in ("language", "translation"):  # so that machines can be compared
        assert f"hash of the text {TASKS[name]().fingerprint}" in output

    code, output, _ = run("tasks", "phonebook")
    first, _, *lines = output.splitlines()
    assert (code, first.split()[0]) == (0, "phonebook")
    shown = dict(line.split()[:2] for line in lines)
    settings = ak.Experiment(task="phonebook").settings()
    assert shown.items() >= {
        (name, as_typed(settings[name])) for name in settings.keys() - {"task", "sharing"}
    }
    assert "a whole number from 1 to 64" in output


def test_tasks_on_data_of_ones_own_are_listed_with_their_settings(run):
    """They have no numbers without data, so the list names them only."""
    assert run("tasks")[1].endswith(
        "With data of your own (train --data FILE): pairs, relations, text\n"
    )
    for name, task in OWN_TASKS.items():
        code, output, _ = run("tasks", name)
        assert (code, output.split()[0]) == (0, name)
        assert all(f"    {dial} " in output for dial in (*task.model_fields, *task.overrides))
        listed = json.loads(run("tasks", name, "--json")[1])[name]
        assert listed["settings"].keys() >= {*task.model_fields, *task.overrides}


def test_what_is_listed_as_json_can_be_trained(run):
    """Tasks are listed with dials and settings apart, and variants with their text forms."""
    listing = json.loads(run("tasks", "--json")[1])
    assert listing.keys() == TASKS.keys()
    for name, entry in listing.items():
        task = TASKS[name]()
        for key in ("title", "question", "family", "source", "chance", "loss_to_beat"):
            assert entry[key] == getattr(task, key)
        assert entry["dials"] == task.model_dump()
        assert not entry["dials"].keys() & entry["settings"].keys()
        chosen = {**entry["dials"], **entry["settings"]}
        assert ak.Experiment(task=name, **chosen) == ak.Experiment(task=name)
    assert json.loads(run("tasks", "phonebook", "--json")[1]) == {"phonebook": listing["phonebook"]}

    variants = json.loads(run("variants", "--json")[1])
    assert len(variants) == len(CATALOGUE)
    for entry in variants:
        assert ak.Experiment(sharing=[entry["variant"]]).sharing == (entry["variant"],)
        assert entry["accuracy"] is None or 0 < entry["accuracy"] <= 1
    assert {entry["engine"] for entry in variants} == {"kernel", "torch"}


def test_variants_lists_the_catalogue_and_every_word(run):
    """One line has text form, costs, source and accuracy of a variant; words have their help."""
    code, output, _ = run("variants")
    assert code == 0
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


def test_help_names_what_can_be_chosen(run):
    """`--help` prints the usage and no errors; that of `train` names all tasks and sharings."""
    for arguments, names in (
        (["--help"], ["train", "tasks"]),
        (["train", "--help"], [*TASKS, *Sharing]),
        (["tasks", "--help"], ["--json"]),
    ):
        code, output, errors = run(*arguments)
        assert (code, errors) == (0, "")
        assert "usage: python -m attnkit" in output
        assert [name for name in names if name not in output] == []
