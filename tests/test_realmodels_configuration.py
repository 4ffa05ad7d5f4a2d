"""What a configuration says of a model, in older and newer forms, true or not; and notes.

Layers of one model may differ: wider heads, keys that serve as values, reused keys.
"""

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from family_models import CASES, D_VOCAB, built, settings
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly

from attnkit.realmodels.base import Kind
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.safetensors_file import open_safetensors
from attnkit.realmodels.sources import find_files
from attnkit.realmodels.tensors import TensorEntry, TensorFile


def named(shapes):
    """Tensors of some names and shapes, all of the same number."""
    entries = {name: TensorEntry(shape, "F32", Path("made")) for name, shape in shapes.items()}
    return TensorFile("made", entries, lambda name: np.full(shapes[name], 0.5, np.float32))


def refusal(shapes, config):
    """Return the one line that refuses a model."""
    with pytest.raises(Unreadable) as error:
        hugging_face_layers(named(shapes), config)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2_000
    return str(error.value)


def assert_says(message, words):
    """Check that a message has these words in this order, with anything between them at `.*`."""
    assert re.search(".*".join(map(re.escape, words.split(".*"))), message), message


def read_all(shapes, config):
    """Return the layers of a model, all of them read, and its notes."""
    _, layers, notes = hugging_face_layers(named(shapes), config)
    return layers, [layer.read() for layer in layers], notes


def llama_file(n_layers=3, prefix="model."):
    """Names and shapes of a Llama: 5 heads of width 4, one for keys and values, 7 inputs."""
    shapes = {"model.embed_tokens.weight": (D_VOCAB, 7)}
    for layer in (f"{prefix}layers.{i}." for i in range(n_layers)):
        shapes |= {f"{layer}self_attn.{p}_proj.weight": (4, 7) for p in "kv"}
        shapes |= {f"{layer}self_attn.q_proj.weight": (20, 7)}
        shapes |= {f"{layer}input_layernorm.weight": (7,)}
    return shapes


LLAMA = {"model_type": "llama"} | settings(
    "hidden_size=7 num_hidden_layers=3 num_attention_heads=5 num_key_value_heads=1 head_dim=4 "
    "max_position_embeddings=64"
)
LLAMA_3 = settings(
    "factor=4.0 low_freq_factor=1.0 high_freq_factor=4.0 original_max_position_embeddings=32"
)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def frequencies(n_layers=3, **config):
    """Return the frequencies of a Llama's layers; None where no position is rotated."""
    _, read, _ = read_all(llama_file(n_layers), LLAMA | {"num_hidden_layers": n_layers} | config)
    return [None if one.rope is None else one.rope.frequencies.tolist() for one in read]


