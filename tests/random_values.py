"""Random kernels of all types with values at the limits of types: NaN, infinities, subnormals,
conversions of numbers that do not fit, shifts, bits; and the scalars and arrays of their calls.

They are exact: every operation rounds once or wraps; operations that depend on an order (sums of
floats) or on the machine (``exp``) are left out. So every target has to give the interpreter's
results, and the interpreter those of `plain_runs`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from random_ir import ExprSource, KernelSource
from random_symbols import SymbolicSource, random_numbers
from tilewright.dtypes import COMPUTED, DType, s64
from tilewright.ir.arguments import Scalar
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Var, cast, var
from tilewright.ir.operators import KINDS
from tilewright.ir.stmt import Block, Kernel, Param, ScalarParam, Stmt
from tilewright.ir.symbols import scalar_constants, substitute_buffer
from tilewright.testing.data import samples

_EXACT_UNARY = ("neg", "abs", "floor", "ceil", "round", "sqrt")
# Simplification treats s64 as unbounded: indices stay far from its limits.
_INDICES = 1 << 20


def random_value_kernel(rng: random.Random) -> Kernel:
    """A kernel of a few statements: with symbolic sizes and scalars of any type, or with
    user-defined combiners, ordered dims and loaded places."""
    if rng.random() < 0.75:
        return _Symbolic(rng, rng.randint(2, 4), COMPUTED).kernel()
    return _Static(rng, (), rng.randint(3, 8), COMPUTED).kernel()


def edge_numbers(rng: random.Random, kernel: Kernel) -> dict[str, Scalar]:
    """The scalars of a call: sizes as promised, others often at the limits of their type."""
    bounded = [p for p in kernel.scalars if p.low is not None or p.dtype is s64]
    free = [p for p in kernel.scalars if p not in bounded]
    numbers = random_numbers(rng, replace(kernel, params=(*bounded, *kernel.arrays)))
    for param in free:
        numbers[param.name] = samples(param.dtype, 1, rng.randrange(1 << 32))[0].item()
    return {p.name: numbers[p.name] for p in kernel.scalars}


def edge_arrays(kernel: Kernel, numbers: Mapping[str, Scalar], seed: int) -> dict[str, Any]:
    """Flat memory for the arrays of a call: any bits, small numbers, and limits of types."""
    constants = scalar_constants(kernel, numbers)
    return {
        param.name: samples(
            param.dtype, substitute_buffer(param.buffer, constants).layout.extent, seed + position
        )
        for position, param in enumerate(kernel.arrays)
    }


class _Values(ExprSource):
    """Expressions that use the variables in scope, of whatever type."""

    def expr(self, type: DType, depth: int) -> Expr:
        if depth > 0 and self.rng.random() < 0.25:
            other = [t for t in COMPUTED if t.is_float is not type.is_float]
            result = cast(type, self.expr(self.rng.choice(other), depth - 1))
        else:
            result = super().expr(type, depth)
        if type is not s64 or (isinstance(result, Const) and abs(result.value) < _INDICES):
            return result
        return result % _INDICES - _INDICES // 2

    def leaf(self, type: DType) -> Expr:
        if self.variables and self.rng.random() < 0.85:
            return cast(type, self.rng.choice(self.variables))
        return super().leaf(type)

    def unary_operator(self, type: DType) -> str:
        if type.is_float:
            return self.rng.choice(_EXACT_UNARY)
        return super().unary_operator(type)


def _combiners(type: DType) -> list[str]:
    """The combiners that give the same result in any order."""
    names = ("min", "max") if type.is_float else ("add", "min", "max", "and", "or")
    return [name for name in names if type.kind in KINDS[name]]


class _Static(KernelSource):
    def exprs(self, variables: Sequence[Var], buffers: Sequence[Buffer] = ()) -> ExprSource:
        return _Values(self.rng, variables, buffers, functions=False)

    def combiners(self, type: DType) -> list[str]:
        return _combiners(type)


class _Symbolic(SymbolicSource):
    """Computes that each fill a new array, from earlier ones, so that no result is overwritten."""

    def kernel(self) -> Kernel:
        rng = self.rng
        scalars = self.scalars()
        arrays = [Param(self.buffer(f"arg{n}"), "in") for n in range(3)]
        self.readable = [array.buffer for array in arrays]
        body: list[Stmt] = []
        for number in range(self.left):
            out = self.buffer(f"out{number}")
            body.append(self.filled(out, rng.choice((None, None, *self.combiners(out.dtype)))))
            self.readable.append(out)
            arrays.append(Param(out, "inout"))
        return Kernel("random", (*scalars, *arrays), Block(tuple(body)))

    def scalars(self) -> list[ScalarParam]:
        scalars = super().scalars()
        for position in range(self.rng.randint(0, 2)):
            type = self.rng.choice([t for t in COMPUTED if t is not s64])
            scalars.append(ScalarParam(var(f"scalar{position}", type)))
            self.values.append(scalars[-1].var)
        return scalars

    def value(self, type_: DType, point: list[Var], operands: list[Var], depth: int) -> Expr:
        variables = [*point, *operands * 4, *self.values]
        return _Values(self.rng, variables, (), functions=False).expr(type_, depth + 1)

    def combiners(self, type_: DType) -> Sequence[str]:
        return _combiners(type_)
