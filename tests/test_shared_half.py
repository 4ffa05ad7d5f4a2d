"""Grouped tied attention: keys of a half that all heads share and a half of the value."""

import pytest
import torch
from reference import TINY, batch_for, check_formulas, transformer_of, two_models
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.training.engine import kernel_knows
from attnkit.variants import Variant


def keys_and_values_of(model, tokens):
    """Keys and values of the first layer, (h, j, d), for one batch of one example."""
    transformer = transformer_of(model)
    stages = transformer.attend(0, transformer.embed(tokens), None)
    return stages.k[0, 0], stages.v[0, 0]


@pytest.mark.parametrize(
    "text",
    [
        "K=V n_heads=4 kv_heads=2 shared_half positions=rope",
        "K=V shared_half scaled kv_every=2",
        "K=V kv_heads=1 shared_half qk_norm exclusive",
        "K=V kv_rank=3 shared_half",
        "K=V=I d_head=m/h shared_half",
    ],
)
@pytest.mark.parametrize("blocks", ["lean", "standard"])
def test_compositions_compute_their_formula(text, blocks):
    """Answers and gradients are those of tests/reference.py, in two layers of two heads."""
    sizes = {"n_layers": 2, "n_heads": 2, "d_head": 8, "causal": True, "blocks": blocks}
    check_formulas(Experiment(sharing=text, **sizes, **TINY))


def test_one_half_is_of_all_heads_and_the_other_is_of_the_value():
    """The first half of a key is equal in all heads; the second is the start of the value."""
    model, _ = two_models("K=V shared_half", "K=V")
    k, v = keys_and_values_of(model, batch_for(model)[:, :1])
    assert torch.equal(k[..., :5], k[:1, :, :5].expand(3, -1, -1))
    assert torch.equal(k[..., 5:], v[..., :5])
    assert not torch.allclose(k[0, :, 5:], k[1, :, 5:], atol=0.1)


def test_only_the_shared_half_is_rotated():
    """Between equal tokens at different positions, values and their half of keys stay equal."""
    model, _ = two_models("K=V shared_half positions=rope", "K=V", d_head=8)
    k, v = keys_and_values_of(model, torch.full((1, 1, 5, 3), 3))
    assert_close(v, v[:, :1].expand_as(v))
    assert_close(k[..., 4:], k[:, :1, 4:].expand_as(k[..., 4:]))
    assert (k[:, 1:, :4] - k[:, :1, :4]).abs().amax(-1).min() > 0.01


def test_a_decoder_keeps_one_value_per_group_and_one_half():
    """Two groups of eight numbers and four shared ones; ready for use, keys and values."""
    text = "K=V n_heads=4 kv_heads=2 shared_half"
    experiment = Experiment(sharing=[text], d_head=8)
    assert experiment.costs(text).kv_cache == 2 * 8 + 4
    assert experiment.costs(text).ready_cache == 2 * 2 * 8


def test_torch_trains_it():
    """The kernel has no keys that are made of two vectors."""
    text = Variant("K=V shared_half")
    assert not kernel_knows(Experiment(sharing=[text]), text)
