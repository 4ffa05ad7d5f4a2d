"""Metrics and intervals against their definitions, at any shape, and special cases by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from same import assert_same
from scipy import stats
from torch.testing import assert_close

from attnkit.tasks import NOTHING
from attnkit.training import metrics
from attnkit.training.statistics import (
    mean_interval,
    median_interval,
    paired_difference,
    standard_deviation,
)

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


def test_special_cases_by_hand():
    """NaN makes an answer wrong and a symmetry unknown; scores that are all zero are symmetric."""
    broken = [math.nan, 1.0]
    logits, labels = torch.tensor([[[broken, broken, [2.0, 1.0]]]]), torch.tensor([[[0, 1, 0]]])
    assert metrics.accuracy(logits, labels).item() == pytest.approx(1 / 3)
    for scores, symmetry, error in (
        ([[1.0, 2.0], [0.0, 1.0]], 2 / 6, 1),  # mirrored 1 + 0 + 0 + 1 over 1 + 4 + 0 + 1
        ([[0.0, 0.0], [0.0, 0.0]], 1.0, 0),
        ([[math.nan] * 2] * 2, math.nan, math.nan),
    ):
        given = torch.tensor(scores)
        assert metrics.score_symmetry(given).item() == pytest.approx(symmetry, nan_ok=True)
        assert metrics.symmetry_error(given[None]).item() == pytest.approx(error, nan_ok=True)
    one, ones = torch.ones(10, 1), torch.ones(10, 1)
    one[0] = 11.0
    assert metrics.weight_symmetry(0 * one, one).item() == 1
    orthogonal = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(1))).Q
    pairs = (one, ones), (0 * one, ones), (orthogonal, torch.eye(16))
    assert [metrics.directionality(*pair).item() for pair in pairs] == [1, 0, 0]
    assert metrics.directionality(math.nan * one, one).isnan()


@given(st.integers(2, 7), seeds, st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_symmetry_of_scores_is_the_definition(n, generator, factor, random):
    """The score is (‖S_s‖² − ‖S_a‖²) / ‖S‖², the error the worst of a run."""
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


VALUES = st.just(np.nan) | st.floats(-100, 100, allow_subnormal=False)
ROWS = hnp.arrays(float, st.tuples(st.integers(1, 3), st.integers(1, 7)), elements=VALUES)


def expected_of(values, level=0.95):
    """Mean, Student's limits and deviation of one row by scipy, NaN left out."""
    values = values[~np.isnan(values)]
    if len(values) < 2:  # one says nothing about the spread, none has no mean either
        return [*values, *[np.nan] * 4][:4]
    mean, error = values.mean(), stats.sem(values)
    limits = stats.t.interval(level, len(values) - 1, mean, error) if error else (mean, mean)
    return [mean, *limits, values.std(ddof=1)]


@given(ROWS, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_intervals_and_deviations_agree_with_scipy(values, level):
    """Intervals are those of every row without its gaps; paired ones are of the differences."""
    for rows, found in (
        (values, mean_interval(values, level)),
        (values - values[:, ::-1], paired_difference(values, values[:, ::-1], level)),
    ):
        expected = np.array([expected_of(row, level) for row in rows])
        told = np.stack([found.mean, found.low, found.high, standard_deviation(rows)], -1)
        np.testing.assert_allclose(told, expected, rtol=1e-9, atol=1e-9)
    assert_same(mean_interval(values), mean_interval(values, 0.95))
    many = np.full(3 * 10**5, 0.1, np.float32)  # they are averaged in double precision
    assert mean_interval(many).mean == pytest.approx(np.float32(0.1), rel=1e-12)


@given(hnp.arrays(float, st.integers(0, 40), elements=VALUES), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_interval_of_a_median_is_that_of_the_sign_test(values, level):
    """A limit is the value at which so many lie beyond it that a sign test does not refute it."""
    found, known = median_interval(values, level), np.sort(values[~np.isnan(values)])
    n = len(known)
    refuted = [k for k in range((n + 1) // 2) if 2 * stats.binom.cdf(k, n, 0.5) <= 1 - level]
    if not refuted:
        assert np.isnan([found.low, found.high]).all()
    else:
        assert (found.low, found.high) == (known[refuted[-1]], known[-1 - refuted[-1]])
        endless = median_interval(np.where(values > found.mean, np.inf, values), level)
        assert (endless.mean, endless.low) == (found.mean, found.low) or n % 2 == 0
    np.testing.assert_equal(found.mean, np.median(known) if n else np.nan)
