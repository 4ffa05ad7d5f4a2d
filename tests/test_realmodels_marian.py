"""Marian's *.bin and *.npz against their writer, and against CTranslate2's own converter."""

import struct

import numpy as np
import pytest
from ctranslate2.converters import MarianConverter
from model_files import (
    INTGEMM8,
    INTGEMM16,
    bin_file,
    configuration,
    npz_file,
    numbers_and_multiplier,
    transformer,
)

from attnkit.realmodels.base import Kind
from attnkit.realmodels.ctranslate2_file import ctranslate2_model
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.marian_file import marian_model, open_marian
from attnkit.realmodels.notes import REPEATED
from attnkit.realmodels.sources import find_files, open_model

ARRAYS = ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "gain_q", "gain_kv")
WHOLE = transformer()
PRE_NORM = {
    "transformer_preprocess": "n",
    "transformer_postprocess": "da",
    "transformer_postprocess_top": "n",
}


def written(path, tensors=WHOLE, options=None, **more):
    """Write a model file with these tensors and options, and return its path."""
    text = configuration(**(options or {}))
    write = npz_file if path.suffix == ".npz" else bin_file
    path.write_bytes(write(tensors, text, **more).data)
    return path


def without(*parts):
    """Return the tensors of the usual model whose names do not hold a part."""
    return {n: value for n, value in WHOLE.items() if not any(part in n for part in parts)}


@pytest.mark.parametrize("options", [{}, PRE_NORM])
def test_ctranslate2_converts_the_same_layers(tmp_path, options):
    """The converter of CTranslate2, by others, finds the same weights, biases and gains."""
    tensors = transformer(suffix="_pre" if options else "")
    path = written(tmp_path / "model.npz", tensors, options)
    vocabulary = tmp_path / "vocab.yml"
    vocabulary.write_text("".join(f"word{i}: {i}\n" for i in range(61)))
    MarianConverter(str(path), [str(vocabulary)] * 2).convert(str(tmp_path / "converted"))
    theirs = ctranslate2_model(tmp_path / "converted" / "model.bin").layers
    ours = marian_model(path).layers
    assert [(one.kind, one.n_heads) for one in ours] == [(one.kind, one.n_heads) for one in theirs]
    for our_layer, their_layer in zip(ours, theirs, strict=True):
        our, their = our_layer.read(), their_layer.read()
        assert (our.gain_q is not None) == bool(options)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(our, name), getattr(their, name), name)


@pytest.mark.parametrize(("number", "alignment"), [(INTGEMM8, 1), (INTGEMM16, 256), (0x10001, 256)])
def test_quantised_weights_are_divided_by_their_multiplier(tmp_path, number, alignment):
    """At most half a step is lost, with and without padding; embeddings are not transposed."""
    tensors = transformer(48)
    path = written(tmp_path / "model.bin", tensors, number=number, alignment=alignment)
    model = marian_model(path)
    for scope, layer in zip(("encoder_l1_self", "encoder_l2_self"), model.layers[:2], strict=True):
        weight = tensors[f"{scope}_Wk"]
        integers, multiplier = numbers_and_multiplier(weight, number)
        read = layer.read().W_K.swapaxes(0, 1).reshape(weight.shape)
        np.testing.assert_allclose(read, integers / np.float64(multiplier), rtol=1e-7)
        assert 0 < np.abs(read - weight).max() <= 0.501 / multiplier
    (note,) = model.notes
    assert f"intgemm{8 * (number % 256)}" in note
    integers, multiplier = numbers_and_multiplier(tensors["Wemb"], number)
    read = open_marian(path)[0].read("Wemb")
    np.testing.assert_allclose(read, integers / np.float64(multiplier), rtol=1e-7)


def test_weights_that_cannot_be_read_are_refused(tmp_path):
    """Weights that Marian transposes wrongly, or that suit one kind of processor, are refused."""
    path = written(tmp_path / "model.bin", transformer(24), number=INTGEMM8)
    with pytest.raises(Unreadable, match=r"multiples of 16; use the \*\.npz"):
        marian_model(path).layers[0].read()
    for number in (0x1801, 0x802, 0x13001):
        written(path, claims={"encoder_l1_self_Wq": {"number": number}})
        with pytest.raises(Unreadable, match=f"in type {number:#x}, .* --gemm-type intgemm8$"):
            marian_model(path)


