"""Laws of all formats: what is written is read; a damaged file is refused in one line, soon.

The command gives one line, or a table with gaps and their reason. A model of any size is read with
the memory of one layer.
"""

import contextlib
import json
import math
import os
import re
import resource
import struct
import warnings
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from damaged_files import (
    ROWS,
    SIZES,
    WRITERS,
    damaged,
    damaged_values,
    false_numbers,
    intact,
    key,
    refused,
    sizes_for,
    special,
    write,
)
from model_files import File, Sizes, encode, gguf_file, llama
from safetensors.numpy import save_file
from time_limits import TooLongError, at_most

from attnkit.foundation.process import limit_memory
from attnkit.realmodels import Unreadable, measure_model, open_model
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files

SECONDS, MEGABYTES = 10.0, 200.0
"""Processor time and memory that a damaged file may take."""


@contextlib.contextmanager
def limited(megabytes):
    """Let this process take so much more memory, no more: an allocation fails."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_memory(megabytes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_read(name, tmp_path, seed, long):
    """Every head of every layer has the rows that were written for it, bit by bit."""
    rng = np.random.default_rng(seed)
    for case in range(50 if long else 4):
        n_kv_heads, times, n_layers, half = map(int, rng.integers(1, (4, 4, 4, 5)))
        sizes = sizes_for(name, Sizes(n_layers, n_kv_heads * times, n_kv_heads, 2 * half, 32))
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
    for case, end in enumerate(rng.integers(len(file.data), size=10)):
        path = write(tmp_path, case, File(file.name, file.data[:end], beside=file.beside))
        with contextlib.suppress(Unreadable):
            read += [(end, layer.read()) for layer in open_model(str(path)).layers]
    assert read == [], f"{seed=}"


def outcome_of(path):
    """Open a model and read every layer: "read", "unreadable" or an error, and what is said."""
    try:
        with at_most(SECONDS):
            for layer in open_model(str(path)).layers:
                layer.read()
    except Unreadable as error:
        return "unreadable", str(error)
    except (Exception, TooLongError) as error:
        return type(error).__name__, str(error)
    return "read", ""


def faults_of(cases):
    """Return cases whose outcome is not allowed, or told in another way than one short line.

    No message names an error of Python or a place on this machine, and none takes more than ten
    seconds and a little memory.
    """
    wrong = []
    for allowed, name, path in cases:
        with limited(MEGABYTES):
            outcome, said = outcome_of(path)
        is_short = said.isprintable() and len(said) <= 1200 and (said or outcome == "read")
        tells = re.search(r"\w(Error|Exception)\b|Traceback|machine.s memory", said)
        # A message about the source itself says again what was asked for.
        tells = tells or (not said.startswith("source:") and str(path.parent) in said)
        if outcome not in allowed or not is_short or tells:
            wrong.append((name, outcome, said[:300]))
    return wrong


def test_every_file_with_a_fault_is_refused(tmp_path):
    """Numbers and parts that contradict each other, pipes, and links to themselves."""
    whole = [({"read"}, name, write(tmp_path, name, intact(name))) for name in WRITERS]
    files = [({"unreadable"}, n, write(tmp_path, i, f)) for i, (n, f) in enumerate(refused())]
    odd = [({"unreadable"}, path.parent.name, path) for path in special(tmp_path)]
    assert faults_of([*whole, *files, *odd]) == []


@pytest.mark.parametrize("n", [6, pytest.param(400, marks=pytest.mark.long(seconds=60))])
def test_damaged_files_are_read_or_refused_in_one_short_line_and_soon(tmp_path, seed, n):
    """Each file with a drawn damage or a false number."""
    rng, cases = np.random.default_rng(seed), []
    for name, whole in [(name, intact(name)) for name in WRITERS]:
        false = list(false_numbers(whole))
        rng.shuffle(false)
        drawn = [damaged(rng, whole) for _ in range(n)] + false[: 2 * n]
        cases += [({"read", "unreadable"}, f"{name}, {seed=}: {what}", one) for what, one in drawn]
    paths = [write(tmp_path, i, file) for i, (_, _, file) in enumerate(cases)]
    assert faults_of([(a, n, p) for (a, n, _), p in zip(cases, paths, strict=True)]) == []


# safetensors


def matrices(seed=5):
    """Three random matrices by name."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(3, 5)).astype(np.float32) for name in ("one", "two", "three")}


