"""Conversions between scalar types, as `ir.expr.Cast` defines them.

Every conversion to a float rounds once, to nearest even, with gradual underflow. The narrow floats
are computed in f32: widening is exact, and what does not fit into f32 is first rounded to odd (an
inexact result has its last bit set), so that the rounding after it sees that something was cut off
(Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding
to odd", 2008).

Only f16 uses instructions of its own (F16C); without them LLVM calls ``__extendhfsf2`` and
``__truncsfhf2`` of the compiler's library. ``vcvtneps2bf16`` is not used: it takes subnormals for
zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import (
    DType,
    bf16,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s16,
    s32,
    s64,
    tf32,
)
from tilewright.targets.llvm.arithmetic import Arithmetic
from tilewright.targets.llvm.types import llvm_type, splat, suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

_FP8 = (f8_e4m3, f8_e5m2)
_NARROW = (tf32, f16, bf16, *_FP8)
_INFINITY = 0x7F800000  # the bits of f32


def emit_cast(w: Writer, value: Value, to: DType) -> Value:
    """``value`` converted to ``to``."""
    source = value.dtype
    if source is to:
        return value
    if source in _NARROW:
        single = _widen(w, value)
        return single if to is f32 else emit_cast(w, single, to)
    if to in _NARROW:
        return _narrow(w, _single(w, value), to)
    return Value(w.assign(_instruction(w, value, to)), to, value.lanes)


def _instruction(w: Writer, value: Value, to: DType) -> str:
    """Between f64, f32, integers and bool."""
    source, lanes = value.dtype, value.lanes
    type_ = llvm_type(to, lanes)
    if source.is_float and to.is_float:
        return f"{'fpext' if to.bits > source.bits else 'fptrunc'} {value.typed} to {type_}"
    if source.is_float:
        if to.kind == "bool":
            return f"fcmp une {value.typed}, {splat('0.0', source, lanes)}"
        return _saturating(w, value, to)
    signed = source.kind == "int"
    if to.is_float:
        return f"{'sitofp' if signed else 'uitofp'} {value.typed} to {type_}"
    if to.kind == "bool":
        return f"icmp ne {value.typed}, {splat('0', source, lanes)}"
    if to.bits > source.bits:
        return f"{'sext' if signed else 'zext'} {value.typed} to {type_}"
    if to.bits < source.bits:
        return f"trunc {value.typed} to {type_}"
    return f"bitcast {value.typed} to {type_}"


def _saturating(w: Writer, value: Value, to: DType) -> str:
    kind = "fptosi" if to.kind == "int" else "fptoui"
    name = f"llvm.{kind}.sat.{suffix(to, value.lanes)}.{suffix(value.dtype, value.lanes)}"
    result = llvm_type(to, value.lanes)
    w.declare(result, name, value.type)
    return f"call {result} @{name}({value.typed})"


def _widen(w: Writer, value: Value) -> Value:
    """A narrow float as f32, exactly."""
    lanes = value.lanes
    f = Arithmetic(w, f32, lanes)
    if value.dtype is tf32:
        return f.value(value.text)
    if value.dtype is f16:
        return f.value(w.assign(f"fpext {value.typed} to {f.type}"))
    if value.dtype is bf16:
        short = Value(w.assign(f"bitcast {value.typed} to {llvm_type(s16, lanes)}"), s16, lanes)
        raw = w.assign(f"zext {short.typed} to {f.bits_type}")
        return f.value(f.floats(f.op("shl", raw, 16)))
    raw = w.assign(f"zext {value.typed} to {f.bits_type}")
    if value.dtype is f8_e4m3:
        return f.value(_from_e4m3(f, raw))
    # e5m2 is the upper half of f16.
    short = llvm_type(s16, lanes)
    upper = w.assign(f"trunc {f.bits_type} {f.op('shl', raw, 8)} to {short}")
    half = w.assign(f"bitcast {short} {upper} to {llvm_type(f16, lanes)}")
    return _widen(w, Value(half, f16, lanes))


def _from_e4m3(f: Arithmetic, raw: str) -> str:
    """A multiplication changes the exponent's bias, which is right for subnormals as well."""
    code = f.op("and", raw, 0x7F)
    magnitude = f.mul(f.floats(f.op("shl", code, 20)), 2.0**120)
    absolute = f.select_bits(f.compare_bits("eq", code, 0x7F), 0x7FC00000, f.bits(magnitude))
    sign = f.op("shl", f.op("and", raw, 0x80), 24)
    return f.floats(f.op("or", absolute, sign))


def _single(w: Writer, value: Value) -> Value:
    """As f32, exactly or rounded to odd."""
    if value.dtype is s64:
        value = _to_f64_odd(w, value)
    elif value.dtype is s32:
        value = emit_cast(w, value, f64)
    if value.dtype is f64:
        return _to_f32_odd(w, value)
    return emit_cast(w, value, f32)


