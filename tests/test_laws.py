"""The laws of the design: what holds for every task, sharing, size and seed.

Bits are compared on a CPU, as bytes: equal numbers that were rounded differently do not pass.
"""

import ast
import json
import random
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, example, given
from hypothesis import strategies as st
from kinds import KINDS, tiny
from searching import briefly
from torch.testing import assert_close

import attnkit
from attnkit.experiment.experiment import Experiment, from_params, from_text
from attnkit.experiment.experiment import settings as settings_of
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.model.reference import Layer
from attnkit.tasks import TASKS
from attnkit.tasks.base import Task
from attnkit.training import Training, stream
from attnkit.training import training as training_module
from attnkit.training.data import stack
from attnkit.training.engine import kernel_knows
from attnkit.training.snapshot import METRICS
from attnkit.variants import CATALOGUE
from attnkit.variants.sharing import ROLES, Sharing

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
TINY = {"batch_size": 16, "n_eval": 16, "n_names": 17, "n_values": 13}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_sharing = pytest.mark.parametrize("sharing", Sharing)
tied_sharings = pytest.mark.parametrize("sharing", [s for s in Sharing if s != Sharing.QKV])


DIALS = {
    "directed": {"n_entries": (4, 5, 7, 11), "n_names": (11, 17, 23), "n_values": (5, 13, 31)},
    "phonebook": {"n_entries": (4, 5, 7, 11), "n_names": (11, 17, 23), "n_values": (5, 13, 31)},
    "mutual": {"n_entries": (4, 6, 10), "n_names": (11, 17, 23), "n_values": (5, 13, 31)},
    "mqar": {"n_tokens": (16, 22), "n_pairs": (2, 3), "length": (12, 14)},
    "dictionary": {"n_words": (2, 5, 7), "n_vocab": (11, 17), "order": ("same", "reversed")},
    "reverse": {"length": (2, 5, 7), "n_symbols": (8, 11)},
    "transfer": {"n_entries": (2, 5), "n_names": (11, 17), "n_values": (7, 13)},
    "neighbours": {"n_asking": (2, 3), "n_families": (3, 5), "n_values": (11, 13)},
    "language": {"length": (16, 19), "objective": ("next", "masked")},
}
"""Small values of the dials of one task of every kind."""

ONE_SIDE = tuple(name for name in DIALS if name != "dictionary")


@st.composite
def sizes(draw, tasks=tuple(DIALS), **fixed):
    """Experiments of all kinds and shapes, small enough to train a few steps in a moment."""
    task = draw(st.sampled_from(tasks))
    drawn = {
        "task": task,
        **{name: draw(st.sampled_from(values)) for name, values in DIALS[task].items()},
        "n_seeds": draw(st.integers(1, 3)),
        "first_seed": draw(st.integers(0, 999)),
        "d_model": draw(st.sampled_from([16, 32, 48])),
        "n_heads": draw(st.sampled_from([1, 2, 3, 5])),
        "d_head": draw(st.integers(1, 19)),
        "n_layers": draw(st.integers(1, 2 if task == "dictionary" else 3)),
        "d_mlp": draw(st.sampled_from([0, 1, 7, 37])),
        "positions": draw(st.sampled_from(["none", "learned"])),
        "causal": draw(st.booleans()),
        "self_mask": draw(st.booleans()),
        "blocks": draw(st.sampled_from(["lean", "standard", "final_norm"])),
        "batch_size": draw(st.sampled_from([16, 32, 48])),
        "n_train": draw(st.sampled_from([0, 0, 48, 80])),
        "clip": draw(st.sampled_from([0.0, 0.3])),
        "schedule": draw(st.sampled_from(["constant", "cosine"])),
        "warm_up": draw(st.sampled_from([0.0, 0.5])),
        "n_eval": draw(st.sampled_from([16, 48])),
        "steps": 4,
        "evaluate_every": 2,
    }
    if task == "transfer":
        drawn["earlier_steps"] = 2
    if drawn.get("objective") == "next":
        drawn["causal"] = True
    return Experiment(**{**drawn, **fixed})


def trained(experiment, n_steps=None):
    """The result after some steps, or all."""
    training = Training(experiment, "cpu")
    training.advance(experiment.training.steps if n_steps is None else n_steps)
    return training.result()


def one_cohort(experiment):
    """A training that computes all runs of an engine in one batch, as a GPU would."""
    seeds = list(experiment.seeds)

    def whole(experiment, device, engine):
        variants = experiment.sharing if engine == "kernel" else ()
        known = [variant for variant in variants if kernel_knows(experiment, variant)]
        others = [variant for variant in experiment.sharing if variant not in known]
        return [training_module.CohortPlan(tuple(some), seeds) for some in (known, others) if some]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_module, "plan_cohorts", whole)
        return Training(experiment, "cpu")


