"""The model of many runs: its numbers, gradients and steps, its two sides, and its decoder."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kinds import NEEDS_ONE_SIDE, SMALL, tiny
from reference import CPU, DOZEN, Reference
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import full_size
from attnkit.model.decode import Decoder
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.model.parameters import Parameters
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData
from attnkit.variants.sharing import ROLES

SHAPES = [{"W_E": (11, 16), "W": (5, 7), "b": (3,)}, {"W_E": (11, 16), "c": (1,)}]


def build(**changed):
    """All runs of a small directed experiment, with some settings changed."""
    sizes = {"n_entries": 5, "n_names": 11, "n_values": 13, "n_heads": 3, "d_head": 7}
    experiment = Experiment(**{"n_seeds": 2, **sizes, **changed})
    return Model(experiment, experiment.seeds, CPU)


def test_runs_lie_behind_each_other_and_a_parameter_at_its_offset():
    """By variant, then seed, each block and parameter on a cache line; views of one vector."""
    parameters = Parameters(SHAPES, 3, CPU)
    parameters.numbers.copy_(torch.arange(len(parameters.numbers)))
    blocks, ends = [parameters.block(run) for run in range(6)], [240, 480, 720, 912, 1104]
    assert [block.start for block in blocks] == [0, *ends]
    assert [block.stop for block in blocks] == [*ends, len(parameters.numbers)]
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
FIXED_STARTS = {
    "QKV positions=plus": {"b_plus": (0,)},
    "QKV positions=relative": {"b_offset": (0,)},
    "QKV positions=key_bias": {"b_key": (0,)},
    "Q=K signed": {"D": (1, -1)},
}


def test_the_parameters_of_every_option_have_the_documented_spread():
    """One over the width of what a matrix reads, or the source's number; some start fixed."""
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


def test_variants_are_one_batch_on_a_gpu_if_only_their_learning_rates_differ(seed):
    """With other products, so other rounding; on a CPU each is alone, as its caches are small."""
    chosen = [f"{n} learning_rate={rate}" for n in ("QKV", "Q=K unit_key") for rate in (0.01, 0.02)]
    experiment = Experiment(**SMALL | {"sharing": [*chosen, "K=V"], "first_seed": seed % 1000})
    model = Model(experiment, list(experiment.seeds), CPU)
    batch = TrainingData(experiment, experiment.seeds, CPU).next()
    model.differentiate(*batch)
    alone = model.gradient.clone()
    assert [len(part) for part in model._alike] == [1] * 5
    model.device = torch.device("cuda")
    model._alike = model._find_alike()
    model.device = CPU
    batches = [{str(model.variants[i]) for i in part} for part in model._alike]
    expected = [{*chosen[:2]}, {*chosen[2:]}, {"K=V"}]
    assert sorted(map(sorted, batches)) == sorted(map(sorted, expected))
    model.gradient.zero_()
    model.differentiate(*batch)
    assert_close(model.gradient, alone, rtol=1e-4, atol=1e-7)


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


LISTS = {
    "task": "reverse", "length": 5, "d_model": 32, "n_heads": 2, "d_head": 7, "d_mlp": 48,
    "n_seeds": 2, "batch_size": 32, "n_train": 80, "steps": 7, "n_eval": 16, "evaluate_every": 7,
    "clip": 0.5, "warm_up": 0.3,
}  # fmt: skip


@pytest.mark.parametrize(("blocks", "causal"), [("standard", True), ("final_norm", False)])
def test_training_is_that_of_plain_torch(blocks, causal):
    """Every parameter of every sharing after a whole schedule, rounds of the stock included."""
    experiment = Experiment(**LISTS, blocks=blocks, causal=causal)
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


def test_initial_numbers_of_standard_blocks_are_those_of_torch():
    """Uniform up to one over the root of what is read; positions are drawn from N(0, 1)."""

    def check_spread(own, names):
        for name, n_read in names.items():
            bound = n_read**-0.5
            assert 0.7 * bound < own[name].abs().max() <= bound, name
            assert own[name].std() == pytest.approx(bound / 3**0.5, rel=0.35), name

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


