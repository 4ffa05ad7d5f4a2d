"""Answering token by token gives the same logits, from a cache as large as the accounting says."""

import pytest
import torch
from reference import DOZEN
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.decode import Decoder
from attnkit.model.model import Model

CPU = torch.device("cpu")
SIZES = {"n_entries": 5, "n_names": 11, "n_values": 7, "n_layers": 3, "causal": True}
MORE = """
    K=V n_heads=4 kv_heads=2 positions=rope kv_every=2
    QKV V=I d_head=m/h kv_every=3 self_mask
    K=V kv_rank=5 n_heads=4 kv_heads=2 positions=rope rotate_values=only kv_every=2
    QKV kv_every=2 exclusive
""".strip().split("\n")


def shaken(experiment):
    """A model whose parameters are all random, biases and factors among them."""
    model = Model(experiment, experiment.seeds, CPU)
    generator = torch.Generator().manual_seed(0)
    for run in range(model.n_runs):
        for value in model.run_parameters(run).values():
            value += 0.1 * torch.randn(value.shape, generator=generator)
    return model


@pytest.mark.parametrize("blocks", ["lean", "standard"])
@pytest.mark.parametrize("variant", [*DOZEN, *map(str.strip, MORE)])
def test_decoding_gives_the_logits_of_the_whole_sequence(variant, blocks):
    """Every position of one example, from a cache of as many floats per token as was counted."""
    sizes = {**SIZES, "blocks": blocks, "d_mlp": 7, "positions": "learned"}
    experiment = Experiment(task="directed", sharing=[variant], n_seeds=2, d_head=4, **sizes)
    model = shaken(experiment)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.stack([model.task.make_examples(1, generator).tokens for _ in model.seeds])
    costs = experiment.costs(experiment.sharing[0].stages[0])
    for ready, n_floats in ((False, costs.kv_cache), (True, costs.ready_cache)):
        decoder = Decoder(model, 1, ready=ready)
        found = torch.stack([decoder.read(token) for token in tokens[1, 0]])
        assert_close(found, model.logits(tokens)[1, 0], atol=1e-5, rtol=1e-4)
        cached = [rows.numel() for cache in decoder.cache for rows in cache.values()]
        assert (decoder.n_tokens, sum(cached)) == (5, 5 * n_floats)


@pytest.mark.parametrize(
    ("variant", "kv_cache", "ready_cache"),
    [
        ("QKV", 16, 16),
        ("K=V", 8, 8),
        ("K=V positions=rope", 8, 16),
        ("K=V before rotation (Gemma 4)", 8, 16),
        ("K=V after rotation (DeepSeek V4)", 8, 8),
        ("K=V kv_heads=1 positions=rope", 4, 8),
        ("K=V unit_key", 8, 16),
        ("QKV kv_rank=3", 3, 16),
        ("QKV keyless", 8, 16),
        ("QKV valueless", 8, 16),
        ("QKV kv_heads=1 valueless", 4, 8),
        ("QKV kv_residual=3", 2 * (4 + 2 * 3), 16),
        ("K=V kv_heads=1 shared_half", 4 + 2, 2 * 4),
    ],
)
def test_what_each_cache_holds_by_hand(variant, kv_cache, ready_cache):
    """One layer of two heads of four numbers: a raw key that is rotated is not the value."""
    costs = Experiment(sharing=[variant], n_heads=2, d_head=4).costs(variant)
    assert (costs.kv_cache, costs.ready_cache) == (kv_cache, ready_cache)


def test_a_model_that_sees_later_tokens_cannot_be_decoded():
    """It says which setting is wrong."""
    model = Model(Experiment(n_seeds=1), [0], CPU)
    with pytest.raises(ValueError, match="causal: got False, allowed True"):
        Decoder(model, 0)
