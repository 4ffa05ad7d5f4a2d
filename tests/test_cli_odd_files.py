"""Odd files and odd names in every place where a command takes one: one line, and soon."""

import contextlib
import json
import os
import re
import socket
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged_files import intact, write
from searching import times
from time_limits import TooLongError, at_most

from attnkit.experiment import Experiment
from attnkit.training import train

SECONDS = 30.0
"""Time that one command may take: a pipe that nobody writes to would wait for ever."""

SWEEP = "n_seeds = 1\nsharing = ['QKV']\n[base]\nsteps = 2\nbatch_size = 16\nn_eval = 16\n"

CONTENTS = {
    "empty": b"",
    "zeros": bytes(10_000),
    "not UTF-8": b"\xff\xfe{\x00}\x00",
    "a mark and TOML": b"\xef\xbb\xbf" + SWEEP.encode(),
    "deep JSON": b"[" * 300_000,
    "deep objects": b'{"v":' * 300_000,
    "deep TOML": b"base = " + b"[" * 300_000,
    "deep keys": b"a." * 100_000 + b"a = 1",
    "many keys": b"\n".join(b"a%d = 1" % i for i in range(50_000)),
    "many JSON keys": json.dumps(dict.fromkeys(map(str, range(200_000)))).encode(),
    "huge number": b"n_seeds = 1" + b"0" * 5000,
    "huge JSON number": b'{"n_seeds": 1' + b"0" * 5000 + b"}",
    "hexadecimal": b"n_seeds = 0x" + b"f" * 50_000,
    "key again": b"n_seeds = 1\nn_seeds = 2",
    "JSON key again": b'{"n_seeds": 1, "n_seeds": 2}',
    "lone surrogate": b'{"base": {"task": "\\ud800"}}',
    "list": b"[1, 2]",
    "not a number": b'{"n_seeds": NaN, "first_seed": 1e999}',
    "text": b"words, no more",
    "date": b"base = 2020-01-01\nn_seeds = 00:00:00",
    "large": b" " * 2**21,
    "other columns": b"PAR1",
}
"""Contents of files that are read as text, tables or tensors."""

NAMES = (
    "plain", "two\nlines", "'quote\"", "=HYPERLINK(1)", "-dash", "a|b", "tab\there", "\x1b[31mred",
    "byte\udcff", "x" * 200, "ä 日本", "%s{}", "<b>", "*", "~", "a:b", "a#b", "::",
)  # fmt: skip


