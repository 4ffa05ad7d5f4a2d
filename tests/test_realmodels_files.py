"""Files of every format: what is written is read; a damaged file is refused in one line, soon."""

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

import gguf
import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from family_models import assert_heads, built, converted
from model_files import (
    MARIAN_Q,
    Sizes,
    encode,
    gguf_bytes,
    gguf_file,
    index_file,
    llama,
    marian_file,
    rounded_step,
    safetensors_file,
    translator,
    write,
)
from safetensors.numpy import save_file

from attnkit.foundation.process import limit_memory
from attnkit.realmodels import Unreadable, open_model
from attnkit.realmodels.base import per_head
from attnkit.realmodels.checkpoint import Safetensors
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2
from attnkit.realmodels.errors import CONVERT
from attnkit.realmodels.gguf_file import GGUF, gguf_model
from attnkit.realmodels.marian_file import marian_model

SECONDS, MEGABYTES = 10.0, 200.0
"""Processor time and memory that a damaged file may take."""


class TooLongError(BaseException):
    """Not an Exception, so that no reader takes it for a fault of the file."""


@contextlib.contextmanager
def limited(megabytes=MEGABYTES):
    """Let allocations beyond so much more memory fail; raise TooLongError after `SECONDS`."""

    def stop(*_):
        raise TooLongError

    memory, handler = resource.getrlimit(resource.RLIMIT_DATA), signal.signal(signal.SIGPROF, stop)
    limit_memory(megabytes)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_DATA, memory)


# damaged files

NAN, INF, SIZES = math.nan, math.inf, Sizes()


@cache
def ctranslate2_file():
    """Write a GPT-2 with the converter of CTranslate2."""
    with TemporaryDirectory() as folder:
        built("gpt2", folder)
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


def drawn():
    """Return random rows of a small model."""
    return SIZES.drawn(np.random.default_rng(7))


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
    of_gguf, marian = (next(iter(intact(name).items())) for name in ("gguf", "marian bin"))
    q, heads, base = (
        of_gguf[1].index(name) + len(name)
        for name in (b"blk.0.attn_q.weight", b"attention.head_count", b"rope.freq_base")
    )
    sides = marian[1].index(b"special:model.yml") + 18
    for (name, data), place, code, values in (
        (of_gguf, 4, "I", (1, 3 << 24)),
        (of_gguf, 8, "Q", (2**14 + 1,)),
        (of_gguf, heads + 4, "I", (3,)),
        (of_gguf, base + 4, "f", (0.0, 1e-40, -1e4, NAN, INF)),
        (of_gguf, q + 4, "Q", (31, 2**63)),
        (of_gguf, q + 12, "Q", (7, 2**32)),
        (of_gguf, q + 20, "I", (15, 26)),
        (of_gguf, q + 24, "Q", (7, 2**64 - 32)),
        (marian, 0, "Q", (1 << 32,)),
        (marian, 24, "Q", (0x101, 0x11001)),
        (marian, 40, "Q", (140, 2**30)),
        (marian, sides, "i", (-8, 24)),
    ):
        for value in values:
            raw = struct.pack("<" + code, value)
            false = data[:place] + raw + data[place + len(raw) :]
            yield f"{name}: {value} at {place}", {name: false}


