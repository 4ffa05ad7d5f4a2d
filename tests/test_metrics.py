"""Metrics against definitions written out plainly, at any shape, and special cases by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from attnkit.tasks import NOTHING
from attnkit.training import metrics

seeds = st.integers(0, 999).map(lambda seed: torch.Generator().manual_seed(seed))
sizes = st.integers(1, 4)


@given(sizes, sizes, sizes, st.integers(2, 5), st.integers(1, 3), seeds)
def test_answers_are_counted_one_by_one(n_runs, n_batch, n_answers, n_classes, n_slices, generator):
    """Accuracy, loss and slices are means over what is asked; an answer must stand out."""
    shape = (n_runs, n_batch, n_answers)
    logits = torch.randint(3, (*shape, n_classes), generator=generator).float()  # with ties
    labels = torch.randint(NOTHING, n_classes, shape, generator=generator)
    labels[:, 0, 0] = 1
    slices = torch.randint(NOTHING, n_slices, shape, generator=generator)
    found = metrics.accuracy(logits, labels), metrics.loss(logits, labels)
    found = torch.stack([value.double() for value in found], 1)
    by_slice = metrics.slice_accuracy(logits, labels, slices, n_slices)
    for run in range(n_runs):
        groups = {}
        for example, answer in np.ndindex(n_batch, n_answers):
            label, own = int(labels[run, example, answer]), logits[run, example, answer].tolist()
            if label != NOTHING:
                right = all(own[label] > x for c, x in enumerate(own) if c != label)
                lost = math.log(sum(map(math.exp, own))) - own[label]
                for group in ("all", int(slices[run, example, answer])):
                    groups.setdefault(group, []).append((right, lost))
        assert_close(found[run].float(), torch.tensor(groups["all"]).double().mean(0).float())
        expected = [
            np.mean([r for r, _ in groups[g]]) if g in groups else math.nan for g in range(n_slices)
        ]
        assert_close(by_slice[run], torch.tensor(expected).double(), equal_nan=True)


def test_an_answer_of_nan_is_wrong():
    """NaN anywhere among the logits of a question makes its answer wrong."""
    broken = [math.nan, 1.0]
    logits, labels = torch.tensor([[[broken, broken, [2.0, 1.0]]]]), torch.tensor([[[0, 1, 0]]])
    assert metrics.accuracy(logits, labels).item() == pytest.approx(1 / 3)


def test_symmetry_by_hand():
    """Scores that are all zero are symmetric; of a run that diverged nothing is known."""
    for scores, symmetry, error in (
        ([[1.0, 2.0], [0.0, 1.0]], 2 / 6, 1),  # mirrored 1 + 0 + 0 + 1 over 1 + 4 + 0 + 1
        ([[0.0, 0.0], [0.0, 0.0]], 1.0, 0),
        ([[math.nan] * 2] * 2, math.nan, math.nan),
    ):
        given = torch.tensor(scores)
        assert metrics.score_symmetry(given).item() == pytest.approx(symmetry, nan_ok=True)
        assert metrics.symmetry_error(given[None]).item() == pytest.approx(error, nan_ok=True)


@given(st.integers(2, 7), seeds, st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_symmetry_of_scores_is_the_definition(n, generator, factor, random):
    """The score is (‖S_s‖² − ‖S_a‖²) / ‖S‖², the error the worst of a run.

    Neither a factor of either sign, nor the transpose, nor another order of positions counts.
    """
    scores = torch.randn(3, 2, n, n, generator=generator)
    even, odd = (scores + scores.mT) / 2, (scores - scores.mT) / 2
    parts = [part.square().sum((-2, -1)) for part in (even, odd, scores)]
    found, error = metrics.score_symmetry(scores), metrics.symmetry_error(scores)
    assert_close(found, (parts[0] - parts[1]) / parts[2], rtol=0, atol=1e-5)
    assert_close(error, 2 * odd.abs().amax((1, 2, 3)) / scores.abs().amax((1, 2, 3)))
    assert_close(metrics.score_symmetry(even), torch.ones(3, 2))
    order = random.sample(range(n), n)
    for changed in (scores * -factor, scores.mT, scores[..., order][..., order, :]):
        assert_close(metrics.score_symmetry(changed), found, rtol=0, atol=1e-5)
        assert_close(metrics.symmetry_error(changed), error)


@given(st.integers(1, 5), st.integers(2, 31), seeds, st.floats(1e-3, 1e3))
def test_metrics_of_weights_are_those_of_their_product(d_head, d_model, generator, factor):
    """With W_Q W_Kᵀ formed, and the norms of its rows and columns."""
    w_q, w_k = torch.randn(2, 3, d_model, d_head, generator=generator).double().exp()
    product, sums = w_q @ w_k.mT, []
    assert_close(metrics.weight_symmetry(w_q, w_k), metrics.score_symmetry(product))
    for axis in (2, 1):
        norms = product.norm(dim=axis)
        limit = norms.mean(1, keepdim=True) + 2 * norms.std(1, correction=0, keepdim=True)
        sums.append((norms - limit).clamp_min(0).sum(1))
    expected = ((sums[0] - sums[1]) / (sums[0] + sums[1])).nan_to_num(0.0)
    found = metrics.directionality(w_q, w_k)
    assert_close(found, expected, rtol=0, atol=1e-3)
    assert_close(metrics.directionality(w_k, w_q), -found, rtol=0, atol=1e-9)
    assert_close(metrics.directionality(-factor * w_q, w_k), found, rtol=0, atol=1e-3)
    assert_close(metrics.weight_symmetry(w_q, w_q), torch.ones(3).double())
    assert metrics.directionality(w_q, w_q).tolist() == [0, 0, 0]


def test_directionality_where_nothing_stands_out():
    """Zeros have no direction, nor has an orthogonal matrix, whose norms differ by rounding.

    Of nine ones and 11 the last stands out: mean 2, deviation 3. A matrix of zeros is symmetric.
    """
    one = torch.ones(10, 1)
    one[0] = 11.0
    assert metrics.directionality(one, torch.ones(10, 1)).item() == 1
    assert metrics.weight_symmetry(0 * one, one).item() == 1
    assert metrics.directionality(torch.zeros(5, 3), torch.ones(5, 3)).item() == 0
    orthogonal = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(1))).Q
    assert metrics.directionality(orthogonal, torch.eye(16)).item() == 0
    assert metrics.directionality(torch.full((5, 3), torch.nan), torch.ones(5, 3)).isnan()


@given(sizes, sizes, sizes, st.integers(1, 5), st.integers(3, 6), seeds)
def test_mass_at_agrees_with_a_loop(n_runs, n_batch, n_heads, n_answers, n_keys, generator):
    """The mean weight of the last rows on the named keys, of a square or of a rectangle."""
    pattern = torch.rand(n_runs, n_batch, n_heads, 5, n_keys, generator=generator)
    position = torch.randint(NOTHING, 3, (n_runs, n_batch, n_answers), generator=generator)
    for run, found in enumerate(metrics.mass_at(pattern, position).tolist()):
        picked = [
            pattern[run, b, h, 5 - n_answers + a, position[run, b, a]].item()
            for b, h, a in np.ndindex(n_batch, n_heads, n_answers)
            if position[run, b, a] != NOTHING
        ]
        expected = np.mean(picked) if picked else math.nan
        assert found == pytest.approx(expected, nan_ok=True)
