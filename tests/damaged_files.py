"""Damaged model files: drawn, with one false number, or with parts that contradict each other."""

import io
import json
import os
import re
import struct
from dataclasses import replace

import gguf
import numpy as np
from model_files import (
    CROSS,
    INTGEMM8,
    SELF,
    File,
    Sizes,
    bin_file,
    configuration,
    ctranslate2_file,
    encode,
    floats,
    gguf_file,
    index_file,
    llama,
    normal,
    npz_file,
    safetensors_file,
    transformer,
    with_configuration,
)

NAN, INF = float("nan"), float("inf")
RNG = np.random.default_rng(7)
SIZES = Sizes()
ROWS = SIZES.drawn(RNG)

Q, W, MARIAN_Q = "blk.0.attn_q.weight", f"{SELF.format(0)}/linear_0/weight", "encoder_l1_self_Wq"


def marian_text(sizes):
    """Return the configuration of a translator of these sizes."""
    depths = {"enc_depth": sizes.n_layers, "dec_depth": sizes.n_layers}
    return configuration(**depths, transformer_heads=sizes.n_heads, dim_emb=sizes.d_model)


def marian(sizes, rows, **instead):
    """Return Marian's tensors of three stacks with the same rows; None removes one."""
    tensors = transformer(sizes.d_model, 5, depth=sizes.n_layers)
    tensors = {name: value for name, value in tensors.items() if "ffn" not in name}
    for scope in ("encoder_l{}_self", "decoder_l{}_self", "decoder_l{}_context"):
        for i, layer in enumerate(rows, 1):
            for p in "qkv":
                w = layer.get(p)
                tensors[f"{scope.format(i)}_W{p}"] = w if w is None else np.ascontiguousarray(w.T)
    return {name: value for name, value in (tensors | instead).items() if value is not None}


WRITERS = {
    "safetensors": safetensors_file,
    "index": index_file,
    "gguf": gguf_file,
    "ctranslate2": ctranslate2_file,
    "marian bin": lambda sizes, rows: bin_file(marian(sizes, rows), marian_text(sizes)),
    "marian npz": lambda sizes, rows: npz_file(marian(sizes, rows), marian_text(sizes)),
}


def sizes_for(name, sizes=SIZES):
    """Return sizes that a format can have; in Marian, every head has its own keys."""
    square = replace(sizes, n_kv_heads=sizes.n_heads, d_model=sizes.n_heads * sizes.d_head)
    return square if name.startswith("marian") else sizes


def intact(name, sizes=SIZES, rows=None):
    """Write an undamaged file of a format."""
    sizes = sizes_for(name, sizes)
    return WRITERS[name](sizes, sizes.drawn(np.random.default_rng(7)) if rows is None else rows)


def write(folder, case, file):
    """Write a file into a folder of its own, and return its path."""
    home = folder / str(case)
    home.mkdir()
    for name, content in {**file.beside, file.name: file.data}.items():
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        (home / name).write_bytes(raw)
    return home / file.name


def special(folder):
    """Make pipes, links to themselves and folders in place of model files."""
    for i, make in enumerate((os.mkfifo, lambda path: path.symlink_to(path.name), os.mkdir)):
        for name in ("model.safetensors", "model.gguf", "model.bin", "model.npz"):
            home = folder / f"{i} {name}"
            home.mkdir()
            (home / "config.json").write_text(json.dumps(llama(SIZES)))
            make(home / name)
            yield home / name


# drawn

WORDS = [
    *rb'-2 5 2147483648 null true 2.5 NaN 1e999 [2] [[ {} "2" "a\n\u001b" &a !! - , :'.split(),
    *(b"\xff", b"\n", b"\t", b"9" * 400),
]
"""What takes the place of a number, name or word."""


