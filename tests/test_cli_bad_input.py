"""Bad command lines: exit code 2, one line that names the field and the value, nothing lost."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from attnkit.command.arguments import error_line
from attnkit.experiment import Experiment
from attnkit.foundation.files import check_writable, replace_file
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.training.results import Result

ROOT = Path(__file__).parents[1]
LONG, HUGE = "x" * 300, "9" * 5000
TOO_LONG = f"got '{LONG[:196]}..., but it cannot be used (File name too long)"
NUMBER = "allowed a whole number from"

TRAIN = [
    (["--task", "phone"], "task: got 'phone', allowed phonebook, "),
    (["--task", "télé\u202ephone"], r"task: got 'télé\u202ephone', allowed phonebook, "),
    (["--task", "\udcff"], r"task: got '\udcff', allowed phonebook, "),
    (["--task"], "argument --task: expected one argument"),
    (["--sharing", "Q=K kv_heads=2"], "sharing: got 'Q=K kv_heads=2', but kv_heads does not"),
    (["--sharing", "Reformr"], "sharing: got 'Reformr', but 'Reformr' is unknown, did you mean Re"),
    (["--sharing", ""], "sharing: got '', but nothing is named, allowed: QKV, Q=K"),
    (["--set", "d_haed=8"], "d_haed: got '8', allowed a known setting (did you mean d_head?)"),
    (["--set", "d_head"], "--set: got 'd_head', allowed NAME=VALUE"),
    (["--set", "d_head=8\n9"], r"d_head: got '8\n9', allowed a whole number from 1 to 64"),
    (["--set", "causal=perhaps"], "causal: got 'perhaps', allowed true or false"),
    (["--set", "n_entries=9", "--set", "n_names=8"], "n_entries: got 9, allowed at most n_names"),
    (["--seeds", "1e3"], "n_seeds: got '1e3', allowed a whole number from 1 to 40"),
    (["--steps", "5", "--steps", "-5"], "steps: got '-5', allowed a whole number from 1 to 50000"),
    (["--steps", HUGE], f"steps: got '{HUGE[:56]}..., allowed a whole number from 1 to 50000"),
    (["--link", "v=2"], "v: got '2', allowed 1, the version this copy reads"),
    (["--link", "v=1&n_heads=x"], "n_heads: got 'x', allowed a whole number from 1 to 8"),
    (["--link", "nonsense"], "nonsense: got '', allowed one of "),
    (["--device", "meta"], "device: got 'meta', allowed auto, cpu"),
    (["--device", "cuda:99"], "device: got 'cuda:99', allowed auto, cpu"),
    (["--json", ""], "--json: got '', allowed a file"),
    (["--json", "folder"], "--json: got 'folder', but it is a folder, allowed a file"),
    (["--json", "/proc/x.json"], "--json: got '/proc/x.json', but it cannot be used (No such"),
    (["--json", LONG], f"--json: {TOO_LONG}"),
    (["--json", "a\0b"], r"--json: got 'a\x00b', but it cannot be used (no path has"),
    (["--json", "loop"], "--json: got 'loop', but it cannot be used ("),
    (["--out", ""], "--out: got '', allowed a folder"),
    (["--out", "no/such/result"], "--out: got 'no/such/result', but its folder does not exist"),
    (["--out", "/proc/result"], "--out: got '/proc/result', but it cannot be used (No such file"),
    (["--out", "/dev/full"], "--out: got '/dev/full', but it is a file, allowed a folder"),
    (["--out", "blocked"], "--out: got 'blocked', but its result.json is a folder"),
    (["--store", "mysql://host/db"], "--store: its address is neither a folder nor of"),
    (["--store", "/dev/null"], "--store: its folder cannot be used"),
    (["--store", "a\0b"], r"--store: got 'a\x00b', but no address has"),
    (["--sed", "3"], "unrecognized arguments: --sed 3, allowed --task, "),
    (["word"], "unrecognized arguments: word, allowed --task"),
]
"""Arguments of `train`, and how the error begins."""

OTHERS = [
    (["fly"], "command: got 'fly', allowed lab, train, tasks, "),
    ([""], "command: got '', allowed lab, train, "),
    (
        ["tasks", "phone"],
        f"task: got 'phone', allowed {', '.join(TASKS)} (did you mean phonebook?)",
    ),
    (["tasks", "phonebook", "mqar"], "unrecognized arguments: mqar, allowed --json"),
    (["claims", "--first-seed", "1.5"], f"--first-seed: got '1.5', {NUMBER} 0 to 800,000"),
    (["claims", "--table", "file"], "--table: got 'file', but it cannot be used (file: needs one"),
    (["claims", "--table", "bytes"], "--table: got 'bytes', but it cannot be used (its byte 0 is"),
    (["claims", "--table", "/proc/self/mem"], "--table: got '/proc/self/mem', but it cannot be u"),
    (
        ["claims", "--list", "--json", "x", "--html", "./x"],
        "--html: got './x', but --json writes the same file",
    ),
    (["models"], "MODEL: none given, allowed one or more"),
    (["models", ""], "source: is empty; allowed are a folder, a file"),
    (["models", "nosuchthing"], "source: got 'nosuchthing', but there is no such file or folder"),
    (["models", "file"], "file: allowed are "),
    (["models", "json", "--out", "x.csv"], "--out: got 'x.csv', allowed a name that ends in .parq"),
    (["models", "json", "--out", "no/x.parquet"], "--out: got 'no/x.parquet', but its folder does"),
    (["models", "json", "--offset", "NaN"], "--offset: got 'NaN', allowed a whole number"),
    (["models", "json", "--table", "file", "--fold"], "--table: allowed for models as they stand"),
    (["models", "json", "--ship"], "--ship: measures the shipped models only; leave out MODEL"),
    (["code", "folder"], "the following arguments are required: --out"),
    (["code", "", "--out", "x"], "SAVED: got '', allowed a folder"),
    (["code", "nowhere", "--out", "x"], "SAVED: got 'nowhere', but it holds no saved result (No"),
    (["code", "broken", "--out", "x"], "SAVED: got 'broken', but it holds no saved result (these"),
    (["code", "saved", "--out", ""], "--out: got '', allowed a folder"),
    (["code", "saved", "--out", "file"], "--out: got 'file', but "),
    (["code", "saved", "--out", "/dev/full"], "--out: got '/dev/full', but "),
    (["bench", "--case", "phone"], "--case: got 'phone', allowed phonebook, MQAR T=24"),
    (["bench", "--runs", "7"], "--runs: got 7, allowed 1 or a multiple of 5"),
    (["bench", "--rounds", HUGE], f"--rounds: got '{HUGE[:56]}..., {NUMBER} 1 to 1,000"),
    (["bench", "--rounds", "²"], f"--rounds: got '²', {NUMBER} 1 to 1,000"),
    (["bench", "--table", "no/such.md"], "--table: got 'no/such.md', but its folder does not ex"),
    (["bench", "--only-cases", "--only-supply"], "argument --only-supply: not allowed with argume"),
    (["examples", "--force"], "unrecognized arguments: --force, allowed no options"),
]
"""Command lines, and how the error begins."""

HINTS = [
    (["train", "--task", "Phonebok"], "phonebook"),
    (["train", "--stpes", "3"], "--steps"),
    (["trian"], "train"),
    (["claims", "rankin"], "ranking"),
    (["bench", "--case", "phonbook"], "phonebook"),
]
"""Command lines, and the name that is meant."""

LINES = [(["train", *arguments], begins) for arguments, begins in TRAIN] + OTHERS


@pytest.fixture(scope="module")
def result():
    """A small result."""
    return train(Experiment(sharing=["QKV"], n_seeds=1, steps=2, batch_size=16, n_eval=16))


@pytest.fixture
def place(tmp_path, monkeypatch, result):
    """The current folder, with files and folders that cannot be used as what they are given for."""
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "broken", "blocked/result.json"):
        Path(name).mkdir(parents=True)
    Path("file").write_text("words")
    Path("bytes").write_bytes(b"\xff\xfe")
    Path("loop").symlink_to("loop")
    for name in ("config.json", "model.safetensors", "snapshot.safetensors"):
        Path("broken", name).write_text("{")
    Path("broken/parameters.safetensors").write_text("{")
    result.save("saved")
    return tmp_path


def listing(folder):
    """All files and folders, with their sizes and times of change."""
    return sorted(
        (path, path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    ) + sorted(path for path in folder.rglob("*") if path.is_dir())


def test_a_bad_command_line_is_one_line_and_exit_code_2(run, place, monkeypatch):
    """Nothing is computed, printed, changed or left behind; a name is answered with the nearest."""
    monkeypatch.setattr(
        "attnkit.training.training.Training.advance", lambda *_: pytest.fail("trained")
    )
    before, wrong = listing(place), []
    for arguments, begins in LINES:
        code, output, errors = run(*arguments)
        if (
            (code, output) != (2, "")
            or not errors.startswith(f"attnkit: error: {begins}")
            or errors.splitlines(keepends=True) != [errors]
            or len(errors) >= 2100
            or listing(place) != before
        ):
            wrong.append((arguments, errors))
    for arguments, hint in HINTS:
        errors = run(*arguments)[2]
        if not errors.endswith(f"(did you mean {hint}?)\n"):
            wrong.append((arguments, errors))
    assert not wrong


def test_several_mistakes_are_told_at_once(run):
    """In one printable line, also where there are control characters of a terminal."""
    code, _, errors = run("train", "--steps", "0", "--set", "d_head=0")
    assert (code, errors.count("\n")) == (2, 1)
    assert "steps: got '0'" in errors
    assert "d_head: got '0'" in errors
    assert error_line("a\x1b[31m\nb") == "attnkit: error: a\\x1b[31m b\n"


def test_what_the_machine_lacks_is_bad_input(run, monkeypatch):
    """A module, the repository, and memory: one line that says what to change."""
    with monkeypatch.context() as patch:
        patch.setenv("ATTNKIT_MODULES", "nowhere_to_be_found")
        code, _, errors = run("tasks")
    assert (code, errors.count("\n")) == (2, 1)
    assert "ATTNKIT_MODULES: 'nowhere_to_be_found' cannot be imported" in errors
    with monkeypatch.context() as patch:
        patch.setattr("attnkit.command.bench._TESTS", Path("nowhere"))
        code, _, errors = run("bench")
    assert (code, errors.count("\n")) == (2, 1)
    assert "the benchmark comes with the repository" in errors
    fail = Mock(side_effect=RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    monkeypatch.setattr("attnkit.training.training.train", fail)
    code, output, errors = run("train")
    assert (code, output) == (2, "")
    assert errors.startswith("attnkit: error: memory: too little for this experiment; choose fewer")


# files that cannot be written


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


@pytest.fixture
def trained(monkeypatch, result):
    """Train nothing: every command gets the same result."""
    monkeypatch.setattr("attnkit.command.train.train_with_progress", lambda *_: result)


def test_a_full_disk_is_found_before_training(run, place, monkeypatch):
    """Nobody waits for numbers that are then lost, and nothing is left behind."""
    monkeypatch.setattr(
        "attnkit.command.train.train_with_progress", lambda *_: pytest.fail("trained")
    )
    before = listing(place)
    for option in ("--json", "--out"):
        with full_disk(100):
            code, output, errors = run("train", option, "x")
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"attnkit: error: {option}: got 'x', but it cannot be used (")
        assert listing(place) == before


def test_a_disk_that_is_full_at_the_end_costs_only_what_does_not_fit(
    run, place, monkeypatch, result
):
    """The numbers are printed, the line says what was saved, and an earlier result stays whole."""
    before = Result.load("saved").to_blobs()
    limits = contextlib.ExitStack()

    def fills_the_disk(*_):
        limits.enter_context(full_disk(4096))
        return result

    monkeypatch.setattr("attnkit.command.train.train_with_progress", fills_the_disk)
    with limits:
        code, output, errors = run("train", "--out", "out", "--json", "x.json")
    assert code == 2
    assert "QKV" in output
    assert errors == (
        "attnkit: error: --out: got 'out', but it cannot be written (File too large); "
        "saved: --json x.json\n"
    )
    assert json.loads((place / "x.json").read_text())["status"] == "finished"
    assert {path.name for path in Path("out").iterdir()} == {"result.json", "snapshot.safetensors"}
    with contextlib.ExitStack() as limits:
        assert run("train", "--out", "saved")[0] == 2
    assert Result.load("saved").to_blobs() == before


@pytest.mark.usefixtures("trained", "place")
def test_a_full_device_is_one_line(run, monkeypatch):
    """The other outputs are written all the same, and files before anything is printed."""
    reason = "got '/dev/full', but it cannot be written (No space left on device)"
    for arguments in (["train", "--out", "out"], ["claims", "--list", "direction"]):
        code, output, errors = run(*arguments, "--json", "/dev/full")
        assert (code, output != "", errors.count("\n")) == (2, True, 1)
        saved = "; saved: --out out" if "--out" in arguments else ""
        assert errors.endswith(f"{reason}{saved}\n")
        assert Path("out").is_dir()
    for arguments in (["tasks"], ["train", "--json", "-", "--out", "other"], ["--help"]):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:  # noqa: PTH123
            patch.setattr(sys, "stdout", full)
            code, _, errors = run(*arguments)
        assert (code, errors) == (
            2,
            "attnkit: error: standard output: cannot be written (No space left on device)\n",
        )
    assert Path("other").is_dir()


def test_files_are_checked_without_a_trace(tmp_path):
    """A good target passes: a new file, an old one, a link to one, a pipe that nobody reads."""
    (tmp_path / "old").write_text("as it was")
    (tmp_path / "link").symlink_to("old")
    os.mkfifo(tmp_path / "pipe")
    before = listing(tmp_path)
    for name in ("new", "old", "link", "pipe", "x" * 255):
        check_writable(tmp_path / name)
    assert listing(tmp_path) == before


def test_a_replaced_file_keeps_its_link_and_its_permissions(tmp_path):
    """Only its content changes."""
    old, link = tmp_path / "old", tmp_path / "link"
    old.write_text("old")
    old.chmod(0o640)
    link.symlink_to("old")
    replace_file(link, lambda path: path.write_text("new"))
    assert link.is_symlink()
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_process_with_broken_streams():
    """No traceback, and no message in the place of output; four processes start."""
    environment = {**os.environ, "ATTNKIT": f"{sys.executable} -m attnkit"}
    for command, code, output, errors in (
        ("$ATTNKIT tasks phone 2>/dev/full", 2, b"", b""),
        ("$ATTNKIT tasks >&-", 2, b"", b"attnkit: error: standard output: is closed, allowed"),
        ("$ATTNKIT tasks $'\\xff' >&1 <&-", 2, b"", rb"attnkit: error: task: got '\udcff', allow"),
        ("$ATTNKIT tasks | head -1; exit ${PIPESTATUS[0]}", 0, b"Questions people ask\n", b""),
    ):
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, cwd=ROOT, env=environment, check=False
        )
        assert (done.returncode, done.stdout) == (code, output), command
        assert done.stderr.startswith(errors), command
        assert done.stderr.count(b"\n") == bool(errors), command