N = 5  # words of a sentence: positions 0 to 4 are the encoder's, 5 to 9 the decoder's


def test_layers_of_two_sides_stand_in_the_frame_of_all_positions():
    """Outside of what a layer compares, weights are 0 and scores NaN; inside, rows sum to one."""
    source, rest = (0, N), (N, 2 * N)
    encoder, decoder, cross = (source, source), (rest, rest), (rest, source)
    given = {"n_layers": 2, "n_heads": 2, "positions": "rope", "blocks": "standard"}
    cohort = Cohort(tiny("dictionary", **given), [0, 1], CPU)
    specs = cohort.experiment.layer_specs
    assert [(one.title, (one.query_positions, one.key_positions)) for one in specs] == [
        ("Encoder 1", encoder), ("Encoder 2", encoder), ("Decoder 1", decoder), ("Cross 1", cross),
        ("Decoder 2", decoder), ("Cross 2", cross),
    ]  # fmt: skip
    for one in specs:
        assert one.square == (one.kind != "cross")
        assert one.causal == (one.kind == "decoder")
        assert one.has_mlp == (one.kind != "decoder")
    examples = cohort.experiment.task.draw(3, generator_for(0, "look"), held_out=False)
    answers, pattern, scores = cohort.answer(examples)
    assert answers.shape == (10, 3, N)
    assert pattern.shape == (10, 3, 6, 2, 2 * N, 2 * N)
    for at, place in enumerate(specs):
        asks, looks = slice(*place.query_positions), slice(*place.key_positions)
        inside = pattern[:, :, at, :, asks, looks]
        np.testing.assert_allclose(inside.sum(-1), 1, rtol=1e-5)
        assert np.count_nonzero(pattern[:, :, at]) == np.count_nonzero(inside)
        known = np.isfinite(scores[:, :, at])
        assert known[..., asks, looks].all()
        assert known.sum() == inside.size
    found = cohort.evaluations[-1]
    square = np.array([place.square for place in specs])
    assert np.isnan(found.head_symmetry[:, ~square]).all()
    means = found.head_symmetry[:, square].mean((1, 2))
    np.testing.assert_allclose(found.metrics["score_symmetry"], means, atol=1e-6)

    # Mass on the target is the mean over cross-attention of what answers put on their own word.
    crossing = [at for at, place in enumerate(specs) if place.kind == "cross"]
    for place, seed in enumerate(cohort.seeds):
        held_out = cohort.experiment.task.draw(16, generator_for(seed, "evaluation"), held_out=True)
        _, pattern, _ = cohort.answer(held_out)
        rows = torch.from_numpy(pattern[place::2, :, crossing][..., N:, :])  # (v, b, l, h, a, j)
        target = held_out.target[None, :, None, None, :, None].expand(*rows.shape[:-1], 1)
        expected = rows.gather(-1, target).mean((1, 2, 3, 4, 5))
        found = cohort.evaluations[0].metrics["mass_on_target"][place::2]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_role_weights_are_those_of_the_owner_in_every_layer():
    """Encoder, decoder, cross; the matrix alone, whatever bias it has; of low rank, the product."""
    model = Model(tiny("dictionary", n_heads=2, blocks="standard"), [0, 1], CPU)
    for at in range(3):
        for role in ROLES:
            for place, weights in enumerate(model.role_weights(at, role)):
                owner = model.forms[place].sharing.owner(role)
                for seed in range(2):
                    own = model.run_parameters(2 * place + seed)[f"{at}.W_{owner}"]
                    assert torch.equal(weights[seed].transpose(0, 1).flatten(1), own)
    model = Model(tiny("dictionary", sharing=["QKV kv_rank=3"], blocks="standard"), [0, 1], CPU)
    for role in "KV":
        (weights,) = model.role_weights(2, role)
        own = model.run_parameters(1)
        assert_close(weights[1, 0], own["2.W_C"] @ own[f"2.W_{role}"])


