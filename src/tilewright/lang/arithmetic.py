"""Operators on numbers: the types in which they compute, and their results."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.dtypes import DType, boolean, f32
from tilewright.errors import KernelError
from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.lang.values import common_type, default_type, fits, is_literal, literal

# Python's operators: what its trees call them, what expressions do, how they are written, and what
# they give for literals. Comparisons give bool.
_TABLE: tuple[tuple[str, str, str, Callable[[Any, Any], Any]], ...] = (
    ("Add", "add", "+", operator.add),
    ("Sub", "sub", "-", operator.sub),
    ("Mult", "mul", "*", operator.mul),
    ("Div", "div", "/", operator.truediv),
    ("FloorDiv", "floordiv", "//", operator.floordiv),
    ("Mod", "mod", "%", operator.mod),
    ("Pow", "pow", "**", operator.pow),
    ("LShift", "shl", "<<", operator.lshift),
    ("RShift", "shr", ">>", operator.rshift),
    ("BitAnd", "and", "&", operator.and_),
    ("BitOr", "or", "|", operator.or_),
    ("BitXor", "xor", "^", operator.xor),
    ("Lt", "lt", "<", operator.lt),
    ("LtE", "le", "<=", operator.le),
    ("Gt", "gt", ">", operator.gt),
    ("GtE", "ge", ">=", operator.ge),
    ("Eq", "eq", "==", operator.eq),
    ("NotEq", "ne", "!=", operator.ne),
)
OPERATORS = {python: name for python, name, _, _ in _TABLE}
SIGNS = {name: sign for _, name, sign, _ in _TABLE}
_OF_LITERALS = {name: function for _, name, _, function in _TABLE} | {"min": min, "max": max}
_SWAPPED = {"gt": "lt", "ge": "le"}
# No literal that a kernel could use is greater.
_MOST_BITS = 4096


class Arithmetic:
    """Computes on numbers, literals and expressions. ``refuse`` gives the error about the present
    expression: what, why, cure. ``why_typed`` explains the type of a number that a variable
    decides."""

    def __init__(
        self,
        refuse: Callable[[str, str | None, str], KernelError],
        why_typed: Callable[[Any], str],
    ) -> None:
        self.refuse = refuse
        self.why_typed = why_typed
        # Expressions of literals only, such as a variable that only literals were assigned to: they
        # take the type of the other operand, as literals do.
        self.weak: set[Expr] = set()

    def typed(self, value: Any, dtype: DType | None = None) -> Expr:
        """``value``, a number, as an expression of its own type."""
        if isinstance(value, Expr):
            return value
        return literal(value, default_type(value) if dtype is None else dtype)

    def common(self, a: Any, b: Any, sign: str) -> tuple[Expr, Expr]:
        """``a`` and ``b`` in their common type."""
        dtype = self.common_type(a, b)
        if dtype is None:
            raise self.refuse(
                f"`{sign}` of {self.type_of(a)} and {self.type_of(b)}",
                "no integer type holds the values of both",
                "convert one of them, such as tw.s64(...)",
            )
        return self.convert(a, dtype), self.convert(b, dtype)

    def common_type(self, a: Any, b: Any) -> DType | None:
        """The common type of ``a`` and ``b``; None where there is none."""
        weak_a, weak_b = self._is_weak(a), self._is_weak(b)
        if weak_a == weak_b:
            return common_type(self.type_of(a), self.type_of(b))
        strong, weak = (a, b) if weak_b else (b, a)
        dtype = self.type_of(strong)
        if is_literal(weak):
            if fits(weak, dtype):
                return dtype
            if dtype.kind == "bool" or isinstance(weak, float):
                return default_type(weak)
            return common_type(dtype, default_type(weak))
        other = self.type_of(weak)
        if other.is_float and not dtype.is_float:
            return other
        return other if dtype.kind == "bool" else dtype

    def _is_weak(self, value: Any) -> bool:
        return is_literal(value) or value in self.weak

    def type_of(self, value: Any) -> DType:
        """The type of a number."""
        return value.type if isinstance(value, Expr) else default_type(value)

    def convert(self, value: Any, dtype: DType) -> Expr:
        """``value`` as ``dtype``, also where that loses digits."""
        if is_literal(value):
            if dtype.is_integer and isinstance(value, float):
                return ir.cast(dtype, ir.const(value, f32))
            return literal(value, dtype)
        return ir.cast(dtype, value)

    def kept(self, value: Any, dtype: DType, what: str) -> Expr:
        """``value`` as ``dtype``: floats are rounded, but integers must not lose digits."""
        if is_literal(value):
            if fits(value, dtype):
                return literal(value, dtype)
            source: DType = default_type(value)
        else:
            source = value.type
            if source is dtype:
                return self.typed(value)
            weak = value in self.weak and not (source.is_float and not dtype.is_float)
            if weak or dtype.is_float or common_type(source, dtype) is dtype:
                return ir.cast(dtype, value)
        lost = f"not every {source} is a {dtype}" if isinstance(value, Expr) else ""
        raise self.refuse(
            f"{what} is {dtype}, and the value {source if isinstance(value, Expr) else value}",
            "; ".join(filter(None, (lost, self.why_typed(value)))) or None,
            f"convert it, so that it can be seen: tw.{dtype}(...)",
        )

    def binary(self, op: str, a: Any, b: Any) -> Any:
        """``a op b``."""
        if is_literal(a) and is_literal(b):
            return self._of_literals(op, a, b)
        a, b, op = (b, a, _SWAPPED[op]) if op in _SWAPPED else (a, b, op)
        weak = self._is_weak(a) and self._is_weak(b)
        result = self._power(a, b) if op == "pow" else self._computed(op, a, b)
        if weak:
            self.weak.add(result)
        return result

    def _computed(self, op: str, a: Any, b: Any) -> Expr:
        if op in ("shl", "shr"):
            left = self.typed(a, None if is_literal(b) else self.type_of(b))
            x, y = left, self.convert(b, left.type)
        else:
            x, y = self.common(a, b, SIGNS.get(op, op))
        self._check(op, x, a, b)
        try:
            return ir.binary(op, x, y)
        except TypeError:
            raise self.refuse(
                f"`{SIGNS.get(op, op)}` of {x.type}",
                self._why_float(a, b) or None,
                "convert the operands to a type that has it",
            ) from None

    def _why_float(self, *operands: Any) -> str:
        floats = (operand for operand in operands if self.type_of(operand).is_float)
        return next(filter(None, map(self.why_typed, floats)), "")

    def _check(self, op: str, x: Expr, a: Any, b: Any) -> None:
        if op == "div" and not x.type.is_float:
            raise self.refuse(
                f"`/` of {x.type}",
                "it divides floats; // rounds integers down, tw.divide towards 0, as C does",
                "write //, or convert one side: tw.f32(...)",
            )
        if op in ("floordiv", "mod") and x.type.is_float:
            raise self.refuse(
                f"`{SIGNS[op]}` of {x.type}",
                "; ".join(filter(None, ("it divides integers", self._why_float(a, b)))),
                "write tw.floor(a / b), or convert the operands: tw.s32(...)",
            )
        if x.type.kind == "bool" and op in ("add", "sub", "mul", "floordiv", "mod"):
            raise self.refuse(
                f"`{SIGNS[op]}` of bool", None, "convert it to a number first: tw.s32(...)"
            )

    def _of_literals(self, op: str, a: Any, b: Any) -> Any:
        if (op == "shl" and b > _MOST_BITS) or (op == "pow" and abs(b) > _MOST_BITS):
            raise self.refuse(
                f"`{SIGNS[op]}` by {b}", "no type has so many bits", "take a smaller one"
            )
        try:
            result = _OF_LITERALS[op](a, b)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.refuse(
                f"`{SIGNS.get(op, op)}` of {a!r} and {b!r}", str(error), "correct the numbers"
            ) from None
        if not is_literal(result):
            raise self.refuse(
                f"`{SIGNS[op]}` of {a!r} and {b!r} is {result!r}", None, "use real numbers"
            )
        return result

    def _power(self, a: Any, b: Any) -> Expr:
        if isinstance(b, int) and not isinstance(b, bool) and 0 <= b <= 16:
            result, factor = None, a
            while b:
                if b & 1:
                    result = factor if result is None else result * factor
                factor, b = (factor * factor if b > 1 else factor), b >> 1
            return self.typed(1, a.type) if result is None else self.typed(result)
        x, y = self.common(a, b, "**")
        if not x.type.is_float:
            raise self.refuse(
                f"`**` of {x.type}",
                "of integers, the exponent is a known number from 0 to 16",
                "convert the base to a float, or write the product",
            )
        return ir.binary("pow", x, y)

    def unary(self, op: str, a: Any) -> Any:
        """``op(a)``, of an operator of expressions that keeps the type."""
        if is_literal(a):
            if op == "neg":
                return -a
            if op == "not" and isinstance(a, int):
                return not a if isinstance(a, bool) else ~a
            if op == "abs":
                return abs(a)
        x = self.typed(a)
        try:
            result = ir.unary(op, x)
        except TypeError:
            raise self.refuse(
                f"{op} of {x.type}", None, "convert it to a type that has it: tw.f32(...)"
            ) from None
        if self._is_weak(a):
            self.weak.add(result)
        return result

    def function(self, op: str, a: Any) -> Any:
        """A function of floats."""
        if is_literal(a):
            a = float(a)
        elif not a.type.is_float:
            raise self.refuse(
                f"{op} of {a.type}", "it is a function of floats", f"write {op}(tw.f32(...))"
            )
        return self.unary(op, a)

    def condition(self, value: Any) -> Any:
        """``value`` as a condition: a number holds where it is not 0."""
        if is_literal(value):
            return bool(value)
        if value.type is boolean:
            return value
        return ir.binary("ne", value, ir.const(0, value.type))

    def both(self, a: Any, b: Any) -> Any:
        """Whether both conditions hold; None is a condition that holds."""
        if a is None or b is None:
            return b if a is None else a
        if is_literal(a):
            return b if a else False
        if is_literal(b):
            return a if b else False
        return a & b

    def negated(self, condition: Any) -> Any:
        """The opposite of a condition."""
        if is_literal(condition):
            return not condition
        twice = isinstance(condition, ir.Unary) and condition.op == "not"
        return condition.a if twice else ir.unary("not", condition)
