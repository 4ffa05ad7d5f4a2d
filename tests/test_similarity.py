"""Measures of likeness: what each sees, hand-computed values, and what chance gives."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from attnkit.analysis.similarity import (
    column_space,
    cosine,
    linear_cka,
    mean_cosine,
    overlap,
    projected_bands,
    random_band,
    subspace_cosines,
    weights_cka,
)

N, M, D, E = 5, 11, 3, 7  # batch, rows, widths of the two sides


def drawn(*shape, seed=0):
    """Independent Gaussian numbers."""
    return np.random.default_rng([seed, *shape]).normal(size=shape)


TURN = np.linalg.qr(drawn(D, D, seed=1))[0]
CHANGES = {
    "scale": lambda a, b: (2.5 * a, 0.3 * b),
    "turn of both": lambda a, b: (a @ TURN, b @ TURN),
    "turn of one": lambda a, b: (a @ TURN, b),
    "basis of one": lambda a, b: (a @ drawn(D, D, seed=3), b),
}
UNSEEN = {
    cosine: {"scale", "turn of both"},
    mean_cosine: {"scale", "turn of both"},
    linear_cka: {"scale", "turn of both", "turn of one"},
    weights_cka: {"scale", "turn of both", "turn of one"},
    overlap: set(CHANGES),
}


@pytest.mark.parametrize("measure", UNSEEN, ids=lambda measure: measure.__name__)
def test_measures_see_the_changes_that_their_table_says(measure):
    """No measure cares which side comes first; one and the same is exactly alike, even rounded.

    What is zero or not finite is like nothing: NaN, without a warning, and only there.
    """
    a, b = drawn(N, M, D), drawn(N, M, D, seed=2)
    before, single = measure(a, b), a.astype(np.float32)
    assert np.allclose(before, measure(b, a), atol=1e-12)
    assert (measure(single, single).astype("f4") == 1).all()
    for name, change in CHANGES.items():
        same = np.allclose(before, measure(*change(a, b)), atol=1e-12)
        assert same == (name in UNSEEN[measure]), name
    a[0], a[1, 0, 0] = 0, np.nan
    found = measure(a, b).reshape(N, -1)
    assert np.isnan(found).all(1).tolist() == [True, True, False, False, False]


def test_values_by_hand():
    """Two lines at 30°, a plane and a line in it, rows that lie on lines."""
    line = np.array([[1.0], [0.0], [0.0]])
    tilted = np.array([[3.0**0.5], [1.0], [0.0]])
    plane = np.array([[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    assert overlap(line, tilted) == pytest.approx(0.75)
    assert cosine(line, tilted) == pytest.approx(0.75**0.5)
    assert weights_cka(line, tilted) == pytest.approx(0.75)
    assert overlap(plane, tilted) == pytest.approx(1)
    assert cosine(np.eye(2), np.diag([1.0, -1.0])) == 0
    rows, others = np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [0.0], [2.0]])
    assert linear_cka(rows, others) == pytest.approx(0.25)  # the squared correlation of 1/2
    assert mean_cosine(np.array([[1.0, 0], [1, 1]]), np.array([[0, 1.0], [2, 2]])) == 0.5


def test_values_by_definition():
    """Angles are those of SciPy, alignment that of inner products among rows, at any widths.

    A product of thin matrices, in single precision, reads few directions.
    """
    a, b = drawn(N, M, D), drawn(N, M, E)
    wanted = [subspace_angles(*pair)[::-1] for pair in zip(a, b, strict=True)]
    assert np.allclose(np.arccos(subspace_cosines(a, b)), wanted, atol=1e-12)
    assert np.allclose(overlap(a, b), (np.cos(wanted) ** 2).mean(1))
    x, y = drawn(M, D) + 2, drawn(M, E) - 1
    for centred, h in ((True, np.eye(M) - 1 / M), (False, np.eye(M))):
        of_x, of_y = h @ x @ x.T @ h, h @ y @ y.T @ h
        ratio = (of_x * of_y).sum() / np.sqrt((of_x * of_x).sum() * (of_y * of_y).sum())
        assert linear_cka(x, y, centred=centred) == pytest.approx(ratio)
    thin = (drawn(M, 2) @ drawn(2, E)).astype(np.float32)
    assert (column_space(thin) != 0).any(0).sum() == 2
    assert np.isnan(subspace_cosines(thin, drawn(M, D))).tolist() == [False, False, True]
    assert overlap(thin, thin) == pytest.approx(1)


@pytest.mark.parametrize("measure", [cosine, overlap, weights_cka])
def test_a_band_holds_independent_matrices(measure):
    """About 95 of 100 others, where theory has them: cosines are spread by 1/√(m·d)."""
    band = random_band(measure, 16, 5, 5)
    others = measure(drawn(400, 16, 5, seed=8), drawn(400, 16, 5, seed=9))
    assert 0.9 <= ((band.low <= others) & (others <= band.high)).mean() <= 0.99
    assert band.mean == pytest.approx(others.mean(), abs=0.02)
    if measure is overlap:
        assert random_band(measure, 32, 8, 5).mean == pytest.approx(8 / 32, abs=0.01)
        everything = random_band(measure, 8, 8, 8)
        assert (everything.low, everything.high) == pytest.approx((1, 1))
    if measure is cosine:
        limits = band.low, band.high
        assert limits == pytest.approx((-1.96 / 80**0.5, 1.96 / 80**0.5), rel=0.2)


def test_bands_of_activations_hold_random_projections_of_the_same_inputs():
    """Inputs that vary in two directions only, about a mean, make random projections alike."""
    inputs = drawn(2, 40, 2, seed=4) @ drawn(2, 16, seed=5) + 0.2 * drawn(2, 40, 16, seed=6)
    inputs += drawn(16, seed=7)
    left, right = drawn(300, 1, 16, 5, seed=8), drawn(300, 1, 16, 5, seed=9)
    bands = projected_bands(inputs, inputs, 5, 5)
    for measure, band in zip((mean_cosine, linear_cka), bands, strict=True):
        others = measure(inputs @ left, inputs @ right)  # (300, 2)
        inside = ((band.low <= others) & (others <= band.high)).mean(0)
        assert (inside > 0.9).all()
        assert np.allclose(others.std(0), (band.high - band.low) / 4, rtol=0.35)
    assert (bands[1].mean > 0.6).all()
