"""The command `train`: its table, its JSON, its files, its settings, its progress and its store."""

import contextlib
import io
import json
import re
import sys
from unittest.mock import Mock

import pytest
from same import assert_same

import attnkit as ak
from attnkit.service.server import server_settings
from attnkit.service.store import ResultStore, Unavailable
from attnkit.tasks import TASKS
from attnkit.training import maker
from attnkit.training.maker import Maker
from attnkit.training.results import Result

SETTINGS = {
    "n_entries": 5,
    "n_names": 11,
    "n_values": 7,
    "d_head": 3,
    "evaluate_every": 5,
    "batch_size": 16,
    "n_eval": 16,
}

SMALL = ["train", "--sharing", "QKV,Q=K=V", "--seeds", "2", "--steps", "12"]
SMALL += [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]

RUN_KEYS = """sharing seed accuracy loss steps_to_threshold parameters kv_cache_floats_per_token
    score_symmetry weight_symmetry mass_on_target mass_on_reverse""".split()
"""Keys of every run in `train --json`, which are a public interface."""


def numbers(document):
    """Return a JSON document without times."""
    timed = {"seconds", "model_steps_per_second"}
    return {name: value for name, value in document.items() if name not in timed}


def test_train_writes_a_table_its_numbers_and_its_weights(run, tmp_path):
    """Files hold the numbers of Python's training under the promised keys, whatever the form."""
    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    code, output, _ = run(*SMALL, "--json", str(path), "--out", str(folder))
    lines, document = output.splitlines(), json.loads(path.read_text())
    assert code == 0
    assert lines[0].split()[:2] == ["sharing", "accuracy"]
    assert [line.split()[0] for line in lines[1:-1]] == ["QKV", "Q=K=V"]
    assert lines[-1].startswith("directed: 4 runs, step 12 of 12, chance 0.357;")
    assert "interrupted" not in output
    loaded = Result.load(folder)
    experiment = ak.Experiment(sharing=["QKV", "Q=K=V"], n_seeds=2, steps=12, **SETTINGS)
    trained = ak.train(experiment)
    assert loaded.snapshot.status == document["status"] == "finished"
    assert_same(loaded.parameters, trained.parameters)
    assert document == json.loads((folder / "result.json").read_text())
    assert numbers(document) == numbers(json.loads(json.dumps(trained.to_dict())))
    assert document["hash"] == experiment.hash
    assert min(document["seconds"], document["model_steps_per_second"]) > 0
    for row in document["runs"]:
        assert set(RUN_KEYS) <= row.keys()
        assert [name for name in RUN_KEYS if row[name] is None] == ["steps_to_threshold"]
    for link in (experiment.to_text(), f"?{experiment.to_text()}"):
        code, output, _ = run("train", "--link", link, "--json", "-")
        assert numbers(json.loads(output)) == numbers(document)  # nothing but JSON is printed


