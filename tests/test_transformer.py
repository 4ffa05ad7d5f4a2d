"""Logits and gradients of all runs, held against one plain PyTorch module for each run."""

import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from searching import briefly
from torch.testing import assert_close

from attnkit.bench.loop import Attention, Mlp, Transformer
from attnkit.experiment import Experiment
from attnkit.model.model import Model
from attnkit.training.data import TrainingData
from attnkit.variants.sharing import Sharing

CPU = torch.device("cpu")
TINY = {"batch_size": 16, "n_eval": 16, "n_names": 17, "n_values": 13}


@st.composite
def experiments(draw):
    """All shapes; the phone book answers from the middle on, the relation everywhere."""
    return Experiment(
        task=draw(st.sampled_from(["phonebook", "directed"])),
        sharing=draw(st.sets(st.sampled_from(Sharing), min_size=1)),
        n_seeds=draw(st.integers(1, 2)),
        n_entries=draw(st.sampled_from([4, 7])),
        d_model=draw(st.sampled_from([16, 32])),
        n_heads=draw(st.sampled_from([1, 2, 3])),
        d_head=draw(st.sampled_from([1, 5, 8, 19])),
        n_layers=draw(st.integers(1, 2)),
        d_mlp=draw(st.sampled_from([0, 7, 37])),
        positions=draw(st.sampled_from(["none", "learned"])),
        causal=draw(st.booleans()),
        self_mask=draw(st.booleans()),
        **TINY,
    )


def reference(experiment, sharing, seed, tokens, labels):
    """Logits and gradients of one run, by autograd, under the names of a Model."""
    net = Transformer(experiment, sharing, seed)
    logits = net(tokens)
    F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    found = {"W_E": net.embedding.weight.grad, "W_U": net.unembedding.weight.grad.T}
    if net.positions is not None:
        found["W_pos"] = net.positions.grad
    layer = -1
    for block in net.blocks:
        if isinstance(block, Attention):
            layer += 1
            found[f"{layer}.W_O"] = block.out.weight.grad.T
            for role, linear in block.roles.items():
                found[f"{layer}.W_{role}"] = linear.weight.grad.T
        elif isinstance(block, Mlp):
            found[f"{layer}.W_in"] = block.up.weight.grad.T
            found[f"{layer}.W_out"] = block.down.weight.grad.T
    return logits.detach(), found


@given(experiments())
@briefly(12)
@example(Experiment(task="phonebook", n_seeds=2, d_head=24, causal=True, self_mask=True, **TINY))
@example(Experiment(task="phonebook", n_seeds=1, n_heads=2, n_layers=2, d_mlp=5, **TINY))
def test_logits_and_gradients_are_those_of_plain_modules(experiment):
    """Every run and parameter agrees, whatever is shared, with and without recorded layers."""
    seeds = list(experiment.seeds)
    model = Model(experiment, seeds, CPU)
    tokens, labels = TrainingData(experiment, seeds, CPU).next()
    model.differentiate(tokens, labels)
    logits, measured = model.logits(tokens), model.logits(tokens, [])
    for run, (sharing, seed) in enumerate(experiment.runs):
        s = seeds.index(seed)
        expected, wanted = reference(experiment, sharing, seed, tokens[s], labels[s])
        assert_close(logits[run], expected, atol=2e-5, rtol=1e-4)
        assert_close(measured[run], expected, atol=2e-5, rtol=1e-4)
        found = model.run_parameters(run, model.gradient)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_close(found[name], value, atol=1e-6, rtol=1e-3, msg=f"{name} of {sharing}")


def test_a_gradient_is_written_not_added():
    """A second call gives the same bits, whatever the gradient held before."""
    experiment = Experiment(task="phonebook", n_seeds=2, n_layers=2, positions="learned", **TINY)
    model = Model(experiment, [0, 1], CPU)
    tokens, labels = TrainingData(experiment, [0, 1], CPU).next()
    model.differentiate(tokens, labels)
    first = model.gradient.clone()
    for run in range(model.n_runs):
        for value in model.run_parameters(run, model.gradient).values():
            value.fill_(torch.nan)
    model.differentiate(tokens, labels)
    assert torch.equal(model.gradient, first)
