"""Models on a simulated hub, and folders as people have them: what is read, fetched and said."""

import json
import re
import threading
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import huggingface_hub.file_download
import ml_dtypes
import numpy as np
import pytest
from model_files import Sizes, encode, gguf_file, index_file, llama, llama_tensors, safetensors_file
from safetensors.numpy import save

from attnkit.realmodels import Unreadable, open_model
from attnkit.realmodels.hub import revisions_of
from attnkit.realmodels.sources import find_files


class Hub:
    """Files by name, revision and model; names of gated models; and what was requested."""

    def __init__(self):
        self.models, self.gated, self.requests = {}, set(), []

    def add(self, name, files, revision="main"):
        """Add a model; what is not bytes is written as JSON."""
        raw = {n: x if isinstance(x, bytes) else json.dumps(x).encode() for n, x in files.items()}
        self.models.setdefault(name, {})[revision] = raw

    def answer(self, path):
        """Return the status, the code of an error, and the content."""
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|refs)/?(.*))?", path)
        is_listing = match is not None
        match = match or re.fullmatch(r"/([^/]+/[^/]+)/(resolve)/([^/]+)/(.+)", path)
        if match is None or match[1] not in self.models:
            return 401, "RepoNotFound", b""
        name, revisions = match[1], self.models[match[1]]
        if match[2] == "refs":
            refs = [{"name": r, "ref": f"refs/heads/{r}", "targetCommit": r} for r in revisions]
            return 200, "", json.dumps({"branches": refs, "tags": [], "converts": []}).encode()
        files = revisions.get(unquote(match[3] or "main"))
        if files is None:
            return 404, "RevisionNotFound", b""
        if is_listing:
            siblings = [{"rfilename": file} for file in files]
            sha = unquote(match[3] or "main")
            return 200, "", json.dumps({"id": name, "sha": sha, "siblings": siblings}).encode()
        if name in self.gated:
            return 401, "GatedRepo", b""
        file = unquote(match[4])
        return (200, "", files[file]) if file in files else (404, "EntryNotFound", b"")