@pytest.mark.parametrize("name", OF_ROWS)
def test_what_is_written_is_read(name, tmp_path, seed, long):
    """Every head of every layer has the rows that were written for it, bit by bit."""
    rng = np.random.default_rng(seed)
    for case in range(50 if long else 4):
        n_kv_heads, times, n_layers, half = map(int, rng.integers(1, (4, 4, 4, 5)))
        n_heads = n_kv_heads * times
        sizes = Sizes(n_layers, n_heads, n_kv_heads, 2 * half, 8 * n_heads)
        rows = sizes.drawn(rng)
        model = open_model(str(write(tmp_path / str(case), WRITERS[name](sizes, rows))))
        assert_heads(model, rows, sizes.d_head)


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
    """Return cases whose outcome is not allowed, or told in another way than one short line."""
    wrong = []
    for allowed, name, path in cases:
        outcome, said = "read", ""
        try:
            with limited():
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
    bomb = {MARIAN_Q: np.zeros((5000, 5000), np.float32)}
    false = [
        *false_numbers(),
        ("a deep configuration", intact("safetensors") | {"config.json": b"[" * 100_000}),
        ("a bomb", marian_file("model.npz", bomb, np.savez_compressed)),
        *(
            (
                f"{base=}",
                intact("safetensors") | {"config.json": llama(SIZES) | {"rope_theta": base}},
            )
            for base in (0, -1e4, NAN, INF)
        ),
    ]
    for damage, change in {
        **{str(x): lambda w, x=x: w["v"].__setitem__((-1, -1), x) for x in (NAN, INF, -INF)},
        "a head more": lambda w: w.update(k=np.concatenate([w["k"], w["k"][:2]])),
        "no k": lambda w: w.pop("k"),
    }.items():
        change((rows := drawn())[0])
        false += [(f"{name}: {damage}", intact(name, rows)) for name in OF_ROWS]
    for i, (name, files) in enumerate(false):
        cases.append(({"Unreadable"}, name, write(tmp_path / str(i), files)))
    for ending in ("safetensors", "gguf", "bin", "npz"):
        path = write(tmp_path / f"pipe {ending}", {"config.json": llama(SIZES)})
        os.mkfifo(path := path.with_name(f"model.{ending}"))
        cases.append(({"Unreadable"}, "pipe", path))
    assert faults_of(cases) == [], faults_of(cases)


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
    assert faults_of(cases) == [], faults_of(cases)


# safetensors


def test_floats_of_four_widths_are_read_in_single_precision(tmp_path):
    """No file stays mapped, and one that changes after it was opened is refused."""
    path, w = tmp_path / "model.safetensors", np.random.default_rng(5).normal(size=(3, 5))
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16, np.float32):
        save_file(dict.fromkeys(("one", "two"), stored := w.astype(dtype)), path)
        file = Safetensors(path)
        assert {n: file.shape(n) for n in file.names} == {"one": (3, 5), "two": (3, 5)}
        assert file.rows("two", 0, 3).dtype == np.float32
        assert np.array_equal(file.rows("two", 1, 3), stored[1:3].astype(np.float32))
    if Path("/proc/self/maps").exists():
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    save_file({"one": np.ones((2, 2), np.float32)}, path)
    for name in ("one", "two"):
        with pytest.raises(Unreadable, match=r"changed while|damaged"):
            file.rows(name, 0, 2)


def test_a_damaged_index_is_named(tmp_path):
    """With the tensor, the file and what is allowed; headers and values are damaged above."""
    index = write(tmp_path, intact("index"))
    for raw, says in (
        (b"", "not JSON"),
        (b"[]", "weight_map is missing"),
        (b'{"weight_map": {"one": 7}}', "file of 'one' is 7"),
        (b'{"weight_map": {"one": "none.safetensors"}}', "'none.safetensors'"),
        (b'{"weight_map": {"one": "' + b"9" * 400 + b'"}}', "not there"),
        (b'{"weight_map": {"four": "part.safetensors"}}', "no tensor 'four'"),
        (b"[" * 1_000_000, "is damaged"),
    ):
        index.write_bytes(raw)
        with pytest.raises(Unreadable, match=re.escape(says)) as error:
            [file.entry(name) for file in [Safetensors(index)] for name in file.names]
        assert str(error.value).isprintable()
        assert str(tmp_path) not in str(error.value)


# GGUF

