"""Softmax, norms, GELU, sums, clipping and Adam: what a step computes number by number.

Rows that are short, as those of attention are, go through vectors of our own; long loops are plain,
and LLVM turns them into vector instructions.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from attnkit.model.kernel.vectors import (
    LANES,
    OPTIONS,
    address,
    exp,
    first_lanes,
    fma,
    larger,
    largest,
    load,
    spread,
    store,
    total,
)

_ONE, _HALF, _ZERO = np.float32(1.0), np.float32(0.5), np.float32(0.0)
_EPSILON_OF_RMS, _EPSILON_OF_LAYER_NORM = np.float32(1e-6), np.float32(1e-5)
_HIDDEN = np.float32(-3e38)
"""Before a softmax, the score of what must not be seen."""

PIECE = 16
"""Rows that go through a softmax are stored in multiples of so many numbers."""

_DENSITY, _P = np.float32(1 / math.sqrt(2 * math.pi)), np.float32(0.3275911 * math.sqrt(0.5))
_TINY = np.float32(1e-30)
_A1, _A2, _A3 = np.float32(0.254829592), np.float32(-0.284496736), np.float32(1.421413741)
_A4, _A5 = np.float32(-1.453152027), np.float32(1.061405429)


@njit(**OPTIONS)
def softmax(row, n, scale, share):
    """Replace a row by the softmax of its first `n` numbers, and by zeros behind them.

    Args:
        row: its length is a multiple of `PIECE`.
        scale: what the numbers are multiplied with before the softmax, positive.
        share: what the softmax is multiplied with.
    """
    at = address(row, 0)
    nothing, factor = spread(_HIDDEN), spread(scale)
    highest = nothing
    for j in range(0, len(row), LANES):
        highest = larger(first_lanes(load(at, j), n - j, nothing), highest)
    top, sums = spread(largest(highest)), spread(_ZERO)
    for j in range(0, len(row), LANES):
        grown = exp((first_lanes(load(at, j), n - j, nothing) - top) * factor)
        store(at, j, grown)
        sums = sums + grown
    each = spread(share / total(sums))
    for j in range(0, len(row), LANES):
        store(at, j, load(at, j) * each)


@njit(**OPTIONS)
def softmax_back(d_row, row, n, scale):
    """Replace the gradient of a softmax by that of the numbers before it, times `scale`.

    Args:
        n: how many numbers of the rows count; the rest becomes zero.
    """
    d_at, at = address(d_row, 0), address(row, 0)
    nothing, along = spread(_ZERO), spread(_ZERO)
    for j in range(0, len(row), LANES):
        d_own = first_lanes(load(d_at, j), n - j, nothing)
        store(d_at, j, d_own)
        along = fma(d_own, load(at, j), along)
    mean, factor = spread(total(along)), spread(scale)
    for j in range(0, len(row), LANES):
        store(d_at, j, (load(d_at, j) - mean) * load(at, j) * factor)


@njit(**OPTIONS)
def gelu(out, x):
    """Write x times the normal distribution function of x, and replace x by the derivative.

    Args:
        out, x: matrices without gaps, with numbers behind them up to a multiple of `PIECE`.

    Source:
        The distribution function: Abramowitz and Stegun, formula 7.1.26, to 10⁻⁷.
    """
    at, to = address(x, 0), address(out, 0)
    zero, one, half = spread(_ZERO), spread(_ONE), spread(_HALF)
    for j in range(0, x.size, LANES):
        own = load(at, j)
        density = exp(own * own * spread(-_HALF))
        size = larger(own, zero - own)
        t = one / fma(spread(_P), size, one)
        p = fma(fma(fma(spread(_A5), t, spread(_A4)), t, spread(_A3)), t, spread(_A2))
        tail = fma(p, t, spread(_A1)) * t * density * half  # beyond the size, on one side
        sign = (own + spread(_TINY)) / (size + spread(_TINY))
        below = fma(half - tail, sign, half)
        store(to, j, own * below)
        store(at, j, fma(own * density, spread(_DENSITY), below))


@njit(**OPTIONS)
def clear(rows):
    """Set all numbers of a matrix without gaps to zero, and those up to a multiple of `PIECE`."""
    at, zero = address(rows, 0), spread(_ZERO)
    for j in range(0, rows.size, LANES):
        store(at, j, zero)


@njit(**OPTIONS)
def copy(out, rows):
    """Copy rows."""
    for i in range(len(rows)):
        to, row = out[i], rows[i]
        for c in range(len(row)):
            to[c] = row[c]


@njit(**OPTIONS)
def copy_numbers(out, start, source, place, n):
    """Copy `n` numbers, a multiple of `PIECE`, between matrices without gaps."""
    to, at = address(out, start), address(source, place)
    for c in range(0, n, LANES):
        store(to, c, load(at, c))


@njit(**OPTIONS)
def normalise(rows, normed, inverse, x, numbers, gain, shift):
    """Write RMSNorm of rows without gain; or, with gain and shift, LayerNorm.

    Args:
        rows: what follows reads; the same as `normed` for RMSNorm.
        normed: rows before gain and shift. inverse: what they were multiplied with.
        x: (i, m), m a multiple of `PIECE`.
        gain, shift: their places in `numbers`; negative: RMSNorm.
    """
    n, m = x.shape
    share = _ONE / np.float32(m)
    source, to, out = address(x, 0), address(normed, 0), address(rows, 0)
    for i in range(n):
        mean, epsilon, squares = spread(_ZERO), _EPSILON_OF_RMS, spread(_ZERO)
        if gain >= 0:
            for c in range(i * m, (i + 1) * m, LANES):
                mean = mean + load(source, c)
            mean, epsilon = spread(total(mean) * share), _EPSILON_OF_LAYER_NORM
        for c in range(i * m, (i + 1) * m, LANES):
            centred = load(source, c) - mean
            squares = fma(centred, centred, squares)
        inverse[i] = _ONE / np.float32(math.sqrt(total(squares) * share + epsilon))
        factor = spread(inverse[i])
        for c in range(i * m, (i + 1) * m, LANES):
            store(to, c, (load(source, c) - mean) * factor)
        if gain >= 0:
            gains, shifts = address(numbers, gain), address(numbers, shift)
            for c in range(0, m, LANES):
                store(out, i * m + c, fma(load(to, i * m + c), load(gains, c), load(shifts, c)))


@njit(**OPTIONS)
def normalise_back(dx, d_rows, normed, inverse, numbers, gradient, gain, shift):
    """Add the gradient of x to `dx`, and those of gain and shift; `d_rows` is overwritten."""
    n, m = d_rows.shape
    share = _ONE / np.float32(m)
    d_out, own, to = address(d_rows, 0), address(normed, 0), address(dx, 0)
    for i in range(n):
        mean, along, start = spread(_ZERO), spread(_ZERO), i * m
        if gain >= 0:
            gains = address(numbers, gain)
            d_gains, d_shifts = address(gradient, gain), address(gradient, shift)
            for c in range(0, m, LANES):
                d_row = load(d_out, start + c)
                store(d_gains, c, fma(d_row, load(own, start + c), load(d_gains, c)))
                store(d_shifts, c, load(d_shifts, c) + d_row)
                d_row = d_row * load(gains, c)
                store(d_out, start + c, d_row)
                mean = mean + d_row
            mean = spread(total(mean) * share)
        for c in range(start, start + m, LANES):
            along = fma(load(d_out, c), load(own, c), along)
        along, factor = spread(total(along) * share), spread(inverse[i])
        for c in range(start, start + m, LANES):
            d_x = load(d_out, c) - mean - load(own, c) * along
            store(to, c, fma(d_x, factor, load(to, c)))


@njit(**OPTIONS)
def add_row(out, start, vector, place, n):
    """Add `n` numbers of one vector, a multiple of `PIECE`, to those of another one."""
    to, source = address(out, start), address(vector, place)
    for c in range(0, n, LANES):
        store(to, c, load(to, c) + load(source, c))


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

    Args:
        gradient: as many numbers as a multiple of `PIECE`.

    Source:
        `torch.nn.utils.clip_grad_norm_`.
    """
    at, squares = address(gradient, 0), spread(_ZERO)
    for j in range(0, len(gradient), LANES):
        squares = fma(load(at, j), load(at, j), squares)
    share = largest / (np.float32(math.sqrt(total(squares))) + np.float32(1e-6))
    if not share >= _ONE:  # NaN must reach all numbers
        for j in range(len(gradient)):
            gradient[j] *= share


@njit(**OPTIONS)
def adam(numbers, gradient, mean, square, first, second, epsilon, rate):
    """Move a run's numbers once; see `attnkit.model.adam.Adam`.

    Args:
        first, second: one minus the decay of the two averages.
        epsilon, rate: with the corrections for the first steps.
    """
    for j in range(len(numbers)):
        g = gradient[j]
        mean[j] += (g - mean[j]) * first
        square[j] += (g * g - square[j]) * second
        numbers[j] -= rate * mean[j] / (np.float32(math.sqrt(square[j])) + epsilon)
