"""Skew parts: scores of Q=K with an antisymmetric part of a chosen rank and no new parameter."""

import pytest
import torch
from reference import TINY, check_formulas, embedded, norm, recorded_by, two_models
from torch.testing import assert_close

from attnkit.experiment import Experiment
from attnkit.training.engine import kernel_knows
from attnkit.variants import Variant


def scores_of(model):
    """Scores of the first layer in double precision, (b, h, i, j)."""
    return recorded_by(model)[0].scores[0].double()


@pytest.mark.parametrize("text", ["Q=K skew=2 positions=rope", "Q=K=I d_head=m/h skew=d"])
def test_compositions_compute_their_formula(text):
    """Answers and gradients are those of tests/reference.py, in two layers of two heads."""
    check_formulas(Experiment(sharing=text, n_layers=2, n_heads=2, d_head=6, **TINY))


@pytest.mark.parametrize("rank", [2, 4, 10])
def test_the_antisymmetric_part_has_the_chosen_rank(rank):
    """With 16 tokens and heads 10 wide, the rank of S − Sᵀ is that of the skew part."""
    model, _ = two_models(f"Q=K skew={rank}", "Q=K", n_entries=16, n_names=32, n_layers=1)
    scores = scores_of(model)
    found = torch.linalg.matrix_rank(scores - scores.mT, rtol=1e-4)
    assert (found == rank).all()


def test_a_skew_part_as_wide_as_the_key_gives_antisymmetric_scores():
    """S = −Sᵀ, so every token has the score 0 with itself."""
    model, _ = two_models("Q=K skew=d", "Q=K", n_layers=1)
    scores = scores_of(model)
    assert scores.abs().max() > 0.1
    assert_close(scores, -scores.mT, rtol=0, atol=1e-5)


def test_scores_are_those_of_the_three_parts():
    """With q = [s, a, b], a score is s_i·s_j + a_i·b_j − b_i·a_j over the root of the width."""
    model, _ = two_models("Q=K skew=4", "Q=K", n_layers=1, n_heads=1)
    q = norm(embedded(model)).double() @ model.run_parameters(0)["0.W_Q"].double()
    s, a, b = q.split([6, 2, 2], -1)
    expected = (s @ s.mT + a @ b.mT - b @ a.mT) / 10**0.5
    assert_close(scores_of(model)[:, 0], expected, rtol=1e-5, atol=1e-5)


def test_with_rotated_positions_purely_antisymmetric_scores_stay_so():
    """The exchange of both halves commutes with RoPE: S = −Sᵀ for all offsets."""
    model, _ = two_models("Q=K skew=d positions=rope", "Q=K", n_layers=1)
    scores = scores_of(model)
    assert scores.abs().max() > 0.1
    assert_close(scores, -scores.mT, rtol=0, atol=1e-5)


def test_a_skew_part_adds_no_parameter():
    """The parameters are those of the sharing, and start from the same numbers."""
    model, plain = two_models("Q=K=V skew=4", "Q=K=V")
    own, others = model.run_parameters(0), plain.run_parameters(0)
    assert own.keys() == others.keys()
    assert all(torch.equal(own[name], others[name]) for name in own)


def test_the_scores_do_not_count_as_symmetric():
    """The wiring says so, for metrics and pages."""
    experiment = Experiment(sharing=["Q=K", "Q=K skew=2"])
    symmetric = [experiment.wiring(variant).symmetric for variant in experiment.sharing]
    assert symmetric == [True, False]


def test_the_compiled_kernel_trains_it():
    """It needs no weights of its own, so the kernel computes it as a fixed exchange."""
    assert kernel_knows(Experiment(sharing=["Q=K skew=2"]), Variant("Q=K skew=2"))
