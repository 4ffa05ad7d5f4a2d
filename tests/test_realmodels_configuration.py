"""What a configuration says of a model, in older and newer forms, true or not; and notes."""

import re

import numpy as np
import pytest
from library_models import D_VOCAB, settings

from attnkit.realmodels.base import Kind, Unreadable
from attnkit.realmodels.families import hugging_face_layers

_LLAMA_3 = settings(
    "factor=4.0 low_freq_factor=1.0 high_freq_factor=4.0 original_max_position_embeddings=32"
)


class Named:
    """Tensors of some names and shapes, all of the same number."""

    def __init__(self, shapes):
        self.shapes = shapes

    def read(self, name):
        """The same number everywhere."""
        return np.full(self.shapes[name], 0.5, np.float32)


def _llama_file(n_layers=3, prefix="model."):
    """Names and shapes of a Llama: 5 heads of width 4, one for keys and values, 7 inputs."""
    shapes = {"model.embed_tokens.weight": (D_VOCAB, 7)}
    for i in range(n_layers):
        layer = f"{prefix}layers.{i}."
        shapes |= {f"{layer}self_attn.{p}_proj.weight": (4, 7) for p in "kv"}
        shapes |= {
            f"{layer}self_attn.q_proj.weight": (20, 7),
            f"{layer}input_layernorm.weight": (7,),
        }
    return shapes


_LLAMA = {"model_type": "llama"} | settings(
    "hidden_size=7 num_hidden_layers=3 num_attention_heads=5 num_key_value_heads=1 head_dim=4 "
    "max_position_embeddings=64"
)


def _frequencies(n_layers=3, **config):
    """Of every layer of a Llama with this configuration."""
    settings = _LLAMA | {"num_hidden_layers": n_layers} | config
    _, layers, _ = hugging_face_layers(Named(_llama_file(n_layers)), settings)
    return [layer.read().rope.frequencies.tolist() for layer in layers]


