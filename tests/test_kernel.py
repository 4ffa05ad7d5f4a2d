"""The compiled kernel against torch in double precision, and its memory."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from random_experiments import COMPOSED, TINY, mixed, sizes
from searching import briefly

from attnkit.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.model.kernel import elementwise
from attnkit.model.kernel import model as kernel_model
from attnkit.model.kernel.compiling import ARGUMENTS, compile_all
from attnkit.model.kernel.description import describe
from attnkit.model.kernel.model import KernelModel
from attnkit.model.model import Model
from attnkit.model.reference import cross_entropy
from attnkit.training import Training
from attnkit.training.data import stack
from attnkit.training.engine import kernel_knows

CPU = torch.device("cpu")
CANARY = np.float32(-12345.0)


def batch(experiment):
    """Examples for each seed."""
    task, seeds = experiment.task, experiment.seeds
    drawn = [task.draw(16, generator_for(seed, "kernel"), held_out=False) for seed in seeds]
    return stack(drawn, len(drawn), CPU)


def exact(model, variant, examples):
    """Logits, layers and gradients of one variant in double precision, by autograd."""
    of_variant = model._parameters.of_variant(model.variants.index(variant), model.numbers)
    weights = {name: view.double().requires_grad_() for name, view in of_variant.items()}
    layers = []
    transformer = model.transformer(variant, weights)
    with torch.no_grad():
        logits = transformer.logits(examples.tokens, layers)
    loss = cross_entropy(transformer.logits(examples.tokens), examples.labels).sum()
    found = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    return logits, layers, dict(zip(weights, found, strict=True))


def near(found, expected, name, least=1e-6):
    """Compare with the largest expected number, or the least that counts, as the unit."""
    unit = max(float(expected.abs().max()), least)
    error = float((found.double() - expected).abs().max()) / unit
    assert error < 1e-4, (name, error)


def compare(experiment, examples=None):
    """Hold logits, scores, patterns and gradients of all runs against the exact ones."""
    known = [v for v in experiment.sharing if kernel_knows(experiment, v)]
    if not known:
        return
    seeds, examples = list(experiment.seeds), examples or batch(experiment)
    model = KernelModel(experiment, seeds, CPU, sharing=known)
    model.numbers.add_(0.1 * torch.randn(len(model.numbers), generator=generator_for(0, "noise")))
    layers = []
    logits = model.logits(examples.tokens, layers)
    for run in range(model.n_runs):
        for value in model.run_parameters(run, model.gradient).values():
            value.fill_(math.nan)  # a gradient is written, not added
    model.differentiate(examples.tokens, examples.labels)
    n_layers = len(model.layer_specs)
    for place, variant in enumerate(known):
        expected, its_layers, gradients = exact(model, variant, examples)
        runs = slice(place * len(seeds), (place + 1) * len(seeds))
        near(logits[runs], expected, (variant, "logits"))
        own = layers[place * n_layers : (place + 1) * n_layers]
        for layer, exact_layer in zip(own, its_layers, strict=True):
            near(layer.scores, exact_layer.scores, (variant, "scores"))
            near(layer.pattern, exact_layer.pattern, (variant, "pattern"))
        for seed in range(len(seeds)):
            run = runs.start + seed
            found = model.run_parameters(run, model.gradient)
            movable = model.movable
            may_move = None if movable is None else model.run_parameters(run, movable)
            # What cancels, such as the gradient of a bias of keys, is small, not zero.
            least = 1e-2 * max(float(g[seed].abs().max()) for g in gradients.values())
            for name, gradient in gradients.items():
                wanted = gradient[seed] if may_move is None else gradient[seed] * may_move[name]
                near(found[name], wanted, (variant, name), least)


@given(sizes() | mixed())
@briefly(45)
@example(Experiment(d_model=16, n_heads=5, d_head=9, n_seeds=2, d_mlp=11, **TINY))
@example(Experiment(task="dictionary", blocks="standard", d_mlp=7, n_heads=3, batch_size=16))
@example(Experiment(task="language", n_seeds=1, batch_size=16))
@example(Experiment(task="phonebook", blocks="final_norm", n_heads=3, batch_size=16))
@example(Experiment(sharing=COMPOSED, n_seeds=2, n_layers=3, **TINY))
def test_kernel_agrees_with_torch(experiment):
    """At all sizes, for all variants that it knows; torch computes in double precision.

    A normalised head of one number is its sign, which rounding decides where it is near zero.
    """
    assume(experiment.size.d_head > 1 or not any(v.given for v in experiment.sharing))
    compare(experiment)


def test_a_decoder_of_one_block_asks_a_longer_encoder(monkeypatch):
    """Sixteen positions ask twenty-one: none of those is left out."""
    experiment = Experiment(task="translation", max_length=18, n_seeds=1, batch_size=16)
    drawn = batch(experiment)
    monkeypatch.setattr(type(experiment.task), "n_source", 21)
    compare(experiment, replace(drawn, labels=drawn.labels[..., :16].contiguous()))


@given(sizes())
@briefly(10)
def test_kernel_writes_nowhere_else(experiment):
    """Numbers between its buffers, before and behind them, stay as they were."""
    plans = []

    def guarded(plan):
        memory = np.zeros(plan.n_scratch + 64, np.float32)
        start = 16 + -memory.ctypes.data // 4 % 16
        memory[:start] = memory[start + plan.n_scratch :] = CANARY
        scratch = memory[start : start + plan.n_scratch]
        scratch[list(plan.gaps)] = CANARY
        plans.append((plan, memory, start))
        return scratch

    examples = batch(experiment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_model, "_scratch", guarded)
        model = KernelModel(experiment, list(experiment.seeds), CPU)
        before = model.numbers.clone()
        model.differentiate(examples.tokens, examples.labels)
        model.logits(examples.tokens, [])
        model.logits(examples.tokens)
    assert plans
    for plan, memory, start in plans:
        outside = memory[:start], memory[start + plan.n_scratch :], memory[start:][list(plan.gaps)]
        assert all((part == CANARY).all() for part in outside)
    assert torch.equal(before, model.numbers)
    covered = torch.zeros(len(model.gradient), dtype=torch.bool)
    for run in range(model.n_runs):
        for view in model.run_parameters(run, covered).values():
            view.fill_(True)
    assert not model.gradient[~covered].any()


def test_a_run_whose_parameters_do_not_fit_is_refused():
    """Before anything is computed: the kernel itself checks no bounds."""
    experiment = Experiment(n_seeds=1, **TINY)
    model = Model(experiment, [0], CPU)
    variant = model.variants[0]
    offsets = model.offsets(variant)
    n_numbers = model.block(0).stop

    given = model.wirings[variant], model.layer_specs, model.task
    assert describe(*given, offsets, n_numbers).n_scratch
    for told, changed in (
        ("W_U", {name: place for name, place in offsets.items() if name != "W_U"}),
        (r"0\.W_Q: has shape \(1, 2\)", offsets | {"0.W_Q": (0, (1, 2))}),
        (r"0\.W_O: lies outside", offsets | {"0.W_O": (n_numbers - 1, offsets["0.W_O"][1])}),
    ):
        with pytest.raises(ValueError, match=told):
            describe(*given, changed, n_numbers)


def test_training_calls_what_is_compiled_ahead():
    """So no training waits for a compilation; to call an inner function is no crash."""
    compile_all()
    experiment = Experiment(task="directed", **TINY, steps=2, clip=0.1)
    Training(experiment, "cpu", "kernel").advance(2)
    assert [len(function.signatures) for function in ARGUMENTS] == [1] * len(ARGUMENTS)
    with pytest.raises(KeyError, match="copy"):
        elementwise.copy(np.zeros((2, 16), np.float32), np.zeros((2, 16), np.float32))
