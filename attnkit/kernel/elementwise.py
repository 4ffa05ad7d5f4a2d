"""What a step computes number by number: norms, exponentials, GELU, and Adam.

Plain loops, which LLVM turns into vector instructions. Exponentials are polynomials, since a call
for each number would be ten times as slow; NaN and infinity are treated on purpose.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from attnkit.kernel.products import OPTIONS, bits_as_float

_ONE, _HALF, _ZERO = np.float32(1.0), np.float32(0.5), np.float32(0.0)
_EPSILON_OF_RMS, _EPSILON_OF_LAYER_NORM = np.float32(1e-6), np.float32(1e-5)
_SMALLEST, _LARGEST = np.float32(-87.0), np.float32(88.0)
_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E5, _E4, _E3 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_E2, _E1, _E0 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ROOT_HALF, _DENSITY = np.float32(math.sqrt(0.5)), np.float32(1 / math.sqrt(2 * math.pi))
_P = np.float32(0.3275911)
_A1, _A2, _A3 = np.float32(0.254829592), np.float32(-0.284496736), np.float32(1.421413741)
_A4, _A5 = np.float32(-1.453152027), np.float32(1.061405429)


@njit(**OPTIONS)
def exponential(x):
    """Return e to a float32, to about one part in 10⁷; zero below e⁻⁸⁷.

    Source:
        Range reduction to ±½ ln 2 and the polynomial of the Cephes library's `expf`.
    """
    bounded = x if x < _LARGEST else _LARGEST  # NaN becomes the bound, and NaN again at the end
    bounded = bounded if bounded > _SMALLEST else _SMALLEST
    n = math.floor(bounded * _LOG2_E + _HALF)
    r = bounded - np.float32(n) * _LN2_HIGH
    r = r - np.float32(n) * _LN2_LOW
    p = ((((_E5 * r + _E4) * r + _E3) * r + _E2) * r + _E1) * r + _E0
    y = (p * r * r + r + _ONE) * bits_as_float((np.int32(n) + np.int32(127)) << np.int32(23))
    y = _ZERO if x < _SMALLEST else y
    return y if x == x else x  # noqa: PLR0124


@njit(**OPTIONS)
def exponentials(values):
    """Replace numbers by their exponentials."""
    for j in range(len(values)):
        values[j] = exponential(values[j])


@njit(**OPTIONS)
def _normal_distribution(x):
    """Return the standard normal distribution function, to 10⁻⁷.

    Source:
        Abramowitz and Stegun, formula 7.1.26.
    """
    z = abs(x) * _ROOT_HALF
    t = _ONE / (_P * z + _ONE)
    tail = ((((_A5 * t + _A4) * t + _A3) * t + _A2) * t + _A1) * t * exponential(-z * z) * _HALF
    return tail if x < _ZERO else _ONE - tail


@njit(**OPTIONS)
def gelu(out, x):
    """Write x times the normal distribution function of x."""
    for j in range(len(x)):
        out[j] = x[j] * _normal_distribution(x[j])


@njit(**OPTIONS)
def gelu_back(d_out, x):
    """Replace the gradient of GELU's output by that of its input."""
    for j in range(len(x)):
        density = exponential(x[j] * x[j] * -_HALF) * _DENSITY
        d_out[j] *= x[j] * density + _normal_distribution(x[j])


@njit(**OPTIONS)
def normalise(rows, normed, inverse, x, numbers, gain, shift):
    """Write RMSNorm of rows without gain; or, with gain and shift, LayerNorm.

    Args:
        rows: what follows reads; the same as `normed` for RMSNorm.
        normed: rows before gain and shift. inverse: what they were multiplied with.
        gain, shift: their places in `numbers`; negative: RMSNorm.
    """
    n, m = x.shape
    share = _ONE / np.float32(m)
    for i in range(n):
        source, to, out = x[i], normed[i], rows[i]
        mean, epsilon = _ZERO, _EPSILON_OF_RMS
        if gain >= 0:
            for c in range(m):
                mean += source[c]
            mean, epsilon = mean * share, _EPSILON_OF_LAYER_NORM
        square = _ZERO
        for c in range(m):
            square += (source[c] - mean) * (source[c] - mean)
        inverse[i] = _ONE / np.float32(math.sqrt(square * share + epsilon))
        for c in range(m):
            to[c] = (source[c] - mean) * inverse[i]
        if gain >= 0:
            for c in range(m):
                out[c] = to[c] * numbers[gain + c] + numbers[shift + c]


@njit(**OPTIONS)
def normalise_back(dx, d_rows, normed, inverse, numbers, gradient, gain, shift):
    """Add the gradient of x to `dx`, and those of gain and shift; `d_rows` is overwritten."""
    n, m = d_rows.shape
    share = _ONE / np.float32(m)
    for i in range(n):
        d_row, own, to = d_rows[i], normed[i], dx[i]
        mean = _ZERO
        if gain >= 0:
            for c in range(m):
                gradient[gain + c] += d_row[c] * own[c]
                gradient[shift + c] += d_row[c]
                d_row[c] *= numbers[gain + c]
                mean += d_row[c]
        along = _ZERO
        for c in range(m):
            along += d_row[c] * own[c]
        mean, along = mean * share, along * share
        for c in range(m):
            to[c] += (d_row[c] - mean - own[c] * along) * inverse[i]


@njit(**OPTIONS)
def add_rows(out, row):
    """Add one row to every row."""
    for i in range(len(out)):
        to = out[i]
        for c in range(len(row)):
            to[c] += row[c]


@njit(**OPTIONS)
def sum_rows(out, rows):
    """Add the sum of all rows."""
    for i in range(len(rows)):
        row = rows[i]
        for c in range(len(out)):
            out[c] += row[c]


@njit(**OPTIONS)
def clip(gradient, largest):
    """Shorten a run's gradient to this norm if it is longer.

    Source:
        `torch.nn.utils.clip_grad_norm_`.
    """
    square = _ZERO
    for j in range(len(gradient)):
        square += gradient[j] * gradient[j]
    share = largest / (np.float32(math.sqrt(square)) + np.float32(1e-6))
    if not share >= _ONE:  # NaN must reach all numbers
        for j in range(len(gradient)):
            gradient[j] *= share


@njit(**OPTIONS)
def adam(numbers, gradient, mean, square, first, second, epsilon, rate):
    """Move a run's numbers once; see `attnkit.adam.Adam`.

    Args:
        first, second: one minus the decay of the two averages.
        epsilon, rate: with the corrections for the first steps.
    """
    for j in range(len(numbers)):
        g = gradient[j]
        mean[j] += (g - mean[j]) * first
        square[j] += (g * g - square[j]) * second
        numbers[j] -= rate * mean[j] / (np.float32(math.sqrt(square[j])) + epsilon)
