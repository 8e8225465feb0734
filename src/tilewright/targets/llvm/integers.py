"""Operations on integers whose LLVM instructions are undefined in some cases, and further ones.

Division and modulo by zero give 0; the least number divided by -1 wraps. A shift by the type's
width or more (amounts are unsigned) gives 0, or copies of the sign.
"""

from __future__ import annotations

from tilewright.dtypes import DType
from tilewright.targets.llvm.indices import is_natural
from tilewright.targets.llvm.types import constant, llvm_type, splat, suffix
from tilewright.targets.llvm.values import Result, Value
from tilewright.targets.llvm.writer import Writer


def _number(n: int, value: Value) -> str:
    """``n`` in every lane of the type of ``value``."""
    return splat(constant(n, value.dtype), value.dtype, value.lanes)


def cut(w: Writer, text: str, lanes: int, bits: int, to: int) -> str:
    """The low ``to`` bits of integers of ``bits`` bits, which are more."""

    def type_of(width: int) -> str:
        return f"i{width}" if lanes == 1 else f"<{lanes} x i{width}>"

    while bits > to:
        narrower = bits // 2 if w.dialect.narrows_by_halves else to
        text = w.assign(f"trunc {type_of(bits)} {text} to {type_of(narrower)}")
        bits = narrower
    return text


def _flags(lanes: int) -> str:
    return "i1" if lanes == 1 else f"<{lanes} x i1>"


def emit_division(w: Writer, op: str, a: Value, b: Value, right: Result) -> str:
    """``floordiv`` or ``mod``; ``right`` is the divisor ``b`` as a number, if known."""
    if not isinstance(right, Value):
        if right == 0:
            return _number(0, a)
        if right > 0 and int(right) & (int(right) - 1) == 0:
            return _by_power_of_two(w, op, a, int(right))
        if right > 0:
            return _by_positive(w, op, a, b)
    flags = _flags(a.lanes)
    zero, one = _number(0, a), _number(1, a)
    by_zero = w.assign(f"icmp eq {b.typed}, {zero}")
    divisor = w.assign(f"select {flags} {by_zero}, {a.type} {one}, {b.typed}")
    if a.dtype.kind == "uint":
        result = w.assign(f"{'udiv' if op == 'floordiv' else 'urem'} {a.typed}, {divisor}")
    else:
        result = _signed_division(w, op, a, Value(divisor, a.dtype, a.lanes), right)
    return w.assign(f"select {flags} {by_zero}, {a.type} {zero}, {a.type} {result}")


def _by_power_of_two(w: Writer, op: str, a: Value, divisor: int) -> str:
    if op == "mod":
        return w.assign(f"and {a.typed}, {_number(divisor - 1, a)}")
    shift = "lshr" if a.dtype.kind == "uint" or is_natural(a.range) else "ashr"
    return w.assign(f"{shift} {a.typed}, {_number(divisor.bit_length() - 1, a)}")


def _by_positive(w: Writer, op: str, a: Value, divisor: Value) -> str:
    """Floor division and modulo by a positive constant."""
    if a.dtype.kind == "uint" or is_natural(a.range):
        return w.assign(f"{'udiv' if op == 'floordiv' else 'urem'} {a.typed}, {divisor.text}")
    flags = _flags(a.lanes)
    # The remainder has the sign of the dividend: a negative one is one divisor too small.
    remainder = w.assign(f"srem {a.typed}, {divisor.text}")
    short = w.assign(f"icmp slt {a.type} {remainder}, {_number(0, a)}")
    if op == "mod":
        return _with_sign(w, a, remainder, divisor, short)
    quotient = w.assign(f"sdiv {a.typed}, {divisor.text}")
    less = w.assign(f"sext {flags} {short} to {a.type}")
    return w.assign(f"add {a.type} {quotient}, {less}")


def _with_sign(w: Writer, a: Value, remainder: str, divisor: Value, wrong: str) -> str:
    """A remainder with the sign of the divisor; ``wrong`` says that it has the other one."""
    moved = w.assign(f"add {a.type} {remainder}, {divisor.text}")
    return w.assign(f"select {_flags(a.lanes)} {wrong}, {a.type} {moved}, {a.type} {remainder}")


def _signed_division(w: Writer, op: str, a: Value, divisor: Value, right: Result) -> str:
    """Division by a number that is not zero."""
    flags, zero = _flags(a.lanes), _number(0, a)
    minus: str | None = None
    if isinstance(right, Value) and not (is_natural(a.range) or is_natural(right.range)):
        # The quotient may not fit: machines trap then, and LLVM assumes that it fits.
        minus = w.assign(f"icmp eq {divisor.typed}, {_number(-1, a)}")
        one = f"{a.type} {_number(1, a)}"
        text = w.assign(f"select {flags} {minus}, {one}, {divisor.typed}")
        divisor = Value(text, a.dtype, a.lanes)
    remainder = w.assign(f"srem {a.typed}, {divisor.text}")
    signs = w.assign(f"xor {a.type} {remainder}, {divisor.text}")
    differ = w.assign(f"icmp slt {a.type} {signs}, {zero}")
    nonzero = w.assign(f"icmp ne {a.type} {remainder}, {zero}")
    adjust = w.assign(f"and {flags} {differ}, {nonzero}")
    if op == "mod":
        # By 1, as by -1, the remainder is 0.
        return _with_sign(w, a, remainder, divisor, adjust)
    quotient = w.assign(f"sdiv {a.typed}, {divisor.text}")
    less = w.assign(f"sub {a.type} {quotient}, {_number(1, a)}")
    result = w.assign(f"select {flags} {adjust}, {a.type} {less}, {a.type} {quotient}")
    if minus is None:
        return result
    negative = w.assign(f"sub {a.type} {zero}, {a.text}")
    return w.assign(f"select {flags} {minus}, {a.type} {negative}, {a.type} {result}")


