"""Standard blocks, schedule, clipping and stock of examples against plain PyTorch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import CPU, Reference
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import full_size
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData
from attnkit.variants import Variant

SMALL = {
    "task": "reverse", "length": 5, "d_model": 32, "n_heads": 2, "d_head": 7, "d_mlp": 48,
    "n_seeds": 2, "batch_size": 32, "n_train": 80, "steps": 7, "n_eval": 16, "evaluate_every": 7,
    "clip": 0.5, "warm_up": 0.3,
}  # fmt: skip


def small(**settings):
    """A short REVERSE."""
    return Experiment(**{**SMALL, **settings})


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
def test_training_is_that_of_plain_torch(blocks, causal):
    """Every parameter of every sharing after a whole schedule, rounds of the stock included."""
    experiment = small(blocks=blocks, causal=causal)
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


@pytest.mark.parametrize("width", [0, 16])
def test_an_mlp_of_one_s_own_begins_as_the_experiment_s(width):
    """Its last bias is spread by its own width, whatever that of the others is; so it trains."""
    given = {"blocks": "standard", "n_seeds": 1, "batch_size": 16, "n_eval": 16, "steps": 100}
    own = Experiment(sharing=["QKV", "QKV d_mlp=48"], d_mlp=width, **given)
    plain = Experiment(sharing=["QKV"], d_mlp=48, **given)
    cohorts = [Cohort(experiment, [0], CPU) for experiment in (own, plain)]
    for n_steps in (0, 3):
        for cohort in cohorts:
            cohort.advance(n_steps)
        found, expected = cohorts[0].parameters()[1], cohorts[1].parameters()[0]
        assert found.keys() == expected.keys()
        assert all(found[name].tobytes() == expected[name].tobytes() for name in found)


@pytest.mark.parametrize("text", ["QKV start=Q=K", "QKV kv_rank=3 start=K=V"])
def test_what_starts_equal_starts_with_equal_biases(text):
    """Equal copies at first; afterwards both are free."""
    cohort = Cohort(small(sharing=[text], n_seeds=1, clip=0), [0], CPU)
    for n_steps in (0, 1):
        cohort.advance(n_steps)
        (own,) = cohort.parameters()
        for letter in "Wb":
            pair = (own[f"0.{letter}_{role}"] for role in (text[-3], text[-1]))
            assert np.array_equal(*pair) == (n_steps == 0)


@pytest.mark.parametrize("text", ["QKV tie=K=V", "QKV tie=Q=K=V tie_by=keep_V", "Q=K tie=Q=K=V"])
def test_biases_are_tied_with_their_matrices(text):
    """The average of the roles' biases, or the one that is kept."""
    given = {"n_seeds": 1, "steps": 10, "evaluate_every": 5, "n_train": 0}
    cohort, untied = (
        Cohort(small(sharing=[one], **given), [0], CPU) for one in (text, text.split()[0])
    )
    for n_steps in (4, 1):  # it is tied at step 5
        cohort.advance(n_steps)
    untied.advance(5)
    (old,), (new,) = untied.parameters(), cohort.parameters()
    tied, before = Variant(text).stages[-1].sharing, Variant(text).sharing
    for start in ("0.W_", "0.b_", "1.W_", "1.b_"):
        owned = {start + members[0] for members in tied.classes}
        assert {start + role for role in "QKV"} & new.keys() == owned
        for members in tied.classes:
            kept = "V" if "keep_V" in text and "V" in members else members
            sources = [old[start + role] for role in dict.fromkeys(map(before.owner, kept))]
            expected = sum(sources) / len(sources)
            np.testing.assert_allclose(new[start + members[0]], expected, rtol=1e-6, atol=1e-7)