def test_flags_win_over_set_and_set_over_the_link(run):
    """Settings are of every kind, with or without spaces; an undefined number is null."""

    def experiment(*arguments):
        output = run("train", *arguments, "--seeds", "1", "--json", "-")[1]
        document = json.loads(output, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
        return document["experiment"], document["runs"]

    link = ["--link", "v=1&steps=3&n_seeds=2&d_head=5&d_mlp=4&task=phonebook"]
    texts = ["learning_rate=0.01", "causal=true", "positions = learned", "d_mlp=8", "steps=4"]
    options = [part for text in texts for part in ("--set", text)]
    first = ["--first-seed", "3"]
    found, runs = experiment(*link, *options, "--steps", "5", "--sharing", "qkv, reformer", *first)
    assert (
        found.items()
        >= {
            **{"d_head": 5, "n_seeds": 1, "steps": 5, "learning_rate": 0.01, "causal": True},
            **{
                "first_seed": 3,
                "positions": "learned",
                "d_mlp": 8,
                "sharing": ["QKV", "Q=K unit_key self_mask"],
            },
        }.items()
    )
    assert [row["mass_on_reverse"] for row in runs] == [None] * 2
    full = ["--task", "sort", "--full-size", "--set", "n_train=128", "--sharing", "QKV"]
    found, _ = experiment(*full, "--steps", "2")
    assert found.items() >= {**TASKS["sort"].full_size, "steps": 2}.items()


def test_progress_is_plain_lines_or_a_bar_on_a_terminal(run, monkeypatch):
    """A log gets at most ten plain lines, and a terminal one line that is overwritten."""
    lines = run(*SMALL, "--steps", "200")[2].splitlines()
    steps = [int(re.fullmatch(r"step (\d+) of 200", line)[1]) for line in lines]
    assert steps == sorted(set(steps))
    assert steps[-1] == 200
    assert 2 <= len(lines) <= 10

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(*SMALL)[0] == 0
    assert "\r" in terminal.getvalue()
    assert "step 12 of 12" not in terminal.getvalue()


# --store


def test_a_stored_experiment_is_not_trained_again(run, tmp_path, monkeypatch):
    """It gives the same output and files; other settings are stored beside it.

    A result of another engine or version is trained again and replaced, and a line names both.
    """
    where = str(tmp_path / "data")
    code, output, errors = run(*SMALL, "--store", where, "--json", "-")
    assert (code, "stored" in errors) == (0, False)
    again = run(*SMALL, "--store", where, "--json", "-", "--out", str(tmp_path / "result"))
    document = json.loads(output)
    message = f"experiment {document['hash']} is stored: nothing is trained\n"
    assert again == (0, output, message)
    assert Result.load(tmp_path / "result").to_dict() == document
    code, _, errors = run(*SMALL, "--store", where, "--steps", "13")
    assert (code, "stored" in errors) == (0, False)
    before = Maker(document["engine"], document["processor"], document["versions"])
    for engine, versions in (("torch", before.versions), ("torch", "torch 9.8.7")):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        monkeypatch.setattr(maker, "versions_of", lambda _, new=versions: new)
        now = Maker(engine, before.processor, versions)
        for then in (f", but {before} trained it: it is trained again by {now}", ": nothing is"):
            code, output, errors = run(*SMALL, "--store", where, "--json", "-")
            assert (code, json.loads(output)["versions"]) == (0, versions)
            assert f"experiment {document['hash']} is stored{then}" in errors
        before = now
    with contextlib.closing(ResultStore(where)) as store:
        assert len(store.entries()) == 2
        assert store.snapshot(document["hash"]).engine == "torch"


def test_store_alone_is_where_the_environment_says(run, tmp_path, monkeypatch):
    """`--store` alone uses `ATTNKIT_STORE`, or else the user's folder; without it nothing does."""
    monkeypatch.setenv("ATTNKIT_STORE", str(tmp_path))
    assert run(*SMALL)[0] == 0
    assert list(tmp_path.iterdir()) == []
    for variable, folder in (("ATTNKIT_STORE", "one"), ("XDG_DATA_HOME", "two/attnkit")):
        monkeypatch.delenv("ATTNKIT_STORE", raising=False)
        monkeypatch.setenv(variable, str(tmp_path / folder.split("/")[0]))
        server_settings.cache_clear()
        assert run("train", "--store", *SMALL[1:])[0] == 0
        assert (tmp_path / folder / "results.sqlite").is_file()


def test_a_store_that_fails_is_one_line_and_loses_no_numbers(run, tmp_path, monkeypatch):
    """Before training if it can be found then, without a password; a broken file is moved aside."""
    secret = "postgresql://me:secret@127.0.0.1:1/db"
    code, output, errors = run(*SMALL, "--store", secret)
    assert (code, output, errors.count("\n"), "secret" in errors) == (2, "", 1, False)
    assert errors.startswith("attnkit: error: --store: the database cannot be reached")
    (tmp_path / "results.sqlite").write_text("no database " * 1000)
    code, _, errors = run(*SMALL, "--store", str(tmp_path))
    assert code == 0
    assert "It is called results.sqlite.broken-1 now.\n" in errors
    monkeypatch.setattr(ResultStore, "put", Mock(side_effect=Unavailable("the disk is full")))
    code, output, errors = run(*SMALL, "--store", str(tmp_path), "--steps", "13", "--json", "-")
    assert (code, json.loads(output)["status"]) == (2, "finished")
    assert errors.endswith("attnkit: error: --store: the disk is full\n")
