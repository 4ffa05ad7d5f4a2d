"""Upper layers with the values of the bottom layer and the keys of the middle layer."""

import pytest
import torch
from filming import film_of
from numpy.testing import assert_allclose
from reference import TINY, batch_for, check_formulas, logits_of, shake, transformer_of, two_models
from torch.testing import assert_close

from attnkit.analysis.inspection.replay import replays
from attnkit.analysis.inspection.roles import LayerRoles
from attnkit.experiment import Experiment
from attnkit.model.decode import Decoder
from attnkit.training.data import draw_probe
from attnkit.variants import Variant
from attnkit.variants.sharing import ROLES

TEXT = "QKV kv_from=bottom_middle"


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "K=V kv_from=bottom_middle positions=rope rotate_values",
        "QKV shared_layers kv_from=bottom_middle",
        "QKV kv_rank=3 kv_from=bottom_middle qk_norm",
        "QKV diff exclusive kv_from=bottom_middle",
    ],
)
def test_compositions_compute_their_formula(text):
    """Answers and gradients are those of tests/reference.py, in four layers of two heads."""
    sizes = {"n_layers": 4, "n_heads": 2, "d_head": 6, "causal": True}
    check_formulas(Experiment(sharing=text, **sizes, **TINY))


@pytest.mark.parametrize(
    ("n_layers", "keys_of", "values_of"),
    [
        (1, [0], [0]),
        (2, [0, 0], [0, 0]),
        (3, [0, 1, 1], [0, 1, 0]),
        (4, [0, 1, 1, 1], [0, 1, 0, 0]),
    ],
)
def test_layers_whose_keys_and_values_are_used(n_layers, keys_of, values_of):
    """The lower half computes its own; the middle layer is the last of them."""
    wiring = Experiment(sharing=[TEXT], n_layers=n_layers).wiring(TEXT)
    assert [wiring.leader(layer, "K") for layer in range(n_layers)] == keys_of
    assert [wiring.leader(layer, "V") for layer in range(n_layers)] == values_of


def test_upper_layers_use_the_very_keys_and_values():
    """In four layers, the third and the fourth read the tensors of the second and the first."""
    model, _ = two_models(TEXT, "QKV", n_layers=4)
    transformer = transformer_of(model)
    x, stages = transformer.embed(batch_for(model)), []
    for layer in range(4):
        stages.append(transformer.attend(layer, x, stages[-1] if stages else None))
        x = transformer.stream_after(layer, stages[-1])
    assert all(upper.k is stages[1].k and upper.v is stages[0].v for upper in stages[2:])
    assert stages[1].v is not stages[0].v


def test_with_two_layers_it_is_cross_layer_attention():
    """The upper layer uses keys and values of the only other layer, as with `kv_every=2`."""
    fused, every = two_models(TEXT, "QKV kv_every=2", n_layers=2)
    assert torch.equal(logits_of(fused), logits_of(every))


@pytest.mark.parametrize("ready", [False, True])
def test_a_decoder_keeps_half_of_the_layers(ready):
    """It gives the logits of the whole sequence, from the caches of two of four layers."""
    model, _ = two_models(TEXT, "QKV", n_layers=4, causal=True)
    shake(model)
    tokens = batch_for(model)
    decoder = Decoder(model, 0, ready=ready)
    found = torch.stack([decoder.read(token) for token in tokens[0, 0]])
    n_answers = model.logits(tokens).shape[2]
    assert_close(found[-n_answers:], model.logits(tokens)[0, 0], rtol=1e-4, atol=1e-5)
    costs = Experiment(sharing=["QKV", TEXT], n_layers=4).costs
    assert 2 * costs(Variant(TEXT)).kv_cache == costs("QKV").kv_cache
    assert [bool(cache) for cache in decoder.cache] == [True, True, False, False]


def test_inspections_project_values_from_the_layer_that_computes_them():
    """In every layer and role, the inputs times the weights are the vectors of the layer."""
    film = film_of(sharing=(TEXT,), n_layers=4)
    (variant,) = film.experiment.sharing
    replay = next(replays(film, variant))
    stages = replay.forward(draw_probe(film.experiment.task).tokens).stages
    for layer in range(4):
        roles = LayerRoles(replay, stages, layer)
        for role in ROLES:
            projected = roles.inputs[role] @ roles.weights(role, 0)
            vectors = roles.vectors(role, 0).reshape(projected.shape)
            assert_allclose(projected, vectors, rtol=1e-4, atol=1e-4)
