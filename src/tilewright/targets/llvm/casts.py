"""Conversions between scalar types, as `ir.expr.Cast` defines them.

Every conversion to a float rounds once, to nearest even, with gradual underflow. The narrow floats
are computed in f32: widening is exact, and a number that does not fit in f32 is first rounded to
odd (an inexact result has its last bit set), so that the second rounding knows of the first
(Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding
to odd", 2008).

f16 has instructions on x86 (F16C); without them LLVM calls functions, which the module defines. For
bf16 a dialect says whether there is an instruction: NVIDIA's ``cvt.rn.bf16x2.f32`` rounds as above,
two elements at a time; x86's ``vcvtneps2bf16`` flushes subnormals to zero, so these are
normal numbers while it rounds them.

A value of 4 bits is a byte whose upper half is undefined: only the lower half is read, and values
made here have zeros in the upper one.
"""

from __future__ import annotations

import math

from tilewright.dtypes import (
    DType,
    bf16,
    boolean,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s8,
    s16,
    s32,
    s64,
    tf32,
    u8,
    u32,
    u64,
)
from tilewright.targets.llvm.arithmetic import Arithmetic, by_parts
from tilewright.targets.llvm.dialect import FlushingRounding
from tilewright.targets.llvm.integers import cut
from tilewright.targets.llvm.small_floats import E4M3, E5M2, F16, decode, encode, round_at
from tilewright.targets.llvm.types import constant, llvm_type, splat
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

_NARROW = (tf32, f16, bf16, f8_e4m3, f8_e5m2)


def emit_cast(w: Writer, value: Value, to: DType) -> Value:
    """``value`` converted to ``to``."""
    source = value.dtype
    if source is to:
        return value
    if source.is_nibble:
        return emit_cast(w, _nibble(w, value), to)
    if source in _NARROW:
        single = _widen(w, value)
        return single if to is f32 else emit_cast(w, single, to)
    if to in _NARROW:
        return _narrow(w, _single(w, value), to)
    if source.is_float and to.is_integer:
        return _saturate(w, value, to)
    if to.is_nibble:
        low = _low_nibble(w, emit_cast(w, value, u8))
        return Value(low, to, value.lanes)
    if source.is_integer and to.is_integer and to.bits < source.bits:
        return Value(cut(w, value.text, value.lanes, source.bits, to.bits), to, value.lanes)
    return Value(w.assign(_instruction(w, value, to)), to, value.lanes)


def _nibble(w: Writer, value: Value) -> Value:
    """The 4 bits of ``value`` as s8 or u8."""
    low = _low_nibble(w, value)
    if value.dtype.kind == "uint":
        return Value(low, u8, value.lanes)
    sign = splat("8", s8, value.lanes)
    flipped = w.assign(f"xor {value.type} {low}, {sign}")
    return Value(w.assign(f"sub {value.type} {flipped}, {sign}"), s8, value.lanes)


def _low_nibble(w: Writer, value: Value) -> str:
    return w.assign(f"and {value.typed}, {splat('15', value.dtype, value.lanes)}")


def _instruction(w: Writer, value: Value, to: DType) -> str:
    """The instruction between f64, f32, integers and bool, but not from floats to integers, nor
    to integers of fewer bits."""
    source, lanes = value.dtype, value.lanes
    type_ = llvm_type(to, lanes)
    if source.is_float and to.is_float:
        return f"{'fpext' if to.bits > source.bits else 'fptrunc'} {value.typed} to {type_}"
    if source.is_float:
        return f"fcmp une {value.typed}, {splat('0.0', source, lanes)}"
    if source.kind == "bool" and w.dialect.word_registers and to.is_integer:
        return f"zext {value.typed} to {type_}"  # LLVM's NVPTX crashes on a select of bytes
    if source.kind == "bool":
        # LLVM's SPIR-V is wrong for zext of i1 vectors.
        one, zero = (splat(constant(n, to), to, lanes) for n in (1, 0))
        return f"select {value.typed}, {type_} {one}, {type_} {zero}"
    signed = source.kind == "int"
    if to.is_float:
        return f"{'sitofp' if signed else 'uitofp'} {value.typed} to {type_}"
    if to.kind == "bool":
        return f"icmp ne {value.typed}, {splat('0', source, lanes)}"
    if to.bits > source.bits:
        return f"{'sext' if signed else 'zext'} {value.typed} to {type_}"
    return f"bitcast {value.typed} to {type_}"


