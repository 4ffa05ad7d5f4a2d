"""What takes the place of matrices, by a few lines of plain torch: published identities hold."""

from itertools import product

import torch
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.training import train

CPU = torch.device("cpu")
SIZES = {"task": "phonebook", "n_entries": 5, "n_names": 11, "n_values": 7, "n_seeds": 1}


def model_of(variant, seed, **sizes):
    """Return a model of one variant and one run, and a batch."""
    experiment = Experiment(**{**SIZES, "d_model": 16, **sizes}, sharing=[variant])
    model = Model(experiment, [seed], CPU)
    return model, model.task.make_examples(7, generator_for(seed, "batch")).tokens[None]


def logits_with(model, tokens, other, **weights):
    """Return the logits of a model with all weights of another one but those that are given."""
    values = other.run_parameters(0) | {f"0.{name}": value for name, value in weights.items()}
    for name, own in model.run_parameters(0).items():
        own.copy_(values[name])
    return model.logits(tokens)


def test_values_can_be_computed_from_keys_if_the_key_matrix_is_square(seed):
    """Slim attention: W_K⁻¹ W_V gives the logits of QKV, and with narrower keys nothing does."""
    for d_head, is_exact in ((4, True), (3, False)):
        qkv, tokens = model_of("QKV", seed, n_heads=4, d_head=d_head)
        slim, _ = model_of("QKV valueless", seed, n_heads=4, d_head=d_head)
        own = {name: value.double() for name, value in qkv.run_parameters(0).items()}
        from_keys = torch.linalg.lstsq(own["0.W_K"], own["0.W_V"]).solution
        found, expected = logits_with(slim, tokens, qkv, W_V=from_keys), qkv.logits(tokens)
        off = float((found - expected).norm() / expected.norm())
        rounding = 1e-5 * float(torch.linalg.cond(own["0.W_K"]))
        assert off < rounding if is_exact else off > 1e-2, (d_head, off)


def test_one_key_for_all_heads_makes_a_value_matrix_redundant(seed):
    """MFA-Key-Reuse is K=V with one head of keys: W_O takes the value matrix in."""
    reuse, tokens = model_of("QKV valueless kv_heads=1", seed, n_heads=4, d_head=4)
    shared, _ = model_of("K=V kv_heads=1", seed, n_heads=4, d_head=4)
    own = reuse.run_parameters(0)
    w_o = own["0.W_V"] @ own["0.W_O"].unflatten(0, (4, 4))
    found = logits_with(shared, tokens, reuse, W_O=w_o.flatten(0, 1))
    assert_close(found, reuse.logits(tokens), atol=1e-5, rtol=1e-4)


def test_fixed_values_keep_their_initial_numbers_on_both_engines(seed, monkeypatch):
    """All else moves, and a variant beside it has the bits that it has alone."""
    given = {**SIZES, "n_seeds": 2, "first_seed": seed % 1000, "steps": 7, "evaluate_every": 7}
    for engine, blocks in product(("kernel", "torch"), ("lean", "standard")):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        experiment = Experiment(
            **given, sharing=["QKV", "QKV fixed_values"], blocks=blocks, d_model=16
        )
        model = Model(experiment, experiment.seeds, CPU)
        found = train(experiment, progress=False).parameters
        alone = train(experiment.replace(sharing=["QKV"]), progress=False).parameters
        for run, after in enumerate(found):
            before = model.run_parameters(run)
            still = {name for name, value in before.items() if (value.numpy() == after[name]).all()}
            assert still - {"0.b_K"} == ({"0.W_V"} if run > 1 else set()), (engine, blocks)
        for own, beside in zip(alone, found, strict=False):
            assert all((value == beside[name]).all() for name, value in own.items())
