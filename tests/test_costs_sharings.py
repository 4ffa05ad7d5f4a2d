"""Costs of the five sharings: parameters of the real tensors, and numbers in the cache."""

import pytest
import torch

from attnkit.experiment.experiment import Experiment
from attnkit.model.model import Model
from attnkit.variants.sharing import Sharing


@pytest.mark.parametrize("sharing", Sharing)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"task": "phonebook", "n_entries": 5, "n_names": 11, "n_values": 7, "d_head": 3},
        {"n_heads": 3, "d_head": 5, "n_layers": 2, "positions": "learned"},
        {"d_model": 48, "d_mlp": 17, "n_layers": 3, "positions": "learned", "n_heads": 2},
    ],
    ids=["default", "phonebook", "heads", "mlp"],
)
def test_parameter_count_is_that_of_the_real_tensors(sharing, given):
    """The number of parameters is that of the model's tensors, beside other sharings and alone."""
    for beside in (Sharing, [sharing]):
        experiment = Experiment(sharing=beside, n_seeds=2, **given)
        model = Model(experiment, experiment.seeds, torch.device("cpu"))
        own = model.run_parameters(2 * model.variants.index(sharing))
        count = sum(value.numel() for value in own.values())
        assert experiment.costs(sharing).parameters == count


@pytest.mark.parametrize("sharing", Sharing)
def test_each_tied_role_saves_one_matrix_per_layer(sharing):
    """A tied role saves d_model × heads × head width parameters in every layer."""
    experiment = Experiment(n_layers=3, n_heads=2, d_head=5)
    saved = experiment.costs(Sharing.QKV).parameters - experiment.costs(sharing).parameters
    assert saved == (3 - sharing.n_matrices) * 3 * 32 * 2 * 5


@pytest.mark.parametrize(
    ("sharing", "floats"), [("QKV", 60), ("Q=K", 60), ("K=V", 30), ("Q=V", 60), ("Q=K=V", 30)]
)
def test_cache_holds_keys_and_values_of_every_head_and_layer(sharing, floats):
    """The cache of 3 layers with 2 heads holds 5 numbers each, twice unless keys are values."""
    experiment = Experiment(n_layers=3, n_heads=2, d_head=5)
    assert experiment.costs(sharing).kv_cache == floats