def _saturate(w: Writer, value: Value, to: DType) -> Value:
    """f32 or f64 to integers. LLVM's ``fptosi.sat`` is not used: it works lane by lane."""
    f = Arithmetic(w, value.dtype, value.lanes)
    lowest, highest = int(to.lowest), int(to.highest)
    # The greatest float that fits in the integers: for s32 from f32, say, 2**31 - 128.
    mantissa = f.shift + 1
    bound = highest - highest % (1 << max(0, highest.bit_length() - mantissa))
    if w.dialect.whole_by_truncation:
        x = f.select(f.compare("oge", f.absolute(value.text), 1.0), value.text, 0.0)
    else:
        x = f.select(f.compare("uno", value.text, value.text), 0.0, value.text)
    inside = f.at_least(f.at_most(x, bound), lowest)
    wide = s32 if to.bits <= 32 else s64
    how = "fptosi"
    if to in (u32, u64):
        wide, how = to, "fptoui"
    type_ = llvm_type(wide, value.lanes)
    whole = Value(w.assign(f"{how} {f.type} {inside} to {type_}"), wide, value.lanes)
    if bound < highest:
        beyond = f.compare("ogt", x, bound)
        flags = llvm_type(boolean, value.lanes)
        limit = splat(str(highest), to, value.lanes)
        text = w.assign(f"select {flags} {beyond}, {type_} {limit}, {whole.typed}")
        whole = Value(text, wide, value.lanes)
    return emit_cast(w, whole, to)


def _widen(w: Writer, value: Value) -> Value:
    """A narrow float as f32, exactly."""
    lanes = value.lanes
    f = Arithmetic(w, f32, lanes)
    if value.dtype is tf32:
        return f.value(value.text)
    if value.dtype is f16:
        _define_half_conversions(w)
        return f.value(w.assign(f"fpext {value.typed} to {f.type}"))
    if value.dtype is bf16 and w.dialect.word_registers and lanes % 2 == 0:
        return _halves_of_words(w, value)
    if value.dtype is bf16:
        raw = w.assign(f"zext {value.typed} to {f.bits_type}")
        return f.value(f.floats(f.op("shl", raw, 16)))
    raw = w.assign(f"zext {value.typed} to {f.bits_type}")
    if value.dtype is f8_e4m3:
        return f.value(decode(f, raw, E4M3))
    # e5m2 is the upper half of f16.
    short_type = llvm_type(s16, lanes)
    upper = w.assign(f"trunc {f.bits_type} {f.op('shl', raw, 8)} to {short_type}")
    half = w.assign(f"bitcast {short_type} {upper} to {llvm_type(f16, lanes)}")
    return _widen(w, Value(half, f16, lanes))


def _halves_of_words(w: Writer, value: Value) -> Value:
    """bf16 as f32, two from each word: one instruction each. Taken one by one, each would have to
    be extracted from the word first."""
    half = value.lanes // 2
    f = Arithmetic(w, f32, half)
    words = w.assign(f"bitcast {value.typed} to {f.bits_type}")
    low, high = f.op("shl", words, 16), f.op("and", words, ~0xFFFF)
    if half == 1:
        first = w.assign(f"insertelement <2 x float> poison, float {f.floats(low)}, i64 0")
        both = w.assign(f"insertelement <2 x float> {first}, float {f.floats(high)}, i64 1")
        return Value(both, f32, 2)
    order = ", ".join(f"i32 {i + half * upper}" for i in range(half) for upper in (0, 1))
    pair = f"{f.bits_type} {low}, {f.bits_type} {high}"
    whole = w.assign(f"shufflevector {pair}, <{value.lanes} x i32> <{order}>")
    return Value(Arithmetic(w, f32, value.lanes).floats(whole), f32, value.lanes)


