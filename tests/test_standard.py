"""Standard blocks, schedule, clipping and stock of examples against plain PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F
from reference import CPU, Reference
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import full_size
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData

SMALL = {
    "task": "reverse", "length": 5, "d_model": 32, "n_heads": 2, "d_head": 7, "d_mlp": 48,
    "n_seeds": 2, "batch_size": 32, "n_train": 80, "steps": 7, "n_eval": 16, "evaluate_every": 7,
    "clip": 0.5, "warm_up": 0.3,
}  # fmt: skip


def trained_by_torch(experiment, variant, seed, begun):
    """The parameters after training with torch's own optimiser, clipping and schedule."""
    training, reference = experiment.training, Reference(experiment, variant)
    own = {name: value.double().clone().requires_grad_() for name, value in begun.items()}
    optimiser = torch.optim.Adam(own.values(), lr=training.learning_rate)
    n_rising = round(training.warm_up * training.steps)

    def share(step):
        if step < n_rising:
            return (step + 1) / n_rising
        return 0.5 + 0.5 * math.cos(math.pi * (step - n_rising) / (training.steps - n_rising))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
    data = TrainingData(experiment, [seed], CPU)
    for _ in range(training.steps):
        tokens, labels = data.next()
        logits = reference.logits(own, tokens[0])
        optimiser.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), labels[0].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(own.values(), training.clip)
        optimiser.step()
        schedule.step()
    return own


@pytest.mark.parametrize(("blocks", "causal"), [("standard", True), ("final_norm", False)])
def test_training_is_that_of_plain_torch(blocks, causal, monkeypatch, tmp_path):
    """Every parameter of every sharing after a whole schedule, rounds of the stock included."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch.optim sets it otherwise
    experiment = Experiment(**SMALL, blocks=blocks, causal=causal)
    cohort, first = (Cohort(experiment, [0, 1], CPU) for _ in range(2))
    cohort.advance(experiment.training.steps)
    for run, (variant, seed) in enumerate(experiment.runs):
        begun = first.model.run_parameters(run)
        expected = trained_by_torch(experiment, variant, seed, begun)
        found = cohort.model.run_parameters(run)
        assert found.keys() == expected.keys()
        for name, numbers in found.items():
            wanted, told = expected[name].detach(), f"{variant} {name}: {{}}".format
            assert_close(numbers.double(), wanted, atol=2e-4, rtol=2e-3, msg=told)


def check_spread(own, names):
    """Every parameter is uniform up to one over the root of what is read."""
    for name, n_read in names.items():
        bound = n_read**-0.5
        assert 0.7 * bound < own[name].abs().max() <= bound, name
        assert own[name].std() == pytest.approx(bound / 3**0.5, rel=0.35), name


def test_initial_numbers_are_those_of_torch():
    """Positions are drawn from N(0, 1), LayerNorm is plain; with one side and two."""
    experiment = full_size("reverse").replace(n_seeds=1, sharing=["QKV"])
    own = Cohort(experiment, [0], CPU).model.run_parameters(0)
    check_spread(own, {"W_E": 10, "b_E": 10} | dict.fromkeys(["0.W_Q", "0.W_O", "0.b_in"], 64))
    check_spread(own, {"0.b_Q": 64, "0.W_in": 64, "1.W_out": 256, "1.b_out": 256, "b_U": 64})
    assert own["W_pos"].std() == pytest.approx(1, rel=0.1)
    for name, value in (("0.ln1.w", 1), ("1.ln2.b", 0), ("ln_final.w", 1), ("ln_final.b", 0)):
        assert own[name].unique().tolist() == [value]
    sizes = {"d_head": 16, "d_mlp": 64, "sharing": ["QKV kv_rank=m/4"]}
    two_sides = Experiment(task="dictionary", blocks="standard", **sizes)
    own = Cohort(two_sides, [0], CPU).model.run_parameters(0)
    check_spread(own, {"0.W_C": 32, "0.b_C": 32, "1.W_K": 8, "1.b_V": 8, "2.W_O": 16, "2.b_O": 16})
    check_spread(own, {"2.W_out": 64, "2.b_out": 64})
