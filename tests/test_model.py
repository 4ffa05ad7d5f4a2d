"""The model of many runs: its numbers in one vector, their start, gradients, clipping and steps."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import SMALL
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.adam import Adam
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.model.parameters import Parameters
from attnkit.training.data import TrainingData

CPU = torch.device("cpu")
SIZES = {"n_seeds": 2, "n_entries": 5, "n_names": 11, "n_values": 13, "n_heads": 3, "d_head": 7}
SHAPES = [{"W_E": (11, 16), "W": (5, 7), "b": (3,)}, {"W_E": (11, 16), "c": (1,)}]


def build(**changed):
    """All runs of a small directed experiment, with some settings changed."""
    experiment = Experiment(**{**SIZES, **changed})
    return Model(experiment, experiment.seeds, CPU)


# Where numbers are and how they start


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


@pytest.mark.parametrize("task", ["directed", "phonebook"])
def test_initial_numbers_have_the_documented_spread(task):
    """Matrices keep the size of their input; a token's fields add up to 0.5; none is repeated."""
    sizes = {"d_model": 128, "d_head": 61, "d_mlp": 127, "n_layers": 2}
    model = build(task=task, positions="learned", n_names=64, **sizes)
    own = model.run_parameters(0)
    for name, value in own.items():
        fan_in = value.shape[0]
        expected = {"W_E": 0.5 / math.sqrt(model.task.n_fields), "W_pos": 0.5}
        assert value.std().item() == pytest.approx(expected.get(name, fan_in**-0.5), rel=0.15)
        assert value.mean().item() == pytest.approx(0, abs=0.1)
    assert len({value.flatten()[0].item() for value in own.values()}) == len(own)
    for text in ("QKV qk_norm", "Q=K scaled"):  # gains and factors change nothing at first
        own = build(sharing=[text]).run_parameters(0)
        factors = [value for name, value in own.items() if name[2:4] in ("g_", "D_")]
        assert len(factors) >= 2
        assert all((value == 1).all() for value in factors)


SPREADS = {
    "QKV kv_residual=5": {"W_S_K": 32, "W_A_K": 32, "W_B_K": 5, "W_B_V": 5},
    "QKV keyless d_v=5": {"W_V": 32, "W_VK": 5},
    "QKV kv_rank=5": {"W_C": 32, "W_K": 5, "W_V": 5},
    "QKV k_rank=5": {"W_B": 32, "W_K": 5},
    "QKV diff": {"lambda_q1": 100, "lambda_k1": 100, "lambda_q2": 100, "lambda_k2": 100},
    "QKV positions=plus": {"w_plus": 2500},
    "QKV V=I d_head=m/h n_heads=2": {"W_O": 32},
}
"""One over the variance of the first numbers: the width of what a matrix reads, or the source's."""

FIXED_STARTS = {
    "QKV positions=plus": {"b_plus": (0,)},
    "QKV positions=relative": {"b_offset": (0,)},
    "QKV positions=key_bias": {"b_key": (0,)},
    "Q=K signed": {"D": (1, -1)},
}


def test_the_parameters_of_every_option_have_the_documented_spread():
    """Over many seeds and both layers; those of a bias or a diagonal start at fixed numbers."""
    model = build(sharing={*SPREADS, *FIXED_STARTS}, n_seeds=40, n_layers=2)
    for index, variant in enumerate(model.variants):
        runs = [model.run_parameters(40 * index + seed) for seed in range(40)]
        for name, n_read in SPREADS.get(variant.value, {}).items():
            values = torch.stack([run[f"{layer}.{name}"] for run in runs for layer in (0, 1)])
            assert values.std().item() == pytest.approx(n_read**-0.5, rel=0.15), (variant, name)
            assert values.mean().abs().item() < 0.15 * n_read**-0.5
        for name, pattern in FIXED_STARTS.get(variant.value, {}).items():
            for value in (run[f"{layer}.{name}"] for run in runs for layer in (0, 1)):
                width = value.shape[-1]
                expected = torch.tensor((pattern * width)[:width]).float().expand_as(value)
                assert torch.equal(value, expected), (variant, name)


