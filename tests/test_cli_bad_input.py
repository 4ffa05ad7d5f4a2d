"""Bad command lines, odd files and full disks: exit code 2, one line, nothing lost."""

import contextlib
import json
import os
import random
import re
import resource
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged_files import intact, write
from searching import times
from time_limits import TooLongError, at_most

from attnkit.command.arguments import error_line
from attnkit.experiment import Experiment
from attnkit.foundation.files import check_writable, replace_file
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.training.results import Result

ROOT = Path(__file__).parents[1]
LONG, HUGE = "x" * 300, "9" * 5000
NUMBER = "allowed a whole number from"

TRAIN = [
    (["--task", "phone"], "task: got 'phone', allowed phonebook, "),
    (["--task", "\udcff"], r"task: got '\udcff', allowed phonebook, "),
    (["--task"], "argument --task: "),
    (["--sharing", ""], "sharing: got '', "),
    (["--set", "d_haed=8"], "d_haed: got '8', "),
    (["--set", "d_head"], "--set: got 'd_head', allowed NAME=VALUE"),
    (["--set", "d_head=8\n9"], r"d_head: got '8\n9', allowed a whole number from 1 to 64"),
    (["--seeds", "1e3"], "n_seeds: got '1e3', allowed a whole number from 1 to 40"),
    (["--steps", "5", "--steps", "-5"], "steps: got '-5', allowed a whole number from 1 to 50000"),
    (["--steps", HUGE], f"steps: got '{HUGE[:56]}..., allowed"),
    (["--link", "v=2"], "v: got '2', allowed 1, "),
    (["--device", "cuda:99"], "device: got 'cuda:99', allowed auto, cpu"),
    (["--json", ""], "--json: got '', "),
    (["--json", "folder"], "--json: got 'folder', but it is a folder, "),
    (["--json", LONG], f"--json: got '{LONG[:196]}..., but "),
    (["--json", "a\0b"], r"--json: got 'a\x00b', but "),
    (["--json", "loop"], "--json: got 'loop', but "),
    (["--out", "no/such/result"], "--out: got 'no/such/result', but its folder "),
    (["--out", "/dev/full"], "--out: got '/dev/full', but it is a file, "),
    (["--out", "blocked"], "--out: got 'blocked', but its result.json "),
    (["--store", "mysql://host/db"], "--store: "),
    (["--store", "a\0b"], r"--store: got 'a\x00b', but "),
    (["--sed", "3"], "unrecognized arguments: --sed 3, allowed --task, "),
]
"""Arguments of `train`, and how the error begins."""

OTHERS = [
    (["fly"], "command: got 'fly', allowed lab, train, tasks, "),
    (["tasks", "phone"], f"task: got 'phone', allowed {', '.join(TASKS)} (did "),
    (["claims", "--first-seed", "1.5"], f"--first-seed: got '1.5', {NUMBER} 0 to 800,000"),
    (["claims", "--table", "file"], "--table: got 'file', but it cannot be used (file: "),
    (["claims", "--list", "--json", "x", "--html", "./x"], "--html: got './x', but --json "),
    (["models"], "MODEL: none given, "),
    (["models", "nosuchthing"], "source: got 'nosuchthing', but "),
    (["models", "json", "--out", "x.csv"], "--out: got 'x.csv', "),
    (["models", "json", "--offset", "NaN"], "--offset: got 'NaN', "),
    (["models", "json", "--table", "file", "--fold"], "--table: allowed for "),
    (["models", "json", "--ship"], "--ship: "),
    (["code", "folder"], "the following arguments are required: --out"),
    (["code", "nowhere", "--out", "x"], "SAVED: got 'nowhere', but "),
    (["code", "broken", "--out", "x"], "SAVED: got 'broken', but "),
    (["code", "saved", "--out", "file"], "--out: got 'file', but "),
    (["bench", "--case", "phone"], "--case: got 'phone', allowed phonebook, MQAR T=24"),
    (["bench", "--runs", "7"], "--runs: got 7, allowed 1 or a multiple of 5"),
    (["bench", "--rounds", HUGE], f"--rounds: got '{HUGE[:56]}..., {NUMBER} 1 to 1,000"),
    (["bench", "--table", "no/such.md"], "--table: got 'no/such.md', but its folder "),
    (["bench", "--only-cases", "--only-supply"], "argument --only-supply: not allowed with "),
]
"""Command lines, and how the error begins."""

