"""Layers of one model that differ: wider heads, keys that serve as values, reused keys."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library_models import built
from searching import briefly
from test_realmodels_configuration import Named, refusal
from varied_models import CASES

from attnkit.realmodels.base import Unreadable
from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.safetensors_file import open_safetensors

_GEMMA_4 = {
    "model_type": "gemma4_text",
    "hidden_size": 7,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "global_head_dim": 8,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
"""Configuration with the field names of the published models."""


def _file():
    """Return names and shapes of that model, in which layers 2 and 3 reuse those of 0 and 1."""
    shapes = {}
    for layer, (d_head, n_kv_heads) in enumerate([(4, 2), (8, 1)] * 2):
        prefix = f"model.layers.{layer}."
        shapes[f"{prefix}input_layernorm.weight"] = (7,)
        shapes[f"{prefix}self_attn.q_proj.weight"] = (6 * d_head, 7)
        if layer < 2:
            shapes[f"{prefix}self_attn.k_proj.weight"] = (n_kv_heads * d_head, 7)
    shapes["model.layers.0.self_attn.v_proj.weight"] = (8, 7)
    return shapes


def test_layers_have_heads_and_keys_of_their_own():
    """Global layers are wider, and the last layers name the layer whose keys they reuse.

    Newer configurations say the same by an object of fields for every layer that differs.
    """
    wide = {"head_dim": 8, "num_key_value_heads": 1}
    new = {"per_layer_config": {"1": wide, "3": wide}, "global_head_dim": None}
    for fields in ({}, new):
        _, layers, notes = hugging_face_layers(Named(_file()), _GEMMA_4 | fields)
        read = [layer.read() for layer in layers]
        shapes = [(one.W_Q.shape, one.W_K.shape) for one in read]
        assert shapes == [((6, 7, 4), (2, 7, 4)), ((6, 7, 8), (1, 7, 8))] * 2
        assert [layer.kv_index for layer in layers] == [None, None, 0, 1]
        assert any("one matrix serves as W_K and as W_V" in note for note in notes)
        assert any("reuse the keys and values" in note for note in notes)


def test_a_configuration_that_does_not_fit_is_refused():
    """The message names the field or the tensor, and what is allowed."""
    for fields, says in (
        ({"num_kv_shared_layers": 3}, "num_kv_shared_layers is 3, so that no layer has keys"),
        ({"num_kv_shared_layers": -1}, "num_kv_shared_layers is -1; it must be a whole number"),
        ({"attention_k_eq_v": False}, "is of shape (8, 7); the configuration says (16, 7)"),
        ({"attention_k_eq_v": "yes"}, "attention_k_eq_v is 'yes'; it must be true or false"),
        ({"num_global_key_value_heads": 4}, "6 heads cannot share 4 key and value heads equally"),
        ({"global_head_dim": 10}, "is of shape (48, 7); the configuration says (60, 7)"),
        ({"per_layer_config": [1]}, "per_layer_config is [1]; it must be an object"),
        ({"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim is 0; it must be a whole number"),
    ):
        assert says in refusal(Named(_file()), _GEMMA_4 | fields)


class _Reading:
    """A file that notes which tensors are read, and from which some can be missing."""

    def __init__(self, file):
        self._file, self.shapes, self.names = file, dict(file.shapes), set()

    def read(self, name):
        """Read one tensor."""
        self.names.add(name)
        return self._file.read(name)


_ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
_ANY = _ANY | st.lists(_ANY, max_size=3) | st.dictionaries(st.text(max_size=3), _ANY, max_size=2)

_ROPE = ("factor", "rope_theta", "beta_fast", "beta_slow", "mscale", "attention_factor", "truncate")

_QUICK = ("gemma4_text-0", "deepseek_v3-0", "falcon-0")

_FIRST = [
    name if name in _QUICK else pytest.param(name, marks=pytest.mark.long)
    for name in CASES
    if name.endswith("-0")
]


@pytest.fixture(scope="module", params=_FIRST)
def saved(request, tmp_path_factory):
    """A file and a configuration of each newer family, and the names of the tensors it needs."""
    folder = tmp_path_factory.mktemp("saved")
    built(CASES[request.param], folder)
    config = json.loads((folder / "config.json").read_text())
    reading = _Reading(open_safetensors(folder))
    for layer in hugging_face_layers(reading, config)[1]:
        layer.read()
    return reading, config


def test_a_missing_tensor_or_another_shape_is_named(saved):
    """Every tensor that is read is looked for first; only biases may be missing."""
    reading, config = saved
    for name in reading.names:
        changed = _Reading(reading)
        changed.shapes[name] = (*changed.shapes[name], 3)
        assert repr(name)[:60] in refusal(changed, config)
        if name.endswith(".weight"):
            del changed.shapes[name]
            said, missing = refusal(changed, config), name.replace("ln_attn", "input_layernorm")
            assert any(
                words in said
                for words in (f"no tensor {missing!r}", "layers", "no attention found")
            )


@briefly(60)
@given(data=st.data())
def test_any_configuration_is_read_or_refused(saved, data):
    """A configuration with any fields is read or raises Unreadable, and nothing else."""
    reading, config = saved
    fields = data.draw(st.dictionaries(st.sampled_from(sorted(config)), _ANY, max_size=3))
    rope = {"rope_type": data.draw(st.sampled_from(("yarn", "proportional", "llama3")))}
    rope |= data.draw(st.dictionaries(st.sampled_from(_ROPE), _ANY, max_size=4))
    with contextlib.suppress(Unreadable):
        for layer in hugging_face_layers(reading, config | {"rope_parameters": rope} | fields)[1]:
            layer.read()