def bits(result, run):
    """All numbers of one run, by name, as bytes; of the heads that it has."""
    snapshot = result.snapshot
    variant, _ = result.experiment.runs[run]
    n_heads = result.experiment.wiring(variant).sizes.n_heads
    arrays = {f"parameter {name}": value for name, value in result.parameters[run].items()}
    arrays |= {name: snapshot.history[name][:, run] for name in METRICS}
    arrays["head_symmetry"] = snapshot.head_symmetry[run, :, :n_heads]
    arrays["probe answers"] = snapshot.probe.answers[run]
    arrays["probe pattern"] = snapshot.probe.pattern[run, :, :n_heads]
    if snapshot.probe.scores is not None:
        arrays["probe scores"] = snapshot.probe.scores[run, :, :n_heads]
    return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}


def differing(one, other):
    """Names under which two runs do not have the same bits."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def all_bits(result):
    """The numbers of all runs."""
    return [bits(result, run) for run in range(result.experiment.n_runs)]


# 1. Independence: a run's result does not depend on which other runs train beside it


def check_independence(experiment, n_steps):
    """Every run has the same bits beside all others, in its cohort, and alone."""
    together = one_cohort(experiment)
    together.advance(n_steps)
    together, in_cohorts = together.result(), trained(experiment, n_steps)
    for run, (sharing, seed) in enumerate(experiment.runs):
        single = experiment.replace(sharing=[sharing], n_seeds=1, first_seed=seed)
        alone = bits(trained(single, n_steps), 0)
        for result in (together, in_cohorts):
            assert not differing(bits(result, run), alone), (sharing, seed)


@pytest.mark.parametrize(
    ("task", "n_steps"),
    [
        ("directed", 30),
        ("phonebook", 30),
        ("mqar", 5),
        ("dictionary", 5),
        ("reverse", 1),
        ("transfer", 5),
        ("neighbours", 5),
        ("language", 1),
    ],
)
def test_independence_at_default_sizes(task, n_steps):
    """Five sharings of two seeds for some steps, and each alone."""
    check_independence(Experiment(task=task, n_seeds=2, n_eval=48), n_steps)


@every_kind
def test_independence_of_every_kind(kind):
    """To the last step, through all phases and rounds of a stock."""
    check_independence(tiny(kind), 8)


@given(sizes())
@briefly(7)
@example(Experiment(d_model=16, n_heads=5, d_head=9, n_seeds=2, **TINY))
@example(Experiment(d_model=48, n_heads=1, d_head=7, d_mlp=11, n_seeds=1, **TINY))
def test_independence_at_any_size(experiment):
    """Few steps, all shapes: widths at which BLAS picks other kernels are among them."""
    check_independence(experiment, 4)


@given(st.sets(st.sampled_from(Sharing), min_size=1), st.integers(1, 4))
@briefly(4)
def test_independence_of_any_company(chosen, n_seeds):
    """Any set of sharings and any number of seeds."""
    check_independence(Experiment(sharing=chosen, n_seeds=n_seeds, **TINY), 4)


COMPOSED = (
    "K=V n_heads=4 kv_heads=2 positions=rope",
    "K=V kv_rank=m/4 kv_every=2 unit_key",
    "Q=V keyless n_heads=3 d_head=5 positions=alibi",
    "Q=K sum signed d_head=7",
    "QKV d_k=3 d_v=11 d_mlp=13 shared_layers",
    "Q=K=V scaled positions=key_bias learning_rate=0.02",
    "QKV qk_norm positions=learned_plus",
    "QKV V=I O=I d_head=m/h self_mask",
    "QKV n_heads=2 start=Q=K=V tie=Q=K tie_by=keep_Q tie_at=0.6 positions=relative",
)
any_variant = st.sampled_from([*(named.variant for named in CATALOGUE.values()), *COMPOSED])


@st.composite
def mixed(draw, **fixed):
    """Experiments whose columns are any of the catalogue and of these compositions."""
    sizes_drawn = draw(sizes(n_seeds=draw(st.integers(1, 3)), **fixed))
    chosen = draw(st.sets(any_variant, min_size=2, max_size=6))
    possible = []
    for variant in chosen:
        try:
            possible.append(sizes_drawn.replace(sharing=[variant]).sharing[0])
        except InvalidExperiment:  # a width that these sizes do not divide
            continue
    assume(possible)
    return sizes_drawn.replace(sharing=possible)


@given(mixed())
@briefly(3)
@example(Experiment(sharing=COMPOSED, n_seeds=2, n_layers=3, steps=4, evaluate_every=2, **TINY))
@example(
    Experiment(
        sharing=COMPOSED,
        n_seeds=2,
        n_layers=3,
        steps=4,
        evaluate_every=2,
        blocks="standard",
        clip=0.1,
        n_train=48,
        **TINY,
    )
)
def test_independence_of_any_variants(experiment):
    """However columns are composed: together, in their cohorts and alone, with equal bits."""
    check_independence(experiment, 4)


def test_the_whole_catalogue_trains_as_one_cohort():
    """All of it side by side for some steps, every run as it is alone."""
    variants = {named.variant for named in CATALOGUE.values()}
    check_independence(Experiment(task="phonebook", sharing=variants, n_seeds=2, **TINY), 3)


def test_the_catalogue_trains_as_one_cohort_on_two_sides():
    """Save what shares layers, which has no meaning there; in standard blocks."""
    sizes = {"n_heads": 2, "blocks": "standard", "d_mlp": 7, "clip": 0.1, "n_seeds": 1}
    variants = [
        named.variant
        for named in CATALOGUE.values()
        if not {"shared_layers", "kv_every"} & named.variant.given.keys()
    ]
    check_independence(tiny("dictionary", sharing=variants, **sizes), 1)


@pytest.mark.parametrize("name", ["W_E", "W_pos", "0.W_Q", "0.W_O", "1.W_in", "W_U"])
def test_a_poisoned_run_is_marked_and_leaves_its_neighbours_alone(name):
    """NaN in one run's parameter: found at the next evaluation, missing from then on."""
    experiment = Experiment(
        n_seeds=2,
        steps=20,
        evaluate_every=5,
        n_layers=2,
        d_mlp=7,
        positions="learned",
        n_train=32,
        clip=1.0,
        **TINY,
    )
    healthy = trained(experiment)
    training = one_cohort(experiment)
    training.advance(7)
    poison(training.cohorts[0].model, run := 3, name)
    training.advance(13)
    poisoned = training.result()
    expected = [10 if other == run else -1 for other in range(experiment.n_runs)]
    assert poisoned.snapshot.diverged_at.tolist() == expected
    assert poisoned.table["diverged_at"].iloc[run] == 10
    for metric in METRICS:
        values = poisoned.snapshot.history[metric][:, run]
        assert np.isnan(values).tolist() == [False, False, True, True, True], metric
    for other in {*range(experiment.n_runs)} - {run}:
        assert not differing(bits(poisoned, other), bits(healthy, other))


