"""Low-rank residuals over shared keys and values: between MQA and full heads."""

import pytest
import torch
from reference import TINY, check_formulas, logits_of, set_numbers, two_models
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.training.engine import kernel_knows
from attnkit.variants import Variant

COPIED = ("W_E", "W_U", "0.W_Q", "0.W_O")


@pytest.mark.parametrize(
    "text",
    [
        "K=V kv_residual=3 positions=rope qk_norm",
        "QKV n_heads=4 kv_heads=2 kv_residual=2 scaled kv_every=2",
        "QKV kv_heads=1 kv_residual=2 exclusive",
        "K=V kv_residual=2 positions=rope rotate_values",
    ],
)
@pytest.mark.parametrize("blocks", ["lean", "standard"])
def test_compositions_compute_their_formula(text, blocks):
    """Answers and gradients are those of tests/reference.py, in two layers of two heads."""
    sizes = {"n_layers": 2, "n_heads": 2, "d_head": 6, "causal": True, "blocks": blocks}
    check_formulas(Experiment(sharing=text, **sizes, **TINY))


def test_without_residuals_it_is_multi_query_attention():
    """With W_B = 0 all heads use the shared key and the shared value."""
    residual, shared = two_models("QKV kv_residual=3", "QKV kv_heads=1", n_layers=1)
    own = residual.run_parameters(0)
    for role in "KV":
        own[f"0.W_B_{role}"].zero_()
    numbers = {f"0.W_{role}": own[f"0.W_S_{role}"] for role in "KV"}
    set_numbers(shared, numbers | {name: own[name] for name in COPIED})
    assert_close(logits_of(residual), logits_of(shared), rtol=1e-5, atol=1e-5)


def test_residuals_of_full_rank_represent_full_heads():
    """Head h of QKV is the shared matrix plus (W_h − W_S), which has at most the rank d."""
    residual, plain = two_models("QKV kv_residual=d", "QKV", n_layers=1)
    own = residual.run_parameters(0)
    heads = {}
    for role in "KV":
        down = own[f"0.W_A_{role}"].unflatten(-1, (3, 10)).transpose(0, 1)  # (h, m, r)
        full = own[f"0.W_S_{role}"] + down @ own[f"0.W_B_{role}"]  # (h, m, d)
        heads[f"0.W_{role}"] = full.transpose(0, 1).flatten(1)
    set_numbers(plain, heads | {name: own[name] for name in COPIED})
    assert_close(logits_of(residual), logits_of(plain), rtol=1e-4, atol=1e-5)


def test_a_decoder_keeps_what_is_shared_and_the_narrow_vectors():
    """Per role: 6 shared numbers and 2 of each of 4 heads; ready for use, 6 of each head."""
    costs = Experiment(sharing=["QKV kv_residual=2"], n_heads=4, d_head=6).costs
    assert costs("QKV kv_residual=2").kv_cache == 2 * (6 + 4 * 2)
    assert costs("QKV kv_residual=2").ready_cache == 2 * 4 * 6


def test_torch_trains_it():
    """The kernel knows one narrow vector for all heads only."""
    text = Variant("QKV kv_residual=2")
    assert not kernel_knows(Experiment(sharing=[text]), text)


def test_heads_start_apart():
    """Residuals are drawn like other matrices, so two heads have different keys at the start."""
    model, _ = two_models("QKV kv_residual=3", "QKV", n_layers=1)
    (keys,) = model.role_weights(0, "K")
    assert keys.shape[1:] == (3, 32, 10)
    assert not torch.allclose(keys[0, 0], keys[0, 1], atol=0.1)
