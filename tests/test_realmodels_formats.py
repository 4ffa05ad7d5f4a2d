"""Models of the library as GGUF and as model.bin: read as the library's own file of them is.

GGUF is written as llama.cpp's converter does, with its package; a model.bin by CTranslate2's own.
"""

import re
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import TransformerDecoderModelSpec
from library_models import Case, assert_same_layers, built, library, opened, settings

from attnkit.realmodels.base import per_head
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2
from attnkit.realmodels.errors import CONVERT, Unreadable
from attnkit.realmodels.gguf_file import gguf_model, open_gguf

N_WORDS, BASE = 61, 5003.0

# GGUF


SHUFFLED = ("llama", "smollm3", "granite", "mistral3", "olmo")
GROUPED_ROWS = ("bloom", "falcon", "gptneox")
SHIFTED = ("gemma", "gemma2", "gemma3", "gemma-embedding", "qwen3next")
"""Architectures whose rows the converter shuffles or sorts, and to whose norms it adds 1."""


def as_converted(arch, name, rows, n_heads, n_kv_heads):
    """One tensor as llama.cpp's converter writes it."""
    if arch in SHUFFLED and ("q_proj" in name or "k_proj" in name):
        n = n_heads if "q_proj" in name else n_kv_heads
        rows = rows.reshape(n, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    if arch in GROUPED_ROWS and "query_key_value" in name:
        groups = rows.reshape(n_kv_heads, n_heads // n_kv_heads + 2, -1, *rows.shape[1:])
        parts = groups[:, :-2], groups[:, -2], groups[:, -1]
        rows = np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])
    if arch == "gpt2" and ".h." in name:
        rows = rows.T
    if arch in SHIFTED and "norm" in name:
        rows = rows + 1
    return np.ascontiguousarray(rows)