def damaged(rng, file):
    """Return a damaged copy of a file, and what was done to it."""
    config = json.dumps(file.beside["config.json"]).encode() if file.beside else b""
    is_config = bool(config) and rng.random() < 0.3
    data = bytearray(config if is_config else file.data)
    reach = len(data) if rng.random() < 0.5 else min(len(data), 700)
    start, kind = int(rng.integers(reach)), ("word", "word", "piece", "bytes")[rng.integers(4)]
    if kind == "word":
        places = [match.span() for match in re.finditer(rb"[\w.+-]+", data)]
        start, end = places[rng.integers(len(places))]
        data[start:end] = WORDS[rng.integers(len(WORDS))]
    elif kind == "piece":
        piece = data[start : start + int(rng.integers(1, 40))]
        data[start : start + len(piece)] = piece * int(rng.choice([0, 2]))
    else:
        for place in rng.integers(reach, size=rng.integers(1, 9)):
            data[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
    if is_config:
        beside = {**file.beside, "config.json": bytes(data)}
        return f"config: {bytes(data)!r}", replace(file, beside=beside)
    return f"{kind} at {start}", replace(file, data=bytes(data))


VALUES = (NAN, INF, -INF, 3.4e38, -1e38, 1e25, 1e19, 1.0, 0.0, -0.0, 1e-25, 1e-38, 1e-45)
"""What takes the place of weights and gains, by the number or as a factor."""

QUANTISED = tuple(kind for kind, (n, _) in gguf.GGML_QUANT_SIZES.items() if n > 1)


@np.errstate(invalid="ignore")
def damaged_values(rng, name):
    """Return a file of a format with damaged weights or gains, and what was done to them."""
    sizes, done = sizes_for(name), []
    is_quantised = name == "gguf" and rng.random() < 0.3
    rows = [{**layer, "gain": np.ones(sizes.d_model, np.float32)} for layer in sizes.drawn(rng)]
    for _ in range(rng.integers(1, 4)):
        i = int(rng.integers(len(rows)))
        letter, value = str(rng.choice(["q", "k", "v", "gain"])), VALUES[rng.integers(len(VALUES))]
        w = rows[i][letter].astype(np.float64)
        start, how = int(rng.integers(len(w))), ("fill", "scale", "rank 1")[rng.integers(3)]
        some = slice(start, start + int(rng.choice([1, sizes.d_head, len(w)])))
        if how == "rank 1" and w.ndim == 2:
            w[some] = w[start] * value
        elif how == "scale":
            w[some] *= value
        else:
            w[some] = value
        with np.errstate(over="ignore"):
            rows[i][letter] = w.astype(np.float32)
        done.append(f"layer {i} {letter}[{some.start}:{some.stop}] {how} {value}")
    if is_quantised:
        kind = QUANTISED[rng.integers(len(QUANTISED))]
        sizes = replace(sizes, d_model=gguf.GGML_QUANT_SIZES[kind][0] * 2)
        n_bytes = gguf.GGML_QUANT_SIZES[kind][1] * 2
        tensors = {
            f"blk.{i}.attn_{p}.weight": ((n, sizes.d_model), int(kind), rng.bytes(n * n_bytes))
            for i in range(sizes.n_layers)
            for p, n in (("q", 8), ("k", 4), ("v", 4))
        }
        return f"bytes of {kind.name}", gguf_file(sizes, sizes.drawn(rng), tensors=tensors)
    if name == "ctranslate2" and rng.random() < 0.3:
        scales = {f"{W}_scale": rows[0]["q"][:, 0].repeat(2), W: np.ones((16, 32), np.int8)}
        return f"int8, {done}", ctranslate2_file(sizes, rows, **scales)
    if name == "safetensors" and rng.random() < 0.3:
        kind = ("float64", "float16")[rng.integers(2)]
        with np.errstate(over="ignore"):
            rows = [{p: w.astype(kind) for p, w in layer.items()} for layer in rows]
        done.append(kind)
    return ", ".join(done), intact(name, sizes, rows)


# one false number


def false_numbers(file):
    """Yield copies in which one number of the header is 0, one more, or the largest there is."""
    for name, (place, code) in file.fields.items():
        if code not in "fd":
            (true,) = struct.unpack_from("<" + code, file.data, place)
            largest = 2 ** (8 * struct.calcsize(code) - code.islower()) - 1
            for value in {0, min(true + 1, largest), largest} - {true}:
                yield f"{name} is {value}", replace(file, data=file.with_field(name, value))


FALSE = {
    "gguf": {
        "version": (1, 3 << 24), "tensors": (2**14 + 1,), f"{Q} type": (15, 26, 28),
        f"{Q} side 0": (31, 256, 2**63, 2**64 - 8), f"{Q} side 1": (7, 2**32),
        f"{Q} offset": (7, 2**64 - 32), "llama.attention.head_count": (3,),
        "llama.attention.head_count_kv": (8,), "llama.rope.freq_base": (0.0, 1e-40, NAN, INF),
    },
    "ctranslate2": {
        f"{W} type": (4, 6), f"{W} size": (4 * 16 * 32 - 4,), "decoder/num_heads": (-3,),
        f"{SELF.format(0)}/rotary_base": (-1.0, NAN),
    },
    "marian bin": {
        "version": (1 << 32,), "padding": (2**20,), f"{MARIAN_Q} side 0": (-8, 16),
        f"{MARIAN_Q} type": (0x101, 0x11001), f"{MARIAN_Q} size": (140, 2**30),
    },
}  # fmt: skip
"""Values that must be refused."""


def safetensors_cases():
    """Yield configurations and names that are refused."""
    file, config = intact("safetensors"), llama(SIZES)
    for damage, told in {
        "deep": b"[" * 100_000,
        "large": b" " * 2**23,
        "digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 6000 + b"}",
        "not UTF-8": b'{"model_type": "\xff"}',
        "lines": {**config, "model_type": "be\nrt\r\x1b[31m"},
    }.items():
        yield damage, replace(file, beside={"config.json": told})
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for damage, data in {
        "many names": encode({f"t{i}": empty for i in range(2**16)}, b""),
        "long header": encode({"a": one}, b"", length=2**64 - 1),
        "shared bytes": encode({"a": one, "b": {**one, "data_offsets": [4, 12]}}, bytes(12)),
        "overflow": encode({"a": {**one, "shape": [2**40, 2**40]}}, bytes(8)),
        "large and empty": encode({"a": {**empty, "shape": [0, 2**62]}}, b""),
        "deep header": encode(b'{"a":' + b"[" * 10**6, b""),
        "header, not UTF-8": encode(b'{"\xff":1}', b""),
    }.items():
        yield damage, replace(file, data=data)


