"""Bad command lines, odd files and full disks: exit code 2, one line, nothing lost."""

import contextlib
import json
import re
import resource
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from attnkit.command.arguments import error_line
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.training.results import Result

HUGE = "9" * 5000

TRAIN = [
    (["--task", "phone"], "task: got 'phone', allowed phonebook, "),
    (["--task"], "argument --task: "),
    (["--set", "d_head"], "--set: got 'd_head', allowed NAME=VALUE"),
    (["--set", "d_head=8\n9"], r"d_head: got '8\n9', allowed a whole number from 1 to 64"),
    (["--steps", HUGE], f"steps: got '{HUGE[:56]}..., allowed"),
    (["--device", "cuda:99"], "device: got 'cuda:99', allowed auto, cpu"),
    (["--json", "folder"], "--json: got 'folder', but it is a folder, "),
    (["--out", "no/such/result"], "--out: got 'no/such/result', but its folder "),
    (["--out", "/dev/full"], "--out: got '/dev/full', but it is a file, "),
    (["--out", "blocked"], "--out: got 'blocked', but its result.json "),
    (["--store", "mysql://host/db"], "--store: "),
    (["--store", "file"], "--store: its file or folder cannot be opened"),
    (["--data", "odd.csv"], "data: got '1 different row', allowed a table of at"),
    (["--sed", "3"], "unrecognized arguments: --sed 3, allowed --task, "),
]
"""Arguments of `train`, and how the error begins."""

OTHERS = [
    (["fly"], "command: got 'fly', allowed lab, train, tasks, "),
    (["tasks", "phone"], f"task: got 'phone', allowed {', '.join(TASKS)} (did "),
    (["claims", "--first-seed", "1.5"], "--first-seed: got '1.5', allowed a whole number from 0"),
    (["claims", "--table", "file"], "--table: got 'file', but it cannot be used (file: "),
    (["claims", "--list", "--json", "folder"], "--json: got 'folder', but it is a folder, "),
    (["site", "--out", "file"], "--out: got 'file', but it is a file, "),
    (["sweep", "odd.toml"], "specification 'odd.toml': it is not TOML ("),
    (["models", "nosuchthing"], "source: got 'nosuchthing', but "),
    (["models", "json", "--out", "x.csv"], "--out: got 'x.csv', "),
    (["code", "folder"], "the following arguments are required: --out"),
    (["code", "nowhere", "--out", "x"], "SAVED: got 'nowhere', but "),
    (["code", "broken", "--out", "x"], "SAVED: got 'broken', but "),
    (["code", "saved", "--out", "file"], "--out: got 'file', but "),
    (["bench", "--case", "phone"], "--case: got 'phone', allowed phonebook, MQAR T=24"),
    (["bench", "--runs", "7"], "--runs: got 7, allowed 1 or a multiple of 5"),
]
"""Command lines, and how the error begins."""

HINTS = {"train --task Phonebok": "phonebook", "train --set d_haed=8": "d_head", "trian": "train"}
HINTS |= {"train --stpes 3": "--steps", "claims rankin": "ranking"}


@pytest.fixture(scope="module")
def result():
    """A small result."""
    return train(Experiment(sharing=["QKV"], n_seeds=1, steps=2, batch_size=16, n_eval=16))


