"""sin and cos of f32 on all lanes.

Up to `LIMIT` the argument is reduced in f64: with ``k = rint(x 2/pi)``, ``x - k pi/2`` needs pi/2
in two parts only, and its relative error stays below 2**-30 (Cody and Waite, "Software Manual for
the Elementary Functions", 1980). When any lane is beyond, the C library computes all lanes. That
takes a branch, so these are functions of the module and not written in line.
"""

from __future__ import annotations

import math

from tilewright.dtypes import f32
from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic
from tilewright.targets.llvm.library import emit_by_lanes
from tilewright.targets.llvm.types import suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

LIMIT = 2.0**20


def emit_sine(w: Writer, name: str, value: Value) -> Value:
    """``name`` (sin or cos) of f32. Error below 1.7 ulp."""
    function = f"tilewright.{name}.{suffix(f32, value.lanes)}"
    if function not in w.declarations:
        w.declarations[function] = _definition(w.declarations, function, name, value.lanes)
    return Value(w.assign(f"call {value.type} @{function}({value.typed})"), f32, value.lanes)


def _definition(declarations: dict[str, str], function: str, name: str, lanes: int) -> str:
    w = Writer(declarations)
    f = Arithmetic(w, f32, lanes)
    x = "%x"
    result = _reduced(f, x, name)
    large = f.any(f.compare("oge", f.absolute(x), LIMIT))
    w.branch(large, "library", "done")
    w.start("library")
    slow = emit_by_lanes(w, f"{name}f", (Value(x, f32, lanes),))
    w.emit(f"ret {slow.typed}")
    w.start("done")
    w.emit(f"ret {f.type} {result}")
    header = f'define internal {f.type} @{function}({f.type} %x) nounwind "{_WIDTH}"="512" {{'
    return "\n".join([header, "entry:", *w.lines, "}"])


_WIDTH = "prefer-vector-width"


def _reduced(f: Arithmetic, x: str, name: str) -> str:
    d, wide = f.widened(x)
    k, quadrant = d.round_with_magic(d.fma(wide, 2 / math.pi, d.magic))
    r = d.fma(k, -p.HALF_PI_HIGH, wide)
    r = f.narrowed(d.fma(k, -p.HALF_PI_LOW, r))
    q = f.w.assign(f"trunc {d.bits_type} {quadrant} to {f.bits_type}")
    if name == "cos":
        q = f.op("add", q, 1)
    square = f.mul(r, r)
    sine = f.fma(f.mul(square, r), f.polynomial(p.SIN, square), r)
    # The sum of zeros of both signs is +0: give -0 its sign back.
    sine = f.with_sign_of(sine, r)
    cosine = f.fma(square, -0.5, 1.0)
    cosine = f.fma(f.mul(square, square), f.polynomial(p.COS, square), cosine)
    even = f.compare_bits("eq", f.op("and", q, 1), 0)
    sign = f.op("shl", f.op("and", q, 2), 30)
    return f.floats(f.op("xor", f.bits(f.select(even, sine, cosine)), sign))
