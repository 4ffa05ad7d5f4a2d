"""Sharing: tied roles are one parameter, and queries that are keys give symmetric scores.

The parameter of a tied role is absent, not copied; and it learns from all its roles.
"""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import tiny
from random_experiments import TINY, mixed, sizes
from searching import briefly
from torch.testing import assert_close
from trained_runs import every_kind, one_cohort, trained

from attnkit.experiment.experiment import Experiment
from attnkit.model.initial import generator_for
from attnkit.model.model import Model
from attnkit.training.data import stack
from attnkit.variants.sharing import ROLES, Sharing


@given(mixed(positions="none"))
@briefly(7)
def test_any_variants_keep_what_they_share(experiment):
    """Parameters are those of the wiring, before and after; symmetric scores stay so."""
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


@every_kind
def test_symmetry_holds_at_every_evaluation(kind):
    """Scores of Q=K and Q=K=V stay symmetric during training, and those of others never are."""
    sharing = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]
    experiment = tiny(
        kind, sharing=sharing, n_seeds=1, n_heads=3, n_layers=2, steps=8, evaluate_every=4
    )
    history = trained(experiment).snapshot.history
    error, symmetry = history["symmetry_error"], history["score_symmetry"]
    symmetric = np.array([variant.sharing.symmetric for variant, _ in experiment.runs])
    assert len(error) == 3
    assert (error[:, symmetric] <= 1e-5).all()
    assert (error[:, ~symmetric] > 0.1).all()
    assert (symmetry[:, symmetric] >= 1 - 1e-5).all()
    assert (symmetry[:, ~symmetric] < 0.99).all()


def copy_weights(source, target):
    """Copy the weights of every run into an untied model with the same number of runs."""
    for run in range(source.n_runs):
        own, theirs = source.run_parameters(run), target.run_parameters(run)
        owner = source.forms[run // len(source.seeds)].sharing.owner
        for name, value in theirs.items():
            value.copy_(own[name[:-1] + owner(name[-1]) if name[-1] in ROLES else name])


@given(sizes(), st.sampled_from(Sharing))
@briefly(12)
def test_a_tied_layer_equals_an_untied_one_with_copied_weights(experiment, sharing):
    """At any size, trained; the logits are those of QKV."""
    training = one_cohort(experiment.replace(sharing=[sharing]))
    training.advance(2)
    tied = training.cohorts[0].model
    untied = Model(experiment.replace(sharing=["QKV"]), [s + 5 for s in tied.seeds], tied.device)
    copy_weights(tied, untied)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.stack([tied.task.make_examples(3, generator).tokens for _ in tied.seeds])
    assert_close(tied.logits(tokens), untied.logits(tokens), rtol=1e-5, atol=1e-5)


def test_a_tied_gradient_is_the_sum_of_its_roles():
    """The gradient of a tied parameter is the sum of those of QKV with equal weights."""
    cpu = torch.device("cpu")
    tied, untied = (Model(Experiment(sharing=s, **TINY), [0], cpu) for s in ("Q=K=V", "QKV"))
    copy_weights(tied, untied)
    examples = stack([tied.task.draw(16, generator_for(0, "test"), held_out=False)], cpu)
    for model in (tied, untied):
        model.differentiate(examples.tokens, examples.labels)
    of_tied, of_untied = (model.run_parameters(0, model.gradient) for model in (tied, untied))
    assert_close(of_tied["0.W_Q"], sum(of_untied[f"0.W_{role}"] for role in ROLES))
