"""Scalar reference evaluation: the value of an expression, in Python numbers.

Slow and plain on purpose: the simplifier is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tilewright.conversions import reinterpreted, represented
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Bitcast, Cast, Const, Expr, Fma, Select, Unary, Var
from tilewright.ir.load import Load
from tilewright.ir.operators import BINARY, UNARY, fused
from tilewright.ir.visit import children, postorder

# An expression is usually evaluated for many values in a row.
_postorder = lru_cache(maxsize=256)(postorder)
# Gives the element of a buffer at an index.
Loads = Callable[[Buffer, tuple[int, ...]], Any]


def evaluate(expr: Expr, values: Mapping[Var, Any], loads: Loads | None = None) -> Any:
    """The value of ``expr``, as a bool, int or float that its type represents.

    ``values`` has a value for each variable. Raises `KeyError` for one that is missing, and
    `LookupError` for a load without ``loads``.
    """
    done: dict[Expr, Any] = {}
    for node in _postorder(expr):
        done[node] = _value(node, [done[part] for part in children(node)], values, loads)
    return done[expr]


def _value(
    node: Expr, parts: list[Any], values: Mapping[Var, Any], loads: Loads | None
) -> bool | int | float:
    match node:
        case Const():
            result = node.value
        case Var():
            result = values[node]
        case Binary():
            result = BINARY[node.op](parts[0], parts[1], node.a.type.bits)
        case Unary():
            result = UNARY[node.op](parts[0], node.type.bits)
        case Select():
            result = parts[1] if parts[0] else parts[2]
        case Fma():
            result = fused(parts[0], parts[1], parts[2], node.type.bits)
        case Cast():
            result = parts[0]
        case Bitcast():
            result = reinterpreted(parts[0], node.a.type, node.type)
        case Load():
            result = _loaded(node, parts, loads)
        case _:
            raise TypeError(f"unknown expression {type(node).__name__}")
    # Constants are rounded and wrapped to their type, and so is each value here.
    value: bool | int | float = represented(result, node.type)
    return value


def _loaded(node: Load, parts: list[Any], loads: Loads | None) -> Any:
    rank = len(node.index)
    if node.mask is not None and not parts[rank]:
        return 0
    if loads is None:
        raise LookupError(f"a load of {node.buffer.name}, and nothing that gives its elements")
    return loads(node.buffer, tuple(parts[:rank]))