@contextmanager
def simulated_hub(tmp_path):
    """Yield a hub that the library talks to instead of the real one, with an empty cache."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlsplit(self.path).path
            status, code, raw = hub.answer(path)
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if wanted and status == 200:
                start, end = int(wanted[1]), int(wanted[2]) + 1
                status, raw = (206, raw[start:end]) if start < len(raw) else (416, b"")
            if "/resolve/" in path:
                hub.requests.append((unquote(path.rpartition("/")[2]), len(raw)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("ETag", f'"{zlib.crc32(path.encode())}"')
            self.send_header("X-Repo-Commit", path.split("/resolve/")[-1].partition("/")[0])
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(raw)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            constants = huggingface_hub.constants
            patch.setattr(constants, "ENDPOINT", address)
            template = address + "/{repo_id}/resolve/{revision}/{filename}"
            patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
            patch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
            patch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
            hub.address, hub.server = address, server
            yield hub
    finally:
        server.shutdown()
        server.server_close()


SIZES = Sizes()
ROWS = SIZES.drawn(np.random.default_rng(7))


def files_of(writer, **beside):
    """Return a written model and what lies beside it, by name."""
    file = writer(SIZES, ROWS)
    named = {name.replace("__", "."): content for name, content in beside.items()}
    return {**file.beside, file.name: file.data, **named}


def assert_read(model, rows=ROWS):
    """Check every head against the rows that were written."""
    assert len(model.layers) == len(rows)
    for layer, own in zip(model.layers, rows, strict=True):
        read = layer.read()
        for role in "qkv":
            heads = own[role].reshape(-1, SIZES.d_head, SIZES.d_model).swapaxes(1, 2)
            np.testing.assert_allclose(getattr(read, f"W_{role.upper()}"), heads, atol=1e-6)


def refusal(source):
    """Why a source cannot be opened; one line."""
    with pytest.raises(Unreadable) as error:
        open_model(str(source))
    assert str(error.value).isprintable()
    return str(error.value)


INDEXED, GGUF = files_of(index_file), gguf_file(SIZES, ROWS).data
COPIES = {
    "model.safetensors": b"stray", "consolidated.safetensors": b"c", "model.fp16.safetensors": b"h",
    "consolidated.safetensors.index.json": {"weight_map": {"a": "none.safetensors"}},
    "original/consolidated.00.pth": b"o", "pytorch_model.bin": b"p", "tokenizer.json": b"{}",
    "modeling_own.py": b"", "model.onnx": b"",
}  # fmt: skip
"""Files beside the weights that must not be fetched, or not be taken for the model."""


def test_what_the_hub_has_is_read_and_what_it_refuses_says_what_to_do(tmp_path):
    """Revisions, GGUF files by type, addresses from a browser, copies beside shards, and gates."""
    with simulated_hub(tmp_path) as hub:
        hub.add("o/many", INDEXED | COPIES)
        hub.add("o/many", INDEXED, "step1000")
        hub.add("o/gated", INDEXED)
        hub.gated.add("o/gated")
        hub.add(
            "o/gguf",
            {"config.json": {}, "m-Q4_K_M.gguf": GGUF, "m-Q8_0.gguf": GGUF, "mmproj-F16.gguf": b""},
        )
        hub.add("o/inner", {f"0_Transformer/{name}": raw for name, raw in INDEXED.items()})
        hub.add("o/pickle", {"config.json": {}, "pytorch_model.bin": b"p"})
        for source, name in (
            ("o/many", "many"),
            ("o/many@step1000", "many@step1000"),
            ("https://huggingface.co/o/many", "many"),
            ("https://huggingface.co/o/many/tree/step1000?x=1", "many@step1000"),
            ("o/gguf:Q8_0", "m"),
            ("o/gguf:q4_k_m", "m"),
            ("hf.co/o/gguf/blob/main/m-Q8_0.gguf", "m"),
            ("o/inner", "inner"),
            ("o/inner:0_Transformer", "inner"),
        ):  # fmt: skip
            model = open_model(source)
            assert_read(model)
            assert model.name == name, source
        for source, says in (
            ("o/gated", "https://huggingface.co/o/gated"),
            ("o/none", "no model of that name"),
            ("o/many@step7", "no revision 'step7'; it has 'main', 'step1000'"),
            ("o/gguf", "2 GGUF files"),
            ("o/gguf:Q2_K", "nothing called 'Q2_K'"),
            ("o/pickle", "'pytorch_model.bin' cannot be read"),
        ):
            assert says in refusal(source), source
        assert revisions_of("o/many@step1000,main:x") == ["o/many@step1000:x", "o/many@main:x"]
        assert revisions_of("o/many@main") == ["o/many@main"]
        fetched = {name for name, _ in hub.requests}
        assert not fetched & {name.rpartition("/")[2] for name in COPIES}
        whole = find_files("o/many")
        names = {"config.json", "model.safetensors.index.json", "part.safetensors"}
        assert {path.name for path in whole.parent.iterdir()} == names | {"tokenizer.json"}
        hub.requests.clear()
        assert_read(open_model("o/gguf:Q8_0"))  # all of it is here already
        assert hub.requests == []
        hub.server.shutdown()
        hub.server.server_close()
        assert_read(open_model("o/many"))  # without a network
        assert "cannot be reached (ConnectError)" in refusal("o/elsewhere")


def test_of_many_shards_only_the_bytes_of_attention_are_fetched(tmp_path):
    """Shards that hold experts only are not opened; after a stop, the rest is fetched."""
    n_layers = 9
    sizes, files, places, needed = Sizes(n_layers=n_layers, d_model=64), {}, {}, 0
    tensors = llama_tensors(sizes, sizes.drawn(np.random.default_rng(3)))
    for i in range(n_layers):
        own = {name: w for name, w in tensors.items() if f"layers.{i}." in name}
        needed += sum(w.nbytes for w in own.values())
        expert = np.zeros((200, 200), np.float32)
        first, second = ({f"e{i}.{part}.weight": expert} for part in range(2))
        for part, held in enumerate((own | first, second)):
            shard = f"model-{2 * i + part + 1:05}-of-00018.safetensors"
            files[shard] = save(held)
            places |= dict.fromkeys(held, shard)
    files |= {"config.json": llama(sizes), "model.safetensors.index.json": {"weight_map": places}}
    with simulated_hub(tmp_path) as hub:
        hub.add("o/large", files)
        model = open_model("o/large")
        opened = sum(n for _, n in hub.requests)
        for layer in model.layers[:4]:
            layer.read()
        for layer in open_model("o/large").layers:
            assert layer.read().W_V.shape[1:] == (64, 2)
        assert {name for name, _ in hub.requests if "of-00018" in name} == {
            f"model-{2 * i + 1:05}-of-00018.safetensors" for i in range(n_layers)
        }
        sent = sum(n for _, n in hub.requests)
        assert sent - opened == needed
        assert sent < sum(len(raw) for raw in hub.models["o/large"]["main"].values()) / 3


# folders


def write(folder, files):
    """Write files into a folder and return it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def renamed(start):
    """Return a Llama whose names begin otherwise."""
    return save({start + name: w for name, w in llama_tensors(SIZES, ROWS).items()})