def key(kind, codes="", *values):
    """Encode a key of GGUF, of which the rest is given by `struct` codes and values."""
    return struct.pack("<Q", 1) + b"n" + struct.pack("<I" + codes, kind, *values)


def gguf_cases():
    """Yield GGUF files that are refused for another reason than a false number."""
    scale, v = np.float16(NAN).tobytes() + bytes(range(32)), "blk.1.attn_v.weight"
    keys = {
        "split.count": [(2, 3)],
        "general.alignment": [(4, 0), (4, 3), (4, 2**31), (8, "32"), (5, -32)],
        "general.architecture": [None, (8, "x" * 10**5), (8, "a\nb"), (4, 5), (9, (8, ["llama"]))],
        "llama.attention.head_count": [None, (6, 4.0), (9, (4, [4])), (9, (6, [4.0, 4.0]))],
        "llama.rope.scaling.factor": [(6, NAN), (6, -1.0), (8, "2")],
    }  # fmt: skip
    tensors = {
        "no layers": {f"blk.{i}.attn_q.weight": None for i in range(2)},
        "many layers": {f"blk.{i}.attn_q.weight": floats(np.ones(8)) for i in range(2**14 - 20)},
        "scale": {v: ((4, 32), 8, scale * 4)},
        "norm": {"blk.1.attn_norm.weight": floats(np.ones(31))},
        **{
            f"factors {factors}": {"rope_freqs.weight": floats(np.array(factors))}
            for factors in ([1.0, 1.0], [0.0], [NAN])
        },
    }
    more = {
        "lists in lists": key(9, "IQ", 9, 1) + struct.pack("<IQ", 9, 1) * 2000,
        "empty texts": key(9, "IQ", 8, 2**22 + 1) + bytes(2**24),
        "text in a list": key(9, "IQQ", 8, 2, 2**63),
        "key again": struct.pack("<Q", 17) + b"llama.block_count" + bytes(8),
    }
    given = [(damage, {"more": raw}) for damage, raw in more.items()]
    given += [(damage, {"tensors": instead}) for damage, instead in tensors.items()]
    given += [(f"{name} {v}"[:60], {"keys": {name: v}}) for name, own in keys.items() for v in own]
    for damage, one in given:
        yield damage, gguf_file(SIZES, ROWS, **one)


