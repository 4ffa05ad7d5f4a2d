"""Sharing: tied roles are one parameter, and queries that are keys give symmetric scores.

The parameter of a tied role is absent, not copied.
"""

import numpy as np
from hypothesis import given
from kinds import tiny
from random_experiments import mixed
from searching import briefly
from trained_runs import every_kind, trained

from attnkit.variants.sharing import ROLES, Sharing

# text, classes, owner of Q K V, symmetric
PROPERTIES = [
    ("QKV", ["Q", "K", "V"], "QKV", False),
    ("Q=K", ["QK", "V"], "QQV", True),
    ("K=V", ["Q", "KV"], "QKK", False),
    ("Q=V", ["QV", "K"], "QKQ", False),
    ("Q=K=V", ["QKV"], "QQQ", True),
]


def test_properties_are_those_worked_out_by_hand():
    """All five in their order, each with a sentence of its own."""
    found = [
        (
            sharing.value,
            ["".join(members) for members in sharing.classes],
            "".join(sharing.owner(role) for role in ROLES),
            sharing.symmetric,
        )
        for sharing in Sharing
    ]
    assert found == PROPERTIES
    assert len({each.meaning for each in Sharing}) == 5


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
    experiment = tiny(kind, sharing=list(Sharing), n_seeds=1, n_heads=3, n_layers=2)
    history = trained(experiment).snapshot.history
    error, symmetry = history["symmetry_error"], history["score_symmetry"]
    symmetric = np.array([variant.sharing.symmetric for variant, _ in experiment.runs])
    assert len(error) == 5
    assert (error[:, symmetric] <= 1e-5).all()
    assert (error[:, ~symmetric] > 0.1).all()
    assert (symmetry[:, symmetric] >= 1 - 1e-5).all()
    assert (symmetry[:, ~symmetric] < 0.99).all()