def test_generators_depend_on_seed_and_purpose_only():
    """The same pair repeats; another seed or purpose differs."""
    numbers = {
        pair: torch.rand(3, generator=generator_for(*pair)).tolist()
        for pair in [(0, "a"), (1, "a"), (0, "b"), (11, "a"), (1, "1a")]
    }
    assert len({tuple(row) for row in numbers.values()}) == len(numbers)
    assert torch.rand(3, generator=generator_for(0, "a")).tolist() == numbers[0, "a"]


# Gradients of neighbouring variants


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), n_rates=st.integers(2, 4), n_seeds=st.integers(1, 3))
def test_variants_are_one_batch_on_a_gpu_if_only_their_learning_rates_differ(
    seed, n_rates, n_seeds
):
    """Only the shapes of the products differ, and with them the rounding of gradients.

    On a CPU each is alone, because smaller tensors fit its caches.
    """
    rates = [0.001 * 2**power for power in range(n_rates)]
    names = ("QKV", "Q=K unit_key self_mask")
    chosen = [f"{name} learning_rate={rate:g}" for name in names for rate in rates]
    given = {**SMALL, "sharing": [*chosen, "K=V"], "n_seeds": n_seeds, "first_seed": seed}
    experiment = Experiment(**given)
    model = Model(experiment, list(experiment.seeds), CPU)
    batch = TrainingData(experiment, experiment.seeds, CPU).next()
    model.differentiate(*batch)
    alone = model.gradient.clone()
    assert [len(part) for part in model._alike] == [1] * (2 * n_rates + 1)
    model.device = torch.device("cuda")
    model._alike = model._find_alike()
    model.device = CPU
    batches = [{str(model.variants[i]) for i in part} for part in model._alike]
    expected = [{*chosen[:n_rates]}, {*chosen[n_rates:]}, {"K=V"}]
    assert sorted(map(sorted, batches)) == sorted(map(sorted, expected))
    model.gradient.zero_()
    model.differentiate(*batch)
    assert_close(model.gradient, alone, rtol=1e-4, atol=1e-7)


# Clipping and steps


@pytest.mark.parametrize("largest", [0.01, 20.0, 1000.0])
def test_every_run_is_clipped_by_the_norm_of_all_its_numbers(largest):
    """Whatever others have; a gradient that is short enough keeps its bits."""
    parameters = Parameters(SHAPES, 2, CPU)
    drawn = torch.Generator().manual_seed(0)
    owned = [parameters.of_run(run, parameters.gradient) for run in range(2 * len(SHAPES))]
    before = []
    for run, own in enumerate(owned):
        for value in own.values():
            value.copy_(torch.randn(value.shape, generator=drawn) * 4**run)
        before.append({name: value.clone() for name, value in own.items()})
    parameters.clip(largest)
    for own, old in zip(owned, before, strict=True):
        norm = torch.cat([value.flatten() for value in old.values()]).norm()
        for name, value in own.items():
            assert_close(value, old[name] * min(1, largest / norm))
            assert norm > largest or torch.equal(value, old[name])


def test_steps_of_adam_are_those_of_torch(monkeypatch, tmp_path):
    """A hundred steps, some with gradients of zero; a rate of 0 leaves numbers where they are."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch.optim sets it otherwise
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(97, generator=generator)
    theirs = ours.clone().requires_grad_()
    gradient = torch.empty(97)
    adam = Adam(ours, gradient, [(slice(0, 60), 0.01), (slice(60, 97), 0.0)])
    start = ours.clone()
    reference = torch.optim.Adam([theirs], lr=0.01)
    for _ in range(100):
        gradient.copy_(torch.randn(97, generator=generator))
        gradient[::5] = 0
        theirs.grad = gradient.clone()
        adam.step()
        reference.step()
    assert_close(ours[:60], theirs.detach()[:60], atol=1e-6, rtol=1e-5)
    assert torch.equal(ours[60:], start[60:])
    assert torch.isfinite(ours).all()