def _single(w: Writer, value: Value) -> Value:
    """The value as f32, exact or rounded to odd."""
    if value.dtype in (s64, u64):
        value = _to_f64_odd(w, value)
    elif value.dtype in (s32, u32):
        value = emit_cast(w, value, f64)
    if value.dtype is f64:
        return _to_f32_odd(w, value)
    return emit_cast(w, value, f32)


def _to_f64_odd(w: Writer, value: Value) -> Value:
    """Integers of 64 bits as f64. Beyond 2**53, where f64 is inexact, the last 11 bits become one
    that is set if any of them is."""
    d = Arithmetic(w, f64, value.lanes)
    n = value.text
    truncated = d.op("and", n, ~0x7FF)
    odd = d.select_bits(d.compare_bits("eq", truncated, n), n, d.op("or", truncated, 0x800))
    if value.dtype is s64:
        small = d.compare_bits("ult", d.op("add", n, 1 << 53), 1 << 54)
    else:
        small = d.compare_bits("ult", n, 1 << 53)
    return emit_cast(w, Value(d.select_bits(small, n, odd), value.dtype, value.lanes), f64)


def _to_f32_odd(w: Writer, value: Value) -> Value:
    """f64 as f32, rounded to odd."""
    d, f = (Arithmetic(w, dtype, value.lanes) for dtype in (f64, f32))
    nearest = f.narrowed(value.text)
    back = w.assign(f"fpext {f.type} {nearest} to {d.type}")
    inexact = d.compare("one", back, value.text)
    away = d.compare("ogt", d.absolute(back), d.absolute(value.text))
    code = f.bits(nearest)
    # Towards zero, then odd. An overflow gives the greatest finite number, which is odd.
    toward_zero = f.select_bits(away, f.op("sub", code, 1), code)
    return f.value(f.floats(f.select_bits(inexact, f.op("or", toward_zero, 1), code)))


def _narrow(w: Writer, value: Value, to: DType) -> Value:
    """f32 as a narrow float, rounded to nearest even."""
    f = Arithmetic(w, f32, value.lanes)
    type_ = llvm_type(to, value.lanes)
    if to is tf32:
        rounded = f.floats(f.op("and", round_at(f, value.text, 13), ~0x1FFF))
        finite = f.compare("olt", f.absolute(value.text), math.inf)
        return Value(f.select(finite, rounded, value.text), tf32, value.lanes)
    if to is f16:
        _define_half_conversions(w)
        return Value(w.assign(f"fptrunc {value.typed} to {type_}"), f16, value.lanes)
    if to is bf16 and w.dialect.rounds_bf16:
        return Value(_truncated(f, value.text), bf16, value.lanes)
    if to is bf16 and w.dialect.flushing and value.lanes >= _LEAST_ROUNDED:
        return Value(_flushed(f, value.text, w.dialect.flushing), bf16, f.lanes)
    if to is bf16:
        return Value(_by_bits(f, value.text), bf16, value.lanes)
    code = encode(f, value.text, E4M3 if to is f8_e4m3 else E5M2)
    return Value(cut(w, code, value.lanes, 32, to.bits), to, value.lanes)


def _by_bits(f: Arithmetic, x: str) -> str:
    """The bf16 nearest to an f32, computed with integers."""
    quiet = f.op("or", f.bits(x), 0x400000)
    code = f.select_bits(f.compare("uno", x, x), quiet, round_at(f, x, 16))
    type_ = llvm_type(bf16, f.lanes)
    return f.w.assign(f"trunc {f.bits_type} {f.op('lshr', code, 16)} to {type_}")


