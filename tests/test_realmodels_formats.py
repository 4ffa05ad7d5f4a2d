"""Models of the library as GGUF and as model.bin: read as the library's own file of them is.

GGUF is written as llama.cpp's converter does, with its package; a model.bin by CTranslate2's own.
Marian's files are compared with what CTranslate2's converter reads in them.
"""

import json
import re
import struct
from dataclasses import replace
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from ctranslate2.converters import MarianConverter, TransformersConverter
from family_models import CASES, D_VOCAB, Case, built, opened, settings
from model_files import bin_file, configuration, npz_file, transformer

from attnkit.realmodels.base import per_head
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2
from attnkit.realmodels.errors import CONVERT, Unreadable
from attnkit.realmodels.gguf_file import gguf_model, open_gguf
from attnkit.realmodels.marian_file import marian_model
from attnkit.realmodels.sources import open_model

N_TOKENS = 11

# GGUF

SHUFFLED, SHIFTED = ("llama", "mistral3"), ("gemma", "gemma2", "gemma3")
"""Architectures whose rows the converter shuffles, and to whose norms it adds 1."""


def as_converted(arch, name, rows, n_heads, n_kv_heads):
    """One tensor as llama.cpp's converter writes it."""
    if arch in SHUFFLED and ("q_proj" in name or "k_proj" in name):
        n = n_heads if "q_proj" in name else n_kv_heads
        rows = rows.reshape(n, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    if arch == "gptneox" and "query_key_value" in name:
        parts = rows.reshape(n_heads, 3, -1, *rows.shape[1:]).swapaxes(0, 1)
        rows = np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])
    if arch == "gpt2" and "h." in name:
        rows = rows.T
    if arch in SHIFTED and "norm" in name:
        rows = rows + 1
    return np.ascontiguousarray(rows)


def header_of(config):
    """Return the keys that the converter derives from a configuration."""
    fields = config.to_dict()
    n_heads = config.num_attention_heads
    width = fields.get("d_kv") or fields.get("head_dim") or config.hidden_size // n_heads
    keys = settings(
        f"block_count={config.num_hidden_layers} context_length=97 feed_forward_length=37 "
        f"embedding_length={config.hidden_size} vocab_size={D_VOCAB} attention.head_count={n_heads}"
        f" attention.key_length={width} attention.value_length={width} "
        "attention.layer_norm_rms_epsilon=1e-6 attention.layer_norm_epsilon=1e-5"
    )
    keys["attention.head_count_kv"] = fields.get("num_key_value_heads") or n_heads
    positions = fields.get("rope_parameters") or {}
    full = positions.get("full_attention", positions)
    if "rope_theta" in full:
        share = full.get("partial_rotary_factor") or 1
        keys |= {"rope.freq_base": full["rope_theta"], "rope.dimension_count": int(width * share)}
    if "sliding_attention" in positions:
        keys["rope.freq_base_swa"] = positions["sliding_attention"]["rope_theta"]
    if (rule := full.get("rope_type")) in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rule, "rope.scaling.factor": full["factor"]}
    if rule == "yarn":
        length = full["original_max_position_embeddings"]
        keys["rope.scaling.original_context_length"] = length
        for name in {"beta_fast", "beta_slow"} & set(full):
            keys[f"rope.scaling.yarn_{name}"] = float(full[name])
    if "num_decoder_layers" in fields:
        keys["decoder_block_count"] = fields["num_decoder_layers"]
    return keys


