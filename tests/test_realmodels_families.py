"""Heads of every family of transformers, against what its own code computes."""

import json
import re

import numpy as np
import pytest
import torch
from family_models import assert_own_heads, built, library, small, texts_for
from model_files import Sizes, llama, llama_tensors, write
from safetensors.numpy import save

from attnkit.realmodels import Kind, Unreadable, open_model

FAMILIES = {
    "llama": "causal gain rope", "gemma2": "causal gain rope windowed",
    "cohere": "causal gain rope",
    "gpt2": "causal gain", "gpt_neox": "causal gain rope", "gptj": "causal gain rope",
    "falcon": "causal gain rope", "bloom": "causal gain", "mpt": "causal gain",
    "persimmon": "causal gain rope normalised",
    "olmo2": "causal rope normalised", "qwen3": "causal gain rope normalised",
    "gpt_oss": "causal gain rope windowed", "phi3": "causal gain rope",
    "mixtral": "causal gain rope",
    "deepseek_v3": "causal gain latent", "qwen3_next": "causal gain rope normalised",
    "lfm2": "causal gain rope", "nanochat": "causal rope normalised",
    "bert": "encoder", "modernbert": "encoder gain rope", "nomic_bert": "encoder rope",
    "albert": "encoder shared", "deberta-v2": "encoder",
    "t5": "encoder causal cross gain bias", "bart": "encoder causal cross",
    "whisper": "encoder causal cross gain",
}  # fmt: skip
"""Kinds of layers, and words on what is told of the last one: whether it has rotary positions and
a gain before it, and words of its notes."""


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_are_the_families_own(family, tmp_path):
    """Fused, grouped, latent, gated, shared, cross and turned: head by head, from one file."""
    model, words = built(family, tmp_path), FAMILIES[family].split()
    read = open_model(str(tmp_path))
    assert_own_heads(model, read.layers)
    assert [kind for kind in Kind if kind in words] == list(
        dict.fromkeys(x.kind for x in read.layers)
    )
    last = read.layers[-1].read()
    assert (last.rope is not None, last.gain_kv is not None) == ("rope" in words, "gain" in words)
    for word in ("windowed", "normalised", "latent", "bias", "shared"):
        said = {"windowed": "window", "shared": "share their weights"}.get(word, word)
        told = any(said in note for note in read.notes)
        assert told or word not in words, (word, read.notes)


def test_gains_are_what_norms_multiply_by(tmp_path):
    """Some families store them with 1 subtracted; others have their encoder's norm before keys."""
    for family, added in (("llama", 0), ("gemma2", 1), ("nemotron", 1)):
        own = built(family, tmp_path / family, num_key_value_heads=2).state_dict()
        (name,) = (n for n in own if n.endswith("layers.1.input_layernorm.weight"))
        read = open_model(str(tmp_path / family)).layers[1].read()
        np.testing.assert_allclose(read.gain_q, own[name].numpy() + added, rtol=1e-6)
    own = built("t5", tmp_path / "t5").state_dict()["encoder.final_layer_norm.weight"].numpy()
    np.testing.assert_array_equal(open_model(str(tmp_path / "t5")).layers[-1].read().gain_kv, own)


WORDS = (
    "reads no text|no attention found|refuses it|has no tensor|unequally|must be of shape|"
    "is damaged|not understood"
)
"""Words in refusals of families."""


def outcome(family, folder):
    """Return "read" if a family is read, head by head its own, and otherwise why not."""
    try:
        model = built(family, folder)
    except (Exception, RecursionError) as error:  # small sizes that contradict each other
        return f"not built: {type(error).__name__}"
    try:
        layers = open_model(str(folder)).layers
        assert [layer.read() for layer in layers]
    except Unreadable as error:
        return str(error)
    try:
        with torch.no_grad():
            model(**texts_for(model))
    except Exception as error:  # it needs more inputs, or other ones
        return f"not run: {type(error).__name__}"
    if family in ("fsmt", "pegasus_x"):
        return "not compared: its tokens are in another order"
    try:
        assert_own_heads(model, layers)
    except (IndexError, RuntimeError, AttributeError) as error:  # its inputs are arranged otherwise
        return f"not compared: {type(error).__name__}"
    return "read"