def poison(model, run, name):
    """Set a parameter of one run to NaN."""
    with torch.no_grad():
        model.run_parameters(run)[name].fill_(torch.nan)


def test_a_poisoned_run_is_missing_in_the_symmetry_of_heads_too():
    """A lost run must not be shown as perfectly symmetric."""
    training = one_cohort(Experiment(n_seeds=2, steps=3, n_heads=2, **TINY))
    poison(training.cohorts[0].model, 0, "0.W_Q")
    training.advance(3)
    snapshot = training.snapshot()
    lost = snapshot.diverged_at >= 0
    assert lost.sum() == 1
    assert np.isnan(snapshot.head_symmetry[lost]).all()
    assert not np.isnan(snapshot.head_symmetry[~lost]).any()


# 2. Pairing: the same seed gives every sharing the same data and initial numbers


@given(sizes())
@briefly(7)
def test_pairing_of_initial_numbers(experiment):
    """What a sharing owns starts as QKV's parameter of that name; other seeds differ."""
    model = Model(experiment, experiment.seeds, CPU)
    n_seeds = experiment.n_seeds
    qkv = model.variants.index(Sharing.QKV) * n_seeds
    for run in range(model.n_runs):
        own, reference = model.run_parameters(run), model.run_parameters(qkv + run % n_seeds)
        assert all(torch.equal(value, reference[name]) for name, value in own.items())
    for one, other in combinations(range(n_seeds), 2):
        first, second = model.run_parameters(one), model.run_parameters(other)
        drawn = [name for name in first if "ln" not in name]  # those start at ones and zeros
        assert not any(torch.equal(first[name], second[name]) for name in drawn)


