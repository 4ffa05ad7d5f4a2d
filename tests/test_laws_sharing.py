"""Sharing: tied roles are one parameter, and queries that are keys give symmetric scores.

The parameter of a tied role is absent, not copied.
"""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from kinds import tiny
from random_experiments import TINY, mixed
from searching import briefly
from trained_runs import every_kind, trained

from attnkit.experiment.experiment import Experiment
from attnkit.training import Training
from attnkit.variants.sharing import ROLES, Sharing

tied_sharings = pytest.mark.parametrize("sharing", [s for s in Sharing if s != Sharing.QKV])


@tied_sharings
@pytest.mark.parametrize("n_steps", [0, 11])
def test_tying_removes_the_parameter(sharing, n_steps):
    """A run has one parameter per class of tied roles, before and after training."""
    result = trained(Experiment(n_layers=2, d_mlp=7, n_seeds=2, **TINY), n_steps)
    shared = {"W_E", "W_U", *(f"{i}.W_{name}" for i in (0, 1) for name in ("O", "in", "out"))}
    attention = {f"{i}.W_{members[0]}" for i in (0, 1) for members in sharing.classes}
    for (run_sharing, _), own in zip(result.experiment.runs, result.parameters, strict=True):
        if run_sharing == sharing:
            assert set(own) == shared | attention


@tied_sharings
@pytest.mark.parametrize("n_steps", [0, 11])
def test_tied_roles_use_one_matrix(sharing, n_steps):
    """Tied roles have identical weights, and all other roles have different ones."""
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


@every_kind
@pytest.mark.parametrize("n_heads", [1, 3])
def test_symmetry_holds_at_every_evaluation(kind, n_heads):
    """Scores of Q=K and Q=K=V stay symmetric during training, and those of others never are."""
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
    """Scores are symmetric at every evaluation if the variant's wiring says so."""
    result = trained(experiment)
    error = result.snapshot.history["symmetry_error"]
    for run, (variant, _) in enumerate(experiment.runs):
        if all(experiment.wiring(stage).symmetric for stage in variant.stages):
            assert (error[:, run] <= 2e-5).all(), variant
