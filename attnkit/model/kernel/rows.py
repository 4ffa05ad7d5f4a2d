"""Rows of a chunk in memory: parts of vectors as matrices, windows of positions, linear maps."""

from __future__ import annotations

from numba import carray, njit

from attnkit.model.kernel.elementwise import PIECE, add_rows, copy, copy_numbers, sum_rows
from attnkit.model.kernel.products import multiply, multiply_add
from attnkit.model.kernel.tables import NONE
from attnkit.model.kernel.vectors import OPTIONS, address


@njit(**OPTIONS)
def padded(n):
    """Return the next multiple of `PIECE`."""
    return (n + PIECE - 1) // PIECE * PIECE


@njit(**OPTIONS)
def view(vector, start, n_rows, n_columns):
    """Return a part of a vector as a matrix, of the one kind of which parts of matrices are.

    Functions are compiled for each kind of matrix that they are called with.
    """
    return carray(address(vector, start), (n_rows, n_columns))[:, :]


@njit(**OPTIONS)
def vector_at(vector, start, size):
    """Return a part of a vector."""
    return carray(address(vector, start), (size,))


@njit(**OPTIONS)
def window(scratch, at, x, first, count, n):
    """Return some positions' rows of every example: x itself if they are all, else a copy."""
    rows = windowed(scratch, at, x, count, n)
    n_ctx, m = len(x) // n, x.shape[1]
    if count != n_ctx:
        for b in range(n):
            copy_numbers(rows, b * count * m, x, (b * n_ctx + first) * m, count * m)
    return rows


@njit(**OPTIONS)
def windowed(scratch, at, x, count, n):
    """Return the rows that `window` returns, without copying them again."""
    if count == len(x) // n:
        return x
    return view(scratch, at, n * count, x.shape[1])


@njit(**OPTIONS)
def put_back(x, rows, first, count, n):
    """Write rows that `window` has returned where they came from, if they are a copy."""
    n_ctx, m = len(x) // n, x.shape[1]
    if count != n_ctx:
        for b in range(n):
            copy_numbers(x, (b * n_ctx + first) * m, rows, b * count * m, count * m)


@njit(**OPTIONS)
def linear(out, rows, matrix, numbers):
    """Write rows times a weight, plus its bias."""
    if matrix.weight == NONE:
        copy(out, rows)
        return
    multiply(out, rows, view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, vector_at(numbers, matrix.bias, matrix.n_out))


@njit(**OPTIONS)
def linear_add(out, rows, matrix, numbers):
    """Add rows times a weight, and its bias."""
    if matrix.weight == NONE:
        out += rows
        return
    multiply_add(out, rows, view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, vector_at(numbers, matrix.bias, matrix.n_out))


@njit(**OPTIONS)
def linear_back(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight and its bias, and write that of the rows."""
    if matrix.weight == NONE:
        copy(d_rows, d_out)
        return
    _weight_back(d_out, rows, matrix, gradient)
    multiply(d_rows, d_out, view(scratch, matrix.transposed, matrix.n_out, matrix.n_in))


@njit(**OPTIONS)
def linear_back_add(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight, its bias, and the rows that it multiplied."""
    if matrix.weight == NONE:
        d_rows += d_out
        return
    _weight_back(d_out, rows, matrix, gradient)
    multiply_add(d_rows, d_out, view(scratch, matrix.transposed, matrix.n_out, matrix.n_in))


@njit(**OPTIONS)
def _weight_back(d_out, rows, matrix, gradient):
    """Add to the gradients of a weight and its bias."""
    multiply_add(view(gradient, matrix.weight, matrix.n_in, matrix.n_out), rows.T, d_out)
    if matrix.bias != NONE:
        sum_rows(vector_at(gradient, matrix.bias, matrix.n_out), d_out)
