"""Rotated values and partial RoPE: the relation to keys, distances only, and refused sizes."""

import pytest
import torch
from reference import (
    TINY,
    batch_for,
    check_formulas,
    logits_of,
    norm,
    set_numbers,
    shake,
    transformer_of,
    two_models,
)
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.reference import Layer
from attnkit.training.engine import kernel_knows
from attnkit.variants import Variant


def stages_of(model, tokens=None):
    """Intermediate results of the first layer of a model with one run, at all positions."""
    transformer = transformer_of(model)
    tokens = batch_for(model) if tokens is None else tokens
    return transformer.attend(0, transformer.embed(tokens), None)


@pytest.mark.parametrize(
    "text",
    [
        "K=V qk_norm positions=rope rotate_values=only",
        "K=V kv_rank=3 unit_key kv_every=2 positions=rope rotate_values",
        "QKV positions=rope rope_width=d rotate_values diff",
        "Q=V keyless positions=rope rotate_values",
        "Q=K=V signed exclusive positions=rope rotate_values",
        "Q=K=V qk_norm exclusive positions=rope rope_width=2 rotate_values",
    ],
)
def test_compositions_compute_their_formula(text):
    """Answers and gradients are those of tests/reference.py, in two layers of three heads."""
    sizes = {"n_layers": 2, "n_heads": 3, "d_head": 6, "causal": True}
    check_formulas(Experiment(sharing=text, **sizes, **TINY))


# Values before and after norm and rotation


def test_values_of_gemma_4_are_the_raw_keys_normalised():
    """K=V with norms: the value is the key before its gain and its rotation."""
    model, _ = two_models("K=V before rotation (Gemma 4)", "QKV")
    shake(model)
    stages = stages_of(model)
    raw = stages.rows @ model.run_parameters(0)["0.W_K"]
    heads = raw.unflatten(-1, (3, 10)).transpose(2, 3)
    assert_close(stages.v, norm(heads), rtol=1e-4, atol=1e-5)


def test_without_a_norm_of_their_own_values_are_the_raw_keys():
    """K=V with RoPE and QK-norm alone: neither the norm nor the rotation acts on the value."""
    model, _ = two_models("K=V qk_norm positions=rope", "QKV")
    shake(model)
    stages = stages_of(model)
    raw = stages.rows @ model.run_parameters(0)["0.W_K"]
    assert_close(stages.v, raw.unflatten(-1, (3, 10)).transpose(2, 3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sharing", ["K=V", "Q=K=V"])
def test_values_of_deepseek_v4_are_the_keys(sharing):
    """After norm, gain and rotation, key and value are one and the same tensor."""
    model, _ = two_models(f"{sharing} qk_norm positions=rope rotate_values", "QKV")
    shake(model)
    stages = stages_of(model)
    assert stages.v is stages.k


def test_values_of_their_own_are_rotated_as_keys_are():
    """With the matrices of keys copied to values, values are the rotated keys of QKV."""
    model, _ = two_models("QKV positions=rope rotate_values", "QKV")
    own = model.run_parameters(0)
    own["0.W_V"].copy_(own["0.W_K"])
    stages = stages_of(model)
    assert_close(stages.v, stages.k)


# Distances


def shifted(text):
    """Outputs of the first layer for equal tokens, at the start and three positions later."""
    model, _ = two_models(text, "QKV", causal=True, self_mask=False, n_layers=1)
    heads = transformer_of(model).heads(0)
    rows = torch.randn((1, 1, 5, 32), generator=torch.Generator().manual_seed(0))
    outputs = []
    for first in (0, 3):
        at = torch.arange(first, first + 5)
        store = heads.store(rows)
        k, v = heads.keys_and_values(store, at)
        q = heads.queries(rows, store, at)
        pattern = heads.pattern(heads.scores(q, k, at, at))
        outputs.append(heads.mix(pattern, v, v, at))
    return outputs


@pytest.mark.parametrize(
    "text",
    [
        "QKV positions=rope rotate_values",
        "K=V qk_norm positions=rope rotate_values",
        "QKV positions=rope rope_width=4 rotate_values exclusive",
    ],
)
def test_outputs_that_are_rotated_back_depend_on_distances_only(text):
    """Outputs depend on the tokens and on their distances, and not on where they stand."""
    assert_close(*shifted(text), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["QKV", "K=V"])
def test_outputs_that_are_not_rotated_back_depend_on_absolute_positions(text):
    """The control of the experiment: `rotate_values=only`."""
    at_start, later = shifted(f"{text} positions=rope rotate_values=only")
    assert (at_start - later).abs().max() > 0.1


def test_a_token_that_sees_itself_only_reads_its_own_value():
    """At distance 0 both rotations cancel, so the first output is that without rotated values."""
    rotated, plain = two_models(
        "QKV positions=rope rotate_values", "QKV positions=rope", causal=True, self_mask=False
    )
    first = [stages_of(model).z[:, :, :, 0] for model in (rotated, plain)]
    assert_close(*first, rtol=1e-5, atol=1e-6)


# Partial RoPE


def test_a_rotation_of_all_numbers_is_plain_rope():
    """`rope_width=d` changes nothing."""
    partial, full = two_models("QKV positions=rope rope_width=d", "QKV positions=rope")
    assert torch.equal(logits_of(partial), logits_of(full))


def test_numbers_that_are_not_rotated_do_not_depend_on_the_position():
    """Between equal tokens, only the first four of ten numbers of a key change."""
    model, _ = two_models("QKV positions=rope rope_width=4", "QKV")
    k = stages_of(model, torch.full((1, 1, 5, 3), 3)).k
    moves = (k - k[:, :, :, :1]).abs().amax((0, 1, 2, 3)) > 1e-3
    assert moves.tolist() == [True] * 4 + [False] * 6


def test_a_part_is_rotated_as_a_vector_of_its_width_would_be():
    """Zero columns outside of the first four numbers: the scores of heads four wide with RoPE."""
    partial, narrow = two_models(
        "QKV d_k=10 positions=rope rope_width=4 temperature=1",
        "QKV d_k=4 positions=rope temperature=1",
        n_heads=1,
        n_layers=1,
    )
    own = partial.run_parameters(0)
    for name in ("0.W_Q", "0.W_K"):
        own[name][:, 4:] = 0
    cut = {name: own[name][:, :4] for name in ("0.W_Q", "0.W_K")}
    set_numbers(narrow, {name: cut.get(name, value) for name, value in own.items()})
    layers = [list[Layer]() for _ in range(2)]
    for model, recorded in zip((partial, narrow), layers, strict=True):
        model.logits(batch_for(model), recorded)
    assert_close(layers[0][0].scores, layers[1][0].scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "on_kernel"),
    [
        ("QKV positions=rope rope_width=4", True),
        ("QKV positions=rope rotate_values", False),
        ("QKV positions=rope rotate_values=only", False),
        ("QKV v_norm", False),
    ],
)
def test_the_kernel_trains_partial_rope_and_torch_the_others(text, on_kernel):
    """The kernel rotates queries and keys only, and normalises no values."""
    assert kernel_knows(Experiment(sharing=[text]), Variant(text)) is on_kernel
