"""The batched transformer: what it owns, what it records, what masks and positions do."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from searching import briefly
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.training.data import stack
from attnkit.variants.sharing import ROLES, Sharing

CPU = torch.device("cpu")
SIZES = {"n_seeds": 2, "n_entries": 5, "n_names": 11, "n_values": 13, "n_heads": 3, "d_head": 7}
subsets = st.sets(st.sampled_from(Sharing), min_size=1)


def build(**given):
    """All runs of a small directed experiment, with some settings changed."""
    experiment = Experiment(**{**SIZES, **given})
    return Model(experiment, experiment.seeds, CPU)


def tokens_for(model, n_batch=3, seed=0):
    """One batch per seed of the model's task."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([model.task.make_examples(n_batch, generator).tokens for _ in model.seeds])


def answer(model, tokens):
    """Logits and what each layer recorded."""
    layers = list[Layer]()
    with torch.no_grad():
        return model.logits(tokens, layers), layers


# Runs and their parameters


@given(subsets, st.integers(1, 3))
@briefly(12)
def test_runs_are_in_the_order_of_the_experiment_with_what_they_own(chosen, n_seeds):
    """Variants as they are given, each with its seeds; matrices that its sharing owns only."""
    model = build(sharing=chosen, n_seeds=n_seeds, n_layers=2)
    experiment = Experiment(**{**SIZES, "sharing": chosen, "n_seeds": n_seeds})
    assert [(v, seed) for v in model.variants for seed in model.seeds] == experiment.runs
    names = {f"{layer}.W_{role}" for layer in range(2) for role in ROLES}
    for run, (variant, _) in enumerate(experiment.runs):
        own = names & model.run_parameters(run).keys()
        assert own == {name for name in names if variant.sharing.owns(name[-1])}


def test_parameters_have_the_documented_shapes():
    """One run's parameters, all of them, with distinct sizes."""
    model = build(n_layers=1, d_mlp=17, positions="learned", d_model=32)
    shapes = {name: tuple(value.shape) for name, value in model.run_parameters(0).items()}
    assert shapes == {
        "W_E": (2 * 11 + 13, 32), "W_pos": (5, 32), "0.W_Q": (32, 21), "0.W_K": (32, 21),
        "0.W_V": (32, 21), "0.W_O": (21, 32), "0.W_in": (32, 17), "0.W_out": (17, 32),
        "W_U": (32, 13),
    }  # fmt: skip


def test_run_parameters_are_the_model_itself():
    """They are views: what is written into them is what the model computes with."""
    model = build()
    tokens = tokens_for(model)
    before, _ = answer(model, tokens)
    with torch.no_grad():
        model.run_parameters(3)["W_U"].zero_()
    after, _ = answer(model, tokens)
    assert (after[3] == 0).all()
    others = [run for run in range(model.n_runs) if run != 3]
    assert torch.equal(after[others], before[others])


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


def test_generators_depend_on_seed_and_purpose_only():
    """The same pair repeats; another seed or purpose differs."""
    numbers = {
        pair: torch.rand(3, generator=generator_for(*pair)).tolist()
        for pair in [(0, "a"), (1, "a"), (0, "b"), (11, "a"), (1, "1a")]
    }
    assert len({tuple(row) for row in numbers.values()}) == len(numbers)
    assert torch.rand(3, generator=generator_for(0, "a")).tolist() == numbers[0, "a"]


def test_a_model_of_some_seeds_is_a_part_of_that_of_all():
    """A cohort starts from the numbers that its seeds have anywhere."""
    experiment = Experiment(**{**SIZES, "n_seeds": 3})
    whole, part = (Model(experiment, seeds, CPU) for seeds in (experiment.seeds, [1]))
    assert part.n_runs == 5
    for run in range(5):
        own, expected = part.run_parameters(run), whole.run_parameters(3 * run + 1)
        assert all(torch.equal(own[name], expected[name]) for name in expected)


# Logits and what layers record


@pytest.mark.parametrize(("task", "n_ctx", "n_answers"), [("directed", 5, 5), ("phonebook", 10, 5)])
def test_shapes_of_logits_and_layers(task, n_ctx, n_answers):
    """(r, b, a, c) logits; (s, b, h, i, j) scores and pattern of every variant and layer."""
    model = build(task=task, n_layers=2, d_mlp=7)
    tokens = tokens_for(model)
    logits, layers = answer(model, tokens)
    assert logits.shape == (10, 3, n_answers, 13)
    assert [layer.scores.shape for layer in layers] == [(2, 3, 3, n_ctx, n_ctx)] * 10
    assert [layer.pattern.shape for layer in layers] == [(2, 3, 3, n_ctx, n_ctx)] * 10
    if n_answers == n_ctx:
        assert torch.equal(model.logits(tokens), logits)  # recording changes no bit


def test_masks_take_all_weight_from_oneself_and_later_tokens():
    """Exactly, but the first token sees no other; scores are recorded before masks."""
    tokens = tokens_for(build())
    plain, masked = (
        answer(build(causal=masks, self_mask=masks), tokens)[1][0] for masks in (False, True)
    )
    assert torch.equal(plain.scores, masked.scores)
    assert_close(plain.pattern, plain.scores.softmax(-1))
    assert (masked.pattern.triu(1) == 0).all()
    assert (masked.pattern.diagonal(dim1=-2, dim2=-1)[..., 1:] == 0).all()
    assert (masked.pattern[..., 0, 0] == 1).all()


def test_causal_answers_do_not_depend_on_later_tokens():
    """Changing the last token changes only the last answer."""
    model = build(causal=True, n_layers=2, d_mlp=7)
    tokens = tokens_for(model)
    changed = tokens.clone()
    changed[:, :, -1] = tokens[:, :, -1].roll(1, 1)
    before, after = answer(model, tokens)[0], answer(model, changed)[0]
    assert torch.equal(before[:, :, :-1], after[:, :, :-1])
    assert not torch.equal(before[:, :, -1], after[:, :, -1])


def test_a_seed_answers_its_own_batch():
    """Other tokens for one seed change the logits of that seed's runs only."""
    model = build(n_seeds=3)
    tokens = tokens_for(model)
    changed = tokens.clone()
    changed[1] = tokens[1].flip(0)
    same = (answer(model, tokens)[0] == answer(model, changed)[0]).flatten(1).all(1)
    assert same.tolist() == [True, False, True] * 5


def test_a_gradient_is_written_not_added():
    """A second call gives the same bits, whatever the gradient held before."""
    model = build(task="phonebook", n_layers=2, positions="learned")
    drawn = [model.task.draw(16, generator_for(s, "test"), held_out=False) for s in model.seeds]
    examples = stack(drawn, CPU)
    model.differentiate(examples.tokens, examples.labels)
    first = model.gradient.clone()
    for run in range(model.n_runs):
        for value in model.run_parameters(run, model.gradient).values():
            value.fill_(torch.nan)
    model.differentiate(examples.tokens, examples.labels)
    assert torch.equal(model.gradient, first)


def test_role_weights_are_those_of_the_owner():
    """Each run's matrix for a role is its owner's, head by head."""
    model = build(n_layers=2)
    for role in ROLES:
        weights = model.role_weights(1, role)
        assert [each.shape for each in weights] == [(2, 3, 32, 7)] * 5
        for run in range(model.n_runs):
            owner = model.forms[run // 2].sharing.owner(role)
            whole = weights[run // 2][run % 2].transpose(0, 1).flatten(1)
            assert torch.equal(whole, model.run_parameters(run)[f"1.W_{owner}"])