def test_angles_of_older_configurations():
    """Base, share and scaling stood elsewhere before rope_parameters."""
    assert _frequencies() == [[1.0, 0.01]] * 3
    assert _frequencies(rope_theta=100.0) == [[1.0, 0.1]] * 3
    assert (
        _frequencies(rope_theta=100, rope_scaling={"type": "linear", "factor": 2.0})
        == [[0.5, 0.05]] * 3
    )
    assert _frequencies(partial_rotary_factor=0.5) == [[1.0]] * 3
    assert (
        _frequencies(rope_parameters={"rope_theta": 100.0, "rope_type": "default"})
        == [[1.0, 0.1]] * 3
    )
    gemma = {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert _frequencies(7, **gemma) == [
        [1.0, 0.01] if i != 5 else [0.125, 0.000125] for i in range(7)
    ]
    local = gemma | {"sliding_window_pattern": 2, "rope_local_base_freq": 100.0}
    assert _frequencies(3, **local) == [[1.0, 0.1], [0.125, 0.000125], [1.0, 0.1]]


def test_angles_of_older_configurations_of_other_families():
    """ModernBERT's global layers have another base; a quarter of GPT-NeoX's heads turns."""
    shapes = {f"model.layers.{i}.attn.Wqkv.weight": (36, 12) for i in range(4)}
    shapes |= {f"model.layers.{i}.attn_norm.weight": (12,) for i in range(1, 4)}
    config = {"model_type": "modernbert"} | settings(
        "hidden_size=12 num_hidden_layers=4 num_attention_heads=3 global_rope_theta=1e4 "
        "local_rope_theta=100.0 global_attn_every_n_layers=3"
    )
    _, layers, _ = hugging_face_layers(Named(shapes), config)
    assert [one.read().rope.frequencies[1] for one in layers] == [0.01, 0.1, 0.1, 0.01]
    stem = "gpt_neox.layers.0."
    shapes = {f"{stem}attention.query_key_value.weight": (48, 16)}
    shapes |= {f"{stem}input_layernorm.weight": (16,)}
    config = settings("hidden_size=16 num_hidden_layers=1 num_attention_heads=1")
    for fields, expected in (
        ("", [1.0, 0.01]),
        ("rotary_pct=0.125 rotary_emb_base=77", [1.0]),
        ("rotary_pct=0.25 rotary_emb_base=100", [1.0, 0.1]),
    ):
        config |= {"model_type": "gpt_neox"} | settings(fields)
        _, (layer,), _ = hugging_face_layers(Named(shapes), config)
        assert layer.read().rope.frequencies.tolist() == expected


def test_positions_scaled_by_another_rule_are_left_out_and_said():
    """The rule "longrope" has other frequencies for long texts than for short ones."""
    config = _LLAMA | {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}
    _, layers, notes = hugging_face_layers(Named(_llama_file()), config)
    assert [layer.read().rope for layer in layers] == [None] * 3
    assert any("'longrope'" in note for note in notes)


_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def test_yarn_slows_pairs_by_their_number_of_turns():
    """Pairs that turn often keep their frequency; a factor on a part of a head is not read."""
    (first, second), *_ = _frequencies(rope_scaling=_YARN)
    assert first == 1.0
    assert second == pytest.approx(0.01 / 4)
    assert _frequencies(rope_scaling=_YARN | {"factor": None}, max_position_embeddings=64)[0][
        1
    ] == (pytest.approx(0.01 / 2))
    config = _LLAMA | {"partial_rotary_factor": 0.5, "rope_scaling": _YARN}
    _, layers, notes = hugging_face_layers(Named(_llama_file()), config)
    assert layers[0].read().rope is None
    assert any("'yarn'" in note for note in notes)
    config["rope_scaling"] = _YARN | {"attention_factor": 1.0}
    _, layers, _ = hugging_face_layers(Named(_llama_file()), config)
    assert layers[0].read().rope is not None


def test_layers_without_positions_or_that_predict_later_tokens():
    """SmolLM3 leaves positions out in every fourth layer; DeepSeek V3 has a layer more."""
    config = _LLAMA | {"no_rope_layers": [1, 0, 1]}
    _, layers, notes = hugging_face_layers(Named(_llama_file()), config)
    assert [layer.read().rope is None for layer in layers] == [False, True, False]
    assert "Some layers have no rotary positions." in notes
    fields = {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
    _, layers, _ = hugging_face_layers(Named(_llama_file(3)), _LLAMA | fields)
    assert [layer.index for layer in layers] == [0, 1]


def test_notes_say_what_is_not_shown():
    """Of norms after the projection, caps, windows, and of what else the model is."""
    shapes = _llama_file() | {f"model.layers.{i}.self_attn.q_norm.weight": (4,) for i in range(3)}
    shapes["vision_tower.layers.0.self_attn.q_proj.weight"] = (3, 3)
    config = _LLAMA | {"attn_logit_softcapping": 50.0, "sliding_window": 128}
    _, _, notes = hugging_face_layers(Named(shapes), config)
    assert [note.split()[0] for note in notes] == ["Queries", "Scores", "Some", "Only"]
    _, _, notes = hugging_face_layers(
        Named(_llama_file()), config | {"use_sliding_window": False, "attn_logit_softcapping": None}
    )
    assert notes == ()


def test_layers_that_are_missing_or_shared_have_a_note():
    """BART's cross-attention may be untrained, and ALBERT's twelve layers are one."""
    shapes = {
        f"model.decoder.layers.0.{module}.{part}_proj.weight": (6, 6)
        for module in ("self_attn", "encoder_attn")
        for part in "qkv"
    }
    config = {"model_type": "bart", "d_model": 6, "decoder_layers": 1, "decoder_attention_heads": 2}
    _, layers, notes = hugging_face_layers(Named(shapes), config)
    assert [layer.kind for layer in layers] == [Kind.CAUSAL, Kind.CROSS]
    assert notes == ("There is no encoder in the file, so cross-attention may be untrained.",)
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0.attention."
    shapes = {f"{layer}{part}.weight": (6, 6) for part in ("query", "key", "value")}
    config = {"model_type": "albert", "hidden_size": 6, "num_attention_heads": 2}
    _, layers, notes = hugging_face_layers(Named(shapes), config | {"num_hidden_layers": 12})
    assert [(layer.kind, layer.index) for layer in layers] == [(Kind.ENCODER, 0)]
    assert "shown once" in notes[0]


def test_a_configuration_that_does_not_fit_is_refused():
    """The message names the field or tensor, what was found, and what is allowed."""
    for config, says in (
        ({"model_type": None}, "model_type is None; it must be one of albert, bart"),
        ({"model_type": "mamba"}, "'model.layers.0.self_attn.k_proj.weight'"),
        ({"model_type": "bert"}, "for example encoder.layer.0.attention.self.query.weight"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; it must be a whole number from 1"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"num_attention_heads": 10**5000}, "num_attention_heads is a huge number"),
        ({"num_attention_heads": None}, "num_attention_heads or n_head or"),
        ({"num_attention_heads": 6}, "is of shape (20, 7); the configuration says (24, 7)"),
        ({"num_key_value_heads": 2}, "5 heads cannot share 2 key and value heads equally"),
        ({"head_dim": 2}, "5 heads, 1 key and value heads, 2 wide, of 7 inputs"),
        ({"head_dim": None}, "the width 7 cannot be divided among 5 heads"),
        ({"num_hidden_layers": 2}, "num_hidden_layers is 2, but the file holds 3 layers"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, but the file holds 3"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0; it must be a number above 0"),
        ({"rope_theta": 1e300}, "rope_theta is 1e+300; it must be a number above 0, at most 1e+30"),
        ({"rope_theta": 1.0, "rope_scaling": _YARN}, "with YaRN it must be above 1"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; it must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
        ({"rope_scaling": {"type": "llama3", "factor": 2.0}}, "low_freq_factor is missing"),
        (
            {"rope_scaling": {"type": "llama3"} | _LLAMA_3 | {"high_freq_factor": 1.0}},
            "high_freq_factor is 1.0; it must be above low_freq_factor, 1.0",
        ),
        ({"partial_rotary_factor": 1e9}, "of a head's 4 dimensions would rotate, in pairs"),
        ({"partial_rotary_factor": 0.1}, "0 of a head's 4 dimensions would rotate"),
        ({"layer_types": ["full_attention"]}, "it must be a list of 3 words, one per layer"),
        ({"no_rope_layers": 7}, "no_rope_layers is 7; it must be a list of 3 numbers"),
        ({"is_causal": "no"}, "is_causal is 'no'; it must be true or false"),
        ({"text_config": {"model_type": "llama"}}, "num_hidden_layers or n_layer or"),
    ):
        assert says in refusal(Named(_llama_file()), _LLAMA | config)
    for config in (None, [], "llama", 7):
        assert "must be an object" in refusal(Named(_llama_file()), config)


def refusal(file, config):
    """Return the one line that refuses a model."""
    with pytest.raises(Unreadable) as error:
        hugging_face_layers(file, config)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2_000
    return str(error.value)


def test_a_null_for_the_rotating_dimensions_of_gpt_j_is_refused():
    """The library refuses it; only a missing field means 64."""
    shapes = {f"h.0.attn.{part}_proj.weight": (64, 64) for part in "qkv"}
    shapes["h.0.ln_1.weight"] = (64,)
    config = {"model_type": "gptj", "n_embd": 64, "n_layer": 1, "n_head": 1}
    _, (layer,), _ = hugging_face_layers(Named(shapes), config)
    assert len(layer.read().rope.frequencies) == 32
    with pytest.raises(Unreadable, match="rotary_dim is null; it must be a whole number"):
        hugging_face_layers(Named(shapes), config | {"rotary_dim": None})


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
    _, (layer,), _ = hugging_face_layers(Named(shapes), config)
    assert layer.read().b_V is not None
    shapes |= {f"{attention}{module}.bias": weights[module][:1]}
    with pytest.raises(Unreadable, match=rf"tensor '{attention}{module}\.bias' is a bias"):
        hugging_face_layers(Named(shapes), config)


def test_a_file_that_does_not_fit_is_refused():
    """What is missing is named, and what the file has instead, however much and whatever it is."""
    shapes = _llama_file()
    del shapes["model.layers.1.self_attn.v_proj.weight"]
    names = "attn\n\x1b[31m" + "x" * 10_000
    for file, says in (
        (shapes, r"no tensor 'model\.layers\.1\.self_attn\.v_proj\.weight'"),
        (_llama_file() | _llama_file(prefix="teacher."), r"several models.*'model\.', 'teacher\.'"),
        ({"model.layers.0.self_attn.q_proj.qweight": (3, 5)}, "take the unquantised model"),
        ({}, "the file holds nothing"),
        ({f"attn{i}": (1,) for i in range(17)}, r"'attn5' and 11 more$"),
        ({f"{names}{i}": (1,) for i in range(100)}, "94 more"),
    ):
        assert re.search(says, refusal(Named(file), _LLAMA))
