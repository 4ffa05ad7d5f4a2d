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
import signal
import struct
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from family_models import CASES, built, converted
from model_files import (
    MARIAN_Q,
    Sizes,
    encode,
    gguf_file,
    index_file,
    llama,
    marian_file,
    safetensors_file,
    write,
)
from safetensors.numpy import save, save_file

from attnkit.foundation.process import limit_memory
from attnkit.realmodels import Unreadable, open_model
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files

SECONDS, MEGABYTES = 10.0, 200.0
"""Processor time and memory that a damaged file may take."""


class TooLongError(BaseException):
    """Not an Exception, so that no reader takes it for a fault of the file."""


@contextlib.contextmanager
def at_most(seconds):
    """Raise TooLongError after so many seconds of processor time."""

    def stop(*_):
        raise TooLongError

    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


@contextlib.contextmanager
def limited(megabytes):
    """Let this process take so much more memory, no more: an allocation fails."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_memory(megabytes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


# damaged files

NAN, INF = float("nan"), float("inf")
SIZES = Sizes()


@cache
def ctranslate2_file():
    """Write a GPT-2 with the converter of CTranslate2."""
    with TemporaryDirectory() as folder:
        built(CASES["GPT2Model"], folder)
        return {"model.bin": converted(Path(folder)).read_bytes()}


WRITERS = {
    "safetensors": safetensors_file,
    "index": index_file,
    "gguf": gguf_file,
    "ctranslate2": lambda *_: ctranslate2_file(),
    "marian bin": lambda *_: marian_file(),
    "marian npz": lambda *_: marian_file("model.npz"),
}
OF_ROWS = list(WRITERS)[:3]


def drawn(seed=7):
    """Return random rows of a small model."""
    return SIZES.drawn(np.random.default_rng(seed))


def intact(name, rows=None):
    """Write an undamaged file of a format; some have a size of their own."""
    return WRITERS[name](SIZES, drawn() if rows is None else rows)


WORDS = [
    *rb'-2 5 2147483648 null true 2.5 NaN 1e999 [2] [[ {} "2" "a\n\u001b" &a !! - , :'.split(),
    *(b"\xff", b"\n", b"\t", b"9" * 400),
]
"""What takes the place of a number, name or word."""


def damaged(rng, files):
    """Return a damaged copy of the files of a model, and what was done to it."""
    target = "config.json" if "config.json" in files and rng.random() < 0.3 else next(iter(files))
    whole = files[target]
    data = bytearray(whole if isinstance(whole, bytes) else json.dumps(whole).encode())
    reach = len(data) if rng.random() < 0.5 else min(len(data), 700)
    start, kind = int(rng.integers(reach)), ("word", "word", "number", "piece", "bytes")
    kind = kind[rng.integers(len(kind))]
    if kind == "word":
        places = [match.span() for match in re.finditer(rb"[\w.+-]+", data)]
        start, end = places[rng.integers(len(places))]
        data[start:end] = WORDS[rng.integers(len(WORDS))]
    elif kind == "number":
        start -= start % 8
        (true,) = struct.unpack_from("<Q", data[start : start + 8].ljust(8))
        changed = (0, min(true + 1, 2**64 - 1), 2**32 - 1, 2**64 - 1)[rng.integers(4)]
        data[start : start + 8] = struct.pack("<Q", changed)
    elif kind == "piece":
        piece = data[start : start + int(rng.integers(1, 40))]
        data[start : start + len(piece)] = piece * int(rng.choice([0, 2]))
    else:
        for place in rng.integers(reach, size=rng.integers(1, 9)):
            data[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
    return f"{kind} at {start} of {target}", {**files, target: bytes(data)}


def false_numbers():
    """Yield files that have one false number in the header, and its format, place and value."""
    gguf, marian = (next(iter(intact(name).items())) for name in ("gguf", "marian bin"))
    q, heads, base = (
        gguf[1].index(name) + len(name)
        for name in (b"blk.0.attn_q.weight", b"attention.head_count", b"rope.freq_base")
    )
    sides = marian[1].index(b"special:model.yml") + 18
    for (name, data), place, code, values in (
        (gguf, 4, "I", (1, 3 << 24)),
        (gguf, 8, "Q", (2**14 + 1,)),
        (gguf, heads + 4, "I", (3,)),
        (gguf, base + 4, "f", (0.0, 1e-40, NAN, INF)),
        *((gguf, q + 4 + 8 * i, "Q", sides) for i, sides in enumerate(((31, 2**63), (7, 2**32)))),
        (gguf, q + 20, "I", (15, 26)),
        (gguf, q + 24, "Q", (7, 2**64 - 32)),
        (marian, 0, "Q", (1 << 32,)),
        (marian, 24, "Q", (0x101, 0x11001)),
        (marian, 40, "Q", (140, 2**30)),
        (marian, sides, "i", (-8, 24)),
    ):
        for value in values:
            raw = struct.pack("<" + code, value)
            false = data[:place] + raw + data[place + len(raw) :]
            yield f"{name}: {value} at {place}", {name: false}


def refused():
    """Yield all files that must be refused, with what is wrong in them."""
    yield from false_numbers()
    for damage, change in {
        **{str(x): lambda w, x=x: w["v"].__setitem__((-1, -1), x) for x in (NAN, INF, -INF)},
        "a head more": lambda w: w.update(k=np.concatenate([w["k"], w["k"][:2]])),
        "no k": lambda w: w.pop("k"),
    }.items():
        rows = drawn()
        change(rows[0])
        yield from ((f"{name}: {damage}", intact(name, rows)) for name in OF_ROWS)
    yield "a deep configuration", intact("safetensors") | {"config.json": b"[" * 100_000}
    bomb = {MARIAN_Q: np.zeros((5000, 5000), np.float32)}
    yield "a bomb", marian_file("model.npz", bomb, np.savez_compressed)


@pytest.mark.parametrize("name", OF_ROWS)
def test_what_is_written_is_read(name, tmp_path, seed, long):
    """Every head of every layer has the rows that were written for it, bit by bit."""
    rng = np.random.default_rng(seed)
    for case in range(50 if long else 4):
        n_kv_heads, times, n_layers, half = map(int, rng.integers(1, (4, 4, 4, 5)))
        sizes = Sizes(n_layers, n_kv_heads * times, n_kv_heads, 2 * half, 32)
        rows = sizes.drawn(rng)
        model = open_model(str(write(tmp_path / str(case), WRITERS[name](sizes, rows))))
        for layer, own in zip(model.layers, rows, strict=True):
            read = layer.read()
            for role, w in own.items():
                heads = w.reshape(-1, sizes.d_head, sizes.d_model).swapaxes(1, 2)
                found = getattr(read, f"W_{role.upper()}")
                np.testing.assert_array_equal(found, heads, f"{seed=} {case=} {sizes} {role}")


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_short_is_refused(name, tmp_path, seed):
    """Wherever it ends: a copy that was interrupted is never read in part."""
    rng, path = np.random.default_rng(seed), write(tmp_path, intact(name))
    whole, read = path.read_bytes(), []
    for end in rng.integers(len(whole), size=10):
        path.write_bytes(whole[:end])
        with contextlib.suppress(Unreadable):
            read += [(end, layer.read()) for layer in open_model(str(path)).layers]
    assert read == [], f"{seed=}"


def faults_of(cases):
    """Return cases whose outcome is not allowed, or told in another way than one short line.

    No message names an error of Python or a place on this machine, and none takes much memory.
    """
    wrong = []
    for allowed, name, path in cases:
        outcome, said = "read", ""
        try:
            with limited(MEGABYTES), at_most(SECONDS):
                for layer in open_model(str(path)).layers:
                    layer.read()
        except Exception as error:
            outcome, said = type(error).__name__, str(error)
        is_short = said.isprintable() and len(said) <= 1200 and (said or outcome == "read")
        tells = re.search(r"\w(Error|Exception)\b|Traceback|machine.s memory", said)
        # A message about the source itself says again what was asked for.
        tells = tells or (not said.startswith("source:") and str(path.parent) in said)
        if outcome not in allowed or not is_short or tells:
            wrong.append((name, outcome, said[:300]))
    return wrong


def test_every_file_with_a_fault_is_refused(tmp_path):
    """Numbers and parts that contradict each other, and pipes."""
    cases = [({"read"}, name, write(tmp_path / name, intact(name))) for name in WRITERS]
    for i, (name, files) in enumerate(refused()):
        cases.append(({"Unreadable"}, name, write(tmp_path / str(i), files)))
    for ending in ("safetensors", "gguf", "bin", "npz"):
        path = write(tmp_path / f"pipe {ending}", {"config.json": llama(SIZES)})
        os.mkfifo(path := path.with_name(f"model.{ending}"))
        cases.append(({"Unreadable"}, "pipe", path))
    assert faults_of(cases) == []


@pytest.mark.parametrize("n", [6, pytest.param(400, marks=pytest.mark.long(seconds=60))])
def test_damaged_files_are_read_or_refused_in_one_short_line(tmp_path, seed, n):
    """Each file with a drawn damage."""
    rng, cases = np.random.default_rng(seed), []
    for name in WRITERS:
        whole = intact(name)
        for i in range(3 * n):
            what, files = damaged(rng, whole)
            path = write(tmp_path / f"{name} {i}", files)
            cases.append(({"read", "Unreadable"}, f"{name}, {seed=}: {what}", path))
    assert faults_of(cases) == []


# safetensors


def matrices(seed=5):
    """Three random matrices by name."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(3, 5)).astype(np.float32) for name in ("one", "two", "three")}


