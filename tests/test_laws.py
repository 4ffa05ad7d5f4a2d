"""Laws of training: the same bits again, whoever trains beside; the same data; ties that hold.

Bits are compared on a CPU, as bytes: equal numbers that were rounded differently do not pass.
"""

import random

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from kinds import KINDS, tiny
from random_experiments import COMPOSED, TINY, mixed, sizes
from same import assert_same
from searching import briefly
from torch.testing import assert_close
from trained_runs import trained

from attnkit.experiment.experiment import Experiment, from_text
from attnkit.model.model import Model
from attnkit.tasks import TASKS
from attnkit.tasks.base import Task
from attnkit.training import Training, stream
from attnkit.training import training as training_module
from attnkit.training.engine import kernel_knows
from attnkit.variants.sharing import Sharing

every_kind = pytest.mark.parametrize("kind", KINDS)


def bits(result, run):
    """Return all numbers of one run as bytes, by name, without the heads that it lacks."""
    snapshot = result.snapshot
    variant, _ = result.experiment.runs[run]
    n_heads = result.experiment.wiring(variant).sizes.n_heads
    arrays = {f"parameter {name}": value for name, value in result.parameters[run].items()}
    arrays |= {name: values[:, run] for name, values in snapshot.history.items()}
    arrays["head_symmetry"] = snapshot.head_symmetry[run, :, :n_heads]
    arrays["probe answers"] = snapshot.probe.answers[run]
    arrays["probe pattern"] = snapshot.probe.pattern[run, :, :n_heads]
    if snapshot.probe.scores is not None:
        arrays["probe scores"] = snapshot.probe.scores[run, :, :n_heads]
    return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}


def check_bits(found, run, other, other_run, told=""):
    """Check that two runs have the same numbers; name those that differ."""
    one, two = bits(found, run), bits(other, other_run)
    assert [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)] == [], told


def check_all_bits(found, other):
    """Check that all runs of two results have the same numbers."""
    assert found.experiment.n_runs == other.experiment.n_runs
    for run in range(found.experiment.n_runs):
        check_bits(found, run, other, run)


@every_kind
def test_an_experiment_trains_to_the_same_bits_again(kind, threads):
    """From its link or JSON, whatever torch's seed; a lone run also with two threads of torch."""
    experiment = tiny(
        kind, n_layers=2, steps=6, sharing=["Q=K", "QKV tie=K=V"], schedule="cosine", clip=0.25
    )
    expected = trained(experiment)
    for seed, text in enumerate((experiment.to_text(), experiment.to_json())):
        torch.manual_seed(seed)
        check_all_bits(trained(from_text(text)), expected)
    lone, found = Experiment(task=kind, sharing="QKV", n_seeds=1, n_eval=64), []
    for n_threads in (1, 2):
        threads(n_threads)
        found.append(trained(lone, 3))
    check_all_bits(*found)


@every_kind
def test_looking_changes_no_number(kind):
    """Snapshots at every step, streaming and more evaluations end in the bits of one advance."""
    experiment = tiny(kind, steps=10, evaluate_every=4)
    expected = trained(experiment)
    watched = Training(experiment, "cpu")
    while not watched.finished:
        watched.advance(1)
        watched.snapshot()
    check_all_bits(watched.result(), expected)
    *_, last = stream(experiment, "cpu")
    assert_same(last.history, expected.snapshot.history)
    assert_same(trained(experiment.replace(evaluate_every=1)).parameters, expected.parameters)


def one_cohort(experiment):
    """Return a training that computes all runs of an engine in one batch, as a GPU would."""

    def whole(experiment, device, engine):
        parts = {}
        for variant in experiment.sharing:
            known = engine == "kernel" and kernel_knows(experiment, variant)
            parts.setdefault(known, []).append(variant)
        seeds = list(experiment.seeds)
        return [training_module.CohortPlan(tuple(some), seeds) for some in parts.values()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_module, "plan_cohorts", whole)
        return Training(experiment, "cpu")


def check_independence(experiment, n_steps, n_alone=100, seed=0):
    """Check that runs have the same bits beside all, in their cohort, and, drawn ones, alone."""
    together = one_cohort(experiment)
    together.advance(n_steps)
    together, in_cohorts = together.result(), trained(experiment, n_steps)
    alone = random.Random(seed).sample(range(experiment.n_runs), min(n_alone, experiment.n_runs))
    for run, (sharing, first_seed) in enumerate(experiment.runs):
        check_bits(together, run, in_cohorts, run, (sharing, first_seed))
        if run in alone:
            single = experiment.replace(sharing=[sharing], n_seeds=1, first_seed=first_seed)
            check_bits(trained(single, n_steps), 0, in_cohorts, run, (sharing, first_seed))


@every_kind
def test_independence_of_every_kind(kind):
    """Runs are independent to their last step, through all phases, ties and repeated examples."""
    sharing = [*Sharing, "QKV tie=K=V tie_at=0.25", "Q=K tie=Q=K=V"]
    check_independence(tiny(kind, sharing=sharing), 8, 4)


