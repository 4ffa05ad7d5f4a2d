"""A numba type for vectors of floats, with arithmetic.

LLVM has vectors of any length and compiles them to the instructions of the processor, but numba
does not offer them. LLVM also vectorises loops over single numbers, but in rows as short as those
of attention such a loop spends most of its time before and after the vectorised part.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from attnkit.model.kernel.compiler import inner

_FEATURES = cpu_target.target_context.codegen().magic_tuple()[
    2
]  # features of the processor that numba compiles for
LANES = 16 if "+avx512f" in _FEATURES else 8 if "+avx" in _FEATURES else 4
"""Number of floats in a vector register."""

FLOAT, INDEX, INT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)
POINTER = types.CPointer(types.float32)


class _Vector(types.Type):
    """numba type of a vector."""

    def __init__(self) -> None:
        super().__init__(name=f"vector of {LANES} floats")


_vector = _Vector()


@register_model(_Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def address_at(builder: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """Emit the address of the number that is `offset` numbers after another one."""
    return builder.gep(pointer, [offset])


def load_vector(builder: ir.IRBuilder, kind: Any, pointer: Any) -> Any:
    """Emit the loading of a vector from an address without alignment."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def store_vector(builder: ir.IRBuilder, value: Any, pointer: Any) -> None:
    """Emit the storing of a vector at an address without alignment."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)


def spread_over(builder: ir.IRBuilder, value: Any, kind: Any = VECTOR) -> Any:
    """Emit a vector with the same number in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(INT, 0))
    lanes = ir.Constant(ir.VectorType(INT, kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), lanes)


def call_llvm(
    builder: ir.IRBuilder, name: str, result: Any, arguments: Sequence[Any], suffix: str = ""
) -> Any:
    """Emit a call of one of LLVM's intrinsic vector functions."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    full_name = f"llvm.{name}.v{LANES}f32{suffix}"
    function = cgutils.get_or_insert_function(builder.module, signature, full_name)
    return builder.call(function, arguments)


@intrinsic
def address(typing_context, numbers, start):
    """Return the address of a number, counted from another address or from an array's start."""

    def generate(context, builder, signature, arguments):
        first = arguments[0]
        if numbers != POINTER:
            first = context.make_array(numbers)(context, builder, first).data
        return address_at(builder, first, context.cast(builder, arguments[1], start, types.int64))

    return POINTER(numbers, start), generate


@intrinsic
def load(typing_context, pointer, start):
    """Return the vector that begins `start` numbers after an address."""

    def generate(context, builder, signature, arguments):
        return load_vector(builder, VECTOR, address_at(builder, *arguments))

    return _vector(POINTER, types.int64), generate