def write_gguf(path, model, arch, quantised=None, extra=None, **keys):
    """Write a model; keys in the header are those that all have, and what is given."""
    config = model.config
    n_heads, n_layers = config.num_attention_heads, config.num_hidden_layers
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    n_kv_heads = keys.get("attention.head_count_kv", n_kv_heads)
    d_head = getattr(config, "d_kv", None) or config.to_dict().get("head_dim")
    width = d_head or config.hidden_size // n_heads
    keys = settings(
        f"block_count={n_layers} context_length=97 embedding_length={config.hidden_size} "
        f"feed_forward_length=37 vocab_size={N_WORDS}"
    ) | {
        "attention.head_count": n_heads,
        "attention.head_count_kv": n_kv_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-5,
        **({"rope.freq_base": BASE, "rope.dimension_count": width} if d_head else {}),
        **keys,
    }
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("a name")
    writer.add_token_list([f"word{i}" for i in range(N_WORDS)])
    for name, value in keys.items():
        write = {int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
        getattr(writer, f"add_{write}")(f"{arch}.{name}", value)
    enum = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[arch]
    names = gguf.get_tensor_name_map(enum, n_layers)
    for name, tensor in model.state_dict().items():
        mapped = names.get_name(name, (".weight", ".bias"))
        if mapped is None or (mapped == "output.weight" and config.tie_word_embeddings):
            continue
        rows = as_converted(arch, name, tensor.numpy(), n_heads, n_kv_heads)
        if quantised is not None and rows.ndim == 2 and "attn" in mapped:
            writer.add_tensor(mapped, gguf.quants.quantize(rows, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(mapped, rows)
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, rows)
    for i in range(n_layers if arch == "nomic-bert" else 0):
        own = model.layers[i].self_attn
        three = [getattr(own, f"{part}_proj").weight.detach().numpy() for part in "qkv"]
        writer.add_tensor(f"blk.{i}.attn_qkv.weight", np.concatenate(three))
    return finished(writer, path)


def finished(writer, path):
    """Write what a writer has, and return the path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# CTranslate2


def converted(folder, model, quantization=None, n_words=N_WORDS):
    """Return the model.bin of a transformers model."""
    model.save_pretrained(folder)
    converter = TransformersConverter(str(folder))
    tokenizer = SimpleNamespace(
        get_vocab=lambda: {f"word{i}": i for i in range(n_words)},
        convert_ids_to_tokens=lambda _: "word0",
        additional_special_tokens=(),
        **{f"{kind}_token": "word0" for kind in ("bos", "eos", "unk", "pad")},
    )
    converter.load_tokenizer = lambda *_, **__: tokenizer
    converter.convert(str(folder / "tiny"), quantization=quantization)
    return folder / "tiny" / "model.bin"


# models


def llama_like(sizes, base=BASE, **rope):
    """Return settings of a causal decoder; every size its own."""
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": base, **rope}}
    return settings(f"{PLAIN} pad_token_id=0 {sizes}") | rope


PLAIN = "vocab_size=61 intermediate_size=37 num_hidden_layers=2"
GROUPED = "num_attention_heads=6 num_key_value_heads=2"
EQUAL = "num_attention_heads=3 num_key_value_heads=3"
ONE_KEY = "num_attention_heads=5 num_key_value_heads=1"
FIVE = "hidden_size=70 num_attention_heads=5 num_key_value_heads=5"
FOUR = "hidden_size=52 head_dim=10 num_attention_heads=4 num_key_value_heads=2"
LLAMA = llama_like("hidden_size=84 head_dim=14 " + GROUPED)
LINEAR = {"rope_type": "linear", "factor": 3.0}
LLAMA_3 = {"rope_type": "llama3"} | settings(
    "factor=7.0 low_freq_factor=1.0 high_freq_factor=4.0 original_max_position_embeddings=53"
)
BERT = f"{PLAIN} hidden_size=42 num_attention_heads=3 max_position_embeddings=97"
GPT_2 = settings("vocab_size=61 n_positions=97 n_embd=51 n_layer=2 n_head=3")
PAIR = (
    "vocab_size=61 d_model=42 encoder_layers=2 decoder_layers=3 encoder_attention_heads=3 "
    "encoder_ffn_dim=37 decoder_ffn_dim=37 max_position_embeddings=97"
)
ENDS = "decoder_attention_heads=3 pad_token_id=60 eos_token_id=0 decoder_start_token_id=60"
WHISPER = (
    "decoder_attention_heads=7 num_mel_bins=7 max_source_positions=23 max_target_positions=29 "
    "pad_token_id=1 eos_token_id=2 bos_token_id=0 decoder_start_token_id=3 suppress_tokens=None "
    "begin_suppress_tokens=None"
)

MODELS = {
    "LlamaForCausalLM": ("llama", "decoder", LLAMA),
    "LlamaForCausalLM, stretched": (
        "llama", "decoder", llama_like("hidden_size=42 head_dim=14 " + EQUAL, **LINEAR)
    ),
    "Qwen2ForCausalLM": ("qwen2", None, llama_like("hidden_size=70 " + ONE_KEY)),
    "Qwen3ForCausalLM": ("qwen3", "decoder", llama_like("hidden_size=66 head_dim=14 " + GROUPED)),
    "GemmaForCausalLM": (
        "gemma", "decoder", llama_like("hidden_size=55 head_dim=22 " + ONE_KEY, 1e4)
    ),
    "Gemma2ForCausalLM": ("gemma2", None, llama_like(FOUR)),
    "Gemma3ForCausalLM": (
        "gemma3", None, settings(f"{PLAIN} pad_token_id=0 {FOUR}") | {"num_hidden_layers": 7}
    ),
    "Phi3ForCausalLM": ("phi3", None, llama_like(FIVE, partial_rotary_factor=0.75)),
    "GPT2LMHeadModel": ("gpt2", "decoder", GPT_2),
    "GPTJForCausalLM": (None, "decoder", GPT_2 | {"n_embd": 66, "rotary_dim": 10}),
    "BertModel": ("bert", "encoder", settings(f"{BERT} position_embedding_type='absolute'")),
    "NomicBertModel": ("nomic-bert", None, settings(f"{BERT} head_dim=14")),
    "DistilBertModel": (
        None, "encoder", settings("vocab_size=61 dim=42 hidden_dim=37 n_layers=2 n_heads=3")
    ),
    "MarianMTModel": (
        None, "encoder-decoder", settings(f"{PAIR} {ENDS} forced_eos_token_id=0")
    ),
    "BartForConditionalGeneration": (
        None, "encoder-decoder", settings(f"{PAIR} {ENDS} bos_token_id=2 normalize_before=False")
    ),
    "WhisperForConditionalGeneration": (None, "whisper", settings(f"{PAIR} {WHISPER}")),
    "T5ForConditionalGeneration": (
        "t5", "encoder-decoder",
        settings("vocab_size=61 d_model=31 d_kv=6 d_ff=37 num_layers=2 num_heads=5"),
    ),
}  # fmt: skip
"""GGUF's architecture, CTranslate2's family, and settings, by the class of the library.

Gemma's base is always written as 10,000 by CTranslate2's converter.
"""

KEYS = {
    "LlamaForCausalLM, stretched": {"rope.scaling.type": "linear", "rope.scaling.factor": 3.0},
    "Qwen2ForCausalLM": {"rope.freq_base": BASE},
    "GemmaForCausalLM": {"rope.freq_base": 1e4},
    "Gemma2ForCausalLM": {"attn_logit_softcapping": 2.0, "attention.sliding_window": 53},
    "Gemma3ForCausalLM": {"rope.freq_base": 1e6},
    "Phi3ForCausalLM": {"rope.freq_base": BASE, "rope.dimension_count": 10},
    "NomicBertModel": {"rope.freq_base": 1e3},
}
"""Keys in the header of GGUF files, beside those that all have."""


def made(name, folder):
    """A random model of the library, saved in a folder."""
    return built(Case(name.partition(",")[0], MODELS[name][2], {}, ""), folder)


@pytest.mark.parametrize("name", MODELS)
def test_other_formats_are_read_as_the_librarys_own_file(tmp_path, name):
    """Heads, positions, biases and gains are those that the other reader finds.

    GPT-J's dimensions stand in another order, Whisper's sides have other numbers of heads, its keys
    have no bias, and T5's heads are not as wide together as the model.
    """
    arch, family, _ = MODELS[name]
    model = made(name, tmp_path)
    _, theirs, notes = opened(tmp_path)
    found = []
    if arch is not None:
        read = gguf_model(write_gguf(tmp_path / "tiny-F16.gguf", model, arch, **KEYS.get(name, {})))
        assert (read.name, read.family, read.format) == ("tiny", arch, "GGUF")
        found.append(read)
    if family is not None:
        n_words = 60 if name == "MarianMTModel" else N_WORDS
        read = ctranslate2_model(converted(tmp_path, model, n_words=n_words))
        assert (read.name, read.family, read.format) == ("tiny", family, "CTranslate2")
        found.append(read)
    for read in found:
        assert_same_layers(read.layers, theirs)
        for words in ("normalised after the projection", "learned bias per distance"):
            assert any(words in one for one in read.notes) == any(words in one for one in notes)


def test_the_library_reads_such_a_gguf_file(tmp_path):
    """Transformers' own reader of GGUF makes the same model of it, so it is a true one."""
    model = made("LlamaForCausalLM", tmp_path)
    path = write_gguf(tmp_path / "tiny.gguf", model, "llama")
    kind = library().LlamaForCausalLM
    again = kind.from_pretrained(tmp_path, gguf_file=path.name, config=model.config)
    for name, weight in again.state_dict().items():
        torch.testing.assert_close(weight, model.state_dict()[name], msg=name)


def test_positions_of_llama_3_are_read_where_the_file_has_them(tmp_path):
    """GGUF has a tensor of factors; a model.bin does not, and gets no frequencies but a note."""
    sizes = llama_like("hidden_size=84 head_dim=14 " + GROUPED, **LLAMA_3)
    model = built(Case("LlamaForCausalLM", sizes, {}, ""), tmp_path)
    factors = BASE ** (-np.arange(0, 14, 2) / 14) / model.model.rotary_emb.inv_freq.numpy()
    extra = {"rope_freqs.weight": factors.astype(np.float32)}
    path = write_gguf(tmp_path / "t.gguf", model, "llama", extra=extra)
    assert_same_layers(gguf_model(path).layers, opened(tmp_path)[1])
    for read in (
        ctranslate2_model(converted(tmp_path, model)),
        gguf_model(write_gguf(path, model, "llama", **{"rope.scaling.type": "yarn"})),
    ):
        assert read.layers[0].read().rope is None
        assert any("distance 0" in note for note in read.notes)


def test_the_header_of_gguf_is_read(tmp_path):
    """Heads may differ between layers; vocabularies are skipped; a file's name may name a model."""
    model = made("LlamaForCausalLM", tmp_path)
    lists = {"attention.head_count": [6, 6], "attention.head_count_kv": [2, 2]}
    path = write_gguf(tmp_path / "tiny.gguf", model, "llama", **lists)
    file, keys = open_gguf(path)
    heads = [(layer.n_heads, layer.n_kv_heads) for layer in gguf_model(path).layers]
    assert heads == [(6, 2)] * 2
    assert keys.values["llama.embedding_length"] == 84
    assert "tokenizer.ggml.tokens" not in keys.values
    assert file.entries["blk.1.attn_k.weight"].shape == (28, 84)
    for name, expected in (
        ("model.gguf", "a name"),
        ("Some-Thing.Q4_K_M.gguf", "Some-Thing"),
        ("x-f16.gguf", "x"),
    ):
        path = path.rename(tmp_path / name)
        assert gguf_model(path).name == expected


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "Q5_0", "BF16"])
def test_quantised_weights_of_gguf_are_those_its_package_makes(tmp_path, name):
    """Value for value; a note says so, but for the halves of single precision."""
    quantised = gguf.GGMLQuantizationType[name]
    sizes = llama_like("hidden_size=96 head_dim=16 " + GROUPED)
    model = built(Case("LlamaForCausalLM", sizes, {}, ""), tmp_path)
    path = write_gguf(tmp_path / "t.gguf", model, "llama", quantised)
    read = gguf_model(path)
    for layer, own in zip(read.layers, model.model.layers, strict=True):
        for role, n in (("Q", 6), ("K", 2), ("V", 2)):
            rows = getattr(own.self_attn, f"{role.lower()}_proj").weight.detach().numpy()
            # Blocks lie within rows, so the order of rows does not matter.
            rounded = gguf.quants.dequantize(gguf.quants.quantize(rows, quantised), quantised)
            np.testing.assert_array_equal(getattr(layer.read(), f"W_{role}"), per_head(rounded, n))
    assert open_gguf(path)[0].entries["blk.0.attn_q.weight"].type == name
    assert any(name in note for note in read.notes) == (name != "BF16")


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_rounded_weights_of_a_model_bin_are_near_the_librarys(tmp_path, quantization):
    """Whole numbers are divided by the scale of their row, and a note says that they are whole.

    Layers that are alike stand in the file once, and another name for the second.
    """
    model = made("GPT2LMHeadModel", tmp_path)
    with torch.no_grad():
        for name in ("weight", "bias"):
            first, second = (getattr(model.transformer.h[i].attn.c_attn, name) for i in (0, 1))
            second.copy_(first)
    found = ctranslate2_model(converted(tmp_path, model, quantization))
    for i, layer in enumerate(found.layers):
        rows = model.transformer.h[i].attn.c_attn.weight.detach().numpy().T
        scale = np.abs(rows).max(1, keepdims=True)
        step = {
            "int8": scale / 127,
            "int16": scale.max() / 2**10,
            "float16": np.abs(rows) * 2**-10 + 2**-24,
            "bfloat16": np.abs(rows) * 2**-7,
        }[quantization]
        read = layer.read()
        allowed = np.broadcast_to(step, rows.shape) * 0.51
        for w, part in zip((read.W_Q, read.W_K, read.W_V), range(3), strict=True):
            theirs, off = (per_head(np.split(a, 3)[part], 3) for a in (rows, allowed))
            assert (np.abs(w - theirs) <= off).all()
            assert np.abs(w - theirs).max() > 0
    assert any(quantization in note for note in found.notes) == quantization.startswith("int")


