"""Metrics against hand-computed values, and their properties on random matrices."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from attnkit.tasks import NOTHING
from attnkit.training import metrics


@st.composite
def squares(draw):
    """A batch of random square matrices, (3, n, n)."""
    n = draw(st.integers(2, 7))
    return torch.randn(3, n, n, generator=torch.Generator().manual_seed(draw(st.integers(0, 999))))


def test_accuracy_by_hand():
    """Two of three questions are right in one run, and two of six in the other."""
    labels = torch.tensor([[[0, NOTHING, 1], [NOTHING, 1, NOTHING]], [[1, 1, 1], [1, 1, 0]]])
    answers = torch.tensor([[0, 0, 1], [0, 0, 0]])
    logits = torch.nn.functional.one_hot(answers, 2).float().expand(2, -1, -1, -1)
    assert_close(metrics.accuracy(logits, labels), torch.tensor([2 / 3, 2 / 6]).double())


def test_accuracy_counts_neither_ties_nor_nan():
    """An answer must stand out: all classes alike, or NaN anywhere, is wrong."""
    alike, broken = [0.0, 0.0], [math.nan, 1.0]
    logits = torch.tensor([[[alike, broken, broken, [2.0, 1.0]]]])
    labels = torch.tensor([[[0, 0, 1, 0]]])
    assert metrics.accuracy(logits, labels).tolist() == [0.25]


@st.composite
def asked(draw):
    """Logits, (r, b, a, c), and labels of which some are nothing, but never all of a run."""
    shape = [draw(st.integers(1, 3)) for _ in range(3)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    logits = torch.randn(*shape, 5, generator=generator)
    labels = torch.randint(NOTHING, 5, shape, generator=generator)
    labels[:, 0, 0] = 3
    return logits, labels


@given(asked())
def test_loss_is_that_of_torch_over_what_is_asked(given):
    """Each run's mean cross-entropy with `ignore_index`."""
    logits, labels = given
    for r, found in enumerate(metrics.loss(logits, labels)):
        expected = torch.nn.functional.cross_entropy(
            logits[r].flatten(0, 1), labels[r].flatten(), ignore_index=NOTHING
        )
        assert_close(found, expected)


@given(asked())
def test_what_is_not_asked_counts_for_nothing(given):
    """Other logits where nothing is asked change no number."""
    logits, labels = given
    others = torch.where((labels == NOTHING)[..., None], logits.roll(1, -1) - 5, logits)
    slices = labels.clamp_min(0) % 3
    for measure in (
        metrics.accuracy,
        metrics.loss,
        lambda *pair: metrics.slice_accuracy(*pair, slices, 3),
    ):
        one, other = measure(logits, labels), measure(others, labels)
        assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_slice_accuracy_by_hand():
    """Group 0 has one of two right, group 1 one of one, group 2 nothing that is asked."""
    labels = torch.tensor([[[0, 1, 2, NOTHING, NOTHING]]])
    slices = torch.tensor([[[0, 0, 1, 2, NOTHING]]])
    answers = torch.tensor([[[0, 0, 2, 0, 0]]])
    logits = torch.nn.functional.one_hot(answers, 3).float()
    found = metrics.slice_accuracy(logits, labels, slices, 3)
    assert_close(found, torch.tensor([[0.5, 1.0, torch.nan]]).double(), equal_nan=True)


@given(asked(), st.integers(1, 3))
def test_slices_make_up_the_accuracy(given, n_slices):
    """Their mean, weighted with what is asked in each, is that of all."""
    logits, labels = given
    slices = torch.arange(labels.numel()).view(labels.shape) % n_slices
    shares = metrics.slice_accuracy(logits, labels, slices, n_slices)
    asked = torch.stack(
        [((labels != NOTHING) & (slices == g)).sum((1, 2)) for g in range(n_slices)], 1
    )
    whole = (shares.nan_to_num() * asked).sum(1) / asked.sum(1)
    assert_close(whole, metrics.accuracy(logits, labels))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[1.0, 2.0], [2.0, 5.0]], 1.0),
        ([[0.0, 3.0], [-3.0, 0.0]], -1.0),
        ([[0.0, 1.0], [0.0, 0.0]], 0.0),
        ([[1.0, 2.0], [0.0, 1.0]], 2 / 6),  # mirrored 1 + 0 + 0 + 1 over 1 + 4 + 0 + 1
        ([[0.0, 0.0], [0.0, 0.0]], 1.0),
    ],
)
def test_score_symmetry_by_hand(scores, expected):
    """Symmetric, antisymmetric, one-sided, mixed and all-zero scores."""
    assert metrics.score_symmetry(torch.tensor(scores)).item() == pytest.approx(expected)