SHARED = {"n_layers": 3, "steps": 4, "evaluate_every": 2, "n_seeds": 2, **TINY}


@given(sizes() | mixed(), st.integers(0, 99))
@briefly(5)
@example(Experiment(n_seeds=2, n_eval=48), 0)
@example(Experiment(d_model=48, n_heads=1, d_head=7, d_mlp=11, n_seeds=1, **TINY), 0)
@example(Experiment(sharing=COMPOSED, blocks="standard", clip=0.1, n_train=48, **SHARED), 0)
def test_independence_at_any_size_and_of_any_variants(experiment, seed):
    """Also at widths where BLAS chooses other kernels, and of variants composed of any words."""
    check_independence(experiment, 4, 4, seed)


@pytest.mark.parametrize(("name", "poison"), [("W_pos", torch.nan), ("0.W_Q", torch.inf)])
def test_a_poisoned_run_is_marked_and_leaves_its_neighbours_alone(name, poison):
    """A lost run is found at the next evaluation; all other runs keep their bits."""
    sizes = {"n_layers": 2, "n_heads": 2, "d_mlp": 7, "positions": "learned", "n_seeds": 2}
    steps = {"steps": 20, "evaluate_every": 5, "n_train": 32, "clip": 1.0}
    experiment = tiny("mqar", **sizes, **steps)
    healthy = trained(experiment)
    training = one_cohort(experiment)
    training.advance(7)
    training.cohorts[0].model.run_parameters(run := 3)[name].fill_(poison)
    training.advance(13)
    poisoned = training.result()
    expected = [10 if other == run else -1 for other in range(experiment.n_runs)]
    assert poisoned.snapshot.diverged_at.tolist() == expected
    assert poisoned.table["diverged_at"].iloc[run] == 10
    for metric, values in poisoned.snapshot.history.items():
        if metric not in ("longer_accuracy", "mass_on_reverse"):  # not of this task
            assert np.isnan(values[:, run]).tolist() == [False, False, True, True, True], metric
    assert np.isnan(poisoned.snapshot.head_symmetry[run]).all()
    assert np.isnan(poisoned.snapshot.slice_accuracy[run]).all()
    for other in {*range(experiment.n_runs)} - {run}:
        assert not np.isnan(poisoned.snapshot.slice_accuracy[other]).all()
        check_bits(poisoned, other, healthy, other)


@given(mixed())
@briefly(7)
def test_pairing_of_initial_numbers(experiment):
    """A parameter of one name and shape starts with the same numbers in all runs of a seed only."""
    drawn = {}
    for stage in (experiment.replace(sharing=[v]) for v in experiment.sharing):
        model = Model(stage, experiment.seeds, torch.device("cpu"))
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
    for (seed, name, shape), value in drawn.items():
        other = drawn.get((seed + 1, name, shape))
        assert other is None or "W_" not in name or not torch.equal(value, other)


@every_kind
def test_pairing_of_data(kind, monkeypatch):
    """Every sharing of a seed sees the same examples; two seeds share the probe alone."""
    seen = []

    def recording(draw):
        def recorded(self, n_examples, generator, *, held_out):
            examples = draw(self, n_examples, generator, held_out=held_out)
            seen.append((held_out, examples.tokens.numpy().tobytes()))
            return examples

        return recorded

    def drawn(sharing, **given):
        seen.clear()
        trained(tiny(kind, sharing=sharing, **given))
        return list(seen)

    for task in {Task, *(task for task in TASKS.values() if "draw" in vars(task))}:
        monkeypatch.setattr(task, "draw", recording(task.draw))
    one, other = (drawn("QKV", n_seeds=1, first_seed=seed) for seed in (0, 1))
    assert drawn("Q=K=V", n_seeds=1, first_seed=0) == one
    assert len(one) >= 3
    assert {*drawn(["QKV", "K=V", "Q=K=V"], n_seeds=2)} == {*one, *other}  # once per cohort
    shared = {*one} & {*other}
    assert shared
    assert all(held_out for held_out, _ in shared)


@given(mixed(positions="none"))
@briefly(7)
def test_any_variants_keep_what_they_share(experiment):
    """The parameter of a tied role is absent, not copied, and symmetric scores stay so."""
    for n_steps in (0, experiment.training.steps):
        result = trained(experiment, n_steps)
        for (variant, _), own in zip(experiment.runs, result.parameters, strict=True):
            early = n_steps == 0 and experiment.tie_step(variant) > 0
            wiring = experiment.wiring(variant.stages[0 if early else -1])
            outside = {"W_E", "b_E", "W_U", "b_U", "W_pos"}
            outside |= {name for name in own if name[-3:] in ("_in", "out") or "ln" in name}
            assert own.keys() - outside == set(wiring.parameters()), variant
    error = result.snapshot.history["symmetry_error"]
    for run, (variant, _) in enumerate(experiment.runs):
        if all(experiment.wiring(stage).symmetric for stage in variant.stages):
            assert (error[:, run] <= 2e-5).all(), variant
            assert (result.snapshot.history["score_symmetry"][:, run] >= 1 - 1e-5).all()
