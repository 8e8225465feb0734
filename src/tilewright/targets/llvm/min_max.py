"""Minimum and maximum.

Of floats, a NaN on either side gives NaN, and -0.0 is less than 0.0: IEEE 754-2019's minimum and
maximum, as LLVM's intrinsics of these names. Against a constant, a compare and a select suffice,
which become one vminps or vmaxps.
"""

from __future__ import annotations

import math

from tilewright.dtypes import boolean, s16, s32, s64
from tilewright.targets.llvm.types import llvm_type, suffix
from tilewright.targets.llvm.values import Result, Value
from tilewright.targets.llvm.writer import Writer

_BITS = {16: s16, 32: s32, 64: s64}


def emit_integer_min_max(w: Writer, op: str, a: Value, b: Value) -> str:
    """``min`` or ``max`` of integers and bools."""
    if a.dtype.kind == "bool":
        return w.assign(f"{'and' if op == 'min' else 'or'} {a.typed}, {b.text}")
    sign = "u" if a.dtype.kind == "uint" else "s"
    name = f"llvm.{sign}{op}.{suffix(a.dtype, a.lanes)}"
    return w.call(a.type, name, f"{a.typed}, {b.typed}", f"{a.type}, {a.type}")


def emit_float_min_max(w: Writer, op: str, a: Value, b: Value, right: Result) -> str:
    """``min`` or ``max`` of floats; ``right`` is ``b`` as a number, if known."""
    if not isinstance(right, Value):
        return _against_constant(w, op, a, b, float(right))
    if w.dialect.nan_min_max:
        if w.dialect.fences_min_max and a.lanes == 1:
            a, b = _fenced(w, a), _fenced(w, b)
        name = f"llvm.{op}imum.{suffix(a.dtype, a.lanes)}"
        return w.call(a.type, name, f"{a.typed}, {b.typed}", f"{a.type}, {a.type}")
    flags, least = llvm_type(boolean, a.lanes), op == "min"
    closer, tied = ("ult", "ule") if least else ("ugt", "uge")
    # Of two zeros, the sign bit decides; other equal numbers are identical. (With combined bits
    # instead, Intel's OpenCL compiler does not end when it unrolls a loop of such steps.)
    bits = llvm_type(_BITS[a.dtype.bits], a.lanes)
    x = w.assign(f"bitcast {a.typed} to {bits}")
    wins = w.assign(f"icmp {'slt' if least else 'sge'} {bits} {x}, zeroinitializer")
    either = w.assign(f"fcmp {tied} {a.typed}, {b.text}")
    equal = w.assign(f"and {flags} {wins}, {either}")
    less = w.assign(f"fcmp {closer} {a.typed}, {b.text}")
    wins_at_all = w.assign(f"or {flags} {less}, {equal}")
    text = w.assign(f"select {flags} {wins_at_all}, {a.typed}, {b.typed}")
    is_nan = w.assign(f"fcmp uno {b.typed}, {b.text}")
    return w.assign(f"select {flags} {is_nan}, {b.typed}, {a.type} {text}")


def _fenced(w: Writer, a: Value) -> Value:
    """``a`` as LLVM knows nothing of it; no instruction."""
    name = f"llvm.arithmetic.fence.{suffix(a.dtype, a.lanes)}"
    return a._replace(text=w.call(a.type, name, a.typed, a.type))


def _against_constant(w: Writer, op: str, a: Value, b: Value, right: float) -> str:
    if math.isnan(right):
        return b.text
    how = "ult" if op == "min" else "ugt"
    if right == 0.0 and (math.copysign(1.0, right) > 0) == (op == "min"):
        how = "ule" if op == "min" else "uge"  # the other zero wins over this one
    wins_at_all = w.assign(f"fcmp {how} {a.typed}, {b.text}")
    return w.assign(f"select {llvm_type(boolean, a.lanes)} {wins_at_all}, {a.typed}, {b.typed}")