def ctranslate2_cases():
    """Yield files model.bin that are refused for another reason than a false number."""
    whole, layer = np.ones((16, 32), np.int8), "decoder/layer_{}/self_attention/linear_0/weight"
    for aliases in ({"a": "b"}, {"a": "a"}, {W: f"{CROSS}/linear_0/weight"}):
        yield f"aliases {aliases}", ctranslate2_file(SIZES, ROWS, aliases)
    for damage, instead in {
        "scales of scales": {f"{W}{'_scale' * i}": whole for i in range(2000)},
        "many layers": {layer.format(i): np.float32(0) for i in range(2, 2**14 - 30)},
        "no heads": {"decoder/num_heads": None},
        "heads": {"decoder/num_heads": np.float32(2.5)},
        "list": {"decoder/num_heads": np.int16([4])},
        "no scale": {W: whole},
        "scale 0": {W: whole, f"{W}_scale": np.zeros(16, np.float32)},
        "short scale": {W: whole, f"{W}_scale": normal(RNG, 15)},
        "packed": {f"{W}_zero": normal(RNG, 16)},
        "gain": {f"{SELF.format(0)}/layer_norm/gamma": normal(RNG, 31)},
        "half": {W: np.full((16, 32), NAN, np.float16)},
        "cross alone": {f"{CROSS}/linear_1/weight": None},
        "cross odd": {f"{CROSS}/linear_1/weight": normal(RNG, 13, 32)},
        "cross flat": {f"{CROSS}/linear_0/weight": normal(RNG, 256)},
    }.items():
        yield damage, ctranslate2_file(SIZES, ROWS, **instead)


def marian_cases():
    """Yield *.bin and *.npz that are refused for another reason than a false number."""
    sizes = sizes_for("marian")
    rows, text = sizes.drawn(RNG), marian_text(sizes)
    tensors = marian(sizes, rows)
    for damage, told in {
        "none": None,
        "empty": "",
        "not UTF-8": text.encode() + b"\nname: \xff\xfe",
        "json": '{"type": "transformer"}',
        "tab": text + "\n\tmore: 1\n}",
        "huge": text.replace("heads: 4", "heads: " + "9" * 5000),
        "fraction": text.replace("heads: 4", "heads: 4.0"),
        "deep": text.replace("enc-depth: 2", "enc-depth: 1000000"),
        "tied": text.replace("[]", f"{[1] * 10_000}"),
    }.items():
        yield damage, bin_file(tensors, told)
        yield damage, npz_file(tensors, told)
    half = np.full(64, NAN, np.float16).tobytes()
    false = {"half": {"number": 0x402, "raw": half}, "twice": {"name": b"encoder_l1_self_Wk\0"}}
    for x in (0.0, -8.0, NAN, INF, 1e-45):
        false[f"by {x}"] = {"number": INTGEMM8, "raw": b"\1" * 64 + struct.pack("<f", x)}
    for damage, claims in false.items():
        yield damage, bin_file(tensors, text, claims={MARIAN_Q: claims})
    for damage, instead in {
        "no bias": {"encoder_l1_self_bk": None},
        "no layer": {MARIAN_Q: None},
        "another layer": {"encoder_l3_self_Wq": normal(RNG, 8, 8)},
    }.items():
        yield damage, bin_file(marian(sizes, rows, **instead), text)
    many = {f"encoder_l{i}_self_Wq": np.ones((1, 1), np.float32) for i in range(1, 2**14 - 1)}
    yield "many", bin_file(many, text, alignment=1)
    for damage, w in {
        "object": np.array([{}]),
        "empty": np.ones((0, 8), np.float32),
        "flat": normal(RNG, 64),
        "bytes": np.ones((8, 8), np.int8),
    }.items():
        yield f"array, {damage}", npz_file(marian(sizes, rows, **{MARIAN_Q: w}), text)
    out = io.BytesIO()
    bomb = np.zeros((5000, 5000), np.float32)
    np.savez_compressed(out, **with_configuration(tensors | {MARIAN_Q: bomb}, text))
    yield "bomb", File("model.npz", out.getvalue())


def refused():
    """Yield all files that must be refused, with what is wrong in them."""
    for name in WRITERS:
        file = intact(name)
        for one, values in FALSE.get(name, {}).items():
            for value in values:
                data = file.with_field(one, value)
                yield f"{name}: {one} is {value}", replace(file, data=data)
        for damage, change in {
            **{str(x): lambda w, x=x: w["v"].__setitem__((-1, -1), x) for x in (NAN, INF, -INF)},
            "a head more": lambda w: w.update(k=np.concatenate([w["k"], w["k"][:2]])),
            "no k": lambda w: w.pop("k"),
        }.items():
            rows = sizes_for(name).drawn(RNG)
            change(rows[0])
            yield f"{name}: {damage}", intact(name, rows=rows)
    for cases in (safetensors_cases, gguf_cases, ctranslate2_cases, marian_cases):
        for damage, file in cases():
            yield f"{cases.__name__} {damage}", file
