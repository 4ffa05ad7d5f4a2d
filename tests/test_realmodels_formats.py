"""GGUF of several architectures, Marian, and models of the library as CTranslate2 converts them."""

import re
from dataclasses import replace

import gguf
import numpy as np
import pytest
from family_models import CASES, D_VOCAB, built, converted, opened
from model_files import Sizes, gguf_bytes, gguf_file, marian_file, translator, write

from attnkit.realmodels.base import per_head
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2
from attnkit.realmodels.errors import CONVERT, Unreadable
from attnkit.realmodels.gguf_file import gguf_model, open_gguf
from attnkit.realmodels.sources import open_model

# GGUF

SIZES = Sizes(d_head=4)
ROWS = SIZES.drawn(np.random.default_rng(7))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "phi3"])
def test_architectures_of_gguf_keep_their_rows_in_their_own_ways(tmp_path, architecture):
    """Llama shuffles them, Phi stacks them; to gains of Gemma, 1 has already been added."""
    gain = np.linspace(0.5, 2, SIZES.d_model, dtype=np.float32)
    rows, fused = [{**layer, "gain": gain} for layer in ROWS], {}
    if architecture == "phi3":
        fused = {f"blk.{i}.attn_qkv.weight": np.concatenate([*one.values()]) for i, one in
                 enumerate(ROWS)}  # fmt: skip
        rows = [{"gain": gain}] * SIZES.n_layers
    files = gguf_file(SIZES, rows, None, fused, architecture)
    model = gguf_model(write(tmp_path, files))
    assert (model.family, model.format) == (architecture, "GGUF")
    for layer, own in zip(model.layers, ROWS, strict=True):
        read = layer.read()
        for role, w in own.items():
            heads = w.reshape(-1, SIZES.d_head, SIZES.d_model).swapaxes(1, 2)
            np.testing.assert_array_equal(getattr(read, f"W_{role.upper()}"), heads)
        np.testing.assert_array_equal([read.gain_q, read.gain_kv], [gain, gain])
        assert read.rope.frequencies.tolist() == [1, pytest.approx(0.01)]


def test_the_header_of_gguf_is_read(tmp_path):
    """Heads may differ between layers; vocabularies are skipped; a file's name may name a model.

    The factors of Llama 3's positions are a tensor of the file; another rule gets a note and no
    frequencies.
    """
    lists = {"llama.attention.head_count": [4] * 2, "llama.attention.head_count_kv": [2] * 2}
    keys, factors = lists | {"general.name": "a name"}, np.float32([2, 5])
    path = write(tmp_path, gguf_file(SIZES, ROWS, keys, {"rope_freqs.weight": factors}))
    file, found = open_gguf(path)
    assert found.values["llama.embedding_length"] == 32
    assert "tokenizer.ggml.tokens" not in found.values
    assert file.entries["blk.1.attn_k.weight"].shape == (8, 32)
    model = gguf_model(path)
    assert [(one.n_heads, one.n_kv_heads) for one in model.layers] == [(4, 2)] * 2
    assert model.layers[1].read().rope.frequencies == pytest.approx([0.5, 0.002])
    assert model.name == "a name"
    assert gguf_model(path.rename(tmp_path / "Some-Thing.Q4_K_M.gguf")).name == "Some-Thing"
    scaled = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    read = gguf_model(write(tmp_path, gguf_file(SIZES, ROWS, scaled))).layers[0].read()
    assert read.rope.frequencies == pytest.approx([0.25, 0.0025])
    other = gguf_file(SIZES, ROWS, {"llama.rope.scaling.type": "longrope"})
    built(CASES["LlamaModel 2"], tmp_path)  # a model.bin has no such factors
    for read in (gguf_model(write(tmp_path, other)), ctranslate2_model(converted(tmp_path))):
        assert read.layers[0].read().rope is None
        assert any("distance 0" in note for note in read.notes)


