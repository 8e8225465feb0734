"""Arithmetic on all lanes of one float type and on its bits, as straight-line instructions.

Conversions and functions are written with it. An operand is a name, or a Python number that becomes
a constant. Nothing may be reassociated or contracted except `Arithmetic.fma`: error-free steps rely
on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from tilewright.dtypes import DType, boolean, f32, f64, s32, s64
from tilewright.targets.llvm.types import constant, llvm_type, splat, suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer


class Arithmetic:
    """Instructions on ``lanes`` elements of ``dtype`` (f32 or f64) and on integers of that width.

    ``integer`` is that integer type. Methods take and return the text of values; conditions are
    one bit for each lane.
    """

    def __init__(self, w: Writer, dtype: DType, lanes: int) -> None:
        self.w, self.dtype, self.lanes = w, dtype, lanes
        self.integer = s32 if dtype is f32 else s64
        self.type = llvm_type(dtype, lanes)
        self.bits_type = llvm_type(self.integer, lanes)
        self._flags = llvm_type(boolean, lanes)
        # Position of the exponent, what is added to it, and the bits of 1.0.
        self.shift = 23 if dtype is f32 else 52
        self.bias = 127 if dtype is f32 else 1023
        self.one = self.bias << self.shift
        # Adding it rounds to an integer, which is then in the low bits.
        self.magic = 1.5 * 2.0**self.shift

    def number(self, x: str | float) -> str:
        """``x`` as an operand; a Python number is rounded to the type."""
        if isinstance(x, str):
            return x
        rounded = float(np.float32(x)) if self.dtype is f32 else float(x)
        return splat(constant(rounded, self.dtype), self.dtype, self.lanes)

    def whole(self, n: str | int) -> str:
        """``n`` as an operand of integer instructions."""
        return n if isinstance(n, str) else splat(str(n), self.integer, self.lanes)

    def value(self, text: str) -> Value:
        return Value(text, self.dtype, self.lanes)

    def _float(self, name: str, x: str | float, y: str | float) -> str:
        return self.w.assign(f"{name} {self.type} {self.number(x)}, {self.number(y)}")

    def add(self, x: str | float, y: str | float) -> str:
        return self._float("fadd", x, y)

    def sub(self, x: str | float, y: str | float) -> str:
        return self._float("fsub", x, y)

    def mul(self, x: str | float, y: str | float) -> str:
        return self._float("fmul", x, y)

    def div(self, x: str | float, y: str | float) -> str:
        return self._float("fdiv", x, y)

    def fma(self, x: str | float, y: str | float, z: str | float) -> str:
        """``x * y + z``, rounded once where the machine can, otherwise twice."""
        return self._intrinsic("fmuladd", x, y, z)

    def exact_sum(self, x: str | float, y: str | float) -> tuple[str, str]:
        """``x + y`` and what is lost by rounding it: together they are exact (Knuth)."""
        total = self.add(x, y)
        part = self.sub(total, x)
        return total, self.add(self.sub(y, part), self.sub(x, self.sub(total, part)))

    def ordered_sum(self, x: str | float, y: str | float) -> tuple[str, str]:
        """The same where ``x`` is zero or its exponent is at least that of ``y`` (Dekker)."""
        total = self.add(x, y)
        return total, self.sub(y, self.sub(total, x))

    def exact_product(self, x: str, y: str | float) -> tuple[str, str]:
        """``x * y`` and what is lost by rounding it, to a relative 2**-106 (f64)."""
        y, product = self.number(y), self.mul(x, y)
        if self.dtype in self.w.dialect.fuses:
            return product, self._intrinsic("fma", x, y, self.sub(-0.0, product))
        # Without an instruction, by halves of 26 and 27 bits.
        (a, b), (c, d) = self._halves(x), self._halves(y)
        lost = self.add(self.sub(self.mul(a, c), product), self.mul(a, d))
        return product, self.add(self.add(lost, self.mul(b, c)), self.mul(b, d))

    def _halves(self, x: str) -> tuple[str, str]:
        high = self.floats(self.op("and", self.bits(x), -(1 << (self.shift + 2) // 2)))
        return high, self.sub(x, high)

    def absolute(self, x: str) -> str:
        return self._intrinsic("fabs", x)

    def rint(self, x: str) -> str:
        return self._intrinsic("rint", x)

    def floor(self, x: str) -> str:
        return self._intrinsic("floor", x)

    def with_sign_of(self, magnitude: str, sign: str) -> str:
        return self._intrinsic("copysign", magnitude, sign)

    def _intrinsic(self, name: str, *operands: str | float) -> str:
        arguments = ", ".join(f"{self.type} {self.number(x)}" for x in operands)
        types = ", ".join([self.type] * len(operands))
        function = f"llvm.{name}.{suffix(self.dtype, self.lanes)}"
        return self.w.call(self.type, function, arguments, types)

    def polynomial(self, coefficients: Sequence[float], x: str) -> str:
        """``coefficients[0] + coefficients[1] x + ...`` by Horner's rule."""
        result: str | float = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return self.number(result)

    def pairs(self, coefficients: Sequence[float], x: str, square: str) -> str:
        """The same by pairs of coefficients, given ``x * x``: a dependence chain half as long."""
        result: str | None = None
        for first in reversed(range(0, len(coefficients), 2)):
            pair = self.polynomial(coefficients[first : first + 2], x)
            result = pair if result is None else self.fma(result, square, pair)
        assert result is not None
        return result

    def times_polynomial(self, coefficients: Sequence[float], x: str) -> str:
        """``x`` times the polynomial of ``x``; the first term, the greatest, is added last."""
        square = self.mul(x, x)
        rest = self.mul(self.pairs(coefficients[1:], x, square), square)
        return self.fma(x, coefficients[0], rest)

    def at_most(self, x: str, bound: float) -> str:
        """The lesser; a NaN stays. The order of operands is that of one vminps."""
        return self.select(self.compare("olt", bound, x), bound, x)

    def at_least(self, x: str, bound: float) -> str:
        """The greater; a NaN stays."""
        return self.select(self.compare("ogt", bound, x), bound, x)

    def compare(self, how: str, x: str | float, y: str | float) -> str:
        return self.w.assign(f"fcmp {how} {self.type} {self.number(x)}, {self.number(y)}")

    def select(self, condition: str, x: str | float, y: str | float) -> str:
        return self._select(condition, self.type, self.number(x), self.number(y))

    def _select(self, condition: str, type_: str, x: str, y: str) -> str:
        return self.w.assign(f"select {self._flags} {condition}, {type_} {x}, {type_} {y}")

    def logic(self, name: str, x: str, y: str) -> str:
        """``and`` or ``or`` of two conditions."""
        return self.w.assign(f"{name} {self._flags} {x}, {y}")

    def bits(self, x: str) -> str:
        """The bits of floats, as integers."""
        return self.w.assign(f"bitcast {self.type} {x} to {self.bits_type}")

    def floats(self, n: str) -> str:
        """The floats that have these bits."""
        return self.w.assign(f"bitcast {self.bits_type} {n} to {self.type}")

    def narrowed_integers(self, n: str) -> str:
        """The low bits of integers of 64 bits."""
        if self.dtype is f64:
            return n
        return self.w.assign(f"trunc {llvm_type(s64, self.lanes)} {n} to {self.bits_type}")

    def op(self, name: str, n: str | int, m: str | int) -> str:
        """An integer instruction."""
        return self.w.assign(f"{name} {self.bits_type} {self.whole(n)}, {self.whole(m)}")

    def compare_bits(self, how: str, n: str, m: str | int) -> str:
        return self.w.assign(f"icmp {how} {self.bits_type} {n}, {self.whole(m)}")

    def select_bits(self, condition: str, n: str | int, m: str | int) -> str:
        return self._select(condition, self.bits_type, self.whole(n), self.whole(m))

    def round_with_magic(self, shifted: str) -> tuple[str, str]:
        """``x + magic`` to ``rint(x)``, as floats and as integers (0 <= abs(x) < 2**22).

        Neither an instruction for rounding nor a conversion is needed, which would be undefined for
        NaN: here the float is NaN and the integer is arbitrary.
        """
        return self.sub(shifted, self.magic), self.op("sub", self.bits(shifted), self._magic_bits)

    @property
    def _magic_bits(self) -> int:
        return (self.bias + self.shift) << self.shift | 1 << (self.shift - 1)

    def power_of_two(self, n: str) -> str:
        """``2**n`` for integers in the range of normal exponents."""
        return self.floats(self.op("add", self.op("shl", n, self.shift), self.one))

    @property
    def scales(self) -> bool:
        """Whether an instruction multiplies by powers of two: it takes whole registers."""
        return bool(self.w.dialect.scale) and self.lanes % (64 // self.dtype.bytes) == 0

    def times_power_of_two(self, x: str, n: str) -> str:
        """``x * 2**n`` for an ``n`` that is whole, rounded once, by that instruction."""
        size = 64 // self.dtype.bytes
        register = Arithmetic(self.w, self.dtype, size)
        kind = "ps" if self.dtype is f32 else "pd"
        function = f"{self.w.dialect.scale}.{kind}.512"
        types = f"{register.type}, {register.type}, {register.type}, i{size}, i32"

        def scaled(lanes: Sequence[int]) -> str:
            a, b = (shuffled(self.w, self.type, self.lanes, value, lanes) for value in (x, n))
            # All lanes, rounded as everything is.
            arguments = f"{register.type} {a}, {register.type} {b}, {register.type} zeroinitializer"
            return self.w.call(register.type, function, f"{arguments}, i{size} -1, i32 4", types)

        parts = [scaled(range(at, at + size)) for at in range(0, self.lanes, size)]
        return joined(self.w, self.dtype, size, parts, self.lanes)

    def from_integers(self, n: str) -> str:
        """Integers below 2**51 as floats; of f32 all, rounded to nearest even."""
        if self.dtype is f64:  # for which only AVX-512 has an instruction
            return self.sub(self.floats(self.op("add", n, self._magic_bits)), self.magic)
        return self.w.assign(f"sitofp {self.bits_type} {n} to {self.type}")

    def looked_up(self, numbers: Sequence[float], n: str) -> str:
        """The entries of a table of 16 ``numbers`` at the low 4 bits of integers (f32)."""
        w, register = self.w, Arithmetic(self.w, f32, 16)
        rounded = (constant(float(np.float32(number)), f32) for number in numbers)
        table = f"<{', '.join(f'float {number}' for number in rounded)}>"

        def look_up(index: str) -> str:
            type_, index_type = register.type, register.bits_type
            arguments = f"{type_} {table}, {index_type} {index}"
            return w.call(type_, w.dialect.permute, arguments, f"{type_}, {index_type}")

        return by_parts(w, self.bits_type, self.lanes, n, 16, look_up, f32)

    def any(self, condition: str) -> str:
        """One bit: whether the condition holds for any lane."""
        if self.lanes == 1:
            return condition
        if not self.w.dialect.bit_masks:
            parts = [
                self.w.assign(f"extractelement {self._flags} {condition}, i64 {lane}")
                for lane in range(self.lanes)
            ]
            return reduce(lambda a, b: self.w.assign(f"or i1 {a}, {b}"), parts)
        name = f"llvm.vector.reduce.or.v{self.lanes}i1"
        return self.w.call("i1", name, f"{self._flags} {condition}", self._flags)

    def widened(self, x: str) -> tuple[Arithmetic, str]:
        """The numbers as f64, with the arithmetic for that."""
        if self.dtype is f64:
            return self, x
        wide = Arithmetic(self.w, f64, self.lanes)
        return wide, self.w.assign(f"fpext {self.type} {x} to {wide.type}")

    def narrowed(self, x: str) -> str:
        """f64 rounded to this type."""
        if self.dtype is f64:
            return x
        return self.w.assign(f"fptrunc {llvm_type(f64, self.lanes)} {x} to {self.type}")


def shuffled(
    w: Writer, type_: str, lanes: int, x: str, order: Sequence[int], y: str = "poison"
) -> str:
    """The lanes ``order`` of ``x`` and ``y`` together, which have ``lanes`` each; beyond these,
    any value."""
    if list(order) == list(range(lanes)):
        return x
    if lanes == 1:
        return w.assign(f"insertelement <{len(order)} x {type_}> poison, {type_} {x}, i64 0")
    if len(order) == 1:
        return w.assign(f"extractelement {type_} {x}, i64 {order[0]}")
    chosen = ", ".join(f"i32 {i if i < 2 * lanes else 'poison'}" for i in order)
    return w.assign(f"shufflevector {type_} {x}, {type_} {y}, <{len(order)} x i32> <{chosen}>")


def by_parts(
    w: Writer,
    type_: str,
    lanes: int,
    x: str,
    size: int,
    emit: Callable[[str], str],
    result: DType,
) -> str:
    """``emit`` applied to ``x``, ``size`` lanes at a time: a vector of ``result``."""
    starts = range(0, lanes, size)
    parts = [emit(shuffled(w, type_, lanes, x, range(at, at + size))) for at in starts]
    return joined(w, result, size, parts, lanes)


def joined(w: Writer, result: DType, size: int, parts: Sequence[str], lanes: int) -> str:
    """The first ``lanes`` lanes of vectors of ``size`` that follow one another."""
    while len(parts) > 1:
        pairs = zip(parts[::2], [*parts[1::2], parts[-1]], strict=False)
        type_ = llvm_type(result, size)
        size *= 2
        parts = [shuffled(w, type_, size // 2, a, range(size), b) for a, b in pairs]
    return shuffled(w, llvm_type(result, size), size, parts[0], range(lanes))
