"""Independence: a run's result does not depend on which other runs train beside it.

Bits are compared on a CPU, as bytes: equal numbers that were rounded differently do not pass.
"""

import random

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from kinds import NEEDS_ONE_SIDE, tiny
from random_experiments import COMPOSED, TINY, mixed, sizes
from searching import briefly
from trained_runs import bits, differing_names, every_kind, one_cohort, trained

from attnkit.experiment.experiment import Experiment
from attnkit.variants import CATALOGUE
from attnkit.variants.sharing import Sharing


def check_independence(experiment, n_steps, n_alone=100, seed=0):
    """Check that every run has the same bits beside all others, in its cohort, and alone.

    Alone so many of them, drawn by a seed.
    """
    together = one_cohort(experiment)
    together.advance(n_steps)
    together, in_cohorts = together.result(), trained(experiment, n_steps)
    alone = random.Random(seed).sample(range(experiment.n_runs), min(n_alone, experiment.n_runs))
    for run, (sharing, first_seed) in enumerate(experiment.runs):
        expected = bits(in_cohorts, run)
        assert not differing_names(bits(together, run), expected), (sharing, first_seed)
        if run in alone:
            single = experiment.replace(sharing=[sharing], n_seeds=1, first_seed=first_seed)
            found = bits(trained(single, n_steps), 0)
            assert not differing_names(found, expected), (sharing, first_seed)


@every_kind
def test_independence_of_every_kind(kind):
    """Runs are independent to their last step, through all phases, ties and repeated examples."""
    sharing = [*Sharing, "QKV tie=K=V tie_at=0.25", "Q=K tie=Q=K=V"]
    check_independence(tiny(kind, sharing=sharing), 8, 4)


@pytest.mark.parametrize(
    ("task", "n_steps"),
    [
        ("directed", 30),
        pytest.param("dictionary", 5, marks=pytest.mark.long(seconds=3)),
        pytest.param("reverse", 1, marks=pytest.mark.long(seconds=3)),
        pytest.param("language", 1, marks=pytest.mark.long(seconds=3)),
    ],
)
def test_independence_at_default_sizes(task, n_steps):
    """Runs of five sharings and two seeds have the same bits together and alone."""
    check_independence(Experiment(task=task, n_seeds=2, n_eval=48), n_steps)


@given(sizes(), st.integers(0, 99))
@briefly(5)
@example(Experiment(d_model=16, n_heads=5, d_head=9, n_seeds=2, **TINY), 0)
@example(Experiment(d_model=48, n_heads=1, d_head=7, d_mlp=11, n_seeds=1, **TINY), 0)
def test_independence_at_any_size(experiment, seed):
    """Runs are independent at all shapes, also at widths where BLAS chooses other kernels."""
    check_independence(experiment, 4, 4, seed)


LONGER = {"n_layers": 3, "steps": 4, "evaluate_every": 2}
DECENT = {"blocks": "standard", "clip": 0.1, "n_train": 48}


@given(mixed(), st.integers(0, 99))
@briefly(3)
@example(Experiment(sharing=COMPOSED, n_seeds=2, **LONGER, **DECENT, **TINY), 0)
def test_independence_of_any_variants(experiment, seed):
    """Composed variants have the same bits together, in their cohorts and alone."""
    check_independence(experiment, 4, 8, seed)


@pytest.mark.parametrize("kind", ["phonebook", "dictionary"])
def test_the_whole_catalogue_trains_as_one_cohort(kind, seed):
    """Every run has the same bits beside all variants that one side or two allow, and alone."""
    left_out, given = set(), {}
    if kind == "dictionary":
        left_out = NEEDS_ONE_SIDE
        given = {"n_heads": 2, "blocks": "standard", "d_mlp": 7, "clip": 0.1}
    variants = [n.variant for n in CATALOGUE.values() if not left_out & n.variant.given.keys()]
    check_independence(tiny(kind, sharing=variants, n_seeds=1, **given), 2, 8, seed)


@pytest.mark.parametrize(
    ("name", "poison"), [("W_pos", torch.nan), ("0.W_Q", torch.inf), ("1.W_in", torch.nan)]
)
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
        if metric in ("longer_accuracy", "mass_on_reverse"):  # not of this task
            continue
        assert np.isnan(values[:, run]).tolist() == [False, False, True, True, True], metric
    assert np.isnan(poisoned.snapshot.head_symmetry[run]).all()
    assert np.isnan(poisoned.snapshot.slice_accuracy[run]).all()
    for other in {*range(experiment.n_runs)} - {run}:
        assert not np.isnan(poisoned.snapshot.head_symmetry[other]).any()
        assert not np.isnan(poisoned.snapshot.slice_accuracy[other]).all()
        assert not differing_names(bits(poisoned, other), bits(healthy, other))
