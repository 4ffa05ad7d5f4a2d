"""Devices: all that this machine has train alike, and neighbouring variants as one batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import SMALL

from attnkit.experiment import Experiment
from attnkit.model.model import Model
from attnkit.training.data import TrainingData
from attnkit.training.training import Training

CPU = torch.device("cpu")
DEVICES = [CPU, *map(torch.device, ["cuda"] * torch.cuda.is_available())]


def small(**given):
    """An experiment that trains in a moment."""
    return Experiment(**{**SMALL, **given})


def variants_at(rates, *names):
    """Texts of variants, each at every learning rate."""
    return [f"{name} learning_rate={rate:g}" for name in names for rate in rates]


def test_variants_are_one_batch_on_a_gpu_if_only_their_learning_rates_differ():
    """On a CPU each is alone, because smaller tensors fit its caches."""
    chosen = [*variants_at((0.01, 0.02), "QKV", "Q=K"), "Q=K d_k=4 learning_rate=0.02", "K=V"]
    model = Model(small(sharing=chosen), [0, 1], CPU, drawn=False)
    alone = [range(index, index + 1) for index in range(len(chosen))]
    assert model._alike == alone
    model.device = torch.device("cuda")
    batches = [[str(model.variants[index]) for index in alike] for alike in model._find_alike()]
    assert sorted(batches) == sorted([chosen[:2], chosen[2:4], chosen[4:5], chosen[5:]])


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), n_rates=st.integers(2, 4), n_seeds=st.integers(1, 3))
def test_one_batch_of_neighbours_has_their_gradients(seed, n_rates, n_seeds):
    """Only the shapes of the products differ, and with them the rounding."""
    rates = [0.001 * 2**power for power in range(n_rates)]
    experiment = small(
        sharing=variants_at(rates, "QKV", "Q=K unit_key self_mask"),
        n_seeds=n_seeds,
        first_seed=seed,
    )
    model = Model(experiment, list(experiment.seeds), CPU)
    batch = TrainingData(experiment, experiment.seeds, CPU).next()
    model.differentiate(*batch)
    alone = model.gradient.clone()
    model.gradient.zero_()
    model._alike = [range(n_rates), range(n_rates, 2 * n_rates)]
    model.differentiate(*batch)
    torch.testing.assert_close(model.gradient, alone, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_every_device_trains_as_torch_does_on_a_cpu(device):
    """Within rounding, in two layers, on a training set that is repeated."""
    chosen = variants_at((0.005, 0.01), "QKV", "K=V")
    experiment = small(sharing=chosen, n_layers=2, n_train=48, n_seeds=2, steps=12)
    losses = []
    for where in (device, CPU):
        training = Training(experiment, str(where), "torch")
        training.advance(12)
        losses.append(training.snapshot().history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-3)