@pytest.mark.parametrize("name", ["Q4_1", "BF16"])
def test_quantised_weights_of_gguf_are_those_its_package_makes(tmp_path, name):
    """Value for value; a note says so, but for the halves of single precision."""
    kind, n_heads = gguf.GGMLQuantizationType[name], {"q": 4, "k": 2, "v": 2}
    rows = [{p: gguf.quants.quantize(w, kind) for p, w in layer.items()} for layer in ROWS]
    path = write(tmp_path, gguf_file(SIZES, rows, architecture="qwen2", quantised=kind))
    model = gguf_model(path)
    for layer, own in zip(model.layers, rows, strict=True):
        for p, w in own.items():
            rounded = per_head(gguf.quants.dequantize(w, kind), n_heads[p])
            np.testing.assert_array_equal(getattr(layer.read(), f"W_{p.upper()}"), rounded)
    assert open_gguf(path)[0].entries["blk.0.attn_q.weight"].type == name
    assert any(name in note for note in model.notes) == (name != "BF16")


# CTranslate2

N_TOKENS = 11
CTRANSLATE2 = {
    "LlamaForCausalLM": "decoder", "GPT2Model": "decoder", "GPTJModel": "decoder",
    "BertModel": "encoder", "MarianMTModel": "encoder-decoder",
    "WhisperForConditionalGeneration": "whisper", "T5ForConditionalGeneration": "encoder-decoder",
}  # fmt: skip
"""Families of CTranslate2, by models of the library."""


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


@pytest.mark.parametrize("name", CTRANSLATE2)
def test_a_model_bin_is_read_as_the_librarys_own_file(tmp_path, name):
    """Heads, positions, biases, gains and notes are those that the other reader finds."""
    case = CASES[name]
    if name == "MarianMTModel":  # its sides are alike
        case = replace(case, settings=case.settings | {"decoder_attention_heads": 3})
    built(case, tmp_path)
    _, theirs, notes = opened(tmp_path)
    read = ctranslate2_model(converted(tmp_path, n_words=D_VOCAB - (name == "MarianMTModel")))
    assert (read.name, read.family, read.format) == ("tiny", CTRANSLATE2[name], "CTranslate2")
    assert_same_layers(read.layers, theirs)
    for words in ("normalised after the projection", "learned bias per distance"):
        assert any(words in one for one in read.notes) == any(words in one for one in notes)


@pytest.mark.parametrize(("quantization", "parts"), [("int8", 127), ("int16", None)])
def test_rounded_weights_of_a_model_bin_are_near_the_librarys(tmp_path, quantization, parts):
    """Whole numbers are divided by the scale of their row, and a note says that they are whole.

    Layers that are alike stand in the file once, and another name for the second.
    """
    model = built(CASES["GPT2Model"], tmp_path)
    model.h[1].attn.c_attn.load_state_dict(model.h[0].attn.c_attn.state_dict())
    model.save_pretrained(tmp_path)
    found = ctranslate2_model(converted(tmp_path, quantization))
    for own, layer in zip(model.h, found.layers, strict=True):
        rows, read = own.attn.c_attn.weight.detach().numpy().T, layer.read()
        step = np.abs(rows).max(1, keepdims=True) / parts if parts else np.abs(rows).max() / 2**10
        allowed = np.broadcast_to(0.51 * step, rows.shape)
        for w, part in zip((read.W_Q, read.W_K, read.W_V), range(3), strict=True):
            theirs, off = (per_head(np.split(a, 3)[part], 3) for a in (rows, allowed))
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
    with pytest.raises(Unreadable, match=r"version 7, .*convert"):
        open_ctranslate2(path)
    raw = gguf_bytes("mamba", {}, {"blk.0.attn_q.weight": np.ones((3, 5), np.float32)})
    with pytest.raises(Unreadable, match=r"'mamba'.* llama, "):
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
            for part, rows in (("W", 12), ("b", 1)):
                own = held[f"{scope}_{part}{role.lower()}"].reshape(rows, 3, 4).swapaxes(0, 1)
                found = getattr(read, f"{part}_{role}")
                np.testing.assert_array_equal(found.reshape(3, rows, 4), own)
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
        ({"transformer_heads": 5}, "(12, 10) (5 heads"),
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