@intrinsic
def store(typing_context, pointer, start, vector):
    """Store a vector `start` numbers after an address."""

    def generate(context, builder, signature, arguments):
        store_vector(builder, arguments[2], address_at(builder, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(POINTER, types.int64, _vector), generate


@intrinsic
def spread(typing_context, number):
    """Return a vector with the same float32 in every lane."""

    def generate(context, builder, signature, arguments):
        return spread_over(builder, arguments[0])

    return _vector(types.float32), generate


@intrinsic
def fma(typing_context, a, b, c):
    """Return a · b + c, rounded once."""

    def generate(context, builder, signature, arguments):
        return call_llvm(builder, "fma", VECTOR, arguments)

    return _vector(_vector, _vector, _vector), generate


@intrinsic
def larger(typing_context, a, b):
    """Return the larger number of every lane; b where one of them is NaN."""

    def generate(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return _vector(_vector, _vector), generate


@intrinsic
def first_lanes(typing_context, vector, n, other):
    """Return a vector with the first `n` lanes of `vector` and the other lanes of `other`."""

    def generate(context, builder, signature, arguments):
        vector, n, other = arguments
        n_lanes = spread_over(builder, builder.trunc(n, INT), INTS)
        lanes = ir.Constant(INTS, list(range(LANES)))
        return builder.select(builder.icmp_signed("<", lanes, n_lanes), vector, other)

    return _vector(_vector, types.int64, _vector), generate


def _reduction(combine: Callable[[ir.IRBuilder, Any, Any], Any]) -> Any:
    """Return a numba function that reduces all lanes to one number, combining halves."""

    @intrinsic
    def reduce(typing_context, vector):
        def generate(context, builder, signature, arguments):
            combined, half = arguments[0], LANES // 2
            while half:
                lanes = [(lane + half) % LANES for lane in range(LANES)]
                moved = builder.shuffle_vector(combined, combined, ir.Constant(INTS, lanes))
                combined, half = combine(builder, combined, moved), half // 2
            return builder.extract_element(combined, ir.Constant(INT, 0))

        return types.float32(_vector), generate

    return reduce


total = _reduction(lambda builder, a, b: builder.fadd(a, b))
largest = _reduction(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


def _operator(symbol: Any, instruction: str) -> None:
    """Define an operator of two vectors in numba as one LLVM instruction."""

    @type_callable(symbol)
    def find_type(context):
        return lambda a, b: _vector if a == b == _vector else None

    @lower_builtin(symbol, _Vector, _Vector)
    def generate(context, builder, signature, arguments):
        return getattr(builder, instruction)(*arguments, flags=("contract",))


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_symbol, _instruction)


@intrinsic
def _power_of_two(typing_context, x):
    """Round every lane to a whole number n, and return 2ⁿ and n."""

    def generate(context, builder, signature, arguments):
        n = call_llvm(builder, "rint", VECTOR, arguments)
        bits = builder.add(builder.fptosi(n, INTS), ir.Constant(INTS, [127] * LANES))
        bits = builder.shl(bits, ir.Constant(INTS, [23] * LANES))
        return context.make_tuple(
            builder, signature.return_type, [builder.bitcast(bits, VECTOR), n]
        )

    return types.UniTuple(_vector, 2)(_vector), generate


@intrinsic
def _finish_exp(typing_context, x, y):
    """Return y, but zero where x is below `_SMALLEST`, and NaN where x is NaN."""

    def generate(context, builder, signature, arguments):
        x, y = arguments
        small = builder.fcmp_ordered("<", x, ir.Constant(VECTOR, [_SMALLEST] * LANES))
        y = builder.select(small, ir.Constant(VECTOR, [0.0] * LANES), y)
        return builder.select(builder.fcmp_unordered("uno", x, x), x, y)

    return _vector(_vector, _vector), generate


_SMALLEST = -87.0
_HIGH, _LOW = np.float32(-0.693359375), np.float32(2.12194440e-4)
_LOG2_E, _LEAST = np.float32(1.4426950408889634), np.float32(_SMALLEST)
_E5, _E4 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3)
_E3, _E2 = np.float32(8.3334519073e-3), np.float32(4.1665795894e-2)
_E1, _E0 = np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ONE = np.float32(1.0)


@inner
def exp(x):
    """Return the exponential of every lane, with a relative error of about 10⁻⁷.

    Args:
        x: Vector of numbers that are at most zero, or NaN. Below −87 the result is zero.

    Source:
        Range reduction to ±½ ln 2 and the polynomial of the Cephes library's `expf`.
    """
    bounded = larger(x, spread(_LEAST))  # `_finish_exp` restores NaN
    power, n = _power_of_two(bounded * spread(_LOG2_E))
    r = fma(n, spread(_LOW), fma(n, spread(_HIGH), bounded))
    p = fma(fma(spread(_E5), r, spread(_E4)), r, spread(_E3))
    p = fma(fma(fma(p, r, spread(_E2)), r, spread(_E1)), r, spread(_E0))
    return _finish_exp(x, (fma(p, r * r, r) + spread(_ONE)) * power)