@given(squares(), st.floats(1e-3, 1e3), st.sampled_from([-1, 1]), st.randoms(use_true_random=False))
def test_score_symmetry_is_the_definition(scores, factor, sign, random):
    """(‖S_s‖² − ‖S_a‖²) / ‖S‖² with the two parts formed explicitly, between −1 and 1.

    S + Sᵀ has 1 and S − Sᵀ −1. Neither a factor of either sign, nor the transpose, nor renaming the
    positions of queries and keys alike changes anything.
    """
    even, odd = (scores + scores.mT) / 2, (scores - scores.mT) / 2
    parts = [part.square().sum((1, 2)) for part in (even, odd, scores)]
    found = metrics.score_symmetry(scores)
    assert_close(found, (parts[0] - parts[1]) / parts[2], rtol=0, atol=1e-5)
    assert (found.abs() <= 1 + 1e-6).all()
    assert_close(metrics.score_symmetry(even), torch.ones(3))
    assert_close(metrics.score_symmetry(odd), -torch.ones(3))
    order = random.sample(range(scores.shape[1]), scores.shape[1])
    for changed in (scores * factor * sign, scores.mT, scores[:, order][:, :, order]):
        assert_close(metrics.score_symmetry(changed), found, rtol=0, atol=1e-5)


def test_score_symmetry_of_missing_scores_is_missing():
    """A run that diverged is not called symmetric."""
    assert metrics.score_symmetry(torch.full((3, 3), torch.nan)).isnan()


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 999))
def test_weight_symmetry_is_score_symmetry_of_the_product(d_head, d_model, seed):
    """The same number as with W_Q W_Kᵀ formed explicitly; W Wᵀ is symmetric, as are zeros."""
    generator = torch.Generator().manual_seed(seed)
    w_q, w_k = torch.randn(2, 3, d_model, d_head, generator=generator, dtype=torch.float64)
    expected = metrics.score_symmetry(w_q @ w_k.mT)
    assert_close(metrics.weight_symmetry(w_q, w_k), expected)
    assert_close(metrics.weight_symmetry(w_q, w_q), torch.ones(3).double())
    assert metrics.weight_symmetry(0 * w_q[0], w_k[0]).item() == 1


def test_weight_symmetry_by_hand():
    """Rank one, d_model 2: W_Q W_Kᵀ = [[1, 2], [0, 0]], so 1 over 1 + 4."""
    w_q, w_k = torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0], [2.0]])
    assert metrics.weight_symmetry(w_q, w_k).item() == pytest.approx(1 / 5)


@st.composite
def weights(draw):
    """W_Q and W_K of three heads, (2, 3, m, d), in double precision."""
    d_head, d_model = draw(st.integers(1, 5)), draw(st.integers(6, 31))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    return torch.randn(2, 3, d_model, d_head, generator=generator, dtype=torch.float64).exp()


@given(weights())
def test_directionality_is_the_definition(drawn):
    """With W_Q W_Kᵀ formed, and the norms of its rows and columns."""
    product = drawn[0] @ drawn[1].mT
    sums = []
    for axis in (2, 1):
        norms = product.norm(dim=axis)
        limit = norms.mean(1, keepdim=True) + 2 * norms.std(1, correction=0, keepdim=True)
        sums.append((norms - limit).clamp_min(0).sum(1))
    expected = ((sums[0] - sums[1]) / (sums[0] + sums[1])).nan_to_num(0.0)
    assert_close(metrics.directionality(*drawn), expected, rtol=0, atol=1e-3)


def test_directionality_by_hand():
    """One row of ten stands out, and all columns are alike: 1; turned round: −1."""
    w_q, w_k = torch.ones(10, 1), torch.ones(10, 1)
    w_q[3] = 9.0
    assert metrics.directionality(w_q, w_k).item() == 1
    assert metrics.directionality(w_k, w_q).item() == -1


