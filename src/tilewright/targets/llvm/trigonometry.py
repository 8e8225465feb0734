"""sin and cos of f32 and f64 on all lanes.

Up to a limit the argument is reduced in f64: with ``k = rint(x 2/pi)``, ``x - k pi/2`` of f32 needs
pi/2 in two parts only, and its relative error stays below 2**-30; of f64 it takes three, and what
the second difference loses (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
Greater numbers are reduced one by one, by the bits of 2/pi that matter for them (M. Payne and
R. Hanek, "Radian Reduction for Trigonometric Functions", 1983). That takes a branch, so what
reduces numbers is a function of the module and not written in line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tilewright.dtypes import f32, f64
from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic
from tilewright.targets.llvm.types import suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

LIMIT = {f32: 2.0**20, f64: 2.0**16}


def emit_sine(w: Writer, name: str, value: Value) -> Value:
    """``name`` (sin or cos). Error below 1.7 ulp. Both of one number share all but the last
    steps: what reduces it is a function without effects, called once."""
    f = Arithmetic(w, value.dtype, value.lanes)
    function = f"tilewright.turns.{suffix(value.dtype, value.lanes)}"
    if function not in w.declarations:
        w.declarations[function] = _definition(f, function)
    reduced = _called(f, function, value.text)
    return f.value(_of_reduced(f, *reduced, name))


def _called(f: Arithmetic, function: str, x: str) -> tuple[str, str]:
    """What a function that gives a reduced number and its quarter turns gives of ``x``."""
    both = f.w.once(f"call {_both(f)} @{function}({f.type} {x})")
    first, second = (f.w.assign(f"extractvalue {_both(f)} {both}, {n}") for n in range(2))
    return first, second


def _both(f: Arithmetic) -> str:
    return f"{{ {f.type}, {f.bits_type} }}"


def _returned(f: Arithmetic, r: str, q: str) -> None:
    part = f.w.assign(f"insertvalue {_both(f)} poison, {f.type} {r}, 0")
    whole = f.w.assign(f"insertvalue {_both(f)} {part}, {f.bits_type} {q}, 1")
    f.w.emit(f"ret {_both(f)} {whole}")


def _definition(caller: Arithmetic, function: str) -> str:
    w = Writer(caller.w.declarations, caller.w.dialect)
    f = Arithmetic(w, caller.dtype, caller.lanes)
    x = "%x"
    r, q = _reduced(f, x)
    large = f.compare("oge", f.absolute(x), LIMIT[f.dtype])
    w.branch(f.any(large), "far", "done")
    w.start("far")
    far_r, far_q = _by_lanes(f, _far(f), x)
    _returned(f, f.select(large, far_r, r), f.select_bits(large, far_q, q))
    w.start("done")
    _returned(f, r, q)
    header = f'define internal {_both(f)} @{function}({f.type} %x) {_EFFECTS} "{_WIDTH}"="512" {{'
    return "\n".join([header, "entry:", *w.lines, "}"])


def _far(caller: Arithmetic) -> str:
    """Defines the function of one number from `LIMIT` on: such numbers are rare, and all lanes at
    once would be much code."""
    function = f"tilewright.turns.{caller.dtype}.far"
    declarations = caller.w.declarations
    if function not in declarations:
        w = Writer(declarations, caller.w.dialect)
        f = Arithmetic(w, caller.dtype, 1)
        _returned(f, *_reduced_far(f, "%x"))
        header = f"define internal {_both(f)} @{function}({f.type} %x) {_EFFECTS} noinline {{"
        declarations[function] = "\n".join([header, "entry:", *w.lines, "}"])
    return function


def _by_lanes(f: Arithmetic, function: str, x: str) -> tuple[str, str]:
    """`_called` for all lanes, of a function of one."""
    one = Arithmetic(f.w, f.dtype, 1)
    if f.lanes == 1:
        return _called(one, function, x)
    r = q = "poison"
    for lane in range(f.lanes):
        element = f.w.assign(f"extractelement {f.type} {x}, i64 {lane}")
        first, second = _called(one, function, element)
        r = f.w.assign(f"insertelement {f.type} {r}, {one.type} {first}, i64 {lane}")
        q = f.w.assign(f"insertelement {f.bits_type} {q}, {one.bits_type} {second}, i64 {lane}")
    return r, q


_EFFECTS = "nounwind willreturn memory(none)"
_WIDTH = "prefer-vector-width"


def _reduced(f: Arithmetic, x: str) -> tuple[str, str]:
    """``x`` reduced by quarter turns to -pi/4 to pi/4, and the number of quarter turns."""
    d, wide = f.widened(x)
    k, quadrant = d.round_with_magic(d.fma(wide, 2 / math.pi, d.magic))
    if f.dtype is f32:
        r = d.fma(k, -p.HALF_PI_HIGH, wide)
        r = f.narrowed(d.fma(k, -p.HALF_PI_LOW, r))
    else:
        first, second, third = p.HALF_PI
        r, lost = d.exact_sum(d.fma(k, -first, wide), d.mul(k, -second))
        r = d.sub(r, d.sub(d.mul(k, third), lost))  # of -0: -0
    return r, f.narrowed_integers(quadrant)


# Words of 32 bits of 2/pi that a number is multiplied by, and the greatest number of words before.
_WORDS = {f32: (4, 4), f64: (6, 32)}
_WORD = (1 << 32) - 1


def _reduced_far(f: Arithmetic, x: str) -> tuple[str, str]:
    """The same from `LIMIT` on. As f64 ``x`` is m 2**e with an integer m below 2**53: the bits of
    2/pi that are worth 4 or more in m's product count whole turns, and the next words suffice."""
    d, wide = f.widened(f.absolute(x))
    bits = d.bits(wide)
    m = d.op("or", d.op("and", bits, (1 << 52) - 1), 1 << 52)
    # Position of the first bit: e - 2, after 64 zeros.
    first = d.op("sub", d.op("lshr", bits, 52), 1023 + 52 + 2 - 64)
    words = _product(d, m, _bits_from(d, first, *_WORDS[f.dtype]))
    # Without whole turns: 64 bits after the binary point of a turn, and 51 more.
    turn = d.op("or", d.op("shl", words[0], 32), words[1])
    more = d.op("lshr", d.op("or", d.op("shl", words[2], 32), words[3]), 13)
    quadrant = d.op("lshr", d.op("add", turn, 1 << 61), 62)
    fraction = d.op("sub", turn, d.op("shl", quadrant, 62))
    # Times 2 pi: its first part times the first 24 bits is exact.
    high = d.from_integers(d.op("ashr", fraction, 38))
    low = d.from_integers(d.op("and", fraction, (1 << 38) - 1))
    low = d.mul(d.fma(d.from_integers(more), 2.0**-51, low), 2 * math.pi / 2.0**64)
    low = d.fma(high, p.TURN_LOW / 2.0**26, low)
    r = d.add(d.mul(high, p.TURN_HIGH / 2.0**26), low)
    # Infinities give NaN.
    r = f.add(f.narrowed(r), f.sub(x, x))
    q = f.narrowed_integers(quadrant)
    negative = f.compare("olt", x, 0.0)
    return f.select(negative, f.sub(-0.0, r), r), f.select_bits(negative, f.op("sub", 0, q), q)