FOUR = Sizes(d_head=4)
ROWS = FOUR.drawn(np.random.default_rng(7))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "phi3"])
def test_architectures_of_gguf_keep_their_rows_in_their_own_ways(tmp_path, architecture):
    """Llama shuffles them, Phi stacks them; to gains of Gemma, 1 has already been added."""
    gain = np.linspace(0.5, 2, FOUR.d_model, dtype=np.float32)
    rows, fused = [{**layer, "gain": gain} for layer in ROWS], {}
    if architecture == "phi3":
        stacked = (np.concatenate([*layer.values()]) for layer in ROWS)
        fused = {f"blk.{i}.attn_qkv.weight": w for i, w in enumerate(stacked)}
        rows = [{"gain": gain}] * FOUR.n_layers
    keys = {f"{architecture}.rope.dimension_count": 4} if architecture != "gemma3" else {}
    files = gguf_file(FOUR, rows, keys, fused, architecture)
    model = gguf_model(write(tmp_path, files))
    assert (model.family, model.format) == (architecture, "GGUF")
    assert_heads(model, ROWS, FOUR.d_head)
    for read in (layer.read() for layer in model.layers):
        np.testing.assert_allclose([read.gain_q, read.gain_kv], [gain, gain], rtol=1e-6)
        assert read.rope is not None


def test_a_gguf_turns_queries_as_its_own_factors_say(tmp_path):
    """Those of Llama 3 are a tensor; one that does not fit is refused."""
    for factors, frequencies in (((2, 5), [0.5, 0.002]), ((2, 5, 7), None), ((2, 0), None)):
        more = {"rope_freqs.weight": np.float32(factors)}
        layer = gguf_model(write(tmp_path, gguf_file(FOUR, ROWS, more=more))).layers[1]
        if frequencies:
            assert layer.read().rope.frequencies == pytest.approx(frequencies, rel=1e-4)
        else:
            with pytest.raises(Unreadable, match="must be 2 positive numbers"):
                layer.read()


def test_a_gguf_is_called_by_its_file_or_its_own_name(tmp_path):
    """A list of texts, as that of a vocabulary, is skipped."""
    path = write(tmp_path, gguf_file(FOUR, ROWS, {"general.name": "a name"}))
    assert gguf_model(path).name == "a name"
    assert GGUF(path).config["num_hidden_layers"] == FOUR.n_layers
    assert gguf_model(path.rename(tmp_path / "Some-Thing.Q4_K_M.gguf")).name == "Some-Thing"