def sharded(folder):
    """Write two files, and return their index."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = {"one": "a.safetensors", "two": "b.safetensors", "three": "b.safetensors"}
    for file in set(shards.values()):
        save_file({n: w for n, w in matrices().items() if shards[n] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    return index


def test_floats_of_four_widths_are_read_in_single_precision(tmp_path):
    """Each number is the nearest in single precision, and no file stays open or mapped.

    A file that changes meanwhile is refused: its shapes were read when it was opened.
    """
    path = tmp_path / "model.safetensors"
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16, np.float32):
        stored = {name: w.astype(dtype) for name, w in matrices().items()}
        save_file(stored, path)
        file = open_safetensors(path)
        assert {n: e.shape for n, e in file.entries.items()} == dict.fromkeys(stored, (3, 5))
        for name, w in stored.items():
            assert file.read(name).dtype == np.float32
            assert np.array_equal(file.read(name), w.astype(np.float32))
    if Path("/proc/self/maps").exists():
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()
        assert not any(tmp_path in p.resolve().parents for p in Path("/proc/self/fd").iterdir())
    with pytest.raises(Unreadable, match="'four'"):
        file.read("four")
    save_file({"one": np.ones((2, 2), np.float32)}, path)
    for name in ("one", "two"):
        with pytest.raises(Unreadable, match=r"changed while|become shorter"):
            file.read(name)


def test_what_a_folder_holds_is_found(tmp_path):
    """An index comes before a stray file, which comes before other files; never a guess.

    In the hub's own cache, files are links into a folder of contents beside it.
    """

    def first():
        return open_safetensors(find_files(str(tmp_path))).read("one")

    save_file(matrices(1), tmp_path / "odd.safetensors")
    assert np.array_equal(first(), matrices(1)["one"])
    save_file(matrices(2), tmp_path / "even.safetensors")
    with pytest.raises(Unreadable, match=r"2 safetensors files; .*'even\.s.*', 'odd\.s.*'$"):
        first()
    index = sharded(tmp_path)
    file = open_safetensors(find_files(str(tmp_path)))
    assert all(np.array_equal(file.read(name), w) for name, w in matrices().items())
    save_file(matrices(3), tmp_path / "model.safetensors")
    assert np.array_equal(first(), matrices()["one"])
    for name in (index.name, "odd.safetensors", "even.safetensors"):
        (tmp_path / name).unlink()
    assert np.array_equal(first(), matrices(3)["one"])
    index = sharded(tmp_path / "models--a--b/snapshots/0f")
    blobs = tmp_path / "models--a--b/blobs"
    blobs.mkdir()
    for file in index.parent.iterdir():
        file.rename(blobs / file.name)
        file.symlink_to(blobs / file.name)
    assert np.array_equal(open_safetensors(index).read("two"), matrices()["two"])


def test_a_damaged_index_or_value_is_named(tmp_path):
    """With the tensor, the file and what is allowed; headers are damaged above."""
    index, path = sharded(tmp_path), tmp_path / "model.safetensors"
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for where, raw, says in (
        (index, b"", "not JSON"),
        (index, b"[]", "weight_map is missing"),
        (index, b'{"weight_map": [1]}', "weight_map is missing"),
        (index, b'{"weight_map": {"one": 7}}', "file of 'one' is 7"),
        (index, b'{"weight_map": {"one": "none.safetensors"}}', "'none.safetensors'"),
        (index, b'{"weight_map": {"one": "\\u0000"}}', "not there"),
        (index, b'{"weight_map": {"four": "a.safetensors"}}', "no tensor 'four'"),
        (index, b"[" * 1_000_000, "is damaged"),
        (index, b" " * 9_000_000, "not JSON"),  # a model of experts has such an index
        (path, encode({"a": {**one, "dtype": "I8"}}, bytes(8)), "'a'"),
        (path, encode({"a": {**one, "dtype": "I8", "shape": [8]}}, bytes(8)), "type I8"),
        (path, encode({"a": {**one, "dtype": "F4"}}, bytes(8)), "one of F64, F32, F16, BF16"),
        (path, encode({"a": one}, np.float32([1, -np.inf]).tobytes()), "'a' has values"),
        (
            path,
            encode({"a": {**one, "dtype": "F64", "shape": [1]}}, np.float64([1e300]).tobytes()),
            "infinite or NaN",
        ),
    ):
        where.write_bytes(raw)
        with pytest.raises(Unreadable, match=re.escape(says)) as error:
            [file.read(name) for file in [open_safetensors(where)] for name in file.entries]
        said = str(error.value)
        assert said.isprintable()
        assert len(said) < 400
        assert str(tmp_path) not in said


# the command

OPTIONS = (
    (), ("--fold",), ("--offset", "7"), ("--offset", "-999999"), ("--fold", "--offset", "999999"),
    ("--every-setting",),
)  # fmt: skip

GAPS = [f"{name}_{role}" for name in ("norm", "rank") for role in "qkv"]
"""Columns that have a number for every head, unless the file is damaged."""


def messages_of(errors):
    """Return the lines on standard error that are no progress bars."""
    lines = re.split(r"[\r\n]+", errors)
    return [line for line in lines if line.strip() and not re.search(r"s/layer|layer/s", line)]


def wrong_message(path, errors):
    """Return an error that is not one short line about a file or a setting; otherwise ""."""
    lines = messages_of(errors)
    begins = len(lines) == 1 and lines[0].startswith("attnkit: error: ")
    tells = re.search(r"\w(Error|Exception)\b|Traceback|array\(", errors)
    names = (path.name, path.parent.name, "config.json", "part.safetensors", "offset")
    is_named = any(name in errors for name in names)
    return "" if begins and is_named and not tells and len(lines[0]) < 1300 else errors


def wrong_table(table, errors):
    """Return what is wrong in a table; each head with a gap must have a reason among the notes."""
    heads = table[table["head"].notna()]
    if np.isinf(table.select_dtypes("float32")).any(axis=None):
        return "infinite numbers"
    reasons = ("in single precision", "is zero")
    has_gap = heads[GAPS].isna().any(axis=None)
    return "gaps without a reason" if has_gap and not any(r in errors for r in reasons) else ""


def fault_of(run, path, *options):
    """Return what is wrong with how the command ends on a file; "" if nothing is."""
    table, portraits = path.parent / "out.parquet", path.parent / "out.safetensors"
    outputs = ("--out", str(table), "--portraits", str(portraits))
    try:
        with at_most(SECONDS), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            code, output, errors = run("models", *options, *outputs, "--", str(path))
    except (Exception, TooLongError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    if caught:
        return f"warning: {caught[0].message} in {caught[0].filename}:{caught[0].lineno}"
    if code == 2:
        return wrong_message(path, errors) or output
    return f"exit code {code}: {errors}" if code else wrong_table(pd.read_parquet(table), errors)


@pytest.mark.parametrize("n", [42, pytest.param(600, marks=pytest.mark.long(seconds=60))])
def test_a_damaged_file_gives_one_line_or_a_table_with_gaps(run, tmp_path, seed, n):
    """Values, headers and settings of every format, drawn; with every option of the command."""
    rng, names, wrong = np.random.default_rng(seed), list(WRITERS), []
    for case in range(n):
        name = names[case % len(names)]
        has_values = rng.random() < 0.7
        what, file = damaged_values(rng, name) if has_values else damaged(rng, intact(name))
        path = write(tmp_path, case, file)
        options = OPTIONS[rng.integers(len(OPTIONS))]
        if fault := fault_of(run, path, *options):
            wrong.append((seed, case, name, what[:200], options, fault))
    assert wrong == [], f"{len(wrong)} of {n}"


NAMES = ("two\nlines", "a|b", "\x1b[31mred", "byte\udcff", "<b>&amp;", "=X(1)", " ", "-x")
"""Names of files that a terminal, a table or a file of tables would not show as they are."""


def test_a_models_name_is_one_line_of_text(run, tmp_path):
    """On the terminal, in the table and in its file; a name in the file is used as that of it."""
    for case, name in enumerate(NAMES):
        keys = {} if case % 2 else {"general.name": (8, name.replace("\udcff", "\0"))}
        file = replace(gguf_file(SIZES, ROWS, keys=keys), name=f"{'model' if keys else name}.gguf")
        path, out = write(tmp_path, case, file), tmp_path / "out.parquet"
        code, output, errors = run("models", "--out", str(out), "--", str(path))
        assert code == 0, errors
        [found] = pd.read_parquet(out)["model"].unique()
        assert found.isprintable()
        assert found.strip() == found != ""
        assert [line.count("|") for line in output.splitlines()] == [7] * 3 + [0] * 3 + [5] * 3
        assert "<b>" not in output
        assert output.replace("\n", "").isprintable()


def test_a_damaged_model_costs_no_other_one_and_gaps_have_a_reason(run, tmp_path):
    """The models before it are saved and printed; messages name the file, and heads by number."""
    whole, rows = write(tmp_path, "whole", intact("gguf")), SIZES.drawn(np.random.default_rng(7))
    rows[1]["v"][0, 0] = np.nan
    path, out = write(tmp_path, "broken", intact("gguf", rows=rows)), tmp_path / "out.parquet"
    code, output, errors = run("models", str(whole), str(path), "--out", str(out))
    assert code == 2
    assert "model.gguf is damaged: 'blk.1.attn_v.weight'" in messages_of(errors)[-1]
    assert set(pd.read_parquet(out)["model"]) == {"model"}
    assert "model causal (8)" in output
    rows = SIZES.drawn(np.random.default_rng(7))
    rows[0]["gain"] = np.full(SIZES.d_model, 3e38, np.float32)  # it overflows
    rows[1]["q"][2:4] = 0
    path = write(tmp_path, 0, intact("gguf", rows=rows))
    code, _, errors = run("models", str(path), "--every-setting")
    assert code == 0
    overflow, zero = messages_of(errors)
    assert re.search("4 of 8 heads.*causal layer 0, head 0.*single precision", overflow)
    assert re.search("1 of 8 heads.*causal layer 1, head 1.*zero", zero)


# size


def write_sparse(folder):
    """Write a Llama of 1,700 million zeros that occupies next to nothing on the disk."""
    n_layers, n_heads, d_model = 32, 32, 2048
    shapes = {"model.embed_tokens.weight": (32_000, d_model)}
    for i in range(n_layers):
        names = [f"model.layers.{i}.self_attn.{part}_proj.weight" for part in "qkvo"]
        shapes |= dict.fromkeys(names, (d_model, d_model))
        shapes |= {f"model.layers.{i}.mlp.{part}.weight": (5504, d_model) for part in "abc"}
        shapes[f"model.layers.{i}.input_layernorm.weight"] = (d_model,)
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    raw, sizes = encode(header, b""), Sizes(n_layers, n_heads, n_heads, d_model // n_heads, d_model)
    path = write(folder, 0, File("model.safetensors", raw, beside={"config.json": llama(sizes)}))
    os.truncate(path, len(raw) + end)
    assert path.stat().st_size > 3e9
    return path.parent


def read_one_at_a_time(source, most=None, spare=300):
    """Read layers with memory for two at most; return the megabytes of one, and how many."""
    model = open_model(source)
    arrays = vars(model.layers[0].read()).values()
    size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray)) / 2**20
    with limited(2 * size + spare):
        n = sum(1 for layer in model.layers[:most] if layer.read())
        if most is None:
            measure_model(model)
    return size, n


def test_a_large_model_is_read_one_layer_at_a_time(tmp_path):
    """Five layers at once would be too much."""
    size, n = read_one_at_a_time(str(write_sparse(tmp_path)), 6, spare=50)
    assert (n, size) == (6, pytest.approx(3 * 2048**2 * 4 / 2**20, rel=0.001))


def test_a_large_vocabulary_takes_little_memory(tmp_path):
    """The library's own reader of GGUF would need 1.3 GB for these 800,000 texts."""
    more = key(9, "IQ", 8, 800_000) + struct.pack("<Q4s", 4, b"word") * 800_000
    path = write(tmp_path, 0, gguf_file(SIZES, ROWS, more=more))
    with limited(50):
        assert len(open_model(str(path)).layers) == SIZES.n_layers