def test_what_is_not_read_is_refused_with_what_to_do(tmp_path):
    """Pickles, which are never opened, other versions and architectures, and no attention."""
    path = tmp_path / "model.bin"
    for start in (b"PK\x03\x04zip", b"\x80\x02}q\x00.", b"(lp0\n.", b"cposix\n"):
        path.write_bytes(start + bytes(97))
        with pytest.raises(Unreadable, match=re.escape(CONVERT)):
            open_ctranslate2(path)
    for version in (0, 3, 7):
        path.write_bytes(version.to_bytes(4, "little") + bytes(97))
        with pytest.raises(Unreadable, match=f"version {version}, .*convert the model again"):
            open_ctranslate2(path)
    spec = TransformerDecoderModelSpec.from_config(0, 3)
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = np.ones((5, 7), np.float32)
    spec.decoder.layer_norm.gamma = spec.decoder.layer_norm.beta = np.ones(7, np.float32)
    spec.register_vocabulary([f"word{i}" for i in range(5)])
    spec.validate()
    spec.save(str(tmp_path))
    with pytest.raises(Unreadable, match="no attention by name; the file holds 'decoder/"):
        ctranslate2_model(path)
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "mamba")
    writer.add_tensor("blk.0.attn_q.weight", np.ones((3, 5), np.float32))
    with pytest.raises(Unreadable, match=r"is 'mamba'; it must be one of llama, "):
        gguf_model(finished(writer, tmp_path / "tiny.gguf"))
