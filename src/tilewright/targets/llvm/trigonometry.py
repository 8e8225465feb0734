"""sin and cos of f32 on all lanes.

Up to `LIMIT` the argument is reduced in f64: with ``k = rint(x 2/pi)``, ``x - k pi/2`` needs pi/2
in two parts only, and its relative error stays below 2**-30 (Cody and Waite, "Software Manual for
the Elementary Functions", 1980). Greater numbers are reduced one by one, by the bits of 2/pi that
matter for them (M. Payne and R. Hanek, "Radian Reduction for Trigonometric Functions",
1983). That takes a branch, so these are functions of the module and not written in line.
"""

from __future__ import annotations

import math
from itertools import pairwise

from tilewright.dtypes import f32, f64
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
        w.declarations[function] = _definition(w, function, name, value.lanes)
    return Value(w.assign(f"call {value.type} @{function}({value.typed})"), f32, value.lanes)


def _definition(caller: Writer, function: str, name: str, lanes: int) -> str:
    w = Writer(caller.declarations, caller.dialect)
    f = Arithmetic(w, f32, lanes)
    x = "%x"
    near = _of_reduced(f, *_reduced(f, x), name)
    large = f.compare("oge", f.absolute(x), LIMIT)
    w.branch(f.any(large), "far", "done")
    w.start("far")
    far = emit_by_lanes(w, _far(w, name), (Value(x, f32, lanes),))
    w.emit(f"ret {f.type} {f.select(large, far.text, near)}")
    w.start("done")
    w.emit(f"ret {f.type} {near}")
    header = f'define internal {f.type} @{function}({f.type} %x) nounwind "{_WIDTH}"="512" {{'
    return "\n".join([header, "entry:", *w.lines, "}"])


def _far(caller: Writer, name: str) -> str:
    """Defines the function of one number from `LIMIT` on: such numbers are rare, and all lanes at
    once would be much code."""
    function = f"tilewright.{name}.far"
    if function not in caller.declarations:
        w = Writer(caller.declarations, caller.dialect)
        f = Arithmetic(w, f32, 1)
        w.emit(f"ret {f.type} {_of_reduced(f, *_reduced_far(f, '%x'), name)}")
        header = f"define internal {f.type} @{function}({f.type} %x) nounwind noinline {{"
        caller.declarations[function] = "\n".join([header, "entry:", *w.lines, "}"])
    return function


_WIDTH = "prefer-vector-width"


def _reduced(f: Arithmetic, x: str) -> tuple[str, str]:
    """``x`` reduced by quarter turns to -pi/4 to pi/4, and the number of quarter turns."""
    d, wide = f.widened(x)
    k, quadrant = d.round_with_magic(d.fma(wide, 2 / math.pi, d.magic))
    r = d.fma(k, -p.HALF_PI_HIGH, wide)
    r = f.narrowed(d.fma(k, -p.HALF_PI_LOW, r))
    return r, f.w.assign(f"trunc {d.bits_type} {quadrant} to {f.bits_type}")


# The bits of 2/pi after the binary point, with zeros before it.
_TWO_OVER_PI = (
    *(0, 0xA2F9836E, 0x4E441529, 0xFC2757D1),
    *(0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB),
)
_WORD = (1 << 32) - 1


def _reduced_far(f: Arithmetic, x: str) -> tuple[str, str]:
    """The same from `LIMIT` on. ``x`` is m 2**e with an integer m below 2**24: the bits of 2/pi
    that are worth 4 or more in m's product count whole turns, and the next 96 bits suffice."""
    d = Arithmetic(f.w, f64, f.lanes)
    bits = f.w.assign(f"zext {f.bits_type} {f.bits(f.absolute(x))} to {d.bits_type}")
    m = d.op("or", d.op("and", bits, (1 << 23) - 1), 1 << 23)
    # Position of the first bit: e - 2, after 32 zeros.
    first = d.op("sub", d.op("lshr", bits, 23), 150 + 2 - 32)
    word, shift = d.op("ashr", first, 5), d.op("and", first, 31)
    words = [_word_from(d, word, n) for n in range(4)]
    parts = []
    for high, low in pairwise(words):
        both = d.op("or", d.op("shl", high, 32), low)
        parts.append(d.op("lshr", d.op("shl", both, shift), 32))
    # Their product with m, without whole turns: 64 bits after the binary point of a turn.
    last = d.op("mul", m, parts[2])
    middle = d.op("add", d.op("mul", m, parts[1]), d.op("lshr", last, 32))
    top = d.op("add", d.op("mul", m, parts[0]), d.op("lshr", middle, 32))
    turn = d.op("or", d.op("shl", top, 32), d.op("and", middle, _WORD))
    quadrant = d.op("lshr", d.op("add", turn, 1 << 61), 62)
    fraction = d.op("sub", turn, d.op("shl", quadrant, 62))
    r = d.mul(d.from_integers(fraction), 2 * math.pi / 2.0**64)
    # Infinities give NaN.
    r = f.add(f.narrowed(r), f.sub(x, x))
    q = f.w.assign(f"trunc {d.bits_type} {quadrant} to {f.bits_type}")
    negative = f.compare("olt", x, 0.0)
    return f.select(negative, f.sub(-0.0, r), r), f.select_bits(negative, f.op("sub", 0, q), q)


def _word_from(d: Arithmetic, word: str, n: int) -> str:
    """32 bits of 2/pi: the ``n``-th word after word ``word`` (0 to 4)."""
    bits = d.whole(_TWO_OVER_PI[n + 4])
    for k in range(4):
        bits = d.select_bits(d.compare_bits("eq", word, k), _TWO_OVER_PI[n + k], bits)
    return bits


def _of_reduced(f: Arithmetic, r: str, q: str, name: str) -> str:
    """sin or cos of ``r`` plus ``q`` quarter turns."""
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
