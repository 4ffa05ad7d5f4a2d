"""Matrix products with accumulators in vector registers, written as LLVM instructions.

Loops in numba store every partial sum, and a call of a BLAS library takes longer than most products
of a small transformer. LLVM vectors need no compiler on the machine and work on any processor. The
sums of a block of rows and two vectors of columns stay in registers for the whole inner axis;
columns that do not fill a vector are masked.

As everywhere in the kernel, no bounds are checked: the caller passes matching shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from attnkit.model.kernel.compiler import inner
from attnkit.model.kernel.vectors import (
    FLOAT,
    INDEX,
    INT,
    INTS,
    LANES,
    POINTER,
    VECTOR,
    address,
    address_at,
    call_llvm,
    load_vector,
    spread_over,
    store_vector,
)

_ROWS = (6, 4, 1) if LANES == 8 else (12, 8, 4, 1)
"""Numbers of rows that are accumulated together, limited by the number of registers."""

_TILE = 8
"""Number of rows and columns that `transpose` moves at once."""

_Body = Callable[[ir.IRBuilder, Any, list[Any]], list[Any]]


@inner
def multiply(out, a, b):
    """Write the product a @ b.

    Args:
        out: Product, (i, j), with contiguous rows.
        a: Left matrix, (i, k), with any strides, so that a transpose costs nothing.
        b: Right matrix, (k, j), with contiguous rows.
    """
    _product(
        *(address(out, 0), out.strides[0] // 4),
        *(address(a, 0), a.strides[0] // 4, a.strides[1] // 4),
        *(address(b, 0), b.strides[0] // 4),
        *(a.shape[0], b.shape[1], a.shape[1], 0),
    )


@inner
def multiply_add(out, a, b):
    """Add the product a @ b to `out`; the arguments are those of `multiply`."""
    _product(
        *(address(out, 0), out.strides[0] // 4),
        *(address(a, 0), a.strides[0] // 4, a.strides[1] // 4),
        *(address(b, 0), b.strides[0] // 4),
        *(a.shape[0], b.shape[1], a.shape[1], 1),
    )


@inner
def transpose(out, a):
    """Write the transpose of a matrix with contiguous rows."""
    n_rows, n_columns = a.shape
    target, out_stride = address(out, 0), out.strides[0] // 4
    source, stride = address(a, 0), a.strides[0] // 4
    tile_rows, tile_columns = n_rows // _TILE * _TILE, n_columns // _TILE * _TILE
    for i in range(0, tile_rows, _TILE):
        for j in range(0, tile_columns, _TILE):
            _transpose_tile(target, j * out_stride + i, out_stride, source, i * stride + j, stride)
        for j in range(tile_columns, n_columns):
            for row in range(i, i + _TILE):
                out[j, row] = a[row, j]
    for i in range(tile_rows, n_rows):
        for j in range(n_columns):
            out[j, i] = a[i, j]


def _loop(
    builder: ir.IRBuilder, start: Any, stop: Any, step: Any, initial: Sequence[Any], body: _Body
) -> list[Any]:
    """Emit a loop `for i in range(start, stop, step)` that carries values between iterations."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    counter = builder.phi(INDEX)
    counter.add_incoming(start, before)
    carried = []
    for value in initial:
        carried.append(builder.phi(value.type))
        carried[-1].add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", counter, stop), inside, after)
    builder.position_at_end(inside)
    results = body(builder, counter, carried)
    counter.add_incoming(builder.add(counter, step), builder.block)
    for phi, value in zip(carried, results, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return carried


def _index(value: int) -> ir.Constant:
    return ir.Constant(INDEX, value)


class _Columns:
    """Reader and writer of a block's columns, as vectors of which the last may be masked.

    Args:
        n_vectors: Number of vectors.
        n_left: Number of columns; None if they fill all vectors.
    """

    def __init__(self, builder: ir.IRBuilder, n_vectors: int, n_left: Any = None) -> None:
        self.n_vectors, self._mask = n_vectors, None
        if n_left is not None:
            n_last = builder.sub(n_left, _index((n_vectors - 1) * LANES))
            n_lanes = spread_over(builder, builder.trunc(n_last, INT), INTS)
            self._mask = builder.icmp_signed("<", ir.Constant(INTS, list(range(LANES))), n_lanes)

    def load(self, builder: ir.IRBuilder, pointer: Any) -> list[Any]:
        """Emit the loading of one row."""
        return [
            self._load(builder, start, mask) for start, mask in self._addresses(builder, pointer)
        ]

    def store(self, builder: ir.IRBuilder, vectors: Sequence[Any], pointer: Any) -> None:
        """Emit the storing of one row."""
        for vector, (start, mask) in zip(vectors, self._addresses(builder, pointer), strict=True):
            if mask is None:
                store_vector(builder, vector, start)
            else:
                start = builder.bitcast(start, VECTOR.as_pointer())
                arguments = (vector, start, ir.Constant(INT, 4), mask)
                call_llvm(builder, "masked.store", ir.VoidType(), arguments, ".p0")

    def _load(self, builder: ir.IRBuilder, start: Any, mask: Any) -> Any:
        if mask is None:
            return load_vector(builder, VECTOR, start)
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        start = builder.bitcast(start, VECTOR.as_pointer())
        arguments = (start, ir.Constant(INT, 4), mask, zero)
        return call_llvm(builder, "masked.load", VECTOR, arguments, ".p0")

    def _addresses(self, builder: ir.IRBuilder, pointer: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the address and the mask of every vector."""
        for v in range(self.n_vectors):
            mask = self._mask if v == self.n_vectors - 1 else None
            yield address_at(builder, pointer, _index(v * LANES)), mask


def _block(builder: ir.IRBuilder, columns: _Columns, n_rows: int, operands: Sequence[Any]) -> None:
    """Emit the product of `n_rows` rows and one group of columns."""
    out, out_stride, a, a_down, a_right, b, b_down, n_inner, adds = operands
    rows = [address_at(builder, a, builder.mul(_index(row), a_down)) for row in range(n_rows)]
    targets = [
        address_at(builder, out, builder.mul(_index(row), out_stride)) for row in range(n_rows)
    ]
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    before = builder.block
    with builder.if_then(adds):
        loaded = [vector for target in targets for vector in columns.load(builder, target)]
        loading = builder.block
    initial = []
    for vector in loaded:
        initial.append(builder.phi(VECTOR))
        initial[-1].add_incoming(vector, loading)
    for phi in initial:
        phi.add_incoming(zero, before)

    def accumulate(builder: ir.IRBuilder, k: Any, sums: list[Any]) -> list[Any]:
        vectors = columns.load(builder, address_at(builder, b, builder.mul(k, b_down)))
        right = builder.mul(k, a_right)
        results = []
        for row in range(n_rows):
            factor = spread_over(builder, builder.load(address_at(builder, rows[row], right)))
            for v, vector in enumerate(vectors):
                partial = sums[row * columns.n_vectors + v]
                results.append(call_llvm(builder, "fma", VECTOR, (factor, vector, partial)))
        return results

    sums = _loop(builder, _index(0), n_inner, _index(1), initial, accumulate)
    for row in range(n_rows):
        vectors = sums[row * columns.n_vectors : (row + 1) * columns.n_vectors]
        columns.store(builder, vectors, targets[row])


def _generate(builder: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    """Emit the loops over groups of columns and, inside, over groups of rows."""
    out, out_stride, a, a_down, a_right, b, b_down, n_rows, n_columns, n_inner, adds = arguments
    adds = builder.icmp_signed("!=", adds, _index(0))

    def all_rows(builder: ir.IRBuilder, columns: _Columns, j: Any) -> None:
        out_j, b_j = address_at(builder, out, j), address_at(builder, b, j)
        i = _index(0)
        for n_together in _ROWS:

            def rows(
                builder: ir.IRBuilder, _: Any, carried: list[Any], n: int = n_together
            ) -> list[Any]:
                (i,) = carried
                operands = (
                    address_at(builder, out_j, builder.mul(i, out_stride)),
                    out_stride,
                    address_at(builder, a, builder.mul(i, a_down)),
                    *(a_down, a_right, b_j, b_down, n_inner, adds),
                )
                _block(builder, columns, n, operands)
                return [builder.add(i, _index(n))]

            stop = builder.sub(n_rows, _index(n_together - 1))
            (i,) = _loop(builder, i, stop, _index(n_together), [i], rows)

    def two_vectors(builder: ir.IRBuilder, j: Any, _: list[Any]) -> list[Any]:
        all_rows(builder, _Columns(builder, 2), j)
        return [builder.add(j, _index(2 * LANES))]

    width = _index(2 * LANES)
    stop = builder.sub(n_columns, _index(2 * LANES - 1))
    (j,) = _loop(builder, _index(0), stop, width, [_index(0)], two_vectors)
    n_left = builder.sub(n_columns, j)
    with builder.if_then(builder.icmp_signed(">", n_left, _index(LANES))):
        all_rows(builder, _Columns(builder, 2, n_left), j)
    with builder.if_then(builder.icmp_signed("==", n_left, _index(LANES))):
        all_rows(builder, _Columns(builder, 1), j)
    is_left = builder.icmp_signed(">", n_left, _index(0))
    with builder.if_then(builder.and_(is_left, builder.icmp_signed("<", n_left, _index(LANES)))):
        all_rows(builder, _Columns(builder, 1, n_left), j)


@intrinsic
def _emit_product(typing_context, out, o0, a, a0, a1, b, b0, i, j, k, adds):
    def generate(context, builder, signature, arguments):
        _generate(builder, arguments)
        return context.get_dummy_value()

    kinds = (POINTER if n in (0, 2, 5) else types.int64 for n in range(11))
    return types.void(*kinds), generate


@inner
def _product(out, o0, a, a0, a1, b, b0, i, j, k, adds):
    """Compute a product from addresses, strides and sizes; `adds` is 1 to add it to `out`."""
    _emit_product(out, o0, a, a0, a1, b, b0, i, j, k, adds)


@intrinsic
def _transpose_tile(typing_context, out, out_start, out_stride, a, start, stride):
    """Transpose a `_TILE` × `_TILE` square: exchange its halves, then quarters, then eighths."""
    vector, lanes = ir.VectorType(FLOAT, _TILE), ir.VectorType(INT, _TILE)

    def generate(context, builder, signature, arguments):
        out, out_start, out_stride, a, start, stride = arguments

        def row_address(pointer, first, stride, row):
            return address_at(
                builder, pointer, builder.add(first, builder.mul(_index(row), stride))
            )

        rows = [
            load_vector(builder, vector, row_address(a, start, stride, row)) for row in range(_TILE)
        ]
        for half in (4, 2, 1):
            for row in range(_TILE):
                if row & half:
                    continue
                low = [lane if not lane & half else lane - half + _TILE for lane in range(_TILE)]
                high = [lane + half if not lane & half else lane + _TILE for lane in range(_TILE)]
                pair = rows[row], rows[row + half]
                rows[row] = builder.shuffle_vector(*pair, ir.Constant(lanes, low))
                rows[row + half] = builder.shuffle_vector(*pair, ir.Constant(lanes, high))
        for row in range(_TILE):
            store_vector(builder, rows[row], row_address(out, out_start, out_stride, row))
        return context.get_dummy_value()

    index = types.int64
    return types.void(POINTER, index, index, POINTER, index, index), generate
