"""The lanes of a vector loop: their number, those that are active, and what differs among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.dtypes import boolean
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import variables
from tilewright.targets.llvm.lane_values import both_hold
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
    """Whether ``expr`` may differ by lane, where variables have ``values``."""
    if lanes is None:
        return False
    for variable in variables(expr):
        value = values.get(variable)
        if variable is lanes.var or (isinstance(value, Value) and value.lanes > 1):
            return True
    return False


def running(w: Writer, lanes: Lanes, *flags: Value | None) -> Value:
    """The active lanes in which all ``flags`` are set (None: set in all lanes). Flags after the
    active lanes are undefined."""
    active, count = lanes.active, lanes.count
    lanes_on = None if active == count else Value(lane_mask(active, count), boolean, count)
    for flag in flags:
        if flag is None or lanes_on is None:
            lanes_on = lanes_on if flag is None else flag
        else:
            text = w.assign(f"and {lanes_on.typed}, {flag.text}")
            lanes_on = Value(text, boolean, count, lane_values=both_hold(lanes_on, flag))
    return lanes_on if lanes_on is not None else Value(lane_mask(count, count), boolean, count)


def any_lane(w: Writer, flags: Value) -> str:
    """Whether some flag is set, as an i1; a scalar flag is itself."""
    if flags.lanes == 1:
        return flags.text
    name = f"llvm.vector.reduce.or.v{flags.lanes}i1"
    return w.call("i1", name, flags.typed, flags.type)
