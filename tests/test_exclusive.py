"""Exclusive self-attention: outputs of heads are orthogonal to the token's own value."""

import torch
from reference import batch_for, shake, transformer_of, two_models
from torch.testing import assert_close

from attnkit.model.decode import Decoder


def stages_of(model):
    """Intermediate results of the first layer of a model with one run, at all positions."""
    transformer = transformer_of(model)
    return transformer.attend(0, transformer.embed(batch_for(model)), None)


def test_outputs_are_orthogonal_to_the_own_value():
    """z·v is rounding for every token and head, and was not without the word."""
    exclusive, plain = (stages_of(model) for model in two_models("QKV exclusive", "QKV"))
    cosines = [
        torch.cosine_similarity(stages.z, stages.v, dim=-1).abs() for stages in (exclusive, plain)
    ]
    assert cosines[0].max() < 1e-5
    assert cosines[1].mean() > 0.1


def test_only_the_projection_onto_the_own_value_is_missing():
    """The output becomes shorter: ‖z‖² falls by (z·v)² / ‖v‖²."""
    exclusive, plain = (stages_of(model) for model in two_models("Q=K exclusive", "Q=K"))
    z, v = plain.z.double(), plain.v.double()
    missing = (z * v).sum(-1).square() / v.square().sum(-1)
    left = z.square().sum(-1) - missing
    assert_close(exclusive.z.double().square().sum(-1), left, rtol=1e-4, atol=1e-6)


def test_the_first_token_of_a_causal_model_reads_out_nothing():
    """It sees only itself, so its output is its own value, of which nothing is left."""
    model, _ = two_models("QKV exclusive", "QKV", causal=True, self_mask=False)
    assert stages_of(model).z[:, :, :, 0].abs().max() < 1e-5


def test_grouped_heads_use_the_value_that_they_share():
    """With one value head for three query heads, all three outputs are orthogonal to it."""
    model, _ = two_models("QKV kv_heads=1 exclusive", "QKV")
    stages = stages_of(model)
    assert stages.v.shape[2] == 3
    assert (stages.z * stages.v).sum(-1).abs().max() < 1e-5


def test_a_decoder_uses_the_value_of_the_newest_token():
    """Token by token it gives the logits of the whole sequence, also where values are reused."""
    model, _ = two_models("QKV kv_every=2 exclusive", "QKV", causal=True, n_layers=3)
    shake(model)
    tokens = batch_for(model)
    decoder = Decoder(model, 0)
    found = torch.stack([decoder.read(token) for token in tokens[0, 0]])
    n_answers = model.logits(tokens).shape[2]
    assert_close(found[-n_answers:], model.logits(tokens)[0, 0], rtol=1e-4, atol=1e-5)
