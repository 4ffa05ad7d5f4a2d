"""QK-norm: its equation, and what it does not go with."""

import pytest
import torch
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.variants import InvalidVariant, Variant


def test_scores_are_those_of_normalised_queries_and_keys():
    """q g_Q / rms(q) · k g_K / rms(k) / √d, in every head."""
    experiment = Experiment(sharing=["QKV qk_norm"], n_heads=3, d_head=5, n_seeds=2)
    model = Model(experiment, [0, 1], torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for run in range(model.n_runs):
        for value in model.run_parameters(run).values():
            value += torch.randn(value.shape, generator=generator)
    tokens = model.task.make_examples(7, generator).tokens.expand(2, -1, -1, -1)
    layers = list[Layer]()
    model.logits(tokens, layers)
    own = model.run_parameters(1)
    x = own["W_E"][tokens[1]].sum(-2)
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    q, k = ((x @ own[f"0.W_{role}"]).unflatten(-1, (3, 5)) for role in "QK")
    q, k = (v / v.square().mean(-1, keepdim=True).sqrt() for v in (q, k))
    q, k = q * own["0.g_Q"], k * own["0.g_K"]
    expected = torch.einsum("bihd,bjhd->bhij", q, k) / 5**0.5
    assert_close(layers[0].scores[1], expected, atol=1e-4, rtol=1e-4)


def test_it_does_not_go_with_unit_keys():
    """Both would set the length of keys."""
    with pytest.raises(InvalidVariant, match="both set the length of keys"):
        Variant("QKV qk_norm unit_key")