# The most lanes of f32 in a register: LLVM 22 crashes on vectors of 65 to 96, and some others.
_ROUNDED = 16
# Fewer lanes are not worth a register of their own.
_LEAST_ROUNDED = 4
# The exponent of the least normal number, as it stands in f32 and in bf16.
_LEAST_NORMAL, _LEAST_NORMAL_BF16 = 0x800000, 0x80


def _truncated(f: Arithmetic, x: str) -> str:
    """bf16 by LLVM's instruction."""
    size = min(f.lanes, _ROUNDED)
    bfloat = "bfloat" if size == 1 else f"<{size} x bfloat>"

    def rounded(part: str) -> str:
        narrow = f.w.assign(f"fptrunc {llvm_type(f32, size)} {part} to {bfloat}")
        return f.w.assign(f"bitcast {bfloat} {narrow} to {llvm_type(bf16, size)}")

    return by_parts(f.w, f.type, f.lanes, x, size, rounded, bf16)


def _flushed(f: Arithmetic, x: str, how: FlushingRounding) -> str:
    """bf16 by an intrinsic that flushes subnormals, which are normal numbers meanwhile: the least
    of these, with the same sign, is added before, and taken away afterwards. Neighbours are as far
    from each other on both sides of it, so that nothing is rounded but by the intrinsic.

    On x86 LLVM 22 crashes on ``fptrunc`` if it finds out late that the operand is constant: it
    makes vectors of bfloat without a use."""
    w, size = f.w, _ROUNDED if f.lanes > _ROUNDED // 2 else _ROUNDED // 2
    floats, bits = Arithmetic(w, f32, size), 32 * size
    bfloat, short, flags = f"<{size} x bfloat>", llvm_type(bf16, size), llvm_type(boolean, size)

    def rounded(part: str) -> str:
        classed = f"{floats.type} {part}, i32 {how.subnormal}"
        subnormal = w.call(flags, f"{how.classes}.{bits}", classed, f"{floats.type}, i32")
        code = floats.bits(part)
        raised = floats.select_bits(subnormal, floats.op("or", code, _LEAST_NORMAL), code)
        normal = f"{floats.type} {floats.floats(raised)}"
        narrow = w.call(bfloat, f"{how.rounds}.{bits}", normal, floats.type)
        whole = w.assign(f"bitcast {bfloat} {narrow} to {short}")
        lowered = w.assign(f"sub {short} {whole}, {splat(str(_LEAST_NORMAL_BF16), bf16, size)}")
        return w.assign(f"select {flags} {subnormal}, {short} {lowered}, {short} {whole}")

    return by_parts(w, f.type, f.lanes, x, size, rounded, bf16)


def _define_half_conversions(w: Writer) -> None:
    """Defines the functions that LLVM calls to convert f16 on machines without F16C: some C
    libraries lack them."""
    if not w.dialect.defines_halves or "__extendhfsf2" in w.declarations:
        return
    inner = Writer(w.declarations, w.dialect)
    f = Arithmetic(inner, f32, 1)
    short = inner.assign("bitcast half %x to i16")
    inner.emit(f"ret float {decode(f, inner.assign(f'zext i16 {short} to i32'), F16)}")
    _define(w, "float @__extendhfsf2(half %x)", inner)
    inner = Writer(w.declarations, w.dialect)
    f = Arithmetic(inner, f32, 1)
    short = inner.assign(f"trunc i32 {encode(f, '%x', F16)} to i16")
    inner.emit(f"ret half {inner.assign(f'bitcast i16 {short} to half')}")
    _define(w, "half @__truncsfhf2(float %x)", inner)


def _define(w: Writer, signature: str, body: Writer) -> None:
    name = signature[signature.index("@") + 1 : signature.index("(")]
    lines = [f"define internal {signature} nounwind {{", "entry:", *body.lines, "}"]
    w.declarations[name] = "\n".join(lines)
