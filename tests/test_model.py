"""The model of many runs: its numbers, gradients and steps, its two sides, and its decoder."""

import itertools
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
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData
from attnkit.variants.sharing import ROLES

# Variants with parameters that others lack, and parameters that start fixed, column by column.
STARTS = {
    "QKV kv_residual=5": {}, "QKV d_v=5 keyless": {}, "QKV kv_rank=5": {}, "QKV k_rank=5": {},
    "QKV diff": {}, "QKV V=I n_heads=2 d_head=m/h": {}, "Q=K signed": {"D": (1, -1)},
    "QKV positions=plus": {"b_plus": (0,)}, "QKV positions=relative": {"b_offset": (0,)},
    "QKV positions=key_bias": {"b_key": (0,)}, "QKV qk_norm": {"g_Q": (1,), "g_K": (1,)},
    "QKV scaled": {"D_Q": (1,), "D_K": (1,), "D_V": (1,)},
}  # fmt: skip


@pytest.mark.parametrize(("task", "n_fields"), [("directed", 3), ("phonebook", 2)])
def test_initial_numbers_have_the_documented_spread(task, n_fields):
    """Matrices keep the size of their input; a token's fields add up to 0.5; none is repeated."""
    known = dict.fromkeys(["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"], 0.1)
    known |= {"W_E": 0.5 / math.sqrt(n_fields), "W_pos": 0.5, "w_plus": 0.02}
    sizes = {"n_entries": 5, "n_names": 11, "n_values": 13, "d_mlp": 7, "positions": "learned"}
    experiment = Experiment(task=task, sharing=STARTS, n_seeds=20, n_layers=2, **sizes)
    model = Model(experiment, range(20), CPU)
    for index, variant in enumerate(model.variants):
        runs = [model.run_parameters(20 * index + seed) for seed in range(20)]
        drawn = set()
        for name in runs[0]:
            values, last = torch.stack([run[name] for run in runs]), name.rpartition(".")[2]
            if pattern := STARTS[variant.value].get(last):
                width = values.shape[-1]
                fixed = torch.tensor((pattern * width)[:width]).float()
                assert torch.equal(values, fixed.expand_as(values)), (variant, name)
                continue
            expected = known.get(last) or values.shape[-2] ** -0.5
            assert values.std().item() == pytest.approx(expected, rel=0.2), (variant, name)
            assert values.mean().abs().item() < 0.2 * expected, (variant, name)
            drawn.add(values.flatten()[0].item())
        assert len(drawn) == len(runs[0]) - 2 * len(STARTS[variant.value])


# By variant, how many numbers a parameter reads, or one over the square of what the source says.
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
    batches = {frozenset(str(model.variants[i]) for i in part) for part in model._alike}
    assert batches == {frozenset(chosen[:2]), frozenset(chosen[2:]), frozenset(["K=V"])}
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
        if training.schedule == "constant":
            return 1
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


@pytest.mark.parametrize(
    ("blocks", "causal", "schedule"),
    [("standard", True, "cosine"), ("final_norm", False, "constant")],
)
def test_training_is_that_of_plain_torch(blocks, causal, schedule):
    """Every parameter of every sharing after a whole schedule, rounds of the stock included."""
    experiment = Experiment(**LISTS, blocks=blocks, causal=causal, schedule=schedule)
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
    experiment = full_size("reverse").replace(n_seeds=1, sharing=["QKV"])
    one_side = Cohort(experiment, [0], CPU).model.run_parameters(0)
    sizes = {"d_head": 16, "d_mlp": 64, "sharing": ["QKV kv_rank=m/4"]}
    experiment = Experiment(task="dictionary", blocks="standard", **sizes)
    two_sides = Cohort(experiment, [0], CPU).model.run_parameters(0)
    for own, read in (
        (one_side, "W_E 10 b_E 10 0.W_Q 64 0.W_O 64 0.b_in 64 0.b_Q 64 1.W_out 256 1.b_out 256"),
        (one_side, "0.W_in 64 b_U 64"),
        (two_sides, "0.W_C 32 0.b_C 32 1.W_K 8 1.b_V 8 2.W_O 16 2.b_O 16 2.W_out 64 2.b_out 64"),
    ):
        words = read.split()
        for name, n_read in zip(words[::2], map(int, words[1::2]), strict=True):
            bound = n_read**-0.5
            assert 0.7 * bound < own[name].abs().max() <= bound, name
            assert own[name].std() == pytest.approx(bound / 3**0.5, rel=0.35), name
    assert one_side["W_pos"].std() == pytest.approx(1, rel=0.1)
    for name, value in (("0.ln1.w", 1), ("1.ln2.b", 0), ("ln_final.w", 1), ("ln_final.b", 0)):
        assert one_side[name].unique().tolist() == [value]


N = 5  # words of a sentence: positions 0 to 4 are the encoder's, 5 to 9 the decoder's


def test_layers_of_two_sides_stand_in_the_frame_of_all_positions():
    """Outside of what a layer compares, weights are 0 and scores NaN; inside, rows sum to one."""
    source, rest = (0, N), (N, 2 * N)
    given = {"n_layers": 2, "n_heads": 2, "positions": "rope", "blocks": "standard"}
    cohort = Cohort(tiny("dictionary", **given), [0, 1], CPU)
    specs = cohort.experiment.layer_specs
    sides = {"Encoder": (source, source), "Decoder": (rest, rest), "Cross": (rest, source)}
    titles = ["Encoder 1", "Encoder 2", "Decoder 1", "Cross 1", "Decoder 2", "Cross 2"]
    assert [one.title for one in specs] == titles
    for one in specs:
        assert (one.query_positions, one.key_positions) == sides[one.title.split()[0]]
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
    """They are the matrix without its bias, or the product of two if it has a low rank."""
    model = Model(tiny("dictionary", n_heads=2, blocks="standard"), [0, 1], CPU)
    for at, role in itertools.product(range(3), ROLES):
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
    """It keeps something of a written token, and as much of a read one in each cross-attention."""
    for variant in (one for one in DOZEN if not NEEDS_ONE_SIDE & one.given.keys()):
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
    "K=V before rotation (Gemma 4)": (8, 16),
    "K=V after rotation (DeepSeek V4)": (8, 8),
    "K=V unit_key": (8, 16),
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
    for task, given, told in (("directed", {}, "causal"), ("dictionary", {"causal": True}, "one")):
        model = Model(tiny(task, sharing="QKV", **given), [0, 1], CPU)
        with pytest.raises(ValueError, match=told):
            Decoder(model, 0)
