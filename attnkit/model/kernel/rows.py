"""Rows of a chunk in memory: views of vectors as matrices, windows of positions, linear maps."""

from __future__ import annotations

from numba import carray, njit

from attnkit.model.kernel.elementwise import PIECE, add_rows, copy, copy_numbers, sum_rows
from attnkit.model.kernel.products import multiply, multiply_add
from attnkit.model.kernel.tables import NONE
from attnkit.model.kernel.vectors import OPTIONS, address


@njit(**OPTIONS)
def padded(n):
    """Return n rounded up to a multiple of `PIECE`."""
    return (n + PIECE - 1) // PIECE * PIECE


@njit(**OPTIONS)
def view(vector, start, n_rows, n_columns):
    """Return a slice of a vector as a matrix.

    The matrix has the same numba type as a slice of a matrix, because numba compiles functions
    again for every type that they are called with.
    """
    return carray(address(vector, start), (n_rows, n_columns))[:, :]


@njit(**OPTIONS)
def vector_at(vector, start, size):
    """Return a slice of a vector."""
    return carray(address(vector, start), (size,))


@njit(**OPTIONS)
def window(scratch, offset, x, first, count, n):
    """Return the rows of `count` positions of every example, beginning with position `first`.

    If these are all positions, the rows are `x` itself, else a copy in scratch memory.
    """
    rows = window_view(scratch, offset, x, count, n)
    n_ctx, m = len(x) // n, x.shape[1]
    if count != n_ctx:
        for b in range(n):
            copy_numbers(rows, b * count * m, x, (b * n_ctx + first) * m, count * m)
    return rows


@njit(**OPTIONS)
def window_view(scratch, offset, x, count, n):
    """Return the rows that `window` returns, without copying them."""
    if count == len(x) // n:
        return x
    return view(scratch, offset, n * count, x.shape[1])


@njit(**OPTIONS)
def put_back(x, rows, first, count, n):
    """Write the rows that `window` returned back to `x`, if they are a copy."""
    n_ctx, m = len(x) // n, x.shape[1]
    if count != n_ctx:
        for b in range(n):
            copy_numbers(x, (b * n_ctx + first) * m, rows, b * count * m, count * m)


@njit(**OPTIONS)
def linear(out, rows, matrix, numbers):
    """Write rows @ weight + bias."""
    if matrix.weight == NONE:
        copy(out, rows)
        return
    multiply(out, rows, view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, vector_at(numbers, matrix.bias, matrix.n_out))


@njit(**OPTIONS)
def linear_add(out, rows, matrix, numbers):
    """Add rows @ weight + bias to `out`."""
    if matrix.weight == NONE:
        out += rows
        return
    multiply_add(out, rows, view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, vector_at(numbers, matrix.bias, matrix.n_out))


@njit(**OPTIONS)
def linear_back(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight and its bias, and write the gradient of the rows."""
    if matrix.weight == NONE:
        copy(d_rows, d_out)
        return
    _weight_back(d_out, rows, matrix, gradient)
    multiply(d_rows, d_out, view(scratch, matrix.transposed, matrix.n_out, matrix.n_in))


@njit(**OPTIONS)
def linear_back_add(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight, its bias, and the rows."""
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