def _to_f64_odd(w: Writer, value: Value) -> Value:
    """s64 beyond 2**53, where f64 is inexact: 11 bits become one that says if they were zero."""
    d = Arithmetic(w, f64, value.lanes)
    n = value.text
    cut = d.op("and", n, ~0x7FF)
    odd = d.select_bits(d.compare_bits("eq", cut, n), n, d.op("or", cut, 0x800))
    small = d.compare_bits("ult", d.op("add", n, 1 << 53), 1 << 54)
    return emit_cast(w, Value(d.select_bits(small, n, odd), s64, value.lanes), f64)


def _to_f32_odd(w: Writer, value: Value) -> Value:
    d, f = (Arithmetic(w, dtype, value.lanes) for dtype in (f64, f32))
    nearest = f.narrowed(value.text)
    back = w.assign(f"fpext {f.type} {nearest} to {d.type}")
    inexact = d.compare("one", back, value.text)
    away = d.compare("ogt", d.absolute(back), d.absolute(value.text))
    code = f.bits(nearest)
    # Towards zero, then odd. An overflow becomes the greatest finite number, which is odd.
    towards = f.select_bits(away, f.op("sub", code, 1), code)
    return f.value(f.floats(f.select_bits(inexact, f.op("or", towards, 1), code)))


def _narrow(w: Writer, value: Value, to: DType) -> Value:
    """From f32, to nearest even."""
    f = Arithmetic(w, f32, value.lanes)
    type_ = llvm_type(to, value.lanes)
    if to is tf32:
        code, special = _cut(f, value.text, 13)
        rounded = f.op("and", code, ~0x1FFF)
        x = f.bits(value.text)
        return Value(f.floats(f.select_bits(special, x, rounded)), tf32, value.lanes)
    if to is f16:
        return Value(w.assign(f"fptrunc {value.typed} to {type_}"), f16, value.lanes)
    if to is bf16:
        code, _ = _cut(f, value.text, 16)
        quiet = f.op("or", f.bits(value.text), 0x400000)
        nan = f.compare("uno", value.text, value.text)
        upper = f.op("lshr", f.select_bits(nan, quiet, code), 16)
        short = llvm_type(s16, value.lanes)
        half = w.assign(f"trunc {f.bits_type} {upper} to {short}")
        return Value(w.assign(f"bitcast {short} {half} to {type_}"), bf16, value.lanes)
    code = _to_fp8(f, value.text, _FP8_FORMAT[to])
    return Value(w.assign(f"trunc {f.bits_type} {code} to {type_}"), to, value.lanes)


def _cut(f: Arithmetic, x: str, places: int) -> tuple[str, str]:
    """The bits of ``x`` rounded to nearest even where ``places`` bits will be cut off, and which
    lanes are infinite or NaN. Rounding up may carry into the exponent, as far as infinity."""
    code = f.bits(x)
    odd = f.op("and", f.op("lshr", code, places), 1)
    rounded = f.op("add", f.op("add", code, (1 << (places - 1)) - 1), odd)
    special = f.compare_bits("uge", f.op("and", code, 0x7FFFFFFF), _INFINITY)
    return rounded, special


@dataclass(frozen=True)
class _Fp8:
    """An 8-bit float: mantissa bits, exponent bias, greatest finite code, overflow, NaN."""

    mantissa: int
    bias: int
    greatest: int
    overflow: int
    nan: int


_FP8_FORMAT = {
    f8_e4m3: _Fp8(3, 7, 0x7E, 0x7F, 0x7F),  # no infinity: overflow is NaN
    f8_e5m2: _Fp8(2, 15, 0x7B, 0x7C, 0x7E),
}


def _to_fp8(f: Arithmetic, x: str, form: _Fp8) -> str:
    """The code of the nearest 8-bit float, in the low bits. Subnormals are rounded by adding a
    number whose last place is the format's least step."""
    sign = f.op("and", f.op("lshr", f.bits(x), 24), 0x80)
    magnitude = f.absolute(x)
    places = 23 - form.mantissa
    rounded, _ = _cut(f, magnitude, places)
    normal = f.op("sub", f.op("lshr", rounded, places), (127 - form.bias) << form.mantissa)
    step = 127 + 1 - form.bias - form.mantissa + 23
    shifted = f.add(magnitude, 2.0 ** (step - 127))
    subnormal = f.op("sub", f.bits(shifted), step << 23)
    small = f.compare("olt", magnitude, 2.0 ** (1 - form.bias))
    code = f.select_bits(small, subnormal, normal)
    code = f.select_bits(f.compare_bits("ugt", code, form.greatest), form.overflow, code)
    code = f.select_bits(f.compare("uno", x, x), form.nan, code)
    return f.op("or", code, sign)
