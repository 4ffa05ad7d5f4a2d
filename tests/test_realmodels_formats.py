"""Models of the library as GGUF and as model.bin: read as the library's own file of them is.

GGUF is written as llama.cpp's converter does, with its package; a model.bin by CTranslate2's own.
"""

import re
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from converted_models import (
    BASE,
    GROUPED,
    KEYS,
    LLAMA_3,
    MODELS,
    N_WORDS,
    beside,
    finished,
    llama_like,
    made,
    write_gguf,
)
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import TransformerDecoderModelSpec
from library_models import Case, assert_same_layers, built, library, opened

from attnkit.realmodels.base import per_head
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2
from attnkit.realmodels.errors import CONVERT, Unreadable
from attnkit.realmodels.gguf_file import gguf_model, open_gguf

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
        keys = (
            {"rope.freq_base": BASE} if "rope_parameters" in MODELS[name][2] else {}
        ) | KEYS.get(name, {})
        extra, without = beside(model, name)
        path = write_gguf(
            tmp_path / "tiny-F16.gguf", model, arch, extra=extra, without=without, **keys
        )
        read = gguf_model(path)
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
        gguf_model(write_gguf(path, model, "llama", **{"rope.scaling.type": "longrope"})),
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
