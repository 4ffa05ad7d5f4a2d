"""Vectors of floats as a type that numba's functions compute with.

LLVM has vectors of any length and turns them into the instructions of the processor at hand; numba
does not offer them. Rows of attention are so short that loops over single numbers, which LLVM turns
into vectors by itself, spend most of their time before and after the vectors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, overload, register_model

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
}
"""Options of every function of the kernel. A product and a sum may be rounded together; nothing is
reordered, so that bits depend on the length of vectors alone, and NaN and infinity stay."""

_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2]  # of what numba compiles for
LANES = 16 if "+avx512f" in _FEATURES else 8 if "+avx" in _FEATURES else 4
"""Floats in a vector register."""

FLOAT, INDEX, INT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)
POINTER = types.CPointer(types.float32)


class _Vector(types.Type):
    """The type of a vector in numba."""

    def __init__(self) -> None:
        super().__init__(name=f"vector of {LANES} floats")


_vector = _Vector()


@register_model(_Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def place_at(builder: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """Write the address of a number some places after another one."""
    return builder.gep(pointer, [offset])


def load_vector(builder: ir.IRBuilder, kind: Any, pointer: Any) -> Any:
    """Write the loading of a vector that begins at any number."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def store_vector(builder: ir.IRBuilder, value: Any, pointer: Any) -> None:
    """Write the storing of a vector from any number on."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)


def spread_over(builder: ir.IRBuilder, value: Any, kind: Any = VECTOR) -> Any:
    """Write a vector with one number in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(INT, 0))
    lanes = ir.Constant(ir.VectorType(INT, kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), lanes)


def call_llvm(
    builder: ir.IRBuilder, name: str, result: Any, arguments: Sequence[Any], suffix: str = ""
) -> Any:
    """Write a call of one of LLVM's own functions of vectors."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    full = f"llvm.{name}.v{LANES}f32{suffix}"
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, full), arguments)


@intrinsic
def address(typing_context, numbers, start):
    """Return the address of a number, counted from another address or from an array's beginning."""

    def generate(context, builder, signature, arguments):
        first = arguments[0]
        if numbers != POINTER:
            first = context.make_array(numbers)(context, builder, first).data
        return place_at(builder, first, context.cast(builder, arguments[1], start, types.int64))

    return POINTER(numbers, start), generate


@intrinsic
def load(typing_context, pointer, start):
    """Return the vector that begins at a number."""

    def generate(context, builder, signature, arguments):
        return load_vector(builder, VECTOR, place_at(builder, *arguments))

    return _vector(POINTER, types.int64), generate


@intrinsic
def store(typing_context, pointer, start, vector):
    """Store a vector from a number on."""

    def generate(context, builder, signature, arguments):
        store_vector(builder, arguments[2], place_at(builder, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(POINTER, types.int64, _vector), generate


@intrinsic
def spread(typing_context, number):
    """Return a vector with one float32 in every lane."""

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
    """Return the first `n` lanes of a vector and the other lanes of another one."""

    def generate(context, builder, signature, arguments):
        wanted = spread_over(builder, builder.trunc(arguments[1], INT), INTS)
        lanes = ir.Constant(INTS, list(range(LANES)))
        return builder.select(builder.icmp_signed("<", lanes, wanted), arguments[0], arguments[2])

    return _vector(_vector, types.int64, _vector), generate


def _reduction(combine: Callable[[ir.IRBuilder, Any, Any], Any]) -> Any:
    """Return a function that combines all lanes, half with half."""

    @intrinsic
    def reduce(typing_context, vector):
        def generate(context, builder, signature, arguments):
            found, half = arguments[0], LANES // 2
            while half:
                lanes = [(lane + half) % LANES for lane in range(LANES)]
                moved = builder.shuffle_vector(found, found, ir.Constant(INTS, lanes))
                found, half = combine(builder, found, moved), half // 2
            return builder.extract_element(found, ir.Constant(INT, 0))

        return types.float32(_vector), generate

    return reduce


total = _reduction(lambda builder, a, b: builder.fadd(a, b))
largest = _reduction(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


def _operator(symbol: Any, instruction: str) -> None:
    """Let numba compute an operator of two vectors by one instruction."""

    @intrinsic
    def compute(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments, flags=("contract",))

        return _vector(_vector, _vector), generate

    @overload(symbol)
    def typed(a, b):
        if isinstance(a, _Vector) and isinstance(b, _Vector):
            return lambda a, b: compute(a, b)
        return None


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_symbol, _instruction)


@intrinsic
def _power_of_two(typing_context, x):
    """Return 2 to the nearest whole numbers, and those numbers."""

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
    """Return y; zero where x is so small that y would be, and NaN where x is NaN."""

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


@njit(**OPTIONS)
def exp(x):
    """Return e to every lane, to about one part in 10⁷; zero below −87.

    Args:
        x: at most zero, or NaN, which stays.

    Source:
        Range reduction to ±½ ln 2 and the polynomial of the Cephes library's `expf`.
    """
    bounded = larger(x, spread(_LEAST))  # NaN becomes the bound, and NaN again at the end
    power, n = _power_of_two(bounded * spread(_LOG2_E))
    r = fma(n, spread(_LOW), fma(n, spread(_HIGH), bounded))
    p = fma(fma(spread(_E5), r, spread(_E4)), r, spread(_E3))
    p = fma(fma(fma(p, r, spread(_E2)), r, spread(_E1)), r, spread(_E0))
    return _finish_exp(x, (fma(p, r * r, r) + spread(_ONE)) * power)