@pytest.fixture
def place(tmp_path, monkeypatch, result):
    """The current folder, with files and folders that cannot be used as what they are given for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command `bench` adds the tests to it
    for name in ("folder", "broken", "blocked/result.json"):
        Path(name).mkdir(parents=True)
    Path("file").write_text("words")
    Path("odd.csv").write_bytes(b"\xe9,a\n")
    Path("odd.toml").write_text("[axes")
    for name in ("config.json", "model.safetensors", "snapshot.safetensors"):
        Path("broken", name).write_text("{")
    Path("broken/parameters.safetensors").write_text("{")
    result.save("saved")
    return tmp_path


def listing(folder):
    """All files and folders, with the sizes and times of change of the files."""
    return sorted(
        (path, None if path.is_dir() else path.stat()[6:9:2]) for path in folder.rglob("*")
    )


def test_a_bad_command_line_is_one_line_and_exit_code_2(run, place, monkeypatch):
    """Nothing is computed, printed, changed or left behind; a name is answered with the nearest."""
    advance = Mock(side_effect=AssertionError("trained"))
    monkeypatch.setattr("attnkit.training.training.Training.advance", advance)
    before, lines = listing(place), [*((["train", *own], begins) for own, begins in TRAIN), *OTHERS]
    for arguments, begins in lines:
        code, output, errors = run(*arguments)
        assert (code, output) == (2, ""), arguments
        assert errors.startswith(f"attnkit: error: {begins}"), arguments
        assert (errors.splitlines(keepends=True), len(errors) < 2100) == ([errors], True)
        assert listing(place) == before, arguments
    for line, hint in HINTS.items():
        assert run(*line.split())[2].endswith(f"(did you mean {hint}?)\n"), line


@pytest.mark.usefixtures("place")
def test_what_the_machine_lacks_is_bad_input(run, monkeypatch):
    """A module, the repository, and memory: one printable line, also for several mistakes."""
    code, _, errors = run("train", "--steps", "0", "--set", "d_head=0")
    assert (code, errors.count("\n")) == (2, 1)
    assert all(told in errors for told in ("steps: got '0'", "d_head: got '0'"))
    assert error_line("a\x1b[31m\nb") == "attnkit: error: a\\x1b[31m b\n"
    Path("my_rude_module.py").write_text("print('hello')\nraise SystemExit(3)\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(Path.cwd())
        for module in ("nowhere_to_be_found", "my_rude_module"):
            patch.setenv("ATTNKIT_MODULES", module)
            code, output, errors = run("tasks", "--json")
            assert (code, output) == (2, "")
            assert f"ATTNKIT_MODULES: '{module}'" in errors.splitlines()[-1]
    fail = Mock(side_effect=RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    monkeypatch.setattr("attnkit.training.loops.train", fail)
    monkeypatch.setattr("attnkit.command.outputs._TESTS", Path("nowhere"))
    for command, told in (("bench", ".*repository"), ("train", "memory: ")):
        code, output, errors = run(command)
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert re.match(f"attnkit: error: {told}", errors)


@contextlib.contextmanager
def full_disk(n_bytes):
    """No file may become larger than so many bytes, as if the disk were full.

    Python would cut the compiled modules that it writes, and later processes would not start.
    """
    limits, before = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = before


def test_a_full_disk_is_found_before_training_or_costs_only_what_does_not_fit(
    run, place, monkeypatch, result
):
    """The numbers are printed, the line says what was saved, and an earlier result stays whole."""
    before, limits, trainings = Result.load("saved").to_blobs(), contextlib.ExitStack(), []

    def fills_the_disk(*_):
        trainings.append(limits.enter_context(full_disk(4096)))
        return result

    monkeypatch.setattr("attnkit.command.train.train_with_progress", fills_the_disk)
    files = listing(place)
    for option in ("--json", "--out"):
        with full_disk(100):
            code, output, errors = run("train", option, "x")
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"attnkit: error: {option}: got 'x', but ")
        assert (trainings, listing(place)) == ([], files)
    with limits:
        code, output, errors = run("train", "--out", "out", "--json", "x.json")
    assert (code, "QKV" in output) == (2, True)
    assert errors.startswith("attnkit: error: --out: got 'out', but ")
    assert errors.endswith("; saved: --json x.json\n")
    assert json.loads((place / "x.json").read_text())["status"] == "finished"
    assert {path.name for path in Path("out").iterdir()} == {"result.json", "snapshot.safetensors"}
    with contextlib.ExitStack() as limits:
        assert run("train", "--out", "saved")[0] == 2
    assert Result.load("saved").to_blobs() == before


@pytest.mark.usefixtures("place")
def test_a_full_device_is_one_line(run, monkeypatch, result):
    """The other outputs are written all the same, and files before anything is printed."""
    monkeypatch.setattr("attnkit.command.train.train_with_progress", lambda *_: result)
    code, output, errors = run("train", "--out", "out", "--json", "/dev/full")
    assert (code, output != "", errors.count("\n")) == (2, True, 1)
    assert errors.startswith("attnkit: error: --json: got '/dev/full', but ")
    assert errors.endswith("; saved: --out out\n")
    assert Path("out").is_dir()
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:  # noqa: PTH123
        patch.setattr(sys, "stdout", full)
        code, _, errors = run("train", "--json", "-", "--out", "other")
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("attnkit: error: standard output: ")
    assert Path("other").is_dir()