def test_directionality_weighs_how_far_norms_stand_out():
    """Nine ones and 11 have mean 2, std 3, so 3 too much; nine ones and 6 have 1.5 too much.

    Of a product of rank one, norms are those times the length of the other vector.
    """
    w_q, w_k = torch.ones(10, 1), torch.ones(10, 1)
    w_q[0], w_k[0] = 11.0, 6.0
    rows, columns = 3 * (9 + 36) ** 0.5, 1.5 * (9 + 121) ** 0.5
    expected = (rows - columns) / (rows + columns)
    assert metrics.directionality(w_q, w_k).item() == pytest.approx(expected, abs=1e-5)


@given(weights(), st.floats(1e-3, 1e3), st.sampled_from([-1, 1]))
def test_directionality_turns_its_sign_with_the_transpose(drawn, factor, sign):
    """Who asks and who is looked at change places; a factor of either sign changes nothing."""
    there, back = metrics.directionality(*drawn), metrics.directionality(drawn[1], drawn[0])
    assert_close(there, -back, rtol=0, atol=1e-9)
    assert (there.abs() <= 1).all()
    scaled = metrics.directionality(drawn[0] * factor * sign, drawn[1])
    assert_close(scaled, there, rtol=0, atol=1e-3)
    assert metrics.directionality(drawn[0], drawn[0]).tolist() == [0, 0, 0]


def test_directionality_where_nothing_stands_out():
    """Zeros have no direction, nor has an orthogonal matrix, whose norms differ by rounding.

    A run that diverged is not called symmetric.
    """
    assert metrics.directionality(torch.zeros(5, 3), torch.ones(5, 3)).item() == 0
    orthogonal = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(1))).Q
    assert metrics.directionality(orthogonal, torch.eye(16)).item() == 0
    assert metrics.directionality(torch.full((5, 3), torch.nan), torch.ones(5, 3)).isnan()


def test_symmetry_error_by_hand():
    """The largest gap over the largest score, of the worst example and head of each run.

    Antisymmetric scores have 2, the most; zeros have 0.
    """
    scores = torch.tensor([[[[1.0, 4.0], [1.0, 2.0]]], [[[8.0, 3.0], [3.0, 8.0]]]])
    assert metrics.symmetry_error(scores).tolist() == [0.75, 0.0]
    scores = torch.ones(2, 5, 3, 7, 7)
    scores[1, 4, 2, 0, 6] = 2.0
    assert metrics.symmetry_error(scores).tolist() == [0.0, 0.5]
    assert metrics.symmetry_error(torch.tensor([[[0.0, 3.0], [-3.0, 0.0]]])).item() == 2
    assert metrics.symmetry_error(torch.zeros(1, 3, 3)).item() == 0


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(0, 99)
)
def test_mass_at_agrees_with_a_loop(n_runs, n_batch, n_heads, n_answers, seed):
    """The mean weight of the last positions on the named keys, summed up one by one."""
    generator = torch.Generator().manual_seed(seed)
    n_ctx = 5
    shape = (n_runs, n_batch, n_heads, n_ctx, n_ctx)
    pattern = torch.rand(shape, generator=generator).softmax(-1)
    position = torch.randint(n_ctx, (n_runs, n_batch, n_answers), generator=generator)
    for r in range(n_runs):
        picked = [
            pattern[r, b, h, n_ctx - n_answers + a, position[r, b, a]].item()
            for b in range(n_batch)
            for h in range(n_heads)
            for a in range(n_answers)
        ]
        expected = sum(picked) / len(picked)
        assert metrics.mass_at(pattern, position)[r].item() == pytest.approx(expected)


def test_mass_at_leaves_out_what_has_no_position():
    """Of two answers of one example one has a target; where no one has, there is no number."""
    pattern = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]).expand(2, 1, 1, 2, 3)
    position = torch.tensor([[[2, NOTHING]], [[NOTHING, NOTHING]]])
    found = metrics.mass_at(pattern, position)
    assert found[0].item() == pytest.approx(0.7)
    assert found[1].isnan()


def test_mass_at_of_a_rectangle():
    """The answers of a decoder on three positions of an encoder."""
    pattern = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])[None, None, None]
    assert metrics.mass_at(pattern, torch.tensor([[[0, 1]]])).item() == pytest.approx(0.2)