@given(mixed())
@briefly(7)
def test_pairing_of_initial_numbers_of_any_variants(experiment):
    """A parameter of one name and shape starts with the same numbers in all runs of a seed.

    A bias does up to a factor: its spread follows from how much its matrix reads.
    """
    drawn = {}
    for stage in (experiment.replace(sharing=[v]) for v in experiment.sharing):
        model = Model(stage, experiment.seeds, CPU)
        weights = model.wirings[model.variants[0]].weights
        copies = {name for name, weight in weights.items() if weight.like}
        for run, seed in enumerate(experiment.seeds):
            for name, value in model.run_parameters(run).items():
                if name.partition(".")[2] not in copies:
                    first = drawn.setdefault((seed, name, value.shape), value)
                    if name.rpartition(".")[2].startswith("b_"):
                        factor = float(value.norm() / first.norm()) if value.any() else 1.0
                        assert_close(first * factor, value, rtol=1e-5, atol=1e-7)
                    else:
                        assert torch.equal(first, value), (name, stage.sharing)


@pytest.fixture
def draws(monkeypatch):
    """Bits of all examples that tasks draw, in order of drawing."""
    seen = []

    def recording(draw):
        def recorded(self, n_examples, generator, *, held_out):
            examples = draw(self, n_examples, generator, held_out=held_out)
            seen.append((held_out, examples.tokens.numpy().tobytes()))
            return examples

        return recorded

    for task in {Task, *(task for task in TASKS.values() if "draw" in vars(task))}:
        monkeypatch.setattr(task, "draw", recording(task.draw))
    return seen


def drawn_by(draws, experiment):
    """What one experiment draws to its end."""
    draws.clear()
    trained(experiment)
    return list(draws)


@every_kind
def test_pairing_of_data(kind, draws):
    """Every sharing of a seed sees the same training and held-out examples."""
    each = [drawn_by(draws, tiny(kind, sharing=s, n_seeds=1, steps=20)) for s in Sharing]
    assert len(each[0]) >= 3
    assert all(other == each[0] for other in each)
    together = drawn_by(draws, tiny(kind, n_seeds=1, steps=20))
    assert set(together) == set(each[0])  # once per cohort


@every_kind
def test_seeds_have_their_own_data(kind, draws):
    """Seeds do not share examples, and draw the same whatever seeds are beside them."""
    two, one, other = (
        set(drawn_by(draws, tiny(kind, sharing="QKV", steps=20, **given)))
        for given in ({"n_seeds": 2}, {"n_seeds": 1}, {"n_seeds": 1, "first_seed": 1})
    )
    assert one | other == two
    shared = one & other  # what the probe is chosen from, which every experiment shows
    assert shared
    assert all(held_out for held_out, _ in shared)


# 3. Tying: tied roles are one parameter; the parameter is absent, not copied


@tied_sharings
@pytest.mark.parametrize("n_steps", [0, 11])
def test_tying_removes_the_parameter(sharing, n_steps):
    """Names that are not owned do not exist, beside QKV, before and after training."""
    result = trained(Experiment(n_layers=2, d_mlp=7, n_seeds=2, **TINY), n_steps)
    shared = {"W_E", "W_U", *(f"{i}.W_{name}" for i in (0, 1) for name in ("O", "in", "out"))}
    attention = {f"{i}.W_{members[0]}" for i in (0, 1) for members in sharing.classes}
    for (run_sharing, _), own in zip(result.experiment.runs, result.parameters, strict=True):
        if run_sharing == sharing:
            assert set(own) == shared | attention


@tied_sharings
@pytest.mark.parametrize("n_steps", [0, 11])
def test_tied_roles_use_one_matrix(sharing, n_steps):
    """The identical numbers for tied roles, others for roles that are not."""
    training = Training(Experiment(n_layers=2, n_heads=3, n_seeds=2, **TINY), "cpu")
    training.advance(n_steps)
    for model in (cohort.model for cohort in training.cohorts):
        if sharing not in model.variants:
            continue
        place = model.variants.index(sharing)
        for layer in range(2):
            weights = {role: model.role_weights(layer, role)[place][0] for role in ROLES}
            for one, other in combinations(ROLES, 2):
                tied = sharing.owner(one) == sharing.owner(other)
                assert torch.equal(weights[one], weights[other]) == tied


def test_a_tied_gradient_is_the_sum_of_its_roles():
    """One parameter learns from all its uses: QKV with equal weights has the parts."""
    tied, untied = (
        Model(Experiment(sharing=s, **TINY), [0], CPU) for s in (Sharing.Q_K_V, Sharing.QKV)
    )
    copy_weights(tied, untied)
    examples = stack([tied.task.draw(16, generator_for(0, "test"), held_out=False)], CPU)
    for model in (tied, untied):
        model.differentiate(examples.tokens, examples.labels)
    of_tied, of_untied = (model.run_parameters(0, model.gradient) for model in (tied, untied))
    assert_close(of_tied["0.W_Q"], sum(of_untied[f"0.W_{role}"] for role in ROLES))


