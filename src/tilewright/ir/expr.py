"""Expressions: immutable, typed, and interned, so that equality is ``is`` and hashing is O(1).

The constructors (`const`, `binary`, `unary`, `select`, `cast`, and the operators) fold constants
and nothing else; simplification is a pass. Integer division and modulo are floor, as in Python.

``==`` and ``!=`` build expressions. Their truth value is identity, which is what makes expressions
usable as keys of dicts and members of sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

import numpy as np

from tilewright.conversions import reinterpreted, represented
from tilewright.dtypes import DType, boolean, f32, s64, tf32
from tilewright.ir.interning import Key, enter, lookup
from tilewright.ir.operators import BINARY, COMPARISONS, KINDS, UNARY, fused

ExprLike = Union["Expr", int, float, bool]


class Printed:
    """Base of nodes whose ``repr`` is IR text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _to_text(self)


_to_text: Callable[[Any], str] = object.__repr__


def print_with(function: Callable[[Any], str]) -> None:
    """Sets the ``repr`` of expressions and statements.

    `ir.printer` registers itself here: it knows every node, so the nodes cannot import it.
    """
    global _to_text
    _to_text = function


class Expr(Printed):
    """Base of all expressions. ``type`` is the scalar type of the value.

    ``summary`` caches the result of `ir.visit.summary`.
    """

    __slots__ = ("__weakref__", "summary", "type")
    type: DType
    summary: tuple[frozenset[Var], bool] | None

    @classmethod
    def _intern(cls, key: Key, type_: DType, **fields: Any) -> Any:
        """The node with this key. Keys name children by ``id``: a live node keeps them alive."""
        node = lookup(key)
        if node is not None:
            return node
        node = object.__new__(cls)
        node.type = type_
        node.summary = None
        for name, value in fields.items():
            setattr(node, name, value)
        return enter(key, node)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __reduce__(self) -> Any:
        """Pickles as a call of the constructor, so that unpickling interns the node again."""
        constructor, names = _CONSTRUCTORS[type(self)]
        return constructor, tuple(getattr(self, name) for name in names)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"the expression {type(self).__name__} has no truth value before it runs")

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("mod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("mod", other, self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return binary("shl", self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return binary("shl", other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return binary("shr", self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return binary("shr", other, self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("lt", other, self)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("le", other, self)

    def __eq__(self, other: object) -> Any:
        return binary("eq", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Any:
        return binary("ne", self, other)  # type: ignore[arg-type]

    def __and__(self, other: ExprLike) -> Expr:
        return binary("and", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return binary("and", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("or", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return binary("or", other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return binary("xor", self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return binary("xor", other, self)

    def __invert__(self) -> Expr:
        return unary("not", self)


class Const(Expr):
    """A literal value."""

    __slots__ = ("value",)
    value: Any

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value)


class Var(Expr):
    """A name: a loop index, a let, or an operand's element inside a structured op's body.

    Two variables of one name and type are the same variable; transforms make fresh names.
    """

    __slots__ = ("name",)
    name: str


class Binary(Expr):
    """``op`` is a key of `operators.BINARY`; ``a`` and ``b`` have one type."""

    __slots__ = ("a", "b", "op")
    op: str
    a: Expr
    b: Expr

    def __bool__(self) -> bool:
        if self.op == "eq":
            return self.a is self.b
        if self.op == "ne":
            return self.a is not self.b
        return super().__bool__()


class Unary(Expr):
    """``op`` is a key of `operators.UNARY`."""

    __slots__ = ("a", "op")
    op: str
    a: Expr


class Select(Expr):
    """``a`` where ``condition`` holds, else ``b``. Both are evaluated."""

    __slots__ = ("a", "b", "condition")
    condition: Expr
    a: Expr
    b: Expr


class Fma(Expr):
    """``a * b + c`` of floats of one type, rounded once; if not ``exact``, as the target is faster,
    once or twice."""

    __slots__ = ("a", "b", "c", "exact")
    a: Expr
    b: Expr
    c: Expr
    exact: bool


class Cast(Expr):
    """``a`` as another type. Float to integer truncates towards zero and saturates; NaN gives 0.

    Float to a narrower float rounds to nearest even. Integer to integer wraps.
    """

    __slots__ = ("a",)
    a: Expr


class Bitcast(Expr):
    """The bits of ``a`` as another type of as many bits."""

    __slots__ = ("a",)
    a: Expr


_HALF = 2**63


def const(value: Any, type: DType | None = None) -> Const:
    """A constant. Without a type: bool, int and float (or numpy's) give bool, s64 and f32."""
    if value.__class__ is int and (type is s64 or type is None) and -_HALF <= value < _HALF:
        index: Const = Const._intern((Const, "s64", value), s64, value=value)
        return index
    if type is None:
        if isinstance(value, bool | np.bool_):
            type = boolean
        elif isinstance(value, int | np.integer):
            type = s64
        else:
            type = f32
    value = represented(value, type)
    # -0.0 == 0.0 and nan != nan, so floats are told apart by their bits.
    key_value = value.hex() if isinstance(value, float) else value
    result: Const = Const._intern((Const, type.name, key_value), type, value=value)
    return result


def var(name: str, type: DType = s64) -> Var:
    """The variable called ``name``; an index (s64) unless told otherwise."""
    result: Var = Var._intern((Var, name, type.name), type, name=name)
    return result


class StandIn(int):
    """An int that stands for an expression: a size that calls pass (`ir.open_sizes`)."""

    expr: Expr


def as_expr(value: ExprLike, like: Expr | None = None) -> Expr:
    """``value`` as an expression; a Python number takes the type of ``like``."""
    if isinstance(value, Expr):
        return value
    if value.__class__ is not int and isinstance(value, StandIn):
        return value.expr
    return const(value, like.type if like is not None else None)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """``a op b``. Both have one type; comparisons and logic give bool. Folds two constants."""
    if not isinstance(a, Expr):
        a = as_expr(a, b if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = as_expr(b, a)
    key = (Binary, op, id(a), id(b))
    node: Expr | None = lookup(key)
    if node is not None:
        return node  # checked when it was built
    if a.type is not b.type:
        raise TypeError(f"{op}: operands of types {a.type} and {b.type}; cast one of them")
    type_ = a.type
    if type_.kind not in KINDS[op]:
        raise TypeError(f"{op}: not defined on {type_}")
    if type_.is_nibble:
        raise TypeError(f"{op}: not defined on {type_}; cast it")
    result_type = boolean if op in COMPARISONS else type_
    if isinstance(a, Const) and isinstance(b, Const):
        return const(BINARY[op](a.value, b.value, type_.bits), result_type)
    result: Expr = Binary._intern(key, result_type, op=op, a=a, b=b)
    return result


def unary(op: str, a: ExprLike) -> Expr:
    """``op(a)``, of the type of ``a``. Folds a constant."""
    a = as_expr(a)
    if a.type.kind not in KINDS[op]:
        raise TypeError(f"{op}: not defined on {a.type}")
    if a.type.is_nibble:
        raise TypeError(f"{op}: not defined on {a.type}; cast it")
    if isinstance(a, Const):
        return const(UNARY[op](a.value, a.type.bits), a.type)
    result: Expr = Unary._intern((Unary, op, id(a)), a.type, op=op, a=a)
    return result


def select(condition: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """``a`` where ``condition`` (bool) holds, else ``b``; one type. Folds a constant condition."""
    condition = as_expr(condition)
    a = as_expr(a, b if isinstance(b, Expr) else None)
    b = as_expr(b, a)
    if condition.type is not boolean or a.type is not b.type:
        raise TypeError(
            f"select: bool and two of one type, got {condition.type}, {a.type}, {b.type}"
        )
    if isinstance(condition, Const):
        return a if condition.value else b
    key = (Select, id(condition), id(a), id(b))
    result: Expr = Select._intern(key, a.type, condition=condition, a=a, b=b)
    return result


def fma(a: Expr, b: Expr, c: Expr, exact: bool = True) -> Expr:
    """``a * b + c`` of floats of one type, rounded as `Fma` says. Folds three constants."""
    type_ = a.type
    if not type_.is_float or b.type is not type_ or c.type is not type_:
        raise TypeError(f"fma: floats of one type, got {a.type}, {b.type}, {c.type}")
    if isinstance(a, Const) and isinstance(b, Const) and isinstance(c, Const):
        return const(fused(a.value, b.value, c.value, type_.bits), type_)
    key = (Fma, id(a), id(b), id(c), exact)
    result: Expr = Fma._intern(key, type_, a=a, b=b, c=c, exact=exact)
    return result


def cast(type: DType, a: ExprLike) -> Expr:
    """``a`` as ``type`` (see `Cast`); ``a`` itself when it has that type. Folds a constant."""
    a = as_expr(a)
    if a.type is type:
        return a
    if isinstance(a, Const):
        return const(a.value, type)
    result: Expr = Cast._intern((Cast, type.name, id(a)), type, a=a)
    return result


def bitcast(type: DType, a: ExprLike) -> Expr:
    """The bits of ``a`` as ``type``; ``a`` itself when it has that type. Folds a constant.

    Constants know one NaN only, so the bits of another one stay an expression.
    """
    a = as_expr(a)
    if a.type is type:
        return a
    for dtype in (a.type, type):
        if dtype is boolean or dtype is tf32 or dtype.is_nibble:
            raise TypeError(f"bitcast: not defined on {dtype}; cast it")
    if a.type.bits != type.bits:
        raise TypeError(
            f"bitcast: {a.type} has {a.type.bits} bits, {type} has {type.bits}; "
            "cast it to a type of as many bits first"
        )
    if isinstance(a, Const):
        result = const(reinterpreted(a.value, a.type, type), type)
        if reinterpreted(result.value, type, a.type) == a.value:
            return result
    node: Expr = Bitcast._intern((Bitcast, type.name, id(a)), type, a=a)
    return node


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The lesser of two."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The greater of two."""
    return binary("max", a, b)


def number(value: Any, type: DType) -> Expr:
    """``value`` as an expression of ``type``: a constant, or what a size stands for."""
    if value.__class__ is not int and isinstance(value, StandIn):
        return cast(type, value.expr)
    return const(value, type)


def all_of(conditions: Any) -> Expr | None:
    """The conjunction of conditions, leaving out those that are constantly true; None if empty."""
    result: Expr | None = None
    for condition in conditions:
        if isinstance(condition, Const) and condition.value:
            continue
        result = condition if result is None else result & condition
    return result


def conjuncts(condition: Expr | None) -> tuple[Expr, ...]:
    """The conditions that ``and`` joins, in order; empty for None."""
    if condition is None:
        return ()
    if isinstance(condition, Binary) and condition.op == "and":
        return conjuncts(condition.a) + conjuncts(condition.b)
    return (condition,)


# The constructor of each class, and the fields that it takes.
_CONSTRUCTORS: dict[type[Expr], tuple[Callable[..., Expr], tuple[str, ...]]] = {
    Const: (const, ("value", "type")),
    Var: (var, ("name", "type")),
    Binary: (binary, ("op", "a", "b")),
    Unary: (unary, ("op", "a")),
    Select: (select, ("condition", "a", "b")),
    Fma: (fma, ("a", "b", "c", "exact")),
    Cast: (cast, ("type", "a")),
    Bitcast: (bitcast, ("type", "a")),
}