def test_angles_of_older_configurations():
    """Base, share and scaling stood elsewhere before rope_parameters."""
    linear = {"type": "linear", "factor": 2.0}
    for config, expected in (
        ({}, [1.0, 0.01]),
        ({"rope_theta": 100.0}, [1.0, 0.1]),
        ({"rope_theta": 100, "rope_scaling": linear}, [0.5, 0.05]),
        ({"partial_rotary_factor": 0.5}, [1.0]),
        ({"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}}, [1.0, 0.1]),
        ({"rope_scaling": YARN}, [1.0, pytest.approx(0.01 / 4)]),  # often turned: kept
        ({"rope_scaling": YARN | {"factor": None}}, [1.0, pytest.approx(0.01 / 2)]),
    ):
        assert frequencies(**config) == [expected] * 3, config
    gemma = {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    slow, usual = [0.125, 0.000125], [1.0, 0.01]
    assert frequencies(7, **gemma) == [usual] * 5 + [slow, usual]
    local = gemma | {"sliding_window_pattern": 2, "rope_local_base_freq": 100.0}
    assert frequencies(3, **local) == [[1.0, 0.1], slow, [1.0, 0.1]]
    assert frequencies(no_rope_layers=[1, 0, 1]) == [usual, None, usual]
    stem = "gpt_neox.layers.0."
    shapes = {f"{stem}attention.query_key_value.weight": (48, 16)}
    shapes |= {f"{stem}input_layernorm.weight": (16,)}
    for fields, expected in (
        ("", [1.0, 0.01]),
        ("rotary_pct=0.125 rotary_emb_base=77", [1.0]),
        ("rotary_pct=0.25 rotary_emb_base=100", [1.0, 0.1]),
    ):
        config = settings(f"hidden_size=16 num_hidden_layers=1 num_attention_heads=1 {fields}")
        _, (one,), _ = read_all(shapes, {"model_type": "gpt_neox"} | config)
        assert one.rope.frequencies.tolist() == expected


def test_positions_scaled_by_another_rule_are_left_out_and_said():
    """The rule "longrope" has other frequencies for long texts; YaRN may scale a part of a head."""
    part = {"partial_rotary_factor": 0.5}
    for config in (
        {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}},
        {**part, "rope_scaling": YARN},
    ):
        _, read, notes = read_all(llama_file(), LLAMA | config)
        assert [one.rope for one in read] == [None] * 3
        assert any(repr(config["rope_scaling"]["rope_type"]) in note for note in notes)
    assert None not in frequencies(**part, rope_scaling=YARN | {"attention_factor": 1.0})


def test_notes_say_what_is_not_shown():
    """Norms after the projection, caps, windows, what else the model is, and what is missing.

    BART's cross-attention may be untrained, and DeepSeek V3 has a layer more.
    """
    shapes = llama_file() | {f"model.layers.{i}.self_attn.q_norm.weight": (4,) for i in range(3)}
    shapes["vision_tower.layers.0.self_attn.q_proj.weight"] = (3, 3)
    config = LLAMA | {"attn_logit_softcapping": 50.0, "sliding_window": 128}
    _, _, notes = read_all(shapes, config | {"no_rope_layers": [1, 0, 1]})
    assert {note.split()[0] for note in notes} == {"Queries", "Scores", "Some", "Only"}
    assert "Some layers have no rotary positions." in notes
    config |= {"use_sliding_window": False, "attn_logit_softcapping": None}
    assert read_all(llama_file(), config)[2] == ()
    fields = {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
    assert [layer.index for layer in read_all(llama_file(3), LLAMA | fields)[0]] == [0, 1]
    shapes = {
        f"model.decoder.layers.0.{module}.{part}_proj.weight": (6, 6)
        for module in ("self_attn", "encoder_attn")
        for part in "qkv"
    }
    config = {"model_type": "bart", "d_model": 6, "decoder_layers": 1, "decoder_attention_heads": 2}
    layers, _, notes = read_all(shapes, config)
    assert [layer.kind for layer in layers] == [Kind.CAUSAL, Kind.CROSS]
    assert notes == ("There is no encoder in the file, so cross-attention may be untrained.",)


GEMMA_4 = {"model_type": "gemma4_text"} | settings(
    "hidden_size=7 num_hidden_layers=4 num_attention_heads=6 num_key_value_heads=2 head_dim=4 "
    "global_head_dim=8 num_global_key_value_heads=1 attention_k_eq_v=True num_kv_shared_layers=2"
)
GEMMA_4["layer_types"] = ["sliding_attention", "full_attention"] * 2
"""Configuration with the field names of the published models."""


def gemma_file():
    """Names and shapes of that model, in which layers 2 and 3 reuse the keys of 0 and 1."""
    shapes = {"model.layers.0.self_attn.v_proj.weight": (8, 7)}
    for layer, (d_head, n_kv_heads) in enumerate([(4, 2), (8, 1)] * 2):
        prefix = f"model.layers.{layer}."
        shapes[f"{prefix}input_layernorm.weight"] = (7,)
        shapes[f"{prefix}self_attn.q_proj.weight"] = (6 * d_head, 7)
        if layer < 2:
            shapes[f"{prefix}self_attn.k_proj.weight"] = (n_kv_heads * d_head, 7)
    return shapes


def test_layers_have_heads_and_keys_of_their_own():
    """Global layers are wider, and the last layers name the layer whose keys they reuse.

    Newer configurations say the same by an object of fields for every layer that differs.
    """
    wide = {"head_dim": 8, "num_key_value_heads": 1}
    new = {"per_layer_config": {"1": wide, "3": wide}, "global_head_dim": None}
    for fields in ({}, new):
        layers, read, notes = read_all(gemma_file(), GEMMA_4 | fields)
        shapes = [(one.W_Q.shape, one.W_K.shape) for one in read]
        assert shapes == [((6, 7, 4), (2, 7, 4)), ((6, 7, 8), (1, 7, 8))] * 2
        assert [layer.kv_index for layer in layers] == [None, None, 0, 1]
        assert any("one matrix serves as W_K and as W_V" in note for note in notes)
        assert any("reuse the keys and values" in note for note in notes)


def test_a_configuration_that_does_not_fit_is_refused():
    """The message names the field or tensor, what was found, and what is allowed."""
    for config, says in (
        ({"model_type": None}, "model_type is None.* afmoe, albert"),
        ({"model_type": "mamba"}, "model_type is 'mamba'.*k_proj.weight"),
        ({"model_type": "llamas"}, "one of llama, .*those of a llama"),
        ({"model_type": "bert"}, "encoder.layer.0.attention.self.query.weight"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0.*from 1"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"num_attention_heads": 10**5000}, "num_attention_heads is a huge number"),
        ({"num_attention_heads": None}, "num_attention_heads or n_head or"),
        ({"num_attention_heads": 6}, "(20, 7).*(24, 7)"),
        ({"num_key_value_heads": 2}, "5 heads cannot share 2"),
        ({"head_dim": 2}, "5 heads, 1 key and value heads, 2 wide, of 7 inputs"),
        ({"head_dim": None}, "width 7 cannot be divided among 5"),
        ({"num_hidden_layers": 2}, "num_hidden_layers is 2, .* 3 layers"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, .*3"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0.* 1e-30"),
        ({"rope_theta": 1e300}, "rope_theta is 1e+300.* 1e+30"),
        ({"rope_theta": 1.0, "rope_scaling": YARN}, "rope_theta.*above 1"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'.*object"),
        ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
        ({"rope_scaling": {"type": "llama3", "factor": 2.0}}, "low_freq_factor is missing"),
        (
            {"rope_scaling": {"type": "llama3"} | LLAMA_3 | {"high_freq_factor": 1.0}},
            "high_freq_factor is 1.0.* above low_freq_factor, 1.0",
        ),
        ({"partial_rotary_factor": 1e9}, "of a head's 4 dimensions"),
        ({"partial_rotary_factor": 0.1}, "0 of a head's 4 dimensions"),
        ({"layer_types": ["full_attention"]}, "layer_types.* a list of 3 words"),
        ({"no_rope_layers": 7}, "no_rope_layers is 7.*a list of 3 numbers"),
        ({"is_causal": "no"}, "is_causal is 'no'.*true or false"),
        ({"text_config": {"model_type": "llama"}}, "num_hidden_layers is 32, .*3"),
    ):
        assert_says(refusal(llama_file(), LLAMA | config), says)
    for config in (None, [], "llama", 7):
        assert "must be an object" in refusal(llama_file(), config)
    for config, says in (
        ({"num_kv_shared_layers": 3}, "num_kv_shared_layers is 3"),
        ({"num_kv_shared_layers": -1}, "num_kv_shared_layers is -1.*whole number"),
        ({"attention_k_eq_v": False}, "(8, 7).*(16, 7)"),
        ({"attention_k_eq_v": "yes"}, "attention_k_eq_v is 'yes'.*true or false"),
        ({"num_global_key_value_heads": 4}, "6 heads cannot share 4"),
        ({"global_head_dim": 10}, "(48, 7).*(60, 7)"),
        ({"per_layer_config": [1]}, "per_layer_config is [1].*object"),
        ({"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim is 0"),
    ):
        assert_says(refusal(gemma_file(), GEMMA_4 | config), says)
    shapes = {f"h.0.attn.{part}_proj.weight": (64, 64) for part in "qkv"}
    shapes["h.0.ln_1.weight"] = (64,)
    config = {"model_type": "gptj", "n_embd": 64, "n_layer": 1, "n_head": 1}
    _, (one,), _ = read_all(shapes, config)  # only a missing field means 64, as in the library
    assert len(one.rope.frequencies) == 32
    assert "rotary_dim is null" in refusal(shapes, config | {"rotary_dim": None})


@pytest.mark.parametrize("module", ["q_proj", "kv_a_layernorm"])
def test_a_bias_that_latent_attention_does_not_have_is_refused(module):
    """Only the first step may have one, and it is read; no other is ignored."""
    config = {"model_type": "deepseek_v3", "q_lora_rank": None if module == "q_proj" else 5}
    config |= settings(
        "hidden_size=6 num_hidden_layers=1 num_attention_heads=2 kv_lora_rank=4 "
        "qk_nope_head_dim=3 qk_rope_head_dim=2 v_head_dim=7"
    )
    weights = {"kv_a_proj_with_mqa": (6, 6), "kv_a_layernorm": (4,), "kv_b_proj": (20, 4)}
    weights |= {"q_a_proj": (5, 6), "q_a_layernorm": (5,), "q_b_proj": (10, 5), "q_proj": (10, 6)}
    attention = "model.layers.0.self_attn."
    shapes = {f"{attention}{name}.weight": shape for name, shape in weights.items()}
    shapes |= {"model.layers.0.input_layernorm.weight": (6,)}
    shapes |= {f"{attention}kv_a_proj_with_mqa.bias": (6,)}
    assert read_all(shapes, config)[1][0].b_V is not None
    shapes |= {f"{attention}{module}.bias": weights[module][:1]}
    assert f"tensor '{attention}{module}.bias' is a bias" in refusal(shapes, config)


def test_a_file_that_does_not_fit_is_refused():
    """What is missing is named, and what the file has instead, however much and whatever it is."""
    value = "model.layers.1.self_attn.v_proj.weight"
    names = "attn\n\x1b[31m" + "x" * 10_000
    for shapes, says in (
        ({n: s for n, s in llama_file().items() if n != value}, f"no tensor .{re.escape(value)}"),
        (llama_file() | llama_file(prefix="teacher."), r"several models.*'model\.', 'teacher\.'"),
        ({"model.layers.0.self_attn.q_proj.qweight": (3, 5)}, "take the unquantised model"),
        ({}, "the file holds nothing"),
        ({f"attn{i}": (1,) for i in range(17)}, r"'attn5' and 11 more$"),
        ({f"{names}{i}": (1,) for i in range(100)}, "94 more"),
    ):
        assert re.search(says, refusal(shapes, LLAMA))


# drawn

ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANY = ANY | st.lists(ANY, max_size=3) | st.dictionaries(st.text(max_size=3), ANY, max_size=2)
ROPE = ("factor", "rope_theta", "beta_fast", "beta_slow", "mscale", "attention_factor", "truncate")
QUICK = ("gemma4_text-0", "deepseek_v3-0", "falcon-0")
FIRST = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.long)
    for name in CASES
    if name.endswith("-0")
]


@pytest.fixture(scope="module", params=FIRST)
def saved(request, tmp_path_factory):
    """A file and a configuration of each newer family; it knows the tensors that it needs."""
    folder = tmp_path_factory.mktemp("saved")
    built(CASES[request.param], folder)
    config, names = json.loads((folder / "config.json").read_text()), set()
    file = open_safetensors(find_files(str(folder)))
    kept = replace(file, load=lambda name: (names.add(name), file.load(name))[1])
    for layer in hugging_face_layers(kept, config)[1]:
        layer.read()
    return file, names, config


def test_a_missing_tensor_or_another_shape_is_named(saved):
    """Every tensor that is read is looked for first; only biases may be missing."""
    file, names, config = saved
    whole = {name: entry.shape for name, entry in file.entries.items()}
    for name in names:
        shapes = {**whole, name: (*whole[name], 3)}
        assert repr(name)[:60] in refusal(shapes, config)
        if name.endswith(".weight"):
            del shapes[name]
            said, missing = refusal(shapes, config), name.replace("ln_attn", "input_layernorm")
            expected = (f"no tensor {missing!r}", "layers", "no attention found")
            assert any(words in said for words in expected)


@briefly(25)
@given(data=st.data())
def test_any_configuration_is_read_or_refused(saved, data):
    """A configuration with any fields is read or raises Unreadable, and nothing else."""
    file, _, config = saved
    fields = data.draw(st.dictionaries(st.sampled_from(sorted(config)), ANY, max_size=3))
    rope = {"rope_type": data.draw(st.sampled_from(("yarn", "proportional", "llama3")))}
    rope |= data.draw(st.dictionaries(st.sampled_from(ROPE), ANY, max_size=4))
    with contextlib.suppress(Unreadable):
        for layer in hugging_face_layers(file, config | {"rope_parameters": rope} | fields)[1]:
            layer.read()
