"""Adjustments of queries, keys and values by rules: factors, skew parts, norms, rotations.

Rows belong to one role, and the rows of each example are adjacent. Every head of a row is adjusted
separately: multiplied by learnt factors, partly exchanged and negated (skew), divided by its length
or its root mean square (then multiplied by learnt gains), and rotated by its position (RoPE).
`attnkit.variants` has the same rules in PyTorch.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray

from attnkit.model.kernel.compiler import inner
from attnkit.model.kernel.vectors import address

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_EPSILON_OF_UNIT, _EPSILON_OF_RMS = np.float32(1e-12), np.float32(1e-6)


@inner
def write_rotations(run, scratch):
    """Write the cosines, then the sines, of the angles of all positions, (n_rotations, r)."""
    if run.n_rotations == 0:
        return
    rotations = carray(address(scratch, run.rotations), (run.n_rotations, run.d_rotation))
    half = run.d_rotation // 2
    for position in range(run.n_rotations):
        for c in range(half):
            angle = position * 10000.0 ** (-c / half)
            rotations[position, c] = math.cos(angle)
            rotations[position, half + c] = math.sin(angle)


@inner
def adjust(out, raw, rows, width, factors, skew, gains, unit, rotations, numbers):
    """Write the adjusted rows of one role.

    Args:
        out: Adjusted rows, (b·n, h·d).
        raw: Rows before, (b·n_raw, h·d).
        rows: (n_raw, first, n, position): every example has `n_raw` rows in `raw`, of which `n` are
            adjusted, beginning with row `first`, whose position is `position`.
        width: Width d of a head.
        factors: Offset of the factors in `numbers`, (h, d); negative for none.
        skew: Width of the part [a, b] at the end of a head that becomes [b, −a]; 0 for none.
        gains: Offset of the gains in `numbers`, (d,); negative for none.
        unit: Whether heads are divided by their length.
        rotations: Cosines and sines, (positions, r), or no rows; the first r numbers are rotated.
        numbers: Parameters of the run.
    """
    n_raw, first, n, position = rows
    half = rotations.shape[1] // 2
    for row in range(len(out)):
        source, target = raw[row // n * n_raw + first + row % n], out[row]
        for start in range(0, len(target), width):
            square = _ZERO
            for c in range(start, start + width):
                target[c] = source[c] * numbers[factors + c] if factors >= 0 else source[c]
                square += target[c] * target[c]
            for a in range(start + width - skew, start + width - skew // 2):
                b = a + skew // 2
                target[a], target[b] = target[b], -target[a]
            if unit or gains >= 0:
                inverse = _inverse(square, width, unit)
                for c in range(width):
                    gain = numbers[gains + c] if gains >= 0 else _ONE
                    target[start + c] *= inverse * gain
            if len(rotations):
                rotation = rotations[position + row % n]
                for c in range(half):
                    x, y = target[start + c], target[start + half + c]
                    target[start + c] = x * rotation[c] - y * rotation[half + c]
                    target[start + half + c] = y * rotation[c] + x * rotation[half + c]


@inner
def adjust_back(d_raw, d_out, raw, rows, width, factors, skew, gains, unit, rotations, parameters):
    """Add to the gradients of the raw rows, factors and gains; `d_out` is overwritten.

    Args:
        parameters: (numbers, gradient) of the run.
    """
    n_raw, first, n, position = rows
    numbers, gradient = parameters
    half = rotations.shape[1] // 2
    for row in range(len(d_out)):
        raw_row = row // n * n_raw + first + row % n
        source, d_source, d_target = raw[raw_row], d_raw[raw_row], d_out[row]
        for start in range(0, len(d_target), width):
            if len(rotations):
                rotation = rotations[position + row % n]
                for c in range(half):
                    x, y = d_target[start + c], d_target[start + half + c]
                    d_target[start + c] = x * rotation[c] + y * rotation[half + c]
                    d_target[start + half + c] = y * rotation[c] - x * rotation[half + c]
            # The exchange is undone first, because it does not change the length of a head.
            for a in range(start + width - skew, start + width - skew // 2):
                b = a + skew // 2
                d_target[a], d_target[b] = -d_target[b], d_target[a]
            if unit or gains >= 0:
                square, projection = _ZERO, _ZERO
                for c in range(start, start + width):
                    scaled = source[c] * numbers[factors + c] if factors >= 0 else source[c]
                    square += scaled * scaled
                inverse = _inverse(square, width, unit)
                for c in range(width):
                    factor = numbers[factors + start + c] if factors >= 0 else _ONE
                    normed = source[start + c] * factor * inverse
                    if gains >= 0:
                        gradient[gains + c] += d_target[start + c] * normed
                        d_target[start + c] *= numbers[gains + c]
                    projection += d_target[start + c] * normed
                projection = projection if unit else projection / np.float32(width)
                for c in range(start, start + width):
                    factor = numbers[factors + c] if factors >= 0 else _ONE
                    normed = source[c] * factor * inverse
                    d_target[c] = (d_target[c] - normed * projection) * inverse
            for c in range(start, start + width):
                if factors >= 0:
                    gradient[factors + c] += d_target[c] * source[c]
                    d_source[c] += d_target[c] * numbers[factors + c]
                else:
                    d_source[c] += d_target[c]


@inner
def _inverse(square, width, unit):
    """Return the reciprocal of a head's length, or of its root mean square."""
    if unit:
        return _ONE / np.float32(math.sqrt(square + _EPSILON_OF_UNIT))
    return _ONE / np.float32(math.sqrt(square / np.float32(width) + _EPSILON_OF_RMS))
