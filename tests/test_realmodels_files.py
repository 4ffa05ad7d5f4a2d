"""Laws of all formats: what is written is read; a damaged file is refused in one line, soon."""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hostile_files import WRITERS, damaged, intact, refused, special, square, write
from model_files import File, Sizes

from attnkit.realmodels import Unreadable, open_model

SECONDS, MEGABYTES = 1.0, 200.0
"""Processor time and memory that a damaged file may take."""


def outcomes(paths):
    """Return what became of each file, read in one process of its own."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("hostile_reading.py"))],
        input=json.dumps([str(path) for path in paths]),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def drawn_sizes(rng):
    """Return sizes of which no two are alike by chance."""
    n_kv_heads = int(rng.integers(1, 4))
    n_heads = n_kv_heads * int(rng.integers(1, 4))
    return Sizes(int(rng.integers(1, 4)), n_heads, n_kv_heads, 2 * int(rng.integers(1, 5)), 32)


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_read(name, tmp_path, seed, long):
    """Every head of every layer has the rows that were written for it, bit by bit."""
    rng = np.random.default_rng(seed)
    for case in range(100 if long else 5):
        sizes = drawn_sizes(rng)
        sizes = square(sizes) if name.startswith("marian") else sizes
        rows = sizes.drawn(rng)
        model = open_model(str(write(tmp_path, case, intact(name, sizes, rows))))
        if name == "ctranslate2":  # the cross-attention has the queries' rows everywhere
            rows = [*rows, dict.fromkeys("qkv", rows[0]["q"])]
        expected = rows * 3 if name.startswith("marian") else rows
        for layer, own in zip(model.layers, expected, strict=True):
            read = layer.read()
            for role, w in own.items():
                heads = w.reshape(-1, sizes.d_head, sizes.d_model).swapaxes(1, 2)
                found = getattr(read, f"W_{role.upper()}")
                np.testing.assert_array_equal(found, heads, f"{seed=} {case=} {sizes} {role}")


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_short_is_refused(name, tmp_path, seed):
    """Wherever it ends: a copy that was interrupted is never read in part."""
    rng, file = np.random.default_rng(seed), intact(name)
    read = []
    for case, end in enumerate(rng.integers(len(file.data), size=25)):
        path = write(tmp_path, case, File(file.name, file.data[:end], beside=file.beside))
        with contextlib.suppress(Unreadable):
            read += [(end, layer.read()) for layer in open_model(str(path)).layers]
    assert read == [], f"{seed=}"


@pytest.fixture(scope="module")
def results(tmp_path_factory, seed, long):
    """Return what became of intact files, of those to be refused, and of damages that are drawn."""
    folder, rng = tmp_path_factory.mktemp("hostile"), np.random.default_rng(seed)
    whole = [(name, intact(name)) for name in WRITERS]
    drawn = [
        (f"{name}, {seed=}: {what}", file)
        for name, file in whole * (3000 if long else 60)
        for what, file in [damaged(rng, file)]
    ]
    lies = list(refused())
    cases = [*whole, *lies, *drawn]
    paths = [write(folder, i, file) for i, (_, file) in enumerate(cases)] + special(folder)
    names = [name for name, _ in cases] + [path.parent.name for path in paths[len(cases) :]]
    told = list(zip(names, paths, outcomes(paths), strict=True))
    a, b, c = len(whole), len(whole) + len(lies), len(cases)
    return told[:a], told[a:b] + told[c:], told[b:c]


def test_files_without_a_fault_are_read(results):
    """So it is the fault for which the others are refused."""
    assert [(name, one) for name, _, one in results[0] if one["outcome"] != "read"] == []


def test_a_false_file_is_refused(results):
    """A number, text or structure that cannot be true is never believed."""
    assert len(results[1]) >= 1500
    assert [(name, one) for name, _, one in results[1] if one["outcome"] != "unreadable"] == []


def test_a_damaged_file_is_read_or_refused(results):
    """No other error comes of it, whatever is changed."""
    ends = [(name, one) for name, _, one in results[2]]
    assert [one for one in ends if one[1]["outcome"] not in ("read", "unreadable")] == []
    assert {one["outcome"] for _, one in ends} == {"read", "unreadable"}


def test_a_refusal_is_one_short_line(results):
    """It names neither an error of Python nor a place on this machine."""
    wrong = []
    for name, path, one in results[1] + results[2]:
        said = one["said"]
        is_short = said.isprintable() and len(said) <= 1200 and (said or one["outcome"] == "read")
        tells = re.search(r"\w(Error|Exception)\b|Traceback", said)
        # A message about the source itself says again what was asked for.
        tells = tells or (not said.startswith("source:") and str(path.parent) in said)
        wrong += [(name, said[:300])] if tells or not is_short else []
    assert wrong == []


def test_a_refusal_takes_a_second_and_little_memory(results):
    """A small file may not take much of the processor or of memory."""
    both = results[1] + results[2]
    assert max((one["seconds"], name) for name, _, one in both)[0] <= SECONDS
    assert sum(one["megabytes"] for _, _, one in both) <= MEGABYTES
