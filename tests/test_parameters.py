"""The parameters of several runs in one vector: where they are, how they are clipped and moved."""

import math

import pytest
import torch
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.adam import Adam
from attnkit.model.model import Model
from attnkit.model.parameters import Parameters
from attnkit.training.data import TrainingData

CPU = torch.device("cpu")
TINY = {"batch_size": 16, "n_eval": 16, "n_names": 17, "n_values": 13}
SHAPES = [{"W_E": (11, 16), "W": (5, 7), "b": (3,)}, {"W_E": (11, 16), "c": (1,)}]


def test_runs_lie_behind_each_other_and_a_parameter_at_its_offset():
    """By variant, then seed, each block and parameter on a cache line; views of one vector."""
    parameters = Parameters(SHAPES, 3, CPU)
    parameters.numbers.copy_(torch.arange(len(parameters.numbers)))
    blocks = [parameters.block(run) for run in range(6)]
    assert [block.start for block in blocks] == [0, 240, 480, 720, 912, 1104]
    assert [block.stop for block in blocks] == [240, 480, 720, 912, 1104, len(parameters.numbers)]
    assert parameters.offsets[0] == {"W_E": (0, (11, 16)), "W": (176, (5, 7)), "b": (224, (3,))}
    for run, block in enumerate(blocks):
        own = parameters.of_run(run, parameters.numbers)
        of_variant = parameters.of_variant(run // 3, parameters.numbers)
        assert own.keys() == of_variant.keys() == SHAPES[run // 3].keys()
        for name, (offset, shape) in parameters.offsets[run // 3].items():
            start = block.start + offset
            expected = torch.arange(start, start + math.prod(shape)).float().view(shape)
            assert torch.equal(own[name], expected)
            assert of_variant[name][run % 3].data_ptr() == own[name].data_ptr()


def test_a_model_says_where_the_parameters_of_its_runs_are():
    """Block, offset and shape lead to the view of every parameter."""
    experiment = Experiment(sharing=["K=V", "QKV", "QKV kv_rank=3"], n_seeds=2, **TINY)
    model = Model(experiment, [0, 1], CPU)
    for run, (variant, _) in enumerate(experiment.runs):
        own, offsets = model.run_parameters(run), model.offsets(variant)
        assert list(own) == list(offsets)
        for name, (offset, shape) in offsets.items():
            start = model.block(run).start + offset
            found = model.numbers[start : start + math.prod(shape)].view(shape)
            assert torch.equal(found, own[name])


# Clipping


@pytest.mark.parametrize(("largest", "n_seeds"), [(0.01, 1), (20.0, 2), (1000.0, 1)])
def test_clipping_is_that_of_torch_for_every_run(largest, n_seeds):
    """Each run is clipped by the norm of all its numbers together, whatever others have."""
    parameters = Parameters(SHAPES, n_seeds, CPU)
    drawn = torch.Generator().manual_seed(0)
    expected = []
    for run in range(n_seeds * len(SHAPES)):
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
    before = parameters.gradient.clone()
    parameters.clip(1e6)  # a short gradient keeps its bits
    assert torch.equal(parameters.gradient, before)


def test_clipping_leaves_the_gaps_between_runs_empty():
    """The gaps hold zeros after a step's gradient and its clipping."""
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


# Steps


def test_steps_of_adam_are_those_of_torch():
    """The same numbers after a hundred steps, gradients of zero among them."""
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(97, generator=generator)
    theirs = ours.clone().requires_grad_()
    gradient = torch.empty(97)
    adam, reference = (
        Adam(ours, gradient, [(slice(None), 0.01)]),
        torch.optim.Adam([theirs], lr=0.01),
    )
    for _ in range(100):
        gradient.copy_(torch.randn(97, generator=generator))
        gradient[::5] = 0
        theirs.grad = gradient.clone()
        adam.step()
        reference.step()
    assert_close(ours, theirs.detach(), atol=1e-6, rtol=1e-5)
    assert torch.isfinite(ours).all()


def test_learning_rates_of_its_own_round_as_one_for_all():
    """A number moves by the same bits, whatever rates others have; 0 leaves it where it is."""
    generator = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(2, 97, generator=generator)
    alone, mixed = start.clone(), start.clone()
    first, rest = slice(0, 48), slice(48, 97)
    optimisers = [
        Adam(alone, gradient, [(slice(None), 0.003)]),
        Adam(mixed, gradient, [(first, 0.003), (rest, 0.0)]),
    ]
    for _ in range(50):
        gradient.copy_(torch.randn(97, generator=generator))
        for optimiser in optimisers:
            optimiser.step()
    assert torch.equal(mixed[first], alone[first])
    assert torch.equal(mixed[rest], start[rest])