def test_a_decoder_keeps_something_in_its_own_layers_only():
    """Of a written token; of a read one in each cross-attention; one variant of every mechanism."""
    for variant in DOZEN:
        if not NEEDS_ONE_SIDE & variant.given.keys():
            single, one, two = (
                tiny(task, sharing=[variant], n_layers=n_layers, n_heads=2).costs(variant).kv_cache
                for task, n_layers in (("directed", 1), ("dictionary", 1), ("dictionary", 2))
            )
            assert (one, two) == (2 * single, 4 * single), variant


MORE = """
    K=V n_heads=4 kv_heads=2 positions=rope kv_every=2
    QKV V=I d_head=m/h kv_every=3 self_mask
    K=V kv_rank=5 n_heads=4 kv_heads=2 positions=rope rotate_values=only kv_every=2
    QKV kv_every=2 exclusive
""".strip().split("\n")
BY_HAND = {
    "QKV": (16, 16),
    "K=V": (8, 8),
    "K=V positions=rope": (8, 16),
    "K=V before rotation (Gemma 4)": (8, 16),
    "K=V after rotation (DeepSeek V4)": (8, 8),
    "K=V kv_heads=1 positions=rope": (4, 8),
    "K=V unit_key": (8, 16),
    "QKV kv_rank=3": (3, 16),
    "QKV keyless": (8, 16),
    "QKV kv_heads=1 valueless": (4, 8),
    "QKV kv_residual=3": (2 * (4 + 2 * 3), 16),
    "K=V kv_heads=1 shared_half": (4 + 2, 2 * 4),
}


@pytest.mark.parametrize("variant", [*DOZEN, *map(str.strip, MORE), *BY_HAND])
def test_decoding_gives_the_logits_of_the_whole_sequence(variant):
    """From a cache of as many floats per token as was counted: as they are computed, and ready."""
    sizes = {"n_entries": 5, "n_names": 11, "n_values": 7, "n_layers": 3, "causal": True}
    for given in ({"blocks": "lean"}, {"blocks": "standard", "d_mlp": 7, "positions": "learned"}):
        given = {**sizes, "n_seeds": 2, "d_head": 4, **given}
        given |= {"n_layers": 1, "n_heads": 2} if variant in BY_HAND else {}
        experiment = Experiment(task="directed", sharing=[variant], **given)
        model, generator = Model(experiment, experiment.seeds, CPU), torch.Generator()
        for run in range(model.n_runs):  # no bias or factor begins with nothing
            for value in model.run_parameters(run).values():
                value += 0.1 * torch.randn(value.shape, generator=generator)
        tokens = torch.stack([model.task.make_examples(1, generator).tokens for _ in model.seeds])
        costs = experiment.costs(experiment.sharing[0].stages[0])
        counted = costs.kv_cache, costs.ready_cache
        assert counted == BY_HAND.get(variant, counted)
        for ready, n_floats in zip((False, True), counted, strict=True):
            decoder = Decoder(model, 1, ready=ready)
            found = torch.stack([decoder.read(token) for token in tokens[1, 0]])
            assert_close(found, model.logits(tokens)[1, 0], atol=1e-5, rtol=1e-4)
            cached = [rows.numel() for cache in decoder.cache for rows in cache.values()]
            assert (decoder.n_tokens, sum(cached)) == (5, 5 * n_floats)


def test_what_sees_later_tokens_or_has_two_sides_cannot_be_decoded():
    """The error names the setting, or what a decoder reads."""
    for experiment, told in (
        (Experiment(n_seeds=1), "causal: got False, allowed True"),
        (tiny("dictionary", sharing="QKV", causal=True), "one sequence"),
    ):
        with pytest.raises(ValueError, match=told):
            Decoder(Model(experiment, experiment.seeds, CPU), 0)
