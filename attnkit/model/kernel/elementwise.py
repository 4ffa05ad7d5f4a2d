"""Elementwise parts of a training step: softmax, norms, GELU, sums, clipping and Adam.

Short rows, such as those of attention, use the vectors of `attnkit.model.kernel.vectors`; long
loops are plain, and LLVM vectorises them.
"""

from __future__ import annotations

import math

import numpy as np

from attnkit.model.kernel.compiler import entry, inner
from attnkit.model.kernel.vectors import (
    LANES,
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
_MASKED = np.float32(-3e38)
"""Score of a masked position before a softmax."""

_DENSITY, _P = np.float32(1 / math.sqrt(2 * math.pi)), np.float32(0.3275911 * math.sqrt(0.5))
_TINY = np.float32(1e-30)
_A1, _A2, _A3 = np.float32(0.254829592), np.float32(-0.284496736), np.float32(1.421413741)
_A4, _A5 = np.float32(-1.453152027), np.float32(1.061405429)


@inner
def softmax(row, n, scale, weight):
    """Replace the first `n` numbers of a row by their softmax, and the others by zeros.

    Args:
        row: Row whose length is a multiple of `PIECE`.
        n: Number of columns that count.
        scale: Positive factor before the softmax.
        weight: Factor after the softmax.
    """
    start = address(row, 0)
    masked, factor = spread(_MASKED), spread(scale)
    maxima = masked
    for j in range(0, len(row), LANES):
        maxima = larger(first_lanes(load(start, j), n - j, masked), maxima)
    maximum, sums = spread(largest(maxima)), spread(_ZERO)
    for j in range(0, len(row), LANES):
        exponentials = exp((first_lanes(load(start, j), n - j, masked) - maximum) * factor)
        store(start, j, exponentials)
        sums = sums + exponentials
    norm = spread(weight / total(sums))
    for j in range(0, len(row), LANES):
        store(start, j, load(start, j) * norm)


@inner
def softmax_back(d_row, row, n, scale):
    """Replace the gradient of a softmax by the gradient of its input, times `scale`.

    Args:
        d_row: Gradient to replace.
        row: Softmax.
        n: Number of columns that count; the others become zero.
        scale: Factor before the softmax.
    """
    d_start, start = address(d_row, 0), address(row, 0)
    zero, sums = spread(_ZERO), spread(_ZERO)
    for j in range(0, len(row), LANES):
        gradients = first_lanes(load(d_start, j), n - j, zero)
        store(d_start, j, gradients)
        sums = fma(gradients, load(start, j), sums)
    mean, factor = spread(total(sums)), spread(scale)
    for j in range(0, len(row), LANES):
        store(d_start, j, (load(d_start, j) - mean) * load(start, j) * factor)


@inner
def gelu(out, x):
    """Write GELU, x times the normal distribution function of x; replace x by the derivative.

    Args:
        out: Matrix to write, contiguous, padded in memory to a multiple of `PIECE`.
        x: Matrix of the same layout.

    Source:
        Abramowitz and Stegun, formula 7.1.26, for the distribution function, to 10⁻⁷.
    """
    source, target = address(x, 0), address(out, 0)
    zero, one, half = spread(_ZERO), spread(_ONE), spread(_HALF)
    for j in range(0, x.size, LANES):
        value = load(source, j)
        density = exp(value * value * spread(-_HALF))
        size = larger(value, zero - value)
        t = one / fma(spread(_P), size, one)
        p = fma(fma(fma(spread(_A5), t, spread(_A4)), t, spread(_A3)), t, spread(_A2))
        tail = (
            fma(p, t, spread(_A1)) * t * density * half
        )  # probability beyond the size, on one side
        sign = (value + spread(_TINY)) / (size + spread(_TINY))
        below = fma(half - tail, sign, half)
        store(target, j, value * below)
        store(source, j, fma(value * density, spread(_DENSITY), below))


@inner
def clear(rows):
    """Set a contiguous matrix and its padding up to a multiple of `PIECE` to zero."""
    start, zero = address(rows, 0), spread(_ZERO)
    for j in range(0, rows.size, LANES):
        store(start, j, zero)


@inner
def copy(out, rows):
    """Copy rows."""
    for i in range(len(rows)):
        target, row = out[i], rows[i]
        for c in range(len(row)):
            target[c] = row[c]


@inner
def copy_numbers(out, out_start, source, start, n):
    """Copy `n` numbers, a multiple of `PIECE`, between contiguous matrices."""
    target, values = address(out, out_start), address(source, start)
    for c in range(0, n, LANES):
        store(target, c, load(values, c))


@inner
def normalise(rows, normed, inverse, x, numbers, gain, shift):
    """Write RMSNorm of rows, without gain; or LayerNorm, with gain and shift.

    Args:
        rows: Normalised rows to write, (i, m); for RMSNorm the same memory as `normed`.
        normed: Normalised rows before gain and shift to write, (i, m).
        inverse: Factor of each row to write, (i,).
        x: Rows to normalise, (i, m), m a multiple of `PIECE`.
        numbers: Parameters of the run.
        gain: Offset of the gain in `numbers`; negative for RMSNorm.
        shift: Offset of the shift in `numbers`; negative for RMSNorm.
    """
    n, m = x.shape
    weight = _ONE / np.float32(m)
    source, target, out = address(x, 0), address(normed, 0), address(rows, 0)
    for i in range(n):
        mean, epsilon, squares = spread(_ZERO), _EPSILON_OF_RMS, spread(_ZERO)
        if gain >= 0:
            for c in range(i * m, (i + 1) * m, LANES):
                mean = mean + load(source, c)
            mean, epsilon = spread(total(mean) * weight), _EPSILON_OF_LAYER_NORM
        for c in range(i * m, (i + 1) * m, LANES):
            centred = load(source, c) - mean
            squares = fma(centred, centred, squares)
        inverse[i] = _ONE / np.float32(math.sqrt(total(squares) * weight + epsilon))
        factor = spread(inverse[i])
        for c in range(i * m, (i + 1) * m, LANES):
            store(target, c, (load(source, c) - mean) * factor)
        if gain >= 0:
            gains, shifts = address(numbers, gain), address(numbers, shift)
            for c in range(0, m, LANES):
                row = load(target, i * m + c)
                store(out, i * m + c, fma(row, load(gains, c), load(shifts, c)))


@inner
def normalise_back(dx, d_rows, normed, inverse, numbers, gradient, gain, shift):
    """Add to `dx` and to the gradients of gain and shift; `d_rows` is overwritten."""
    n, m = d_rows.shape
    weight = _ONE / np.float32(m)
    d_out, rows, target = address(d_rows, 0), address(normed, 0), address(dx, 0)
    for i in range(n):
        mean, projection, start = spread(_ZERO), spread(_ZERO), i * m
        if gain >= 0:
            gains = address(numbers, gain)
            d_gains, d_shifts = address(gradient, gain), address(gradient, shift)
            for c in range(0, m, LANES):
                d_row = load(d_out, start + c)
                store(d_gains, c, fma(d_row, load(rows, start + c), load(d_gains, c)))
                store(d_shifts, c, load(d_shifts, c) + d_row)
                d_row = d_row * load(gains, c)
                store(d_out, start + c, d_row)
                mean = mean + d_row
            mean = spread(total(mean) * weight)
        for c in range(start, start + m, LANES):
            projection = fma(load(d_out, c), load(rows, c), projection)
        projection, factor = spread(total(projection) * weight), spread(inverse[i])
        for c in range(start, start + m, LANES):
            d_x = load(d_out, c) - mean - load(rows, c) * projection
            store(target, c, fma(d_x, factor, load(target, c)))


@inner
def add_row(out, out_start, vector, start, n):
    """Add `n` numbers of `vector`, a multiple of `PIECE`, to `n` numbers of `out`."""
    target, source = address(out, out_start), address(vector, start)
    for c in range(0, n, LANES):
        store(target, c, load(target, c) + load(source, c))


@inner
def add_rows(out, row):
    """Add one row to every row of `out`."""
    for i in range(len(out)):
        target = out[i]
        for c in range(len(row)):
            target[c] += row[c]


@inner
def sum_rows(out, rows):
    """Add the sum of all rows to the vector `out`."""
    for i in range(len(rows)):
        row = rows[i]
        for c in range(len(out)):
            out[c] += row[c]


@entry
def clip(gradient, largest):
    """Scale down a run's gradient if its norm is larger than `largest`.

    Args:
        gradient: Gradient whose length is a multiple of `PIECE`.
        largest: Largest norm.

    Source:
        `torch.nn.utils.clip_grad_norm_`.
    """
    start, squares = address(gradient, 0), spread(_ZERO)
    for j in range(0, len(gradient), LANES):
        squares = fma(load(start, j), load(start, j), squares)
    factor = largest / (np.float32(math.sqrt(total(squares))) + np.float32(1e-6))
    if not factor >= _ONE:  # also true for NaN, which must reach all numbers
        for j in range(len(gradient)):
            gradient[j] *= factor


@entry
def adam(numbers, gradient, mean, square, first, second, epsilon, rate):
    """Take one step of Adam with a run's parameters; see `attnkit.model.adam.Adam`.

    Args:
        numbers: Parameters to update.
        gradient: Gradient of the parameters.
        mean: Running average of the gradient.
        square: Running average of the squared gradient.
        first: One minus the decay of `mean`.
        second: One minus the decay of `square`.
        epsilon: Number that is added to the denominator, with bias correction.
        rate: Learning rate, with bias correction.
    """
    for j in range(len(numbers)):
        g = gradient[j]
        mean[j] += (g - mean[j]) * first
        square[j] += (g * g - square[j]) * second
        numbers[j] -= rate * mean[j] / (np.float32(math.sqrt(square[j])) + epsilon)