@pytest.mark.long(seconds=900)
def test_every_family_of_the_library_is_read_or_refused_in_one_line(tmp_path):
    """Each that has text and attention, built small, saved and read: head by head its own."""
    found = {name: outcome(name, tmp_path / name) for name in library().CONFIG_MAPPING}
    (tmp_path / "families.json").write_text(json.dumps(found, indent=0))
    others = {name: one for name, one in found.items() if one != "read" and one[:4] != "not "}
    assert {n: x for n, x in others.items() if not re.search(WORDS, x) or not x.isprintable()} == {}
    assert sum(one == "read" for one in found.values()) >= 270


SIZES = Sizes()
ROWS = SIZES.drawn(np.random.default_rng(7))


def refusal(tmp_path, config, tensors=None):
    """Return why a model is refused, in one line."""
    raw = save(llama_tensors(SIZES, ROWS) if tensors is None else tensors)
    path = write(tmp_path, {"model.safetensors": raw, "config.json": config})
    with pytest.raises(Unreadable) as caught:
        open_model(str(path.parent))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_what_is_not_understood_says_why(tmp_path):
    """Code in a model's files, unknown families, quantised weights and false sizes."""
    tiny = llama(SIZES)
    whole = llama_tensors(SIZES, ROWS)
    eight = {name: w.astype(np.int8) for name, w in whole.items()}
    named = {"quantization_config": {"quant_method": "mxfp4"}}
    packed = {name.replace(".weight", ".qweight"): w for name, w in whole.items() if "proj" in name}
    for config, tensors, says in (
        ({"model_type": "own", "auto_map": {"AutoModel": "m.M"}}, None, "code of models is never"),
        ({"model_type": "lama"}, None, "one of llama"),
        ({}, None, "model_type is None"),
        ({**tiny, "hidden_size": 10**9}, None, "hidden_size is 1000000000"),
        ({**tiny, "num_hidden_layers": 10**6}, None, "num_hidden_layers is 1000000"),
        ({**tiny, "hidden_size": "wide"}, None, "refuses it"),
        ({**tiny, "num_attention_heads": 3}, None, "shape|refuses|unequally"),
        ({**tiny, "head_dim": 4}, None, "must be of shape"),
        ({**tiny, "num_hidden_layers": 3}, None, "layers.2.*has no tensor|has no tensor.*layers.2"),
        (tiny | named, eight, "quantised .mxfp4"),
        (tiny | named, packed, "no tensor.*quantised .mxfp4"),
        ({"model_type": "vit"}, None, "reads no text"),
        ({"model_type": "mamba", "num_hidden_layers": 1}, {}, "no tensor"),
    ):
        assert re.search(says, refusal(tmp_path, config, tensors))
    assert small("llama").model_type == "llama"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"rope_type": "linear", "factor": 4.0}, [0.25, 0.0025]),
        ({"rope_type": "default", "rope_theta": 100.0}, [1, 0.1]),
        ({"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}, [1, 0.0025]),
    ],
)  # fmt: skip
def test_frequencies_are_those_by_which_the_model_turns(tmp_path, fields, wanted):
    """Also where positions are scaled."""
    sizes = Sizes(d_head=4)
    rows = sizes.drawn(np.random.default_rng(3))
    positions = {"rope_parameters": {"rope_theta": 1e4, **fields}}
    files = {"model.safetensors": save(llama_tensors(sizes, rows))}
    path = write(tmp_path, files | {"config.json": llama(sizes) | positions})
    found = open_model(str(path.parent)).layers[1].read().rope
    assert found.frequencies == pytest.approx(wanted, rel=1e-6)
