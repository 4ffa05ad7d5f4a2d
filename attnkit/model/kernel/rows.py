"""Rows of a chunk in memory: views of vectors as matrices, windows of positions, linear maps."""

from __future__ import annotations

from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from attnkit.model.kernel import tables
from attnkit.model.kernel.compiler import inner
from attnkit.model.kernel.elementwise import add_rows, copy, copy_numbers, sum_rows
from attnkit.model.kernel.products import multiply, multiply_add
from attnkit.model.kernel.tables import NONE
from attnkit.model.kernel.vectors import INDEX, POINTER, address

padded = inner(tables.padded)

_MATRIX = types.Array(types.float32, 2, "A")
"""Type of every matrix: numba compiles a function again for each type it is called with."""


@intrinsic
def _matrix(typing_context, pointer, n_rows, n_columns, stride):
    """Return the matrix that begins at an address, with this distance between its rows."""

    def generate(context, builder, signature, arguments):
        pointer, n_rows, n_columns, stride = arguments
        size, matrix = ir.Constant(INDEX, 4), context.make_array(_MATRIX)(context, builder)
        populate_array(
            matrix, pointer, [n_rows, n_columns], [builder.mul(stride, size), size], size, None
        )
        return matrix._getvalue()

    return _MATRIX(POINTER, types.int64, types.int64, types.int64), generate


@inner
def view(numbers, start, n_rows, n_columns):
    """Return the numbers from an address on as a matrix."""
    return _matrix(address(numbers, start), n_rows, n_columns, n_columns)


@inner
def part(matrix, row, n_rows, column, n_columns):
    """Return a part of a matrix, which begins at this row and column."""
    stride = matrix.strides[0] // 4
    return _matrix(address(matrix, row * stride + column), n_rows, n_columns, stride)


@inner
def columns(matrix, n):
    """Return the first `n` columns of a matrix."""
    return _matrix(address(matrix, 0), len(matrix), n, matrix.strides[0] // 4)


@inner
def vector_at(vector, start, size):
    """Return a slice of a vector."""
    return carray(address(vector, start), (size,))


@inner
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


@inner
def window_view(scratch, offset, x, count, n):
    """Return the rows that `window` returns, without copying them."""
    if count == len(x) // n:
        return x
    return view(scratch, offset, n * count, x.shape[1])


@inner
def put_back(x, rows, first, count, n):
    """Write the rows that `window` returned back to `x`, if they are a copy."""
    n_ctx, m = len(x) // n, x.shape[1]
    if count != n_ctx:
        for b in range(n):
            copy_numbers(x, (b * n_ctx + first) * m, rows, b * count * m, count * m)


@inner
def linear(out, rows, matrix, numbers):
    """Write rows @ weight + bias."""
    if matrix.weight == NONE:
        copy(out, rows)
        return
    multiply(out, rows, view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, vector_at(numbers, matrix.bias, matrix.n_out))


@inner
def linear_add(out, rows, matrix, numbers):
    """Add rows @ weight + bias to `out`."""
    if matrix.weight == NONE:
        out += rows
        return
    multiply_add(out, rows, view(numbers, matrix.weight, matrix.n_in, matrix.n_out))
    if matrix.bias != NONE:
        add_rows(out, vector_at(numbers, matrix.bias, matrix.n_out))


@inner
def linear_back(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight and its bias, and write the gradient of the rows."""
    if matrix.weight == NONE:
        copy(d_rows, d_out)
        return
    _weight_back(d_out, rows, matrix, gradient)
    multiply(d_rows, d_out, view(scratch, matrix.transposed, matrix.n_out, matrix.n_in))


@inner
def linear_back_add(d_rows, d_out, rows, matrix, gradient, scratch):
    """Add to the gradients of a weight, its bias, and the rows."""
    if matrix.weight == NONE:
        d_rows += d_out
        return
    _weight_back(d_out, rows, matrix, gradient)
    multiply_add(d_rows, d_out, view(scratch, matrix.transposed, matrix.n_out, matrix.n_in))


@inner
def _weight_back(d_out, rows, matrix, gradient):
    """Add to the gradients of a weight and its bias."""
    multiply_add(view(gradient, matrix.weight, matrix.n_in, matrix.n_out), rows.T, d_out)
    if matrix.bias != NONE:
        sum_rows(vector_at(gradient, matrix.bias, matrix.n_out), d_out)