def put(rng, path, more=()):
    """Make something odd at a path, and return what it is; `more` kinds are drawn more often."""
    kinds = ("folder", "pipe", "socket", "loop", "zero", "missing", "parquet", *CONTENTS, *more)
    kind = kinds[rng.integers(len(kinds))]
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        folder = os.open(path.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as one, contextlib.suppress(OSError):
            one.bind(f"/proc/self/fd/{folder}/{path.name}")  # a path in full would be too long
        os.close(folder)
    elif kind in ("loop", "zero"):
        path.symlink_to(path.name if kind == "loop" else "/dev/zero")
    elif kind == "parquet":
        columns = {"cell": ["x", "y"], "seed": [0, None], "error": ["e", 3]}
        columns = {name: values for name, values in columns.items() if rng.random() < 0.7}
        rows = {n: pa.array([str(v) for v in values]) for n, values in columns.items()}
        content = pa.BufferOutputStream()  # the library opens no names that are not UTF-8
        pq.write_table(pa.table(rows or {"a": [1]}), content)
        path.write_bytes(content.getvalue())
    elif kind != "missing":
        path.write_bytes(CONTENTS[kind])
    return kind


def draw(rng, home, result):
    """Return a command line with something odd in it, and what that is."""
    name = NAMES[rng.integers(len(NAMES))]
    good, folder = home / "good.toml", home / "folder"
    good.write_text(SWEEP)
    folder.mkdir()
    place = rng.integers(14)
    if place == 0:
        ending = (".gguf", ".safetensors", ".bin", ".npz", "", ".safetensors.index.json")
        odd = home / (name + ending[rng.integers(len(ending))])
        return ["models", "--", str(odd)], put(rng, odd)
    if place == 1:
        for file in ("config.json", "model.safetensors"):
            (folder / file).write_text("{}")
        odd = folder / ("config.json", "model.safetensors", "a.gguf")[rng.integers(3)]
        return ["models", str(folder)], f"{odd.name} {put(rng, odd)}"
    if place == 2:
        odd = home / f"{name}.toml"
        return ["sweep", "--estimate", "--", str(odd)], put(rng, odd)
    if place == 3:
        odd = home / name
        return ["sweep", str(good), "--estimate", f"--out={odd}"], put(rng, odd)
    if place in (4, 5):
        odd = folder / ("sweep.json" if place == 4 else f"parts/{name}.parquet")
        odd.parent.mkdir(exist_ok=True)
        if place == 5:
            (folder / "sweep.json").write_text("{}")
        further = (["--resume"], ["--resume", "--retry-failed"], [], ["--check", "1"])
        more = further[rng.integers(4)]
        more = more if "--check" in more else [*more, "--estimate"]
        what = put(rng, odd, ["parquet"] * 20)
        return ["sweep", str(good), f"--out={folder}", *more], f"{odd.name} {what}"
    if place in (6, 7):
        result.save(folder)
        odd = sorted(folder.iterdir())[rng.integers(3)]
        return ["code", str(folder), "--out", str(home / "code")], f"{odd.name} {put(rng, odd)}"
    odd = home / name
    if place == 10:
        odd, option = home / f"{name}.parquet", "--out"
        if rng.random() < 0.5:
            odd, option = home / f"{name}.safetensors", "--portraits"
        path = write(home, "model", intact("gguf"))
        return ["models", str(path), f"{option}={odd}"], put(rng, odd)
    option = ("--table", "--json")[rng.integers(2)]
    if place in (8, 9):
        return ["claims", "--list", f"{option}={odd}"], put(rng, odd)
    option = ("--out", "--json", "--store", "--link")[rng.integers(4)]
    return ["train", f"{option}={odd}"], put(rng, odd)


def fault_of(run, arguments):
    """Return what is wrong with how a command ends; "" if nothing is."""
    try:
        with at_most(SECONDS, waiting=True), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            code, _, errors = run(*arguments)
    except (Exception, TooLongError) as error:
        return f"{type(error).__name__}: {error}"[:300]
    if caught:
        return f"warning: {caught[0].message} in {caught[0].filename}:{caught[0].lineno}"
    if code == 0:
        return ""
    lines = errors.splitlines()
    is_line = code == 2 and lines and lines[-1].startswith("attnkit: error: ")
    tells = re.search(r"\w(Error|Exception)\b|Traceback|codec can't", errors)
    many = sum(line.startswith("attnkit: error: ") for line in lines) > 1
    return "" if is_line and not tells and not many and len(errors) < 2200 else errors or str(code)


@pytest.fixture(scope="module")
def result():
    """A small result."""
    return train(Experiment(sharing=["QKV"], n_seeds=1, steps=2, batch_size=16, n_eval=16))


def test_an_odd_file_or_name_is_one_line(run, tmp_path, seed, monkeypatch, result):
    """Folders, pipes, devices, links and contents that no format has, in every place."""

    monkeypatch.setattr("attnkit.command.train.train_with_progress", lambda *_: result)
    rng, wrong = np.random.default_rng(seed), []
    for case in range(times(60)):
        home = tmp_path / str(case)
        home.mkdir()
        monkeypatch.chdir(home)
        arguments, what = draw(rng, home, result)
        if fault := fault_of(run, arguments):
            wrong.append((seed, case, arguments, what, fault))
    assert wrong == []