def sharded():
    """Three matrices in two files, with an index."""
    shards = {"one": "a.safetensors", "two": "b.safetensors", "three": "b.safetensors"}
    parts = {
        file: save({name: w for name, w in matrices().items() if shards[name] == file})
        for file in set(shards.values())
    }
    return {"model.safetensors.index.json": {"weight_map": shards}} | parts


def test_floats_of_four_widths_are_read_in_single_precision(tmp_path):
    """Each number is the nearest in single precision, and no file stays mapped.

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
    index = write(tmp_path, sharded())
    file = open_safetensors(find_files(str(tmp_path)))
    assert all(np.array_equal(file.read(name), w) for name, w in matrices().items())
    save_file(matrices(3), tmp_path / "model.safetensors")
    assert np.array_equal(first(), matrices()["one"])
    index.unlink()
    assert np.array_equal(first(), matrices(3)["one"])
    index = write(tmp_path / "models--a--b/snapshots/0f", sharded())
    blobs = tmp_path / "models--a--b/blobs"
    blobs.mkdir()
    for file in index.parent.iterdir():
        file.rename(blobs / file.name)
        file.symlink_to(blobs / file.name)
    assert np.array_equal(open_safetensors(index).read("two"), matrices()["two"])


def test_a_damaged_index_or_value_is_named(tmp_path):
    """With the tensor, the file and what is allowed; headers are damaged above."""
    index, path = write(tmp_path, sharded()), tmp_path / "model.safetensors"
    huge = np.float64([1e300]).tobytes()
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for where, raw, says in (
        (index, b"", "not JSON"),
        (index, b"[]", "weight_map is missing"),
        (index, b'{"weight_map": {"one": 7}}', "file of 'one' is 7"),
        (index, b'{"weight_map": {"one": "none.safetensors"}}', "'none.safetensors'"),
        (index, b'{"weight_map": {"one": "' + b"9" * 400 + b'"}}', "not there"),
        (index, b'{"weight_map": {"four": "a.safetensors"}}', "no tensor 'four'"),
        (index, b"[" * 1_000_000, "is damaged"),
        (path, encode({"a": {**one, "dtype": "I8", "shape": [8]}}, bytes(8)), "type I8"),
        (path, encode({"a": {**one, "dtype": "F4"}}, bytes(8)), "one of F64, F32, F16, BF16"),
        (path, encode({"a": one}, np.float32([1, -np.inf]).tobytes()), "'a' has values"),
        (path, encode({"a": {**one, "dtype": "F64", "shape": [1]}}, huge), "infinite or NaN"),
    ):
        where.write_bytes(raw)
        with pytest.raises(Unreadable, match=re.escape(says)) as error:
            [file.read(name) for file in [open_safetensors(where)] for name in file.entries]
        assert str(error.value).isprintable()
        assert str(tmp_path) not in str(error.value)


# the command


def messages_of(errors):
    """Return the lines on standard error that are no progress bars."""
    lines = re.split(r"[\r\n]+", errors)
    return [line for line in lines if line.strip() and not re.search(r"s/layer|layer/s", line)]


VALUES = (np.nan, np.inf, 3.4e38, -1e38, 1e19, 1.0, 0.0, -0.0, 1e-25, 1e-38, 1e-45)
OPTIONS = ((), ("--fold",), ("--offset", "-999999"), ("--every-setting",))


@pytest.mark.parametrize("n", [24, pytest.param(400, marks=pytest.mark.long(seconds=50))])
def test_damaged_values_give_one_line_or_a_table_with_gaps(run, tmp_path, seed, n):
    """Without a warning; the table has no infinite number and no gap without a reason."""
    rng = np.random.default_rng(seed)
    gaps = [f"{name}_{role}" for name in ("norm", "rank") for role in "qkv"]
    for case in range(n):
        rows = [{**one, "gain": np.ones(SIZES.d_model, np.float32)} for one in SIZES.drawn(rng)]
        for _ in range(rng.integers(1, 4)):
            w = rows[rng.integers(len(rows))][("q", "k", "v", "gain")[rng.integers(4)]]
            start, value = int(rng.integers(len(w))), VALUES[rng.integers(len(VALUES))]
            some = slice(start, start + (1, SIZES.d_head, len(w))[rng.integers(3)])
            with np.errstate(all="ignore"):
                w[some] = value * (w[some] if rng.random() < 0.5 else 1)
        files = intact(("safetensors", "gguf")[case % 2], rows)
        path = write(tmp_path / str(case), files)
        out, options = path.parent / "out.parquet", OPTIONS[rng.integers(len(OPTIONS))]
        with at_most(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            code, output, errors = run("models", *options, "--out", str(out), "--", str(path))
        said = f"{seed=} {case=} {options} {errors}"
        if code == 2:
            (line,) = messages_of(errors)
            assert re.match(f"attnkit: error: .*({path.name}|offset)", line), said
            assert output == ""
            continue
        assert code == 0, said
        table = pd.read_parquet(out)
        assert not np.isinf(table.select_dtypes("float32")).any(axis=None), said
        if table.loc[table["head"].notna(), gaps].isna().any(axis=None):
            assert "in single precision" in errors or "is zero" in errors, said


def test_a_models_name_is_one_line_of_text(run, tmp_path):
    """On the terminal, in the table and in its file; a name in the file is used as that of it."""
    names = ("two\nlines", "a|b", "\x1b[31mred", "byte\udcff", "<b>&amp;", "=X(1)", " ", "-x")
    for case, name in enumerate(names):
        keys = {} if case % 2 else {"general.name": name.replace("\udcff", "\0")}
        (raw,) = gguf_file(SIZES, drawn(), keys).values()
        path = write(tmp_path / str(case), {f"{'model' if keys else name}.gguf": raw})
        out = tmp_path / "out.parquet"
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
    whole, rows = write(tmp_path / "whole", intact("gguf")), drawn()
    rows[1]["v"][0, 0] = np.nan
    path, out = write(tmp_path / "broken", intact("gguf", rows)), tmp_path / "out.parquet"
    code, output, errors = run("models", str(whole), str(path), "--out", str(out))
    assert code == 2
    assert "model.gguf is damaged: 'blk.1.attn_v.weight'" in messages_of(errors)[-1]
    assert set(pd.read_parquet(out)["model"]) == {"model"}
    assert "model causal (8)" in output
    rows = drawn()
    rows[0]["gain"] = np.full(SIZES.d_model, 3e38, np.float32)  # it overflows
    rows[1]["q"][2:4] = 0
    path = write(tmp_path / "gaps", intact("gguf", rows))
    code, _, errors = run("models", str(path), "--every-setting")
    assert code == 0
    overflow, zero = messages_of(errors)
    assert re.search("4 of 8 heads.*causal layer 0, head 0.*single precision", overflow)
    assert re.search("1 of 8 heads.*causal layer 1, head 1.*zero", zero)


def test_a_large_model_is_read_one_layer_at_a_time(tmp_path):
    """Five layers at once would be too much; its 500 million zeros occupy nothing on the disk."""
    sizes, shapes = Sizes(32, 32, 32, 64, 2048), {}
    for stem in (f"model.layers.{i}." for i in range(sizes.n_layers)):
        shapes |= {f"{stem}self_attn.{part}_proj.weight": (2048, 2048) for part in "qkvo"}
        shapes[f"{stem}input_layernorm.weight"] = (2048,)
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    raw = encode(header, b"")
    path = write(tmp_path, {"model.safetensors": raw, "config.json": llama(sizes)})
    os.truncate(path, len(raw) + end)
    model = open_model(str(path.parent))
    arrays = [a for a in vars(model.layers[0].read()).values() if isinstance(a, np.ndarray)]
    size = sum(array.nbytes for array in arrays) / 2**20
    assert size == pytest.approx(3 * 2048**2 * 4 / 2**20, rel=0.001)
    del arrays
    with limited(2 * size + 50):
        assert sum(1 for layer in model.layers[:6] if layer.read()) == 6
