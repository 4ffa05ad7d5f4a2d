"""The command `train`: its table, its JSON, its files, its settings and its progress."""

import io
import json
import re
import sys

import pytest
from command_lines import SMALL
from same import assert_same

import attnkit as ak
from attnkit.tasks import TASKS
from attnkit.training.results import Result

RUN_KEYS = """sharing seed accuracy loss steps_to_threshold parameters kv_cache_floats_per_token
    score_symmetry weight_symmetry mass_on_target mass_on_reverse""".split()
"""Keys of every run in `train --json`, which are a public interface."""


def same_numbers(document, other):
    """Return whether two JSON documents agree in all but times."""
    timed = {"seconds", "model_steps_per_second"}
    return {k: v for k, v in document.items() if k not in timed} == {
        k: v for k, v in other.items() if k not in timed
    }


def test_train_writes_a_table_its_numbers_and_its_weights(run, tmp_path):
    """Files hold the same numbers as Python's training; the table has a line per sharing."""
    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    code, output, _ = run(*SMALL, "--json", str(path), "--out", str(folder))
    lines, document = output.splitlines(), json.loads(path.read_text())
    assert code == 0
    assert lines[0].split()[:2] == ["sharing", "accuracy"]
    assert [line.split()[0] for line in lines[1:-1]] == ["QKV", "Q=K=V"]
    assert lines[-1].startswith("directed: 4 runs, step 12 of 12, chance 0.357;")
    assert "interrupted" not in output
    assert document == json.loads((folder / "result.json").read_text())
    loaded = Result.load(folder)
    trained = ak.train(loaded.experiment)
    assert loaded.snapshot.status == "finished"
    assert_same(loaded.parameters, trained.parameters)


def test_json_has_every_promised_key(run):
    """Nothing but JSON is printed to the screen: the experiment, its cost, and every run."""
    code, output, _ = run(*SMALL, "--json", "-")
    document = json.loads(output)
    assert code == 0
    assert output.startswith("{")
    assert document["status"] == "finished"
    assert document["seconds"] > 0
    assert document["model_steps_per_second"] > 0
    assert document["experiment"]["steps"] == 12
    assert document["experiment"]["sharing"] == ["QKV", "Q=K=V"]
    ids = [(row["sharing"], row["seed"]) for row in document["runs"]]
    assert ids == [("QKV", 0), ("QKV", 1), ("Q=K=V", 0), ("Q=K=V", 1)]
    for row in document["runs"]:
        assert set(RUN_KEYS) <= row.keys()
        assert row["steps_to_threshold"] is None
        assert all(row[name] is not None for name in RUN_KEYS if name != "steps_to_threshold")
        assert isinstance(row["parameters"], int)
        assert isinstance(row["kv_cache_floats_per_token"], int)


def test_json_is_null_where_a_number_is_undefined(run):
    """An undefined number is null in the JSON, as NaN is not allowed there."""
    arguments = ["--task", "phonebook", "--steps", "2", "--seeds", "1", "--json", "-"]
    _, output, _ = run("train", *arguments)
    document = json.loads(output, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
    assert [row["mass_on_reverse"] for row in document["runs"]] == [None] * 5


def test_flags_a_link_and_python_are_one_experiment(run):
    """Flags, a link and Python give equal hashes and equal numbers."""
    experiment = ak.Experiment(
        task="mutual", sharing=["QKV", "K=V"], n_seeds=2, first_seed=3, steps=11, d_head=5
    )
    flags = "--task mutual --sharing QKV,K=V --seeds 2 --first-seed 3 --steps 11 --set d_head=5"
    documents = [
        json.loads(run("train", *arguments, "--json", "-")[1])
        for arguments in (
            flags.split(),
            ["--link", experiment.to_text()],
            ["--link", f"?{experiment.to_text()}"],
        )
    ]
    python = json.loads(json.dumps(ak.train(experiment).to_dict()))
    assert python["hash"] == experiment.hash
    for document in documents:
        assert same_numbers(document, python)


def test_flags_win_over_set_and_set_over_the_link(run):
    """A flag overrides `--set`, which overrides the link."""
    arguments = ["--link", "v=1&steps=3&n_seeds=2&d_head=5", "--set", "n_seeds=1", "--set"]
    arguments += ["steps=4", "--steps", "5", "--json", "-"]
    experiment = json.loads(run("train", *arguments)[1])["experiment"]
    assert (experiment["d_head"], experiment["n_seeds"], experiment["steps"]) == (5, 1, 5)


def test_set_takes_every_kind_of_setting_and_the_full_size_a_name(run):
    """Whole numbers, numbers, switches and choices, with or without spaces."""
    arguments = ["--seeds", "1", "--steps", "2", "--sharing", "qkv", "--json", "-"]
    given = {"learning_rate": 0.01, "causal": True, "positions": "learned", "d_mlp": 8}
    for text in ("learning_rate=0.01", "causal=true", "positions = learned", "d_mlp=8"):
        arguments += ["--set", text]
    experiment = json.loads(run("train", *arguments)[1])["experiment"]
    assert experiment.items() >= {**given, "sharing": ["QKV"]}.items()
    full = ["train", "--task", "sort", "--full-size", "--set", "n_train=128", *arguments[:6]]
    experiment = json.loads(run(*full, "--json", "-")[1])["experiment"]
    assert experiment.items() >= {**TASKS["sort"].full_size, "steps": 2}.items()


def test_train_takes_text_forms_and_names(run):
    """`--sharing` takes plain and composed variants, and the JSON has their text forms."""
    chosen = "QKV, reformer,K=V  kv_heads=1"
    code, output, _ = run(*SMALL, "--sharing", chosen, "--json", "-")
    assert code == 0
    sharings = [row["sharing"] for row in json.loads(output)["runs"]]
    assert sharings == ["QKV"] * 2 + ["Q=K unit_key self_mask"] * 2 + ["K=V kv_heads=1"] * 2


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
