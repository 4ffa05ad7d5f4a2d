"""What rules of variants do to queries, keys and values: factors, norms and turns.

Rows are those of a role, one after another for each example; every head of a row is adjusted by
itself: multiplied by learnt factors, divided by its length or its root mean square (then multiplied
by learnt gains), and turned by its position (RoPE). Rules say the same in torch; see
`attnkit.variants`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray, njit

from attnkit.model.kernel.vectors import OPTIONS, address

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_EPSILON_OF_UNIT, _EPSILON_OF_RMS = np.float32(1e-12), np.float32(1e-6)


@njit(**OPTIONS)
def write_waves(run, scratch):
    """Write the cosines and sines by which positions turn, (n_waves, d): cosines, then sines."""
    if run.n_waves == 0:
        return
    waves = carray(address(scratch, run.waves), (run.n_waves, run.d_turned))
    half = run.d_turned // 2
    for position in range(run.n_waves):
        for c in range(half):
            angle = position * 10000.0 ** (-c / half)
            waves[position, c] = math.cos(angle)
            waves[position, half + c] = math.sin(angle)


@njit(**OPTIONS)
def adjust(out, raw, rows, width, factors, gains, unit, waves, numbers):
    """Write adjusted rows.

    Args:
        out: (b·n, h·d). raw: (b·each, h·d).
        rows: each, first, n, position: every example has `each` rows in `raw`, of which `n` are
            adjusted from the first on; `position` is that of the first.
        width: d. factors: their place in `numbers`, (h, d), or negative.
        gains: their place in `numbers`, (d), or negative. unit: whether rows get length 1.
        waves: (positions, d) cosines and sines, or no rows.
    """
    each, first, n, position = rows
    half = width // 2
    for row in range(len(out)):
        source, to = raw[row // n * each + first + row % n], out[row]
        for start in range(0, len(to), width):
            square = _ZERO
            for c in range(start, start + width):
                to[c] = source[c] * numbers[factors + c] if factors >= 0 else source[c]
                square += to[c] * to[c]
            if unit or gains >= 0:
                inverse = _inverse(square, width, unit)
                for c in range(width):
                    gain = numbers[gains + c] if gains >= 0 else _ONE
                    to[start + c] *= inverse * gain
            if len(waves):
                wave = waves[position + row % n]
                for c in range(half):
                    one, other = to[start + c], to[start + half + c]
                    to[start + c] = one * wave[c] - other * wave[half + c]
                    to[start + half + c] = other * wave[c] + one * wave[half + c]


@njit(**OPTIONS)
def adjust_back(d_raw, d_out, raw, rows, width, factors, gains, unit, waves, both):
    """Add to the gradients of the raw rows, of factors and of gains; `d_out` is overwritten."""
    each, first, n, position = rows
    numbers, gradient = both
    half = width // 2
    for row in range(len(d_out)):
        place = row // n * each + first + row % n
        source, d_source, d_to = raw[place], d_raw[place], d_out[row]
        for start in range(0, len(d_to), width):
            if len(waves):
                wave = waves[position + row % n]
                for c in range(half):
                    one, other = d_to[start + c], d_to[start + half + c]
                    d_to[start + c] = one * wave[c] + other * wave[half + c]
                    d_to[start + half + c] = other * wave[c] - one * wave[half + c]
            if unit or gains >= 0:
                square, along = _ZERO, _ZERO
                for c in range(start, start + width):
                    scaled = source[c] * numbers[factors + c] if factors >= 0 else source[c]
                    square += scaled * scaled
                inverse = _inverse(square, width, unit)
                for c in range(width):
                    factor = numbers[factors + start + c] if factors >= 0 else _ONE
                    normed = source[start + c] * factor * inverse
                    if gains >= 0:
                        gradient[gains + c] += d_to[start + c] * normed
                        d_to[start + c] *= numbers[gains + c]
                    along += d_to[start + c] * normed
                along = along if unit else along / np.float32(width)
                for c in range(start, start + width):
                    factor = numbers[factors + c] if factors >= 0 else _ONE
                    normed = source[c] * factor * inverse
                    d_to[c] = (d_to[c] - normed * along) * inverse
            for c in range(start, start + width):
                if factors >= 0:
                    gradient[factors + c] += d_to[c] * source[c]
                    d_source[c] += d_to[c] * numbers[factors + c]
                else:
                    d_source[c] += d_to[c]


@njit(**OPTIONS)
def _inverse(square, width, unit):
    """Return one over the length of a row, or over its root mean square."""
    if unit:
        return _ONE / np.float32(math.sqrt(square + _EPSILON_OF_UNIT))
    return _ONE / np.float32(math.sqrt(square / np.float32(width) + _EPSILON_OF_RMS))