HINTS = [
    (["train", "--task", "Phonebok"], "phonebook"),
    (["train", "--set", "d_haed=8"], "d_head"),
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
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command `bench` adds the tests to it
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


@pytest.mark.usefixtures("place")
def test_what_the_machine_lacks_is_bad_input(run, monkeypatch):
    """A module, the repository, and memory: one printable line, also for several mistakes."""
    code, _, errors = run("train", "--steps", "0", "--set", "d_head=0")
    assert (code, errors.count("\n")) == (2, 1)
    assert all(told in errors for told in ("steps: got '0'", "d_head: got '0'"))
    assert error_line("a\x1b[31m\nb") == "attnkit: error: a\\x1b[31m b\n"
    with monkeypatch.context() as patch:
        Path("my_rude_module.py").write_text("print('hello')\nraise SystemExit(3)\n")
        patch.syspath_prepend(Path.cwd())
        for module in ("nowhere_to_be_found", "my_rude_module"):
            patch.setenv("ATTNKIT_MODULES", module)
            code, output, errors = run("tasks", "--json")
            assert (code, output) == (2, "")
            assert f"ATTNKIT_MODULES: '{module}'" in errors.splitlines()[-1]
    with monkeypatch.context() as patch:
        patch.setattr("attnkit.command.bench._TESTS", Path("nowhere"))
        code, _, errors = run("bench")
    assert (code, errors.count("\n")) == (2, 1)
    assert "repository" in errors
    fail = Mock(side_effect=RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    monkeypatch.setattr("attnkit.training.training.train", fail)
    code, output, errors = run("train")
    assert (code, output) == (2, "")
    assert errors.startswith("attnkit: error: memory: ")


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
        assert errors.startswith(f"attnkit: error: {option}: got 'x', but ")
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
    full_device = "attnkit: error: --json: got '/dev/full', but "
    for arguments in (["train", "--out", "out"], ["claims", "--list", "direction"]):
        code, output, errors = run(*arguments, "--json", "/dev/full")
        assert (code, output != "", errors.count("\n")) == (2, True, 1)
        saved = "; saved: --out out" if "--out" in arguments else ""
        assert errors.startswith(full_device)
        assert errors.endswith(f"{saved}\n")
        assert Path("out").is_dir()
    for arguments in (["tasks"], ["train", "--json", "-", "--out", "other"], ["--help"]):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:  # noqa: PTH123
            patch.setattr(sys, "stdout", full)
            code, _, errors = run(*arguments)
        assert (code, errors.count("\n")) == (2, 1)
        assert errors.startswith("attnkit: error: standard output: ")
    assert Path("other").is_dir()


def test_files_are_checked_without_a_trace_and_replaced_in_their_place(tmp_path):
    """Whether new, old, a link or a pipe; a link stays a link, and permissions stay."""
    old, link = tmp_path / "old", tmp_path / "link"
    old.write_text("as it was")
    old.chmod(0o640)
    link.symlink_to("old")
    os.mkfifo(tmp_path / "pipe")
    before = listing(tmp_path)
    for name in ("new", "old", "link", "pipe", "x" * 255):
        check_writable(tmp_path / name)
    assert listing(tmp_path) == before
    replace_file(link, lambda path: path.write_text("new"))
    assert link.is_symlink()
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("new", 0o640)


@pytest.mark.server
@pytest.mark.long(seconds=10)
def test_a_process_with_broken_streams():
    """No traceback, and no message in the place of output; four processes start."""
    environment = {**os.environ, "ATTNKIT": f"{sys.executable} -m attnkit"}
    for command, code, output, errors in (
        ("$ATTNKIT tasks phone 2>/dev/full", 2, b"", b""),
        ("$ATTNKIT tasks >&-", 2, b"", b"attnkit: error: standard output: "),
        ("$ATTNKIT tasks $'\\xff' >&1 <&-", 2, b"", rb"attnkit: error: task: got '\udcff', "),
        ("$ATTNKIT tasks | head -1; exit ${PIPESTATUS[0]}", 0, b"Questions people ask\n", b""),
    ):
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, cwd=ROOT, env=environment, check=False
        )
        assert (done.returncode, done.stdout) == (code, output), command
        assert done.stderr.startswith(errors), command
        assert done.stderr.count(b"\n") == bool(errors), command


SWEEP = "n_seeds = 1\nsharing = ['QKV']\n[base]\nsteps = 2\nbatch_size = 16\nn_eval = 16\n"

CONTENTS = {
    "empty": b"",
    "zeros": bytes(10_000),
    "not UTF-8": b"\xff\xfe{\x00}\x00",
    "a mark and TOML": b"\xef\xbb\xbf" + SWEEP.encode(),
    "deep JSON": b"[" * 300_000,
    "deep TOML": b"base = " + b"[" * 300_000,
    "many keys": b"\n".join(b"a%d = 1" % i for i in range(50_000)),
    "many JSON keys": json.dumps(dict.fromkeys(map(str, range(200_000)))).encode(),
    "huge number": b"n_seeds = 1" + b"0" * 5000,
    "hexadecimal": b"n_seeds = 0x" + b"f" * 50_000,
    "key again": b"n_seeds = 1\nn_seeds = 2",
    "JSON key again": b'{"n_seeds": 1, "n_seeds": 2}',
    "lone surrogate": b'{"base": {"task": "\\ud800"}}',
    "not a number": b'{"n_seeds": NaN, "first_seed": 1e999}',
    "date": b"base = 2020-01-01\nn_seeds = 00:00:00",
    "large": b" " * 2**21,
    "other columns": b"PAR1",
}
"""Contents of files that are read as text, tables or tensors."""

NAMES = (
    "plain", "two\nlines", "'quote\"", "=HYPERLINK(1)", "-dash", "a|b", "tab\there", "\x1b[31mred",
    "byte\udcff", "x" * 200, "ä 日本", "%s{}", "<b>", "*", "~", "a:b", "a#b", "::",
)  # fmt: skip

SAVED = ("result.json", "snapshot.safetensors", "parameters.safetensors")

PLACES = [
    *[("models -- {odd}", ending) for ending in (".gguf", ".safetensors", ".bin", ".npz", "")],
    *[("models model", f"model/{file}") for file in ("config.json", "model.safetensors")],
    *[("sweep --estimate -- {odd}", ".toml"), ("sweep good.toml --estimate --out={odd}", "")] * 2,
    ("sweep good.toml --out=sweep --resume --estimate", "sweep/sweep.json"),
    ("sweep good.toml --out=sweep --resume --retry-failed --estimate", "sweep/parts/.parquet"),
    ("sweep good.toml --out=sweep --check 1", "sweep/parts/.parquet"),
    *[("code saved --out code", f"saved/{file}") for file in SAVED],
    ("models good.gguf --out={odd}", ".parquet"),
    ("models good.gguf --portraits={odd}", ".safetensors"),
    *[(f"claims --list --{option}={{odd}}", "") for option in ("table", "json")],
    *[(f"train --{option}={{odd}}", "") for option in ("out", "json", "store", "link")],
]
"""Command lines, and the file in them that is odd: its path, or the ending of a drawn name."""


def put(rng, path, is_read):
    """Make something odd at a path, and return what it is; a pipe waits for whoever reads it."""
    kinds = ["folder", "socket", "loop", "zero", "missing", *CONTENTS, *["pipe"] * is_read]
    kind = rng.choice([*kinds, *["parquet"] * (20 if "parts" in str(path) else 1)])
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one, contextlib.suppress(OSError):
            one.bind(path.name)  # within the current folder: a path in full would be too long
            Path(path.name).rename(path)
    elif kind in ("loop", "zero"):
        path.symlink_to(path.name if kind == "loop" else "/dev/zero")
    elif kind == "parquet":
        columns = {"cell": ["x", "y"], "seed": ["0", "None"], "error": ["e", "3"], "a": ["1", "2"]}
        content = pa.BufferOutputStream()  # the library opens no names that are not UTF-8
        pq.write_table(pa.table({n: columns[n] for n in rng.sample([*columns], 3)}), content)
        path.write_bytes(content.getvalue())
    elif kind != "missing":
        path.write_bytes(CONTENTS[kind])
    return kind


def fault_of(run, arguments):
    """Return what is wrong with how a command ends; "" if nothing is."""
    try:
        with at_most(30.0, waiting=True), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            code, _, errors = run(*arguments)
    except (Exception, TooLongError) as error:
        return f"{type(error).__name__}: {error}"[:300]
    if caught:
        return f"warning: {caught[0].message} in {caught[0].filename}:{caught[0].lineno}"
    told = [line.startswith("attnkit: error: ") for line in errors.splitlines()]
    is_line = code == 2 and told[-1:] == [True] and sum(told) == 1 and len(errors) < 2200
    tells = re.search(r"\w(Error|Exception)\b|Traceback|codec can't", errors)
    return "" if code == 0 or (is_line and not tells) else errors or str(code)


def test_an_odd_file_or_name_is_one_line(run, tmp_path, seed, monkeypatch, result):
    """Folders, pipes, devices, links and contents that no format has, in every place, and soon."""
    monkeypatch.setattr("attnkit.command.train.train_with_progress", lambda *_: result)
    wrong = []
    for case in range(times(60)):
        rng, home = random.Random(f"{seed} {case}"), tmp_path / str(case)
        for folder in ("model", "sweep/parts", "saved"):
            (home / folder).mkdir(parents=True)
        monkeypatch.chdir(home)
        files = {"good.toml": SWEEP, "model/config.json": "{}", "model/model.safetensors": "{}"}
        for file, text in {**files, "sweep/sweep.json": "{}"}.items():
            Path(file).write_text(text)
        write(home, "made", intact("gguf")).rename("good.gguf")
        result.save("saved")
        line, odd = rng.choice(PLACES)
        folder, _, last = odd.rpartition("/")
        path = home / folder / (last if "." in last[1:] else rng.choice(NAMES) + last)
        what = put(rng, path, "={odd}" not in line or "--table" in line)
        arguments = [word.replace("{odd}", str(path)) for word in line.split()]
        if fault := fault_of(run, arguments):
            wrong.append((seed, case, arguments, what, fault))
    assert wrong == []
