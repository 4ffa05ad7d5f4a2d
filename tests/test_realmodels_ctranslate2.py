"""What is read of a model.bin is what is read of the library's own file it was converted from."""

import re

import numpy as np
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import TransformerDecoderModelSpec
from library_models import Case, assert_same_layers, built, opened, settings

from attnkit.realmodels.base import CONVERT, Unreadable, per_head
from attnkit.realmodels.ctranslate2_file import ctranslate2_model, open_ctranslate2

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
    """Return the model.bin of a transformers model."""
    model.save_pretrained(folder)
    converter = Converter(str(folder))
    converter.n_words = n_words
    converter.convert(str(folder / "tiny"), quantization=quantization)
    return folder / "tiny" / "model.bin"


def llama_like(sizes, base=5003.0, **rope):
    """Return settings of a causal decoder; every size its own."""
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": base, **rope}}
    rest = "vocab_size=61 intermediate_size=37 num_hidden_layers=2 pad_token_id=0 "
    return settings(rest + sizes) | rope


GPT_2 = settings("vocab_size=61 n_positions=97 n_embd=51 n_layer=2 n_head=3")
GPT_J = settings("vocab_size=61 n_positions=97 n_embd=66 n_layer=2 n_head=3 rotary_dim=10")
BERT = settings(
    "vocab_size=61 hidden_size=42 intermediate_size=37 num_hidden_layers=2 num_attention_heads=3 "
    "max_position_embeddings=97 position_embedding_type='absolute'"  # the converter asks for it
)
DISTILBERT = settings("vocab_size=61 dim=42 hidden_dim=37 n_layers=2 n_heads=3")
PAIR = settings(
    "vocab_size=61 d_model=42 encoder_layers=2 decoder_layers=3 encoder_attention_heads=3 "
    "encoder_ffn_dim=37 decoder_ffn_dim=37 max_position_embeddings=97 "
)
ENDS = "decoder_attention_heads=3 pad_token_id=60 eos_token_id=0 decoder_start_token_id=60 "
BART = PAIR | settings(ENDS + "bos_token_id=2 normalize_before=False")
MARIAN = PAIR | settings(ENDS + "forced_eos_token_id=0")
WHISPER = PAIR | settings(
    "decoder_attention_heads=7 num_mel_bins=7 max_source_positions=23 max_target_positions=29 "
    "pad_token_id=1 eos_token_id=2 bos_token_id=0 decoder_start_token_id=3 suppress_tokens=None "
    "begin_suppress_tokens=None"
)
T5 = settings("vocab_size=61 d_model=31 d_kv=6 d_ff=37 num_layers=2 num_heads=5")
GROUPED = "num_attention_heads=6 num_key_value_heads=2"
EQUAL = "num_attention_heads=3 num_key_value_heads=3"
ONE_KEY = "num_attention_heads=5 num_key_value_heads=1"
LINEAR = {"rope_type": "linear", "factor": 3.0}
# Gemma's base is always written as 10,000 by this converter, with this version of transformers.
MODELS = {
    "LlamaForCausalLM": ("decoder", llama_like("hidden_size=60 " + GROUPED)),
    "LlamaForCausalLM, stretched": ("decoder", llama_like("hidden_size=42 " + EQUAL, **LINEAR)),
    "GemmaForCausalLM": ("decoder", llama_like("hidden_size=55 head_dim=22 " + ONE_KEY, 1e4)),
    "Qwen3ForCausalLM": ("decoder", llama_like("hidden_size=66 head_dim=14 " + GROUPED)),
    "GPT2LMHeadModel": ("decoder", GPT_2),
    "GPTJForCausalLM": ("decoder", GPT_J),
    "BertModel": ("encoder", BERT),
    "DistilBertModel": ("encoder", DISTILBERT),
    "MarianMTModel": ("encoder-decoder", MARIAN),
    "BartForConditionalGeneration": ("encoder-decoder", BART),
    "WhisperForConditionalGeneration": ("whisper", WHISPER),
    "T5ForConditionalGeneration": ("encoder-decoder", T5),
}
"""Family in our words, and settings, by the class of the library."""


@pytest.mark.parametrize("name", MODELS)
def test_a_model_bin_is_read_as_the_librarys_own_file(tmp_path, name):
    """Heads, positions, biases and gains are those that the other reader finds.

    GPT-J's dimensions stand in another order, Whisper's sides have other numbers of heads, its keys
    have no bias, and T5's heads are not as wide together as the model.
    """
    family, own = MODELS[name]
    kind = name.partition(",")[0]
    model = built(Case(kind, own, {}, ""), tmp_path)
    n_words = 60 if kind == "MarianMTModel" else N_WORDS
    read = ctranslate2_model(converted(tmp_path, model, n_words=n_words))
    assert (read.name, read.family, read.format) == ("tiny", family, "CTranslate2")
    _, theirs, notes = opened(tmp_path)
    assert_same_layers(read.layers, theirs)
    for words in ("normalised after the projection", "learned bias per distance"):
        assert any(words in note for note in read.notes) == any(words in note for note in notes)


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_rounded_weights_are_near_the_librarys(tmp_path, quantization):
    """Whole numbers are divided by the scale of their row, and a note says that they are whole."""
    library = built(Case("GPT2LMHeadModel", GPT_2, {}, ""), tmp_path)
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
            theirs, off = (per_head(np.split(a, 3)[part], 3) for a in (rows, allowed))
            assert (np.abs(w - theirs) <= off).all()
            assert np.abs(w - theirs).max() > 0
    assert any(quantization in note for note in model.notes) == quantization.startswith("int")


def test_layers_that_are_alike_are_read_twice(tmp_path):
    """The file has them once, and another name for the second, also of its scale."""
    library = built(Case("GPT2LMHeadModel", GPT_2, {}, ""), tmp_path)
    with torch.no_grad():
        for name in ("weight", "bias"):
            first, second = (getattr(library.transformer.h[i].attn.c_attn, name) for i in (0, 1))
            second.copy_(first)
    first, second = ctranslate2_model(converted(tmp_path, library, "int8")).layers
    np.testing.assert_array_equal(first.read().W_K, second.read().W_K)
    assert first.read().W_K.any()


def test_scaling_that_is_not_read_leaves_no_rope_and_a_note(tmp_path):
    """Rather than frequencies that are not the model's."""
    scaling = {"rope_type": "llama3", "factor": 7.0, "low_freq_factor": 1.0}
    scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 53}
    case = Case("LlamaForCausalLM", llama_like("hidden_size=60 " + GROUPED, **scaling), {}, "")
    model = ctranslate2_model(converted(tmp_path, built(case, tmp_path)))
    assert model.layers[0].read().rope is None
    assert any("distance 0" in note for note in model.notes)


def test_a_pickle_or_another_version_is_refused_with_what_to_do(tmp_path):
    """Models are also saved as pickles that are called so; they are never opened."""
    path = tmp_path / "model.bin"
    for start in (b"PK\x03\x04zip", b"\x80\x02}q\x00.", b"(lp0\n.", b"cposix\n"):
        path.write_bytes(start + bytes(97))
        with pytest.raises(Unreadable, match=re.escape(CONVERT)):
            open_ctranslate2(path)
    for version in (0, 3, 7):
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