def write_gguf(path, model, arch, quantised=None, extra=None, **keys):
    """Write a model; keys of the header and tensors are derived from it, or given."""
    keys = header_of(model.config) | keys
    told = keys["attention.head_count_kv"]
    heads = model.config.num_attention_heads, max(told) if isinstance(told, list) else told
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("a name")
    writer.add_token_list([f"word{i}" for i in range(D_VOCAB)])
    for name, value in keys.items():
        write = {int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
        getattr(writer, f"add_{write}")(f"{arch}.{name}", value)
    enum = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[arch]
    names = gguf.get_tensor_name_map(enum, model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        starts = ("", "model.", "transformer.", "bert.", "gpt_neox.")
        found = (names.get_name(start + name, (".weight", ".bias")) for start in starts)
        mapped = next(filter(None, found), None)
        if mapped is None or (mapped == "output.weight" and model.config.tie_word_embeddings):
            continue
        rows = as_converted(arch, name, tensor.numpy(), *heads)
        if quantised is not None and rows.ndim == 2 and "attn" in mapped:
            writer.add_tensor(mapped, gguf.quants.quantize(rows, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(mapped, rows)
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, np.ascontiguousarray(rows))
    return finished(writer, path)


def finished(writer, path):
    """Write what a writer has, and return the path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


GGUF = {
    "LlamaForCausalLM": "llama", "LlamaModel": "llama", "Qwen2Model": "qwen2",
    "Qwen3ForCausalLM": "qwen3", "GemmaForCausalLM": "gemma", "Gemma2Model": "gemma2",
    "Gemma3ForCausalLM": "gemma3", "Phi3Model": "phi3", "GPT2Model": "gpt2",
    "Qwen3MoeModel": "qwen3moe", "GptOssModel": "gpt-oss", "Olmo2Model": "olmo2",
    "GPTNeoXModel": "gptneox", "Ministral3ForCausalLM": "mistral3", "StableLmModel": "stablelm",
    "BertModel": "bert", "T5ForConditionalGeneration": "t5",
}  # fmt: skip
CTRANSLATE2 = {
    "LlamaForCausalLM": "decoder", "GPT2Model": "decoder", "GPTJModel": "decoder",
    "BertModel": "encoder", "MarianMTModel": "encoder-decoder",
    "WhisperForConditionalGeneration": "whisper", "T5ForConditionalGeneration": "encoder-decoder",
}  # fmt: skip
"""Architecture of GGUF and family of CTranslate2, by models of the library."""

# CTranslate2


def converted(folder, quantization=None, n_words=D_VOCAB):
    """Return the model.bin of a model that the library has saved."""
    path = folder / "config.json"
    older = {"position_embedding_type": "absolute", "normalize_before": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | older))
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


# comparison


def products_of(read, x, y):
    """Return products of queries and keys with each other, positions included, and values."""
    made = [
        rows @ w + (0 if b is None else b[:, None])
        for rows, w, b in (
            (x, read.W_Q.astype(float), read.b_Q),
            (y, read.W_K.astype(float), read.b_K),
            (y, read.W_V.astype(float), read.b_V),
        )
    ]
    if read.rope is not None:
        made[:2] = (
            np.stack([read.rope.rotate(one[:, i], i) for i in range(N_TOKENS)], 1)
            for one in made[:2]
        )
    q, k, v = made
    repeated = k.repeat(len(q) // len(k), 0)
    return [a @ b.swapaxes(1, 2) for a, b in ((q, q), (q, repeated), (k, k))] + [v]


def assert_same_layers(ours, theirs):
    """Check that two readers found the same layers, in whatever order a head's dimensions are."""
    places = [
        [(layer.kind, layer.index, layer.n_heads, layer.n_kv_heads) for layer in layers]
        for layers in (ours, theirs)
    ]
    assert places[0] == places[1]
    rng = np.random.default_rng(3)
    for layer, other in zip(ours, theirs, strict=True):
        read, expected = layer.read(), other.read()
        x = rng.standard_normal((N_TOKENS, read.W_Q.shape[1]))
        y = rng.standard_normal((N_TOKENS, read.W_K.shape[1]))
        for a, b in zip(products_of(read, x, y), products_of(expected, x, y), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
        for gain in ("gain_q", "gain_kv"):
            a, b = getattr(read, gain), getattr(expected, gain)
            assert (a is None) == (b is None)
            np.testing.assert_allclose([] if a is None else a, [] if b is None else b, rtol=1e-5)


@pytest.mark.parametrize("name", dict.fromkeys([*GGUF, *CTRANSLATE2]))
def test_other_formats_are_read_as_the_librarys_own_file(tmp_path, name):
    """Heads, positions, biases, gains and notes are those that the other reader finds."""
    case = CASES[name]
    if name == "MarianMTModel":  # its sides are alike
        case = replace(case, settings=case.settings | {"decoder_attention_heads": 3})
    model = built(case, tmp_path)
    _, theirs, notes = opened(tmp_path)
    found = []
    if arch := GGUF.get(name):
        path = tmp_path / "tiny-F16.gguf"
        write_gguf(path, model, arch)
        found.append(gguf_model(path))
        assert (found[-1].name, found[-1].family, found[-1].format) == ("tiny", arch, "GGUF")
    if family := CTRANSLATE2.get(name):
        read = ctranslate2_model(converted(tmp_path, n_words=D_VOCAB - (name == "MarianMTModel")))
        assert (read.name, read.family, read.format) == ("tiny", family, "CTranslate2")
        found.append(read)
    for read in found:
        assert_same_layers(read.layers, theirs)
        for words in ("normalised after the projection", "learned bias per distance"):
            assert any(words in one for one in read.notes) == any(words in one for one in notes)


def test_the_header_of_gguf_is_read(tmp_path):
    """Heads may differ between layers; vocabularies are skipped; a file's name may name a model.

    The factors of Llama 3's positions are a tensor of the file; another rule gets a note and no
    frequencies, as in a model.bin, which has no factors.
    """
    case = CASES["LlamaModel 2"]
    model = built(replace(case, name="LlamaForCausalLM"), tmp_path)
    turns = 500.0 ** (-np.arange(0, 8, 2) / 8)
    factors = np.float32(turns / model.model.rotary_emb.inv_freq.numpy())
    extra = {"rope_freqs.weight": factors}
    lists = {"attention.head_count": [4] * 3, "attention.head_count_kv": [2] * 3}
    path = write_gguf(tmp_path / "tiny.gguf", model, "llama", extra=extra, **lists)
    file, keys = open_gguf(path)
    assert_same_layers(gguf_model(path).layers, opened(tmp_path)[1])
    assert keys.values["llama.embedding_length"] == 24
    assert "tokenizer.ggml.tokens" not in keys.values
    assert file.entries["blk.1.attn_k.weight"].shape == (16, 24)
    path = path.rename(tmp_path / "Some-Thing.Q4_K_M.gguf")
    assert gguf_model(path).name == "Some-Thing"
    path = path.rename(tmp_path / "model.gguf")
    assert gguf_model(path).name == "a name"
    longrope = {"rope.scaling.type": "longrope"}
    for read in (
        ctranslate2_model(converted(tmp_path)),
        gguf_model(write_gguf(path, model, "llama", **longrope)),
    ):
        assert read.layers[0].read().rope is None
        assert any("distance 0" in note for note in read.notes)


@pytest.mark.parametrize("name", ["Q4_1", "BF16"])
def test_quantised_weights_of_gguf_are_those_its_package_makes(tmp_path, name):
    """Value for value; a note says so, but for the halves of single precision."""
    quantised = gguf.GGMLQuantizationType[name]
    sizes = CASES["LlamaForCausalLM"].settings | {"hidden_size": 32}
    model = built(Case("LlamaForCausalLM", sizes, {}, ""), tmp_path)
    path = write_gguf(tmp_path / "t.gguf", model, "llama", quantised)
    read = gguf_model(path)
    for layer, own in zip(read.layers, model.model.layers, strict=True):
        for role, n in (("Q", 4), ("K", 2), ("V", 2)):
            rows = getattr(own.self_attn, f"{role.lower()}_proj").weight.detach().numpy()
            # Blocks lie within rows, so the order of rows does not matter.
            rounded = gguf.quants.dequantize(gguf.quants.quantize(rows, quantised), quantised)
            np.testing.assert_array_equal(getattr(layer.read(), f"W_{role}"), per_head(rounded, n))
    assert open_gguf(path)[0].entries["blk.0.attn_q.weight"].type == name
    assert any(name in note for note in read.notes) == (name != "BF16")


@pytest.mark.parametrize("quantization", ["int8", "int16", "bfloat16"])
def test_rounded_weights_of_a_model_bin_are_near_the_librarys(tmp_path, quantization):
    """Whole numbers are divided by the scale of their row, and a note says that they are whole.

    Layers that are alike stand in the file once, and another name for the second.
    """
    model = built(CASES["GPT2Model"], tmp_path)
    with torch.no_grad():
        for name in ("weight", "bias"):
            first, second = (getattr(model.h[i].attn.c_attn, name) for i in (0, 1))
            second.copy_(first)
    model.save_pretrained(tmp_path)
    found = ctranslate2_model(converted(tmp_path, quantization))
    for own, layer in zip(model.h, found.layers, strict=True):
        rows = own.attn.c_attn.weight.detach().numpy().T
        scale = np.abs(rows).max(1, keepdims=True)
        step = {
            "int8": scale / 127,
            "int16": scale.max() / 2**10,
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
    """Pickles, which are never opened, other versions and architectures."""
    path = tmp_path / "model.bin"
    for start in (b"PK\x03\x04zip", b"\x80\x02}q\x00.", b"(lp0\n.", b"cposix\n"):
        path.write_bytes(start + bytes(97))
        with pytest.raises(Unreadable, match=re.escape(CONVERT)):
            open_ctranslate2(path)
    path.write_bytes((7).to_bytes(4, "little") + bytes(97))
    with pytest.raises(Unreadable, match=r"version 7, .*convert"):
        open_ctranslate2(path)
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "mamba")
    writer.add_tensor("blk.0.attn_q.weight", np.ones((3, 5), np.float32))
    with pytest.raises(Unreadable, match=r"'mamba'.* llama, "):
        gguf_model(finished(writer, tmp_path / "tiny.gguf"))


# Marian

WHOLE = transformer()
PRE_NORM = {
    "transformer_preprocess": "n",
    "transformer_postprocess": "da",
    "transformer_postprocess_top": "n",
}


def written(path, tensors=WHOLE, options=None):
    """Write a model file with these tensors and options, and return its path."""
    text = configuration(**(options or {}))
    write = npz_file if path.suffix == ".npz" else bin_file
    path.write_bytes(write(tensors, text).data)
    return path


@pytest.mark.parametrize("options", [{}, PRE_NORM])
def test_ctranslate2_converts_the_same_layers(tmp_path, options):
    """The converter of CTranslate2, by others, finds the same weights, biases and gains."""
    tensors = transformer(suffix="_pre" if options else "")
    path = written(tmp_path / "model.npz", tensors, options)
    vocabulary = tmp_path / "vocab.yml"
    vocabulary.write_text("".join(f"word{i}: {i}\n" for i in range(61)))
    MarianConverter(str(path), [str(vocabulary)] * 2).convert(str(tmp_path / "converted"))
    theirs = ctranslate2_model(tmp_path / "converted" / "model.bin").layers
    whole = written(tmp_path / "model.bin", tensors, options)
    for own in (path, whole):
        ours = marian_model(own).layers
        assert [(a.kind, a.n_heads) for a in ours] == [(b.kind, b.n_heads) for b in theirs]
        for our, their in zip(ours, theirs, strict=True):
            our, their = our.read(), their.read()
            assert (our.gain_q is not None) == bool(options)
            for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "gain_q", "gain_kv"):
                np.testing.assert_array_equal(getattr(our, name), getattr(their, name), name)


def test_a_wrong_option_is_named(tmp_path):
    """The message names the option or tensor, its value and what is allowed."""
    for options, words in (
        ({"type": "s2s"}, "type is 's2s'"),
        ({"transformer_heads": None}, "transformer-heads is missing"),
        ({"transformer_heads": 5}, "(42, 40) (5 heads"),
        ({"enc_depth": 3}, "'encoder_l3_self'"),
        ({"dec_depth": 1}, "'decoder_l2_context', 'decoder_l2_self'"),
    ):
        with pytest.raises(Unreadable) as caught:
            marian_model(written(tmp_path / "model.bin", options=options)).layers[0].read()
        assert words in str(caught.value)
        assert str(caught.value).startswith("model.bin")
        assert "\n" not in str(caught.value)


def test_a_file_is_found_under_any_name(tmp_path):
    """A file, or the folder with it, is one model; where none is clear, what is there is named."""
    for i, name in enumerate(("model.enfr.intgemm.alphas.bin", "model.bin", "best-bleu.npz")):
        folder = tmp_path / str(i) / "enfr"
        folder.mkdir(parents=True)
        path = written(folder / name)
        (folder / "lex.50.50.enfr.s2t.bin").write_bytes(struct.pack("<Q", 0xF11A48D5013417F5))
        np.savez(folder / "model.npz.optimizer.npz", adam_mt=np.ones(3))
        for source in (path, folder):
            model = open_model(str(source))
            assert (model.name, model.format, len(model.layers)) == ("enfr", "Marian", 6)
    for name in ("model.npz", "model.npz.best-bleu.npz"):
        written(tmp_path / name)
    np.savez(tmp_path / "arrays.npz", ones=np.ones(3))
    with pytest.raises(Unreadable, match=r"2 Marian models; name the one .*best-bleu\.npz'$"):
        open_model(str(tmp_path))
    with pytest.raises(Unreadable, match=r"arrays\.npz has no special:model\.yml"):
        open_model(str(tmp_path / "arrays.npz"))
