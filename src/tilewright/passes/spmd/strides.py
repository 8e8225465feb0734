"""Indices of the lanes of a vector as a common part and a step from lane to lane.

Neighbouring work-items mostly access neighbouring elements, but in terms of a type that wraps, and
of names: ``x[s64(i + 1)]``. Targets recognize addresses that are sums with the lane's variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.dtypes import s32, s64
from tilewright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Unary,
    Var,
    binary,
    cast,
    conjuncts,
    const,
    unary,
)
from tilewright.ir.stmt import Let
from tilewright.ir.visit import children, reads_memory, variables
from tilewright.passes.spmd.varying import Varying

_KEEP = (s32, s64)


@dataclass
class Strides:
    """The strides of values by lane, whose variable is ``lane``; ``varying`` says which differ."""

    lane: Var
    varying: Varying
    # From the last `of`: sums of s32 that became s64, each with its value in lane 0 and its step.
    widened: list[tuple[Expr, int]] = field(default_factory=list)
    _names: dict[Var, tuple[tuple[Expr, int], list[tuple[Expr, int]]]] = field(default_factory=dict)

    def name(self, let: Let) -> None:
        """Notes that ``let`` holds from here on."""
        if self.varying.of(let.value) and not reads_memory(let.value):
            self.widened.clear()
            stride = self.of(let.value)
            if stride is not None:
                self._names[let.var] = stride, self.widened.copy()

    def index(self, expr: Expr) -> Expr:
        """``expr`` as a sum with a multiple of the lane's variable, if its step is constant."""
        if expr is self.lane or not self.varying.of(expr):
            return expr
        self.widened.clear()
        stride = self.of(expr)
        if stride is None:
            return expr
        common, step = stride
        steps = self.lane if step == 1 else self.lane * step
        if not step:
            return common
        return steps if common is const(0) else common + steps

    def of(self, expr: Expr) -> tuple[Expr, int] | None:
        """The value of the integer ``expr`` in lane 0, and its step from lane to lane; None where
        the step is not constant.

        For an s32, both wrap; where one became an s64, `widened` has it. For an index that makes no
        difference where the steps are positive: a lane whose sum would wrap has an index below 0,
        and does not run.
        """
        if expr is self.lane:
            return const(0), 1
        if expr in self._names:
            assert isinstance(expr, Var)
            stride, widened = self._names[expr]
            self.widened += widened
            return stride
        if expr.type not in _KEEP:
            return None
        if not self.varying.of(expr):
            return expr, 0
        match expr:
            case Binary(op="add" | "sub"):
                a, b = self.of(expr.a), self.of(expr.b)
                if a is None or b is None:
                    return None
                step = a[1] + b[1] if expr.op == "add" else a[1] - b[1]
                if isinstance(b[0], Const) and not b[0].value:
                    return a[0], step
                return binary(expr.op, a[0], b[0]), step
            case Binary(op="mul"):
                return self._product(expr.a, expr.b) or self._product(expr.b, expr.a)
            case Unary(op="neg"):
                a = self.of(expr.a)
                return None if a is None else (unary("neg", a[0]), -a[1])
            case Cast() if expr.a.type in _KEEP:
                a = self.of(expr.a)
                if a is None or (expr.type is s64 and a[1] < 0):
                    return None
                common = cast(expr.type, a[0])
                if a[1] and expr.type is s64 and expr.a.type is s32:
                    self.widened.append((common, a[1]))
                return common, a[1]
            case _:
                return None

    def _product(self, a: Expr, factor: Expr) -> tuple[Expr, int] | None:
        if not isinstance(factor, Const) or variables(factor):
            return None
        stride = self.of(a)
        if stride is None or abs(stride[1] * int(factor.value)) >= 2**31:
            return None
        return stride[0] * factor, stride[1] * int(factor.value)


def depends_on_data(condition: Expr, strides: Strides) -> bool:
    """Whether ``condition`` splits work-items by data, other than at the end of a range."""
    for part in conjuncts(condition):
        if not strides.varying.of(part):
            continue
        sides = children(part)
        if not isinstance(part, Binary) or None in [strides.of(side) for side in sides]:
            return True
    return False
