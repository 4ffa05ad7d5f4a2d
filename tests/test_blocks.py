"""The backward passes written by hand, against autograd on plain PyTorch modules."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from searching import briefly
from torch.testing import assert_close

from attnkit.bench.loop import Attention, Mlp, Transformer
from attnkit.blocks import Layout, multiply, product
from attnkit.data import TrainingData
from attnkit.experiment import Experiment
from attnkit.model import COHORT_ORDER, Model
from attnkit.parameters import Parameters
from attnkit.sharing import ROLES, Sharing

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
def test_logits_and_gradients_are_those_of_autograd(experiment):
    """Of every run and parameter, whatever shares what; with and without measuring."""
    seeds = list(experiment.seeds)
    model = Model(experiment, seeds, CPU)
    tokens, labels = TrainingData(experiment, seeds, CPU).next()
    model.differentiate(tokens, labels)
    gradients = Model(experiment, seeds, CPU)
    gradients.numbers.copy_(model.gradient)
    logits, measured = model.logits(tokens), model.logits(tokens, [])
    for run, (sharing, s) in enumerate((v, s) for v in model.sharings for s in range(len(seeds))):
        expected, wanted = reference(experiment, sharing, seeds[s], tokens[s], labels[s])
        assert_close(logits[run], expected, atol=2e-5, rtol=1e-4)
        assert_close(measured[run], expected, atol=2e-5, rtol=1e-4)
        found = gradients.run_parameters(run)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_close(found[name], value, atol=1e-6, rtol=1e-3, msg=f"{name} of {sharing}")


def test_a_gradient_is_written_not_added():
    """Whatever stood there before, a second call gives the same bits."""
    experiment = Experiment(task="phonebook", n_seeds=2, n_layers=2, positions="learned", **TINY)
    model = Model(experiment, [0, 1], CPU)
    tokens, labels = TrainingData(experiment, [0, 1], CPU).next()
    model.differentiate(tokens, labels)
    first = model.gradient.clone()
    model.gradient.fill_(torch.nan)
    model.differentiate(tokens, labels)
    assert torch.equal(model.gradient, first)


@pytest.mark.parametrize("role", ROLES)
def test_owners_are_contiguous(role):
    """In cohort order, the runs that own a matrix stand side by side."""
    layout = Layout(COHORT_ORDER, 3)
    owning = [sharing.owns(role) for sharing in COHORT_ORDER for _ in range(3)]
    assert [i for i, owns in enumerate(owning) if owns] == list(range(15))[layout.owners(role)]


def test_pieces_cover_all_runs_once():
    """Neighbours of one kind are one piece."""
    layout = Layout(COHORT_ORDER, 2)
    pieces = list(layout.pieces(lambda sharing: sharing.owner("V")))
    assert pieces == [(slice(0, 4), "V"), (slice(4, 6), "K"), (slice(6, 10), "Q")]


@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("width", [5, 17])
def test_multiply_scales_and_adds(n_runs, width):
    """As written out, also for the single narrow run that is computed twice."""
    a, b = torch.randn(n_runs, 7, 11), torch.randn(n_runs, 11, width)
    out = torch.full((n_runs, 7, width), torch.nan)
    multiply(out, a, b, alpha=0.5)
    assert_close(out, 0.5 * (a @ b))
    multiply(out, a, b, add=True)
    assert_close(out, 1.5 * (a @ b))
    assert_close(product(a, b, alpha=2.0), 2 * (a @ b))


# Clipping


@pytest.mark.parametrize("largest", [0.01, 1.0, 20.0, 1000.0])
@pytest.mark.parametrize("n_runs", [(1, 1), (2, 3)])
def test_clipping_is_that_of_torch_for_every_run(largest, n_runs):
    """By the norm of all numbers of a run together, whatever others have."""
    n_seeds, n_variants = n_runs
    everyone = slice(0, n_seeds * n_variants)
    slabs = [("W", everyone, (5, 7)), ("b", slice(0, n_seeds), (3,)), ("c", everyone, (1,))]
    parameters = Parameters(n_seeds, n_variants, 11, 16, slabs, CPU)
    drawn = torch.Generator().manual_seed(0)
    expected = []
    for run in range(everyone.stop):
        own = parameters.of_run(run, parameters.gradient)
        theirs = {}
        for name, value in own.items():
            value.copy_(torch.randn(value.shape, generator=drawn) * 4**run)
            theirs[name] = torch.zeros(value.shape, requires_grad=True)
            theirs[name].grad = value.clone()
        torch.nn.utils.clip_grad_norm_(list(theirs.values()), largest)
        expected.append({name: value.grad for name, value in theirs.items()})
    parameters.clip(largest)
    for run, wanted in enumerate(expected):
        own = parameters.of_run(run, parameters.gradient)
        assert own.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_close(own[name], value, msg=f"{name} of {run}")


def test_short_gradients_keep_their_bits():
    """And a gradient of zero stays what it is."""
    parameters = Parameters(2, 2, 5, 16, [("W", slice(0, 4), (3, 5))], CPU)
    parameters.of_run(1, parameters.gradient)["W"].fill_(0.01)
    before = parameters.gradient.clone()
    parameters.clip(1.0)
    assert torch.equal(parameters.gradient, before)


def test_clipping_leaves_the_gaps_between_runs_empty():
    """They hold zeros for ever."""
    experiment = Experiment(n_seeds=2, d_mlp=7, blocks="standard", **TINY)
    model = Model(experiment, [0, 1], CPU)
    tokens, labels = TrainingData(experiment, [0, 1], CPU).next()
    model.differentiate(tokens, labels)
    model.clip(0.01)
    owned = torch.zeros_like(model.numbers)
    for run in range(model.n_runs):
        for view in model.run_parameters(run, owned).values():
            view.fill_(1.0)
    assert (owned == 0).any()
    assert not model.gradient[owned == 0].any()
    for run in range(model.n_runs):
        own = model.run_parameters(run, model.gradient).values()
        norm = sum(value.square().sum() for value in own).sqrt()
        assert norm.item() == pytest.approx(0.01, rel=1e-3)
