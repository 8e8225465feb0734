"""fmod, exactly: the remainder of ``x`` by ``y``, with the sign of ``x``.

f32 is computed in f64 on all lanes. There quotients below 2**28 and their remainders are exact;
greater ones take several steps, by ``y`` times powers of 2**28. f64 is divided lane by lane as
integers, in steps of as many quotient bits as the remainder can be shifted by in 64 bits, at
least 11.
"""

from __future__ import annotations

import math

from tilewright.dtypes import f32, f64
from tilewright.targets.llvm.arithmetic import Arithmetic
from tilewright.targets.llvm.by_lanes import emit_by_lanes
from tilewright.targets.llvm.types import suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

_BITS = 28
# The greatest quotient of f32 is below 2**278.
_STEPS = range(9, 0, -1)
_WHOLE = "tilewright.fmod.whole"
_MANTISSA = (1 << 52) - 1
_INFINITY = 0x7FF0000000000000


def emit_fmod(w: Writer, x: Value, y: Value) -> Value:
    """fmod of f32 or f64: an exact result, so there is no error."""
    if x.dtype is f64:
        _define_whole(w)
        return emit_by_lanes(w, _WHOLE, (x, y))
    function = f"tilewright.fmod.{suffix(f32, x.lanes)}"
    if function not in w.declarations:
        w.declarations[function] = _definition(w, function, x.lanes)
    text = w.assign(f"call {x.type} @{function}({x.typed}, {y.typed})")
    return Value(text, f32, x.lanes)


def _definition(caller: Writer, function: str, lanes: int) -> str:
    w = Writer(caller.declarations, caller.dialect)
    f = Arithmetic(w, f32, lanes)
    d, x = f.widened(f.absolute("%x"))
    _, y = f.widened(f.absolute("%y"))
    many = d.compare("oge", d.div(x, y), 2.0**_BITS)
    w.branch(f.any(many), "far", "near")
    w.start("far")
    remainder = x
    for step in _STEPS:
        remainder = _remainder(d, remainder, d.mul(y, 2.0 ** (_BITS * step)))
    w.jump("near")
    w.start("near")
    near = w.assign(f"phi {d.type} [{x}, %entry], [{remainder}, %far]")
    exact = d.select(d.compare("olt", x, y), x, _remainder(d, near, y))  # also for infinite y
    w.emit(f"ret {f.type} {f.with_sign_of(f.narrowed(exact), '%x')}")
    header = f"define internal {f.type} @{function}({f.type} %x, {f.type} %y) nounwind {{"
    return "\n".join([header, "entry:", *w.lines, "}"])


def _remainder(d: Arithmetic, x: str, y: str) -> str:
    return d.sub(x, d.mul(d.floor(d.div(x, y)), y))


def _define_whole(caller: Writer) -> None:
    """Defines the function of two doubles, for all numbers."""
    if _WHOLE in caller.declarations:
        return
    w = Writer(caller.declarations, caller.dialect)
    d = Arithmetic(w, f64, 1)
    x, y = d.bits(d.absolute("%x")), d.bits(d.absolute("%y"))
    undefined = d.compare_bits("eq", y, 0)
    undefined = d.logic("or", undefined, d.compare_bits("uge", x, _INFINITY))
    undefined = d.logic("or", undefined, d.compare_bits("ugt", y, _INFINITY))
    less = d.compare_bits("ult", x, y)
    w.branch(d.logic("or", undefined, less), "edge", "divide")
    w.start("edge")
    w.emit(f"ret double {d.select(undefined, math.nan, '%x')}")
    w.start("divide")
    (m, e), (n, least) = _parts(d, x), _parts(d, y)
    both = d.op("or", m, n)
    lowest = d.op("and", both, d.op("sub", 0, both))
    zeros = _intrinsic(d, "ctpop.i64", d.op("sub", lowest, 1))  # common trailing zeros
    m, n = d.op("lshr", m, zeros), d.op("lshr", n, zeros)
    most = _intrinsic(d, "ctlz.i64", n, "i1 true")
    first, count = d.op("urem", m, n), d.op("sub", e, least)
    w.jump("test")
    w.start("test")
    remainder, remaining, next_, lower = w.name(), w.name(), w.name(), w.name()
    w.emit(f"{remainder} = phi i64 [{first}, %divide], [{next_}, %step]")
    w.emit(f"{remaining} = phi i64 [{count}, %divide], [{lower}, %step]")
    w.branch(d.compare_bits("eq", remaining, 0), "done", "step")
    w.start("step")
    bits = d.select_bits(d.compare_bits("ult", remaining, most), remaining, most)
    w.emit(f"{next_} = urem i64 {d.op('shl', remainder, bits)}, {n}")
    w.emit(f"{lower} = sub i64 {remaining}, {bits}")
    w.jump("test")
    w.start("done")
    # The bits of the remainder are those of a number 2**(least - 1) times too small.
    up = d.op("sub", least, 1)
    half = d.op("lshr", up, 1)
    result = d.mul(d.floats(d.op("shl", remainder, zeros)), d.power_of_two(half))
    result = d.mul(result, d.power_of_two(d.op("sub", up, half)))
    w.emit(f"ret double {d.with_sign_of(result, '%x')}")
    header = f"define internal double @{_WHOLE}(double %x, double %y) nounwind noinline {{"
    caller.declarations[_WHOLE] = "\n".join([header, "entry:", *w.lines, "}"])


def _intrinsic(d: Arithmetic, name: str, n: str, more: str = "") -> str:
    arguments, types = (f"i64 {n}, {more}", "i64, i1") if more else (f"i64 {n}", "i64")
    return d.w.call("i64", f"llvm.{name}", arguments, types)


def _parts(d: Arithmetic, code: str) -> tuple[str, str]:
    """The significand of a finite number as an integer, and the exponent field; a subnormal has the
    field of the least normal numbers."""
    m, e = d.op("and", code, _MANTISSA), d.op("lshr", code, 52)
    subnormal = d.compare_bits("eq", e, 0)
    return d.select_bits(subnormal, m, d.op("or", m, 1 << 52)), d.select_bits(subnormal, 1, e)