QUANTISED = list(gguf.quants._type_traits)
"""Number types that the package reads; those that it cannot write are drawn."""


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_quantised_weights_of_gguf_are_those_its_package_makes(tmp_path, kind):
    """Value for value; a note says so, but for the halves of single precision."""
    sizes, quants = Sizes(d_head=16, d_model=256), gguf.quants
    try:
        rows = [
            {p: quants.quantize(w, kind) for p, w in layer.items()}
            for layer in sizes.drawn(np.random.default_rng(1))
        ]
    except NotImplementedError:
        block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        drawn = sizes.drawn(np.random.default_rng(1))
        rng = np.random.default_rng(2)
        rows = [
            {
                p: rng.integers(0, 8, (len(w), 256 // block * n_bytes), np.uint8)
                for p, w in layer.items()
            }
            for layer in drawn
        ]
    path = write(tmp_path, gguf_file(sizes, rows, architecture="qwen2", quantised=kind))
    model = gguf_model(path)
    rounded = [{p: quants.dequantize(w, kind) for p, w in layer.items()} for layer in rows]
    assert_heads(model, rounded, sizes.d_head)
    assert any(kind.name in note for note in model.notes) == (
        kind.name not in ("BF16", "F16", "F32")
    )


# CTranslate2

N_TOKENS = 11
CTRANSLATE2 = {
    "llama": ("LlamaForCausalLM", "decoder"), "gpt2": ("GPT2LMHeadModel", "decoder"),
    "gptj": ("GPTJForCausalLM", "decoder"), "bert": ("BertModel", "encoder"),
    "whisper": ("WhisperForConditionalGeneration", "whisper"),
    "t5": ("T5ForConditionalGeneration", "encoder-decoder"),
}  # fmt: skip
"""Classes of the library and families of CTranslate2."""


def products_of(read, x, y):
    """Return products of queries and keys with each other, positions included, and values."""
    sides = (x, read.W_Q), (y, read.W_K), (y, read.W_V)
    q, k, v = (s @ w.astype(float) for s, w in sides)
    if read.rope is not None:
        places = range(N_TOKENS)
        q, k = (np.stack([read.rope.rotate(w[:, i], i) for i in places], 1) for w in (q, k))
    repeated = k.repeat(len(q) // len(k), 0)
    return [a @ b.swapaxes(1, 2) for a, b in ((q, q), (q, repeated), (k, k))] + [v]


@pytest.mark.parametrize("family", CTRANSLATE2)
def test_a_model_bin_is_read_as_the_librarys_own_file(tmp_path, family):
    """Heads, positions, gains and notes are those that the other reader finds."""
    name, of_file = CTRANSLATE2[family]
    built(family, tmp_path, architectures=[name])
    theirs = open_model(str(tmp_path / "model.safetensors"))
    read = ctranslate2_model(converted(tmp_path))
    assert (read.name, read.family, read.format) == ("tiny", of_file, "CTranslate2")
    rng = np.random.default_rng(3)
    for layer, other in zip(read.layers, theirs.layers, strict=True):
        for field in ("kind", "index", "n_heads", "n_kv_heads"):
            assert getattr(layer, field) == getattr(other, field)
        ours, expected = layer.read(), other.read()
        x, y = rng.standard_normal((2, N_TOKENS, ours.W_Q.shape[1]))
        for a, b in zip(products_of(ours, x, y), products_of(expected, x, y), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
        for a, b in ((ours.gain_q, expected.gain_q), (ours.gain_kv, expected.gain_kv)):
            assert (a is None) == (b is None)
            np.testing.assert_allclose([] if a is None else a, [] if b is None else b, rtol=1e-5)
    assert any("learned bias" in one for one in read.notes) == (family == "t5")


@pytest.mark.parametrize("number_type", [0x4101, 0x4102, 0x10001, 0x10002])
def test_rounded_weights_of_marian_are_near_those_that_were_trained(tmp_path, number_type):
    """At most half a step is lost with the number types of both of its writers; a note tells it."""
    (data,) = marian_file(d_model=48, rounded=number_type).values()
    (tmp_path / "model.bin").write_bytes(data)
    model, weight = marian_model(tmp_path / "model.bin"), translator(48)[MARIAN_Q]
    read = model.layers[0].read().W_Q.swapaxes(0, 1).reshape(weight.shape)
    assert 0 < np.abs(read - weight).max() <= 0.51 * rounded_step(weight, number_type)
    assert any(f"intgemm{8 * (number_type % 256)}" in note for note in model.notes)


@pytest.mark.parametrize(("quantization", "parts"), [("int8", 127), ("int16", None)])
def test_rounded_weights_of_a_model_bin_are_near_the_librarys(tmp_path, quantization, parts):
    """Also those of layers that are alike, which stand in the file once; a note tells the type."""
    model = built("gpt2", tmp_path)
    model.h[1].attn.c_attn.load_state_dict(model.h[0].attn.c_attn.state_dict())
    model.save_pretrained(tmp_path)
    found = ctranslate2_model(converted(tmp_path, quantization))
    for own, layer in zip(model.h, found.layers, strict=True):
        rows, read = own.attn.c_attn.weight.detach().numpy().T, layer.read()
        step = np.abs(rows).max(1, keepdims=True) / parts if parts else np.abs(rows).max() / 2**10
        allowed = np.broadcast_to(0.51 * step, rows.shape)
        for w, part in zip((read.W_Q, read.W_K, read.W_V), range(3), strict=True):
            theirs, off = (per_head(np.split(a, 3)[part], 4) for a in (rows, allowed))
            assert (np.abs(w - theirs) <= off).all()
            assert np.abs(w - theirs).max() > 0
    assert any(quantization in note for note in found.notes)


def test_what_is_not_read_is_refused_with_what_to_do(tmp_path):
    """Pickles, which are never opened, other versions and architectures."""
    path = tmp_path / "model.bin"
    for start in (b"PK\x03\x04zip", b"\x80\x02}q\x00.", b"(lp0\n.", b"cposix\n"):
        path.write_bytes(start + bytes(97))
        with pytest.raises(Unreadable, match=re.escape(CONVERT)):
            open_ctranslate2(path)
    path.write_bytes((7).to_bytes(4, "little") + bytes(97))
    with pytest.raises(Unreadable, match=r"versions 4 to 6; convert"):
        open_ctranslate2(path)
    raw = gguf_bytes("mamba", {}, {"blk.0.attn_q.weight": np.ones((3, 5), np.float32)})
    with pytest.raises(Unreadable, match=r"damaged|no tensor|no attention"):
        gguf_model(write(tmp_path, {"tiny.gguf": raw}))


# Marian


@pytest.mark.parametrize("name", ["model.bin", "best-bleu.npz"])
@pytest.mark.parametrize("preprocess", ["", "n"])
def test_marian_has_the_layers_that_were_written(tmp_path, name, preprocess):
    """Columns of a weight are those of its heads; gains are those of the norms before."""
    options = {"transformer_preprocess": preprocess, "transformer_postprocess_top": preprocess}
    folder, held = tmp_path / "enfr", translator()
    path = write(folder, marian_file(name, **options))
    (folder / "lex.50.50.enfr.s2t.bin").write_bytes((0xF11A48D5013417F5).to_bytes(8, "little"))
    np.savez(folder / "model.npz.optimizer.npz", adam_mt=np.ones(3))
    model = open_model(str(path))
    assert open_model(str(folder)).name == model.name == "enfr"
    kinds = [("encoder", "encoder", "self"), ("causal", "decoder", "self")]
    kinds.append(("cross", "decoder", "context"))
    places = [(kind, i, f"{a}_l{i + 1}_{b}") for kind, a, b in kinds for i in range(2)]
    assert [(one.kind, one.index) for one in model.layers] == [place[:2] for place in places]
    for layer, (kind, _, scope) in zip(model.layers, places, strict=True):
        read = layer.read()
        for role in "QKV":
            own = held[f"{scope}_W{role.lower()}"].reshape(12, 3, 4).swapaxes(0, 1)
            np.testing.assert_array_equal(getattr(read, f"W_{role}"), own)
        gains = [f"{scope}_Wo_ln_scale_pre"] * 2
        gains[1] = "encoder_top_ln_scale" if kind == "cross" else gains[1]
        for found, gain in zip((read.gain_q, read.gain_kv), gains, strict=True):
            assert (found is None) == (not preprocess)
            assert found is None or np.array_equal(found, held[gain].ravel())


def test_a_wrong_option_or_folder_of_marian_is_named(tmp_path):
    """The message names the option or tensor, its value and what is allowed."""
    for options, words in (
        ({"type": "s2s"}, "type is 's2s'"),
        ({"transformer_heads": None}, "transformer-heads is "),
        ({"transformer_heads": 5}, "(12, 12) cannot be divided among 5 heads"),
        ({"enc_depth": 3}, "'encoder_l3_self'"),
        ({"dec_depth": 1}, "'decoder_l2_context', 'decoder_l2_self'"),
    ):
        path = write(tmp_path, marian_file(**options))
        with pytest.raises(Unreadable, match=f"^model.bin.*{re.escape(words)}"):
            open_model(str(path)).layers[0].read()
    path.unlink()
    for name in ("model.npz", "model.npz.best-bleu.npz"):
        write(tmp_path, marian_file(name))
    np.savez(tmp_path / "arrays.npz", ones=np.ones(3))
    with pytest.raises(Unreadable, match=r"2 Marian models; name the one .*best-bleu\.npz'$"):
        open_model(str(tmp_path))
    with pytest.raises(Unreadable, match=r"arrays\.npz has no special:model\.yml"):
        open_model(str(tmp_path / "arrays.npz"))


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
        with limited(4000), warnings.catch_warnings():
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
