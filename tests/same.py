"""Comparison, to the bit, of arrays and of results, snapshots and films made of them."""

from dataclasses import fields, is_dataclass

import numpy as np


def assert_same(one, other, *leave_out):
    """Assert that two values hold the same numbers, besides the fields that are left out."""
    if isinstance(other, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif is_dataclass(other):
        assert type(one) is type(other)
        for field in fields(other):
            if field.name not in leave_out:
                assert_same(getattr(one, field.name), getattr(other, field.name), *leave_out)
    elif isinstance(other, dict):
        assert one.keys() == other.keys()
        for name in other:
            assert_same(one[name], other[name], *leave_out)
    elif isinstance(other, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair, *leave_out)
    elif isinstance(other, float):
        np.testing.assert_equal(one, other)  # NaN is the same as NaN
    else:
        assert one == other
