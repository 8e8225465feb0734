"""The lanes of a vector loop: which there are, which run now, and what differs among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.dtypes import boolean
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import variables
from tilewright.targets.llvm.known_lanes import both_hold
from tilewright.targets.llvm.types import lane_mask
from tilewright.targets.llvm.values import Result, Value
from tilewright.targets.llvm.writer import Writer


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vector loop around a statement: ``active`` of ``count`` lanes run."""

    var: Var
    active: int
    count: int


def differs(expr: Expr, lanes: Lanes | None, values: Mapping[Var, Result]) -> bool:
    """Whether ``expr`` may have other values in other lanes, where variables have ``values``."""
    if lanes is None:
        return False
    for each in variables(expr):
        value = values.get(each)
        if each is lanes.var or (isinstance(value, Value) and value.lanes > 1):
            return True
    return False


def running(w: Writer, lanes: Lanes, *flags: Value | None) -> Value:
    """The active lanes of which all ``flags`` are set (None: of all lanes). What those behind them
    have in their flags is open."""
    active, count = lanes.active, lanes.count
    found = None if active == count else Value(lane_mask(active, count), boolean, count)
    for each in flags:
        if each is None or found is None:
            found = found if each is None else each
        else:
            text = w.assign(f"and {found.typed}, {each.text}")
            found = Value(text, boolean, count, known=both_hold(found, each))
    return found if found is not None else Value(lane_mask(count, count), boolean, count)


def any_lane(w: Writer, flags: Value) -> str:
    """Whether some of ``flags`` are set; itself where they are one."""
    if flags.lanes == 1:
        return flags.text
    name = f"llvm.vector.reduce.or.v{flags.lanes}i1"
    return w.call("i1", name, flags.typed, flags.type)