def emit_shift(w: Writer, op: str, a: Value, b: Value, right: Result) -> str:
    """``shl`` or ``shr``; ``right`` is the amount ``b`` as a number, if known."""
    bits = a.dtype.bits
    signed = op == "shr" and a.dtype.kind == "int"
    shift = "shl" if op == "shl" else "ashr" if signed else "lshr"
    if not isinstance(right, Value):
        amount = int(right) % (1 << bits)
        if amount >= bits and not signed:
            return _number(0, a)
        return w.assign(f"{shift} {a.typed}, {_number(min(amount, bits - 1), a)}")
    flags = _flags(a.lanes)
    inside = w.assign(f"icmp ult {b.typed}, {_number(bits, a)}")
    most = f"{a.type} {_number(bits - 1, a)}"
    amount_ = w.assign(f"select {flags} {inside}, {b.typed}, {most}")
    moved = w.assign(f"{shift} {a.typed}, {amount_}")
    if signed:
        return moved
    return w.assign(f"select {flags} {inside}, {a.type} {moved}, {a.type} {_number(0, a)}")


def emit_multiply_high(w: Writer, a: Value, b: Value) -> str:
    """The upper half of the product of twice as many bits."""
    bits = a.dtype.bits
    # LLVM's SPIR-V makes an operation that it crashes on from products of unsigned numbers.
    crashes = not w.dialect.double_words and a.dtype.kind == "uint" and bits > 8
    if crashes or (bits == 64 and (a.lanes > 1 or not w.dialect.double_words)):
        return _high_by_halves(w, a, b)
    width = max(2 * bits, 32)  # products of 8 bits in 16 crash Intel's compiler for OpenCL
    wide = f"i{width}" if a.lanes == 1 else f"<{a.lanes} x i{width}>"
    how = "sext" if a.dtype.kind == "int" else "zext"
    x, y = (w.assign(f"{how} {factor.typed} to {wide}") for factor in (a, b))
    product = w.assign(f"mul {wide} {x}, {y}")
    count = str(bits) if a.lanes == 1 else f"splat (i{width} {bits})"
    high = w.assign(f"lshr {wide} {product}, {count}")
    return cut(w, high, a.lanes, width, bits)


def _high_by_halves(w: Writer, a: Value, b: Value) -> str:
    """The upper half from four products of half-width numbers."""

    def op(name: str, x: str, y: str) -> str:
        return w.assign(f"{name} {a.type} {x}, {y}")

    bits = a.dtype.bits
    half, low = _number(bits // 2, a), _number(2 ** (bits // 2) - 1, a)
    x_high, x_low = op("lshr", a.text, half), op("and", a.text, low)
    y_high, y_low = op("lshr", b.text, half), op("and", b.text, low)
    first = op("lshr", op("mul", x_low, y_low), half)
    middle = op("add", op("mul", x_high, y_low), first)
    carried = op("add", op("and", middle, low), op("mul", x_low, y_high))
    high = op("add", op("mul", x_high, y_high), op("lshr", middle, half))
    result = op("add", high, op("lshr", carried, half))
    if a.dtype.kind == "uint":
        return result
    # A negative factor was taken as unsigned, 2**bits greater.
    sign = _number(bits - 1, a)
    for factor, other in ((a, b), (b, a)):
        negative = op("ashr", factor.text, sign)
        result = op("sub", result, op("and", negative, other.text))
    return result


def emit_implied(w: Writer, op: str, a: Value, b: Value) -> str:
    """``lt`` or ``le`` of conditions, false before true; LLVM's SPIR-V has no such comparison."""
    opposite = w.assign(f"xor {a.typed}, {_number(1, a)}")
    return w.assign(f"{'and' if op == 'lt' else 'or'} {a.type} {opposite}, {b.text}")


def emit_count(w: Writer, op: str, a: Value) -> str:
    """``clz`` or ``popcount``."""
    name = suffix(a.dtype, a.lanes)
    if op == "popcount":
        return w.call(a.type, f"llvm.ctpop.{name}", a.typed, a.type)
    return w.call(a.type, f"llvm.ctlz.{name}", f"{a.typed}, i1 false", f"{a.type}, i1")


def emit_bits(w: Writer, value: Value, to: DType) -> Value:
    """The bits of ``value`` as another type of as many."""
    type_ = llvm_type(to, value.lanes)
    if type_ == value.type:
        return Value(value.text, to, value.lanes)
    return Value(w.assign(f"bitcast {value.typed} to {type_}"), to, value.lanes)
