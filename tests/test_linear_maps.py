"""Maps from keys to values against numpy's solvers and the laws that define them."""

import numpy as np
import pytest

from attnkit.analysis.linear_maps import (
    linear_map,
    orthogonal_map,
    random_orthogonal_maps,
    reduced_map,
    truncated,
)

GENERATOR = np.random.default_rng(3)
KEYS = GENERATOR.normal(size=(2, 3, 53, 7))
VALUES = KEYS @ GENERATOR.normal(size=(2, 3, 7, 7)) + GENERATOR.normal(size=(2, 3, 53, 7))
HEADS = list(np.ndindex(2, 3))


def test_the_linear_map_is_that_of_least_squares():
    """Every head is fitted by itself, as `numpy.linalg.lstsq` fits it, with the smallest map."""
    few = KEYS.copy()
    few[0, 0, :, 5:] = 0.0
    fitted = linear_map(few, VALUES)
    for at in HEADS:
        expected = np.linalg.lstsq(few[at], VALUES[at], rcond=None)[0]
        np.testing.assert_allclose(fitted[at], expected, rtol=1e-9, atol=1e-9)
    assert not fitted[0, 0, 5:].any()


def test_rounding_errors_of_single_precision_are_not_fitted():
    """A direction in which keys vary by rounding only gets no weight."""
    keys = KEYS[0, 0].copy()
    keys[:, 6] = keys[:, 5]
    fitted = linear_map(keys + 1e-7 * GENERATOR.normal(size=keys.shape), VALUES[0, 0])
    assert np.abs(fitted).max() < 10


@pytest.mark.parametrize("rank", [2, 7])
def test_maps_of_a_rank_are_truncated_or_fit_best(rank):
    """The first outer products of the SVD of the map; or of K M, so no other has less error."""
    full = linear_map(KEYS, VALUES)
    reduced, cut = reduced_map(KEYS, VALUES, rank), truncated(full, rank)
    for at in HEADS:
        for found, of in ((cut[at], full[at]), (KEYS[at] @ reduced[at], KEYS[at] @ full[at])):
            left, singular, right = np.linalg.svd(of, full_matrices=False)
            expected = (left[:, :rank] * singular[:rank]) @ right[:rank]
            np.testing.assert_allclose(found, expected, atol=1e-9)
        assert np.linalg.matrix_rank(reduced[at]) == rank


def test_the_orthogonal_map_solves_the_procrustes_problem():
    """It is U Vᵀ of Kᵀ V, and no random orthogonal matrix fits better."""
    fitted = orthogonal_map(KEYS, VALUES)
    for at in HEADS:
        left, _, right = np.linalg.svd(KEYS[at].T @ VALUES[at])
        np.testing.assert_allclose(fitted[at], left @ right, atol=1e-12)
    others = random_orthogonal_maps([0], 100, 7)
    errors = np.linalg.norm(KEYS[0, 0] @ others - VALUES[0, 0], axis=(1, 2))
    assert np.linalg.norm(KEYS[0, 0] @ fitted[0, 0] - VALUES[0, 0]) < errors.min()


def test_a_rotation_is_found_again():
    """Values that are rotated keys give back the rotation."""
    (rotation,) = random_orthogonal_maps([5], 1, 7)
    np.testing.assert_allclose(orthogonal_map(KEYS[0, 0], KEYS[0, 0] @ rotation), rotation)
    np.testing.assert_allclose(linear_map(KEYS[0, 0], KEYS[0, 0] @ rotation), rotation)


def test_random_maps_are_orthogonal_and_repeatable():
    """Equal seeds give equal maps, and other seeds give others."""
    maps = random_orthogonal_maps([1, 0], 3, 5)
    identity = np.broadcast_to(np.eye(5), (3, 5, 5))
    np.testing.assert_allclose(maps @ maps.swapaxes(1, 2), identity, atol=1e-12)
    np.testing.assert_array_equal(maps, random_orthogonal_maps([1, 0], 3, 5))
    assert not np.allclose(maps, random_orthogonal_maps([1, 1], 3, 5))
    mean = random_orthogonal_maps([2], 4000, 3).mean(0)  # no direction is preferred
    np.testing.assert_allclose(mean, np.zeros((3, 3)), atol=0.05)