@pytest.mark.parametrize(
    ("version", "has_gain"), [("v1.10.0 6f6d", False), ("v1.11.0 f00a", True), (None, True)]
)
def test_keys_are_normalised_from_version_1_11_on(tmp_path, version, has_gain):
    """Earlier versions normalised only what the queries of self-attention read."""
    tensors, options = transformer(suffix="_pre"), PRE_NORM | {"version": version}
    model = marian_model(written(tmp_path / "model.bin", tensors, options))
    encoder, cross = model.layers[0].read(), model.layers[-1].read()
    np.testing.assert_array_equal(encoder.gain_q, tensors["encoder_l1_self_Wo_ln_scale_pre"][0])
    assert (encoder.gain_kv is not None) == has_gain
    assert any("before version 1.11" in note for note in model.notes) != has_gain
    rms = {name.replace("_ln_", "_rms_"): value for name, value in tensors.items()}
    options |= {"transformer_preprocess": "rd", "transformer_postprocess_top": "r"}
    other = marian_model(written(tmp_path / "model.bin", rms, options)).layers[-1].read()
    for one in (cross, other):
        gain = tensors["decoder_l2_context_Wo_ln_scale_pre"][0]
        np.testing.assert_array_equal(one.gain_q, gain)
        np.testing.assert_array_equal(one.gain_kv, tensors["encoder_top_ln_scale"][0])


def test_layers_that_a_model_has_not_are_not_shown(tmp_path):
    """Recurrent and averaging decoders, tied layers, pooling and language models say so."""
    no_self = without("decoder_l1_self", "decoder_l2_self")
    recurrent = no_self | {"decoder_l1_rnn_W": np.ones((42, 42))}
    for tensors, options, kinds, note in (
        (recurrent, {"transformer_decoder_autoreg": "rnn"}, "eexx", "recurrent unit"),
        (no_self, {"transformer_decoder_autoreg": "average-attention"}, "eexx", "averages"),
        (without("decoder_l2"), {"transformer_tied_layers": [1, 1]}, "eecx", REPEATED),
        (without("context"), {"transformer_pool": True}, "eecc", ""),
        (without("encoder", "context"), {"type": "lm-transformer", "enc_depth": None}, "cc", ""),
    ):
        model = marian_model(written(tmp_path / "model.bin", tensors, options))
        letters = {Kind.ENCODER: "e", Kind.CAUSAL: "c", Kind.CROSS: "x"}
        assert "".join(letters[layer.kind] for layer in model.layers) == kinds
        assert [note in one for one in model.notes] == ([True] if note else [])


def test_a_wrong_option_is_named(tmp_path):
    """The message names the option or tensor, its value and what is allowed."""
    for options, words in (
        ({"type": "s2s"}, "type is 's2s'"),
        ({"type": None}, "type is missing"),
        ({"transformer_heads": None}, "transformer-heads is missing"),
        ({"transformer_heads": "three"}, "transformer-heads is 'three'"),
        ({"transformer_heads": 5}, "(42, 40) (5 heads"),
        ({"transformer_decoder_autoreg": "mamba"}, "autoreg is 'mamba'"),
        ({"transformer_tied_layers": [1, 3]}, "is [1, 3]"),
        ({"transformer_tied_layers": "one"}, "is 'one'"),
        ({"transformer_preprocess": ["n"]}, "transformer-preprocess is ['n']"),
        ({"transformer_preprocess": "n"}, "'encoder_l1_self_Wo_ln_scale_pre'"),
        ({"enc_depth": 3}, "'encoder_l3_self'"),
        ({"dec_depth": 1}, "'decoder_l2_context', 'decoder_l2_self'"),
        ({"transformer_decoder_autoreg": "rnn"}, "'decoder_l1_self'"),
        ({"dec_depth": 10**6}, "2,000,002 attention layers"),
    ):
        with pytest.raises(Unreadable) as caught:
            marian_model(written(tmp_path / "model.bin", options=options)).layers[0].read()
        assert words in str(caught.value)
        assert str(caught.value).startswith("model.bin")
        assert "\n" not in str(caught.value)


def test_a_file_is_found_under_any_name(tmp_path, monkeypatch):
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
    folder = tmp_path / "holds_a_translator" / "models" / "deen"
    folder.mkdir(parents=True)
    np.savez(folder.parents[1] / "arrays.npz", ones=np.ones(3))
    with pytest.raises(Unreadable, match=r"'arrays\.npz', which is not read; allowed are"):
        open_model(str(folder.parents[1]))
    path = written(folder / "model.deen.intgemm8.bin", number=INTGEMM8)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_files("holds_a_translator") == path
    assert open_model("holds_a_translator").name == "holds_a_translator"