# 4. Equivalence: tied equals untied with copied weights; untied equals torch's attention


def copy_weights(source, target):
    """Write every run's weights into an untied model of as many runs."""
    with torch.no_grad():
        for run in range(source.n_runs):
            own, theirs = source.run_parameters(run), target.run_parameters(run)
            owner = source.forms[run // len(source.seeds)].sharing.owner
            for name, value in theirs.items():
                read = name[:-1] + owner(name[-1]) if name[-1] in ROLES else name
                value.copy_(own[read])


@given(sizes(), st.sampled_from(Sharing))
@briefly(12)
def test_a_tied_layer_equals_an_untied_one_with_copied_weights(experiment, sharing):
    """Of any kind, with any heads, layers, MLP, masks, positions and blocks, after two steps."""
    trained = one_cohort(experiment.replace(sharing=[sharing]))
    trained.advance(2)
    tied = trained.cohorts[0].model
    untied = Model(experiment.replace(sharing=["QKV"]), [s + 5 for s in tied.seeds], CPU)
    copy_weights(tied, untied)
    tokens = tokens_for(tied)
    assert_close(tied.logits(tokens), untied.logits(tokens), rtol=1e-5, atol=1e-5)


def tokens_for(model, n_batch=3):
    """Some examples for every seed of a model."""
    generator = torch.Generator().manual_seed(1)
    return torch.stack([model.task.make_examples(n_batch, generator).tokens for _ in model.seeds])


def reference_logits(experiment, sharing, own, tokens):
    """The forward pass of one run in double precision, with torch's own attention."""
    size = experiment.size
    own = {name: value.detach().double() for name, value in own.items()}
    n_ctx = tokens.shape[1]
    mask = torch.zeros(n_ctx, n_ctx, dtype=torch.float64)
    if size.causal:
        mask = mask.masked_fill(torch.ones(n_ctx, n_ctx).triu(1).bool(), -torch.inf)
    if size.self_mask:
        mask = mask - 1e5 * torch.eye(n_ctx)

    def norm(x):
        return F.rms_norm(x, x.shape[-1:], eps=1e-6)

    x = sum(own["W_E"][field] for field in tokens.unbind(-1)) + own.get("W_pos", 0)  # (b, i, m)
    for layer in range(size.n_layers):
        q, k, v = (
            torch.stack((norm(x) @ own[f"{layer}.W_{sharing.owner(role)}"]).chunk(size.n_heads, -1))
            for role in ROLES
        )  # (h, b, i, d)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + torch.cat(list(z), -1) @ own[f"{layer}.W_O"]
        if size.d_mlp:
            x = x + F.gelu(norm(x) @ own[f"{layer}.W_in"]) @ own[f"{layer}.W_out"]
    return norm(x[:, experiment.task.answers_from :]) @ own["W_U"]


@given(sizes(tasks=ONE_SIDE, blocks="lean"))
@briefly(12)
def test_the_model_equals_torch_attention(experiment):
    """Every run of one side and lean blocks, before and after a few steps, in plain PyTorch."""
    training = one_cohort(experiment)
    model, n_seeds = training.cohorts[0].model, experiment.n_seeds
    tokens = tokens_for(model)
    for _ in range(2):
        logits = model.logits(tokens).double()
        for run in range(model.n_runs):
            own, sharing = model.run_parameters(run), model.forms[run // n_seeds].sharing
            expected = reference_logits(experiment, sharing, own, tokens[run % n_seeds])
            assert_close(logits[run], expected, rtol=1e-4, atol=1e-4)
        training.advance(2)


def test_scores_and_patterns_are_those_of_the_heads():
    """What is recorded for measuring, worked out head by head for one QKV run."""
    experiment = Experiment(sharing="QKV", n_seeds=1, n_heads=3, d_head=5, causal=True, **TINY)
    model = Model(experiment, experiment.seeds, CPU)
    layers, tokens = list[Layer](), tokens_for(model)
    model.logits(tokens, layers)
    own = model.run_parameters(0)
    x = F.rms_norm(own["W_E"][tokens[0]].sum(2), (32,), eps=1e-6)
    for head in range(3):
        part = slice(5 * head, 5 * head + 5)
        scores = (x @ own["0.W_Q"][:, part]) @ (x @ own["0.W_K"][:, part]).mT / 5**0.5
        assert_close(layers[0].scores[0, :, head], scores)
        masked = scores - 1e5 * torch.eye(8)
        masked = masked.masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
        assert_close(layers[0].pattern[0, :, head], masked.softmax(-1))


# 5. Symmetry: queries that are keys give symmetric scores at every step


@every_kind
@pytest.mark.parametrize("n_heads", [1, 3])
def test_symmetry_holds_at_every_evaluation(kind, n_heads):
    """Q=K and Q=K=V stay at rounding level while training; the others never are."""
    experiment = tiny(kind, n_heads=n_heads, n_layers=2, steps=12, evaluate_every=4)
    result = trained(experiment)
    error, symmetry = (
        result.snapshot.history[name] for name in ("symmetry_error", "score_symmetry")
    )
    assert len(error) == 4
    symmetric = np.array([variant.sharing.symmetric for variant, _ in experiment.runs])
    assert (error[:, symmetric] <= 1e-5).all()
    assert (error[:, ~symmetric] > 0.1).all()
    assert (symmetry[:, symmetric] >= 1 - 1e-5).all()
    assert (symmetry[:, ~symmetric] < 0.99).all()


@given(mixed(positions="none"))
@briefly(7)
def test_symmetry_of_any_variants(experiment):
    """Where a wiring says that scores are symmetric they are, at every evaluation."""
    result = trained(experiment)
    error = result.snapshot.history["symmetry_error"]
    for run, (variant, _) in enumerate(experiment.runs):
        if all(experiment.wiring(stage).symmetric for stage in variant.stages):
            assert (error[:, run] <= 2e-5).all(), variant


@given(mixed())
@briefly(7)
def test_tying_holds_for_any_variants(experiment):
    """Every run has the parameters of its wiring and no others, before and after training."""
    for n_steps in (0, experiment.training.steps):
        result = trained(experiment, n_steps)
        for (variant, _), own in zip(experiment.runs, result.parameters, strict=True):
            early = n_steps == 0 and experiment.tie_step(variant) > 0
            wiring = experiment.wiring(variant.stages[0 if early else -1])
            outside = {"W_E", "b_E", "W_U", "b_U", "W_pos"}
            outside |= {name for name in own if name[-3:] in ("_in", "out") or "ln" in name}
            found = own.keys() - outside
            assert found == set(wiring.parameters()), variant


# 6. Determinism: the same experiment gives the same bits


@every_kind
def test_determinism_of_two_trainings(kind):
    """All runs, all numbers."""
    experiment = tiny(kind, n_layers=2, d_mlp=7, steps=12)
    assert all_bits(trained(experiment)) == all_bits(trained(experiment))


def test_determinism_does_not_depend_on_the_state_of_torch():
    """Global seeds and what was drawn before do not matter."""
    experiment = Experiment(n_seeds=2, steps=7, **TINY)
    torch.manual_seed(1)
    first = all_bits(trained(experiment))
    torch.manual_seed(2)
    assert all_bits(trained(experiment)) == first


@every_kind
def test_determinism_does_not_depend_on_the_threads_of_torch(kind, threads):
    """The caller may set any number of threads, at default sizes and for a lone run."""
    found = []
    for n_threads in (1, 2):
        threads(n_threads)
        lone = Experiment(task=kind, sharing="QKV", n_seeds=1, n_eval=64)
        found.append(all_bits(trained(lone, 3)))
    assert found[0] == found[1]


def test_determinism_does_not_depend_on_the_number_of_workers(monkeypatch):
    """Cohorts may be trained one after another or at the same time."""
    experiment = Experiment(n_seeds=5, steps=20, **TINY)
    expected = all_bits(trained(experiment))
    for n_workers in (1, 2, 5):
        monkeypatch.setattr(training_module, "n_cores", lambda n=n_workers: n)
        assert all_bits(trained(experiment)) == expected


def test_determinism_through_link_and_json():
    """An experiment that was written and read trains to the same bits."""
    experiment = Experiment(
        task="mutual", sharing=["Q=V", "Q=K"], learning_rate=0.1 / 3, n_seeds=2, steps=20, **TINY
    )
    expected = all_bits(trained(experiment))
    for text in (experiment.to_text(), experiment.to_json()):
        assert all_bits(trained(from_text(text))) == expected


@every_kind
def test_determinism_of_every_kind_through_link_and_json(kind):
    """Blocks, schedules, stocks and phases are all told."""
    experiment = tiny(kind, sharing=["Q=K", "QKV tie=K=V"], schedule="cosine", clip=0.25)
    expected = all_bits(trained(experiment))
    for text in (experiment.to_text(), experiment.to_json()):
        assert all_bits(trained(from_text(text))) == expected


@every_kind
def test_looking_changes_no_number(kind):
    """A snapshot at every step, streaming, and one long advance end in the same bits."""
    experiment = tiny(kind, steps=20, evaluate_every=7)
    expected = trained(experiment)
    watched = Training(experiment, "cpu")
    while not watched.finished:
        watched.advance(1)
        watched.snapshot()
    assert all_bits(watched.result()) == all_bits(expected)
    *_, last = stream(experiment, "cpu")
    assert last.eval_steps.tolist() == expected.snapshot.eval_steps.tolist()
    for name in METRICS:
        assert last.history[name].tobytes() == expected.snapshot.history[name].tobytes()


def test_the_cadence_of_evaluations_changes_no_weight():
    """Evaluating more often draws nothing from the training data."""
    one, other = (
        trained(Experiment(n_seeds=2, steps=20, evaluate_every=every, **TINY)) for every in (1, 20)
    )
    for often, once in zip(one.parameters, other.parameters, strict=True):
        assert all(np.array_equal(often[name], once[name]) for name in once)


# 7. Round trip: from_text(to_text(e)) == e


@st.composite
def experiments(draw):
    """Any allowed experiment: settings are drawn from their own bounds."""
    task = draw(st.sampled_from(list(TASKS)))
    values = {}
    for name, setting in settings_of(task).items():
        if setting.kind is bool:
            values[name] = st.booleans()
        elif setting.choices:
            values[name] = st.sampled_from(setting.choices)
        elif setting.kind is float:
            values[name] = st.floats(setting.low, setting.high)
        else:
            step = setting.multiple_of or 1
            steps = st.integers(int(setting.low) // step, int(setting.high) // step)
            values[name] = steps.map(step.__mul__)
    given = draw(st.fixed_dictionaries({}, optional=values))
    sharing = draw(st.lists(st.sampled_from(Sharing) | any_variant, min_size=1, max_size=5))
    while given or sharing:
        try:
            return Experiment(task=task, sharing=sharing, **given)
        except InvalidExperiment as error:  # settings that do not go together
            named = {name for p in error.problems for name in (p.field, *p.others)}
            sharing = sharing[: -1 if "sharing" in named else None]
            kept = {name: value for name, value in given.items() if name not in named}
            assume(sharing and ("sharing" in named or kept != given))
            given = kept
    return Experiment(task=task)


NEW = {
    "blocks": "standard",
    "schedule": "cosine",
    "warm_up": 0.125,
    "clip": 0.1 / 3,
    "n_train": 96,
    "earlier_steps": 7,
    "n_eval": 2048,
    "positions": "learned_plus",
}
"""Settings that came later than the first links."""


@pytest.mark.parametrize("name", NEW)
def test_every_later_setting_is_told(name):
    """In the link by its name and value, in JSON, and both read back."""
    task = "transfer" if name == "earlier_steps" else "directed"
    experiment = Experiment(task=task, **{name: NEW[name]})
    assert experiment.settings()[name] == NEW[name]
    assert f"{name}={NEW[name]}" in experiment.to_text()
    assert json.loads(experiment.to_json())[name] == NEW[name]
    for text in (experiment.to_text(), experiment.to_json()):
        assert from_text(text).settings()[name] == NEW[name]
        assert from_text(text) == experiment
    assert experiment.hash != Experiment(task=task).hash


@given(experiments())
@briefly(100)
def test_round_trip_through_the_link(experiment):
    """As text with and without a question mark, and as parameters."""
    assert from_text(experiment.to_text()) == experiment
    assert from_text("?" + experiment.to_text()) == experiment
    assert from_params(experiment.to_params()) == experiment


@given(experiments())
@briefly(100)
def test_round_trip_through_json(experiment):
    """The canonical text, whatever its white space and order."""
    text = experiment.to_json()
    assert from_text(text) == experiment
    assert from_text(text).to_json() == text
    shuffled = list(json.loads(text).items())
    random.Random(0).shuffle(shuffled)
    assert from_text("\n " + json.dumps(dict(shuffled), indent=2)) == experiment


@given(experiments())
def test_round_trip_through_settings(experiment):
    """Flat settings, and the hash with them."""
    again = Experiment(**experiment.settings())
    assert again == experiment
    assert again.hash == experiment.hash


@given(experiments())
def test_links_name_only_what_differs(experiment):
    """No default value in a link, and no text longer than it must be."""
    default = Experiment(task=experiment.task.name).settings()
    changed = {name for name, value in experiment.settings().items() if value != default[name]}
    if experiment.task.name != Experiment().task.name:
        changed.add("task")
    assert set(experiment.to_params()) - {"v"} == changed


@given(experiments(), experiments())
def test_different_experiments_have_different_texts(one, other):
    """Link, JSON and hash agree on what is the same."""
    same = one == other
    assert (one.to_text() == other.to_text()) == same
    assert (one.to_json() == other.to_json()) == same
    assert (one.hash == other.hash) == same


@given(experiments(), st.data())
def test_a_broken_text_names_the_field(experiment, data):
    """One wrong value or one unknown name, in the link and in JSON."""
    name = data.draw(st.sampled_from([*sorted(experiment.settings()), "colour", "v"]))
    flat = {**experiment.settings(), name: "wrong"}
    flat["sharing"] = flat["sharing"] if name == "sharing" else ",".join(flat["sharing"])
    link = "&".join(f"{key}={value}" for key, value in flat.items())
    for text in (link, json.dumps(flat)):
        with pytest.raises(InvalidExperiment) as caught:
            from_text(text)
        assert caught.value.problems[0].field == name
        assert f"{name}: got 'wrong'" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"d_head": 3',
        '{"d_head": 3} and more',
        '{"d_head": ' + "1" * 5000 + "}",
        '{"a":' * 10**5,
    ],
    ids=["open", "cut", "more", "long", "deep"],
)
def test_broken_json_says_so(text):
    """One short line that begins with the field, here the text or the setting itself."""
    with pytest.raises(InvalidExperiment, match=r"^(text|d_head): got ") as caught:
        from_text(text)
    assert len(str(caught.value)) < 300


@given(st.text())
@briefly(150)
def test_any_other_text_is_refused_in_our_words(text):
    """Whatever is pasted: an experiment or an error that names a field."""
    try:
        assert isinstance(from_text(text), Experiment)
    except InvalidExperiment as error:
        assert all(problem.allowed for problem in error.problems)  # noqa: PT017


@given(
    st.dictionaries(
        st.sampled_from(["task", "sharing", "d_head", "causal", "positions", "v"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
            max_leaves=3,
        ),
        min_size=1,
    )
)
@briefly(150)
def test_any_other_json_is_refused_in_our_words(flat):
    """Values of every kind in every field."""
    try:
        assert isinstance(from_text(json.dumps(flat)), Experiment)
    except InvalidExperiment as error:
        assert {problem.field for problem in error.problems} <= set(flat)  # noqa: PT017


# 9. Layering: the core imports no Streamlit; pages import no torch


def imports_of(path):
    """Names of all modules that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def imports(path, package):
    """Whether a file imports a package or a part of it."""
    return any(name.split(".")[0] == package for name in imports_of(path))


@pytest.mark.parametrize(
    "module",
    [
        "attnkit",
        "attnkit.experiment",
        "attnkit.analysis.export",
        "attnkit.tasks",
        "attnkit.training.results",
        "attnkit.analysis.reasons",
    ],
)
def test_what_pages_need_imports_neither_torch_nor_streamlit(module):
    """Nor does building and labelling an experiment: in a fresh process."""
    code = (
        f"import sys, {module}; from attnkit.experiment import Experiment; Experiment().to_text();"
        "print(*sorted({'torch', 'streamlit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_only_the_interface_imports_streamlit():
    """No file of the package outside of attnkit/ui."""
    package = ROOT / "attnkit"
    core = [path for path in package.rglob("*.py") if package / "ui" not in path.parents]
    assert len(core) > 10
    assert [path.name for path in core if imports(path, "streamlit")] == []


def test_pages_import_no_torch():
    """Neither the dashboard nor a page, nor what they are built of."""
    pages = [ROOT / "dashboard.py", *(ROOT / "pages").glob("*.py")]
    pages += [
        *(ROOT / "attnkit" / "ui").rglob("*.py"),
        *(ROOT / "attnkit" / "figures").glob("*.py"),
    ]
    modules = (
        "torch",
        "attnkit.model",
        "attnkit.model.model",
        "attnkit.training",
        "attnkit.training.training",
        "attnkit.training.metrics",
    )
    for path in pages:
        if path.exists():
            assert not set(modules) & set(imports_of(path)), path.name
            assert not imports(path, "torch"), path.name


def test_the_public_interface_is_what_it_says():
    """Every name of `__all__` is there, none twice, and no other is promised."""
    assert len(set(attnkit.__all__)) == len(attnkit.__all__)
    assert {"Experiment", "Result", "Snapshot", "TASKS", "from_text", "stream", "train"} <= set(
        attnkit.__all__
    )
    assert all(
        getattr(attnkit, name).__module__.startswith("attnkit.")
        for name in attnkit.__all__
        if name not in ("CATALOGUE", "TASKS")
    )
    assert attnkit.TASKS is TASKS


def test_an_unknown_public_name_is_an_attribute_error():
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'Attention'"):
        attnkit.Attention  # noqa: B018