def _bits_from(d: Arithmetic, first: str, count: int, most: int) -> list[str]:
    """``count`` words of 2/pi, from bit ``first`` on, which is in word ``most`` at most."""
    word, shift = d.op("lshr", first, 5), d.op("and", first, 31)
    words: list[str | int] = list(p.TWO_OVER_PI[: most + count + 1])
    step = most
    while step:
        later = d.compare_bits("ne", d.op("and", word, step), 0)
        kept = min(count + step, len(words) - step)
        chosen = [d.select_bits(later, words[n + step], words[n]) for n in range(kept)]
        words = [*chosen, *words[kept : count + step]]
        step >>= 1
    pairs = (d.op("or", d.op("shl", high, 32), low) for high, low in pairwise(words))
    return [d.op("lshr", d.op("shl", both, shift), 32) for both in pairs]


def _product(d: Arithmetic, m: str, words: Sequence[str]) -> list[str | int]:
    """The last words of the product of a number of 64 bits with one of many words: as many."""
    result: list[str | int] = [0] * len(words)
    for place, factor in enumerate((d.op("and", m, _WORD), d.op("lshr", m, 32))):
        carry: str | int = 0
        for n in reversed(range(place, len(words))):
            total = d.op("add", d.op("mul", factor, words[n]), result[n - place])
            total = d.op("add", total, carry)
            result[n - place], carry = d.op("and", total, _WORD), d.op("lshr", total, 32)
    return result


def _of_reduced(f: Arithmetic, r: str, q: str, name: str) -> str:
    """sin or cos of ``r`` plus ``q`` quarter turns."""
    if name == "cos":
        q = f.op("add", q, 1)
    square = f.mul(r, r)
    fourth = f.mul(square, square)
    sine = f.fma(f.mul(square, r), f.pairs(p.SIN[f.dtype], square, fourth), r)
    # The sum of zeros of both signs is +0: give -0 its sign back.
    sine = f.with_sign_of(sine, r)
    cosine = f.fma(square, -0.5, 1.0)
    cosine = f.fma(fourth, f.pairs(p.COS[f.dtype], square, fourth), cosine)
    even = f.compare_bits("eq", f.op("and", q, 1), 0)
    sign = f.op("shl", f.op("and", q, 2), f.dtype.bits - 2)
    return f.floats(f.op("xor", f.bits(f.select(even, sine, cosine)), sign))
