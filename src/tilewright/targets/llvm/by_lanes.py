"""Calls of functions of one lane, lane by lane."""

from __future__ import annotations

from tilewright.targets.llvm.types import llvm_type, scalar_type
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer


def emit_by_lanes(w: Writer, function: str, arguments: tuple[Value, ...]) -> Value:
    """``function`` (a symbol) of each lane; arguments and result have one type."""
    first = arguments[0]
    scalar = scalar_type(first.dtype)
    types = ", ".join([scalar] * len(arguments))
    if first.lanes == 1:
        text = ", ".join(a.typed for a in arguments)
        return Value(w.call(scalar, function, text, types), first.dtype)
    type_ = llvm_type(first.dtype, first.lanes)
    result = "poison"
    for lane in range(first.lanes):
        parts = [w.assign(f"extractelement {a.typed}, i64 {lane}") for a in arguments]
        text = ", ".join(f"{scalar} {part}" for part in parts)
        element = w.call(scalar, function, text, types)
        result = w.assign(f"insertelement {type_} {result}, {scalar} {element}, i64 {lane}")
    return Value(result, first.dtype, first.lanes)