def test_folders_as_people_have_them_are_read(tmp_path):
    """Two indexes, an inner folder, copies, layers that only train, models of images and text."""
    llava = {"model_type": "llava", "text_config": llama(SIZES)}
    flat = llama(SIZES) | {"model_type": "qwen2_vl", "vision_config": {"depth": 2}}
    images = {"visual.blocks.0.attn.qkv.weight": np.zeros((3, 3), np.float32)}
    training = {
        f"mtp.{name.removeprefix('model.')}": w for name, w in llama_tensors(SIZES, ROWS).items()
    }
    plain = llama_tensors(SIZES, ROWS)
    index = {
        "metadata": {"note": "x" * 9_000_000},
        "weight_map": dict.fromkeys(plain, "part.safetensors"),
    }
    for case, files in enumerate((
        INDEXED | COPIES,
        {f"0_Transformer/{name}": raw for name, raw in INDEXED.items()} | {"modules.json": []},
        {"model.safetensors": renamed("language_model."), "config.json": llava},
        {"model.safetensors": save(plain | images), "config.json": flat},
        {"model.safetensors": save(plain | training), "config.json": llama(SIZES)},
        INDEXED | {"model.safetensors.index.json": index},
        {"m.gguf": GGUF, "mmproj-m.gguf": b""},
    )):  # fmt: skip
        assert_read(open_model(str(write(tmp_path / str(case), files))))
    files = {"adapter_config.json": {}, "adapter_model.safetensors": save({"a": np.ones(2)})}
    assert "holds an adapter" in refusal(write(tmp_path / "adapter", files))
    notes = open_model(str(tmp_path / "4")).notes
    assert any("only predict later tokens" in note for note in notes)


def split_gguf():
    """Return a model as llama.cpp splits it: each layer in a file of its own."""
    for i in range(SIZES.n_layers):
        others = {
            f"blk.{j}.attn_{part}.weight": None
            for j in range(SIZES.n_layers)
            for part in ("norm", *"qkv")
            if j != i
        }
        yield f"m-{i + 1:05}-of-00002.gguf", gguf_file(SIZES, ROWS, tensors=others).data


def test_gguf_in_parts_and_with_unknown_types_is_read(tmp_path):
    """The parts are joined; an unknown type matters only where attention has it."""
    plain = open_model(str(write(tmp_path / "plain", files_of(safetensors_file))))
    assert_read(plain)
    assert plain.notes == ()
    assert_read(open_model(str(write(tmp_path / "parts", dict(split_gguf())))))
    unknown = {"blk.0.ffn_up.weight": ((32, 32), 99, bytes(4096))}
    raw = gguf_file(SIZES, ROWS, tensors=unknown).data
    assert_read(open_model(str(write(tmp_path / "unknown", {"m.gguf": raw}) / "m.gguf")))
    unknown = {"blk.0.attn_q.weight": ((8, 32), 99, bytes(1024))}
    raw = gguf_file(SIZES, ROWS, tensors=unknown).data
    model = open_model(str(write(tmp_path / "attention", {"m.gguf": raw}) / "m.gguf"))
    with pytest.raises(Unreadable, match="in type 99, which the package gguf does not know; take"):
        model.layers[0].read()


