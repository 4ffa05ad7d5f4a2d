"""The command `train`: its table, its JSON, its files, its settings and its progress."""

import io
import json
import re
import sys

import numpy as np
import pytest
from command_lines import SMALL

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


def test_train_reports_a_table_and_its_costs(run):
    """`train` prints one line per sharing, and a last line with runs and steps."""
    code, output, _ = run(*SMALL)
    lines = output.splitlines()
    assert code == 0
    assert lines[0].split()[:2] == ["sharing", "accuracy"]
    assert [line.split()[0] for line in lines[1:-1]] == ["QKV", "Q=K=V"]
    assert lines[-1].startswith("directed: 4 runs, step 12 of 12, chance 0.357;")
    assert "interrupted" not in output


def test_json_has_every_promised_key(run, tmp_path):
    """The JSON has the experiment, its cost, and one object per run with every promised key."""
    path = tmp_path / "numbers.json"
    code, output, _ = run(*SMALL, "--json", str(path))
    document = json.loads(path.read_text())
    assert code == 0
    assert "QKV" in output
    assert {"experiment", "seconds", "model_steps_per_second", "runs"} <= document.keys()
    assert document["seconds"] > 0
    assert document["model_steps_per_second"] > 0
    assert document["experiment"]["steps"] == 12
    assert document["experiment"]["sharing"] == ["QKV", "Q=K=V"]
    assert len(document["runs"]) == 4
    for row in document["runs"]:
        assert set(RUN_KEYS) <= row.keys()
    ids = [(row["sharing"], row["seed"]) for row in document["runs"]]
    assert ids == [("QKV", 0), ("QKV", 1), ("Q=K=V", 0), ("Q=K=V", 1)]


def test_json_has_numbers_where_they_are_defined(run):
    """Every number of a directed relation but the threshold is defined after few steps."""
    _, output, _ = run(*SMALL, "--json", "-")
    for row in json.loads(output)["runs"]:
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


def test_json_to_the_screen_prints_nothing_else(run):
    """`--json -` prints nothing but JSON, so that it can be piped."""
    code, output, _ = run(*SMALL, "--json", "-")
    assert code == 0
    assert output.startswith("{")
    assert output.endswith("}\n")
    assert json.loads(output)["status"] == "finished"


def test_out_saves_a_result_that_can_be_loaded(run, tmp_path):
    """`--out` saves a result that loads with the weights of the same training in Python."""
    folder = tmp_path / "result"
    code, _, _ = run(*SMALL, "--out", str(folder))
    loaded = Result.load(folder)
    trained = ak.train(loaded.experiment)
    assert code == 0
    assert loaded.snapshot.status == "finished"
    assert loaded.experiment.n_runs == 4
    for weights, other in zip(loaded.parameters, trained.parameters, strict=True):
        assert weights.keys() == other.keys()
        assert all(np.array_equal(weights[name], other[name]) for name in weights)


def test_json_and_out_may_be_given_together(run, tmp_path):
    """`--json` and `--out` write the same numbers."""
    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    code, _, _ = run(*SMALL, "--json", str(path), "--out", str(folder))
    assert code == 0
    assert json.loads(path.read_text()) == json.loads((folder / "result.json").read_text())


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


def test_set_takes_every_kind_of_setting(run):
    """`--set` takes whole numbers, numbers, switches and choices, with or without spaces."""
    arguments = ["--seeds", "1", "--steps", "2", "--sharing", "qkv", "--json", "-"]
    for text in ("learning_rate=0.01", "causal=true", "positions = learned", "d_mlp=8"):
        arguments += ["--set", text]
    experiment = json.loads(run("train", *arguments)[1])["experiment"]
    assert experiment["learning_rate"] == 0.01
    assert experiment["causal"] is True
    assert experiment["positions"] == "learned"
    assert experiment["d_mlp"] == 8
    assert experiment["sharing"] == ["QKV"]


def test_the_full_size_is_set_up_by_name(run):
    """`--full-size` sets up the task as published, and other flags override it."""
    arguments = ("train", "--task", "sort", "--full-size", "--seeds", "1", "--steps", "2")
    code, output, _ = run(*arguments, "--json", "-", "--sharing", "QKV")
    experiment = json.loads(output)["experiment"]
    assert code == 0
    assert experiment.items() >= TASKS["sort"].full_size.items()
    assert experiment["steps"] == 2


def test_train_takes_text_forms_and_names(run):
    """`--sharing` takes plain and composed variants, and the JSON has their text forms."""
    chosen = "QKV, reformer,K=V  kv_heads=1"
    code, output, _ = run(*SMALL, "--sharing", chosen, "--json", "-")
    assert code == 0
    sharings = [row["sharing"] for row in json.loads(output)["runs"]]
    assert sharings == ["QKV"] * 2 + ["Q=K unit_key self_mask"] * 2 + ["K=V kv_heads=1"] * 2


def test_progress_is_plain_lines_when_errors_are_no_terminal(run):
    """A log gets at most ten plain lines of progress, and no bar."""
    _, _, errors = run(*SMALL, "--steps", "400")
    lines = errors.splitlines()
    steps = [int(re.fullmatch(r"step (\d+) of 400", line)[1]) for line in lines]
    assert steps == sorted(set(steps))
    assert steps[-1] == 400
    assert 2 <= len(lines) <= 10


def test_progress_is_a_bar_on_a_terminal(run, monkeypatch):
    """A terminal gets one progress line that is overwritten."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(*SMALL)[0] == 0
    assert "\r" in terminal.getvalue()
    assert "step 12 of 12" not in terminal.getvalue()