# quantised


def encoded(tensors):
    """Write tensors, of which some are (type, shape, bytes), into a safetensors file."""
    types = {"float32": "F32", "uint8": "U8", "int8": "I8", "uint32": "U32"}
    header, data = {}, b""
    for name, held in tensors.items():
        if not isinstance(held, tuple):
            held = types[held.dtype.name], held.shape, held.tobytes()
        kind, shape, raw = held
        places = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": places}
        data += raw
    return encode(header, data)


def four_bits(rng, name, w):
    """Quantise with a table of 16 numbers in blocks of 64, whose scales are bytes, too."""
    table, inner = np.sort(rng.normal(size=16)).astype(np.float32), rng.random(256, np.float32)
    codes, scales = rng.integers(16, size=w.size), rng.integers(256, size=w.size // 64)
    outer = rng.random(1, np.float32)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": w.shape,
             "nested_blocksize": 256, "nested_offset": 0.25}  # fmt: skip
    stored = {
        name: (codes[::2] * 16 + codes[1::2]).astype(np.uint8)[:, None],
        f"{name}.absmax": scales.astype(np.uint8),
        f"{name}.quant_map": table,
        f"{name}.nested_absmax": outer,
        f"{name}.nested_quant_map": inner,
        f"{name}.quant_state.bitsandbytes__nf4": np.frombuffer(
            json.dumps(state).encode(), np.uint8
        ),
    }
    values = table[codes].reshape(-1, 64) * (inner[scales] * outer[0] + 0.25)[:, None]
    return stored, values.reshape(w.shape)


def whole_numbers(rng, name, w):
    """Quantise a row with one scale, as bitsandbytes does with eight bits."""
    codes, scale = rng.integers(-127, 128, w.shape), rng.random(len(w), np.float32)
    stored = {name: codes.astype(np.int8), name.replace(".weight", ".SCB"): scale}
    return stored, codes * scale[:, None] / 127


def affine(rng, name, w):
    """Quantise groups of 32 numbers with a scale and a shift, as MLX does with three bits."""
    codes = rng.integers(8, size=w.shape)
    scale, shift = rng.normal(size=(2, len(w), w.shape[1] // 32)).astype(np.float32)
    packed = [sum(int(code) << (3 * i) for i, code in enumerate(row)) for row in codes]
    raw = b"".join(number.to_bytes(w.shape[1] * 3 // 8, "little") for number in packed)
    stem = name.removesuffix("weight")
    stored = {name: ("U32", (len(w), w.shape[1] * 3 // 32), raw),
              f"{stem}scales": scale, f"{stem}biases": shift}  # fmt: skip
    return stored, codes * scale.repeat(32, 1) + shift.repeat(32, 1)


def floats(rng, name, w):
    """Quantise to 8-bit floats with a scale for every square of 128, as DeepSeek does."""
    codes, scale = w.astype(ml_dtypes.float8_e4m3fn), rng.random((1, 1), np.float32)
    stored = {name: ("F8_E4M3", w.shape, codes.tobytes()), f"{name}_scale_inv": scale}
    return stored, codes.astype(np.float32) * scale


@pytest.mark.parametrize(
    ("quantise", "named"),
    [(four_bits, "NF4"), (whole_numbers, "INT8"), (affine, "MLX 3-bit"), (floats, "FP8")],
)
def test_quantised_safetensors_have_the_values_that_their_format_means(tmp_path, quantise, named):
    """Four formats, against formulas written anew; a note names the type."""
    rng, stored = np.random.default_rng(5), {}
    expected = [dict(layer) for layer in ROWS]
    for name, w in llama_tensors(SIZES, ROWS).items():
        stored[name] = w
        if "proj" in name:
            parts, values = quantise(rng, name, w)
            expected[int(name.split(".")[2])][name.split("_proj")[0][-1]] = values
            stored |= parts
    config = llama(SIZES) | {"quantization": {"bits": 3, "group_size": 32}}
    files = {"model.safetensors": encoded(stored), "config.json": config}
    model = open_model(str(write(tmp_path, files)))
    assert_read(model, expected)
    assert f"The weights are quantised ({named})" in model.notes[0]
