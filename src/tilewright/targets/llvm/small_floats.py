"""Floats of 8 and 16 bits from f32 and integers, for machines without instructions for them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.llvm.arithmetic import Arithmetic


@dataclass(frozen=True)
class SmallFloat:
    """A format: its bits, mantissa bits and exponent bias, and four codes.

    ``greatest`` is that of the greatest finite number; ``special`` the first one that is not
    finite; ``overflow`` the result for greater numbers; ``nan`` the NaN that is written.
    """

    bits: int
    mantissa: int
    bias: int
    greatest: int
    special: int
    overflow: int
    nan: int


F16 = SmallFloat(16, 10, 15, 0x7BFF, 0x7C00, 0x7C00, 0x7E00)
E5M2 = SmallFloat(8, 2, 15, 0x7B, 0x7C, 0x7C, 0x7E)
# It has no infinity, and one NaN, which is the result of overflow.
E4M3 = SmallFloat(8, 3, 7, 0x7E, 0x7F, 0x7F, 0x7F)


def decode(f: Arithmetic, code: str, form: SmallFloat) -> str:
    """f32 from integers, exactly. A multiplication changes the exponent's bias, which is right for
    subnormals as well."""
    sign_place = form.bits - 1
    number = f.op("and", code, (1 << sign_place) - 1)
    places = 23 - form.mantissa
    magnitude = f.bits(f.mul(f.floats(f.op("shl", number, places)), 2.0 ** (127 - form.bias)))
    special = f.op("or", f.op("shl", number, places), 0x7F800000)
    if form.special == form.nan:
        special = f.whole(0x7FC00000)
    absolute = f.select_bits(f.compare_bits("uge", number, form.special), special, magnitude)
    sign = f.op("shl", f.op("and", code, 1 << sign_place), 31 - sign_place)
    return f.floats(f.op("or", absolute, sign))


def encode(f: Arithmetic, x: str, form: SmallFloat) -> str:
    """The code of the number nearest to an f32, ties to even, in the low bits of integers.
    Subnormals are rounded by adding a number whose last place is the format's least step."""
    sign = f.op("and", f.op("lshr", f.bits(x), 32 - form.bits), 1 << (form.bits - 1))
    magnitude = f.absolute(x)
    places = 23 - form.mantissa
    rounded = f.op("lshr", round_at(f, magnitude, places), places)
    normal = f.op("sub", rounded, (127 - form.bias) << form.mantissa)
    step = 127 + 1 - form.bias - form.mantissa + 23
    subnormal = f.op("sub", f.bits(f.add(magnitude, 2.0 ** (step - 127))), step << 23)
    small = f.compare("olt", magnitude, 2.0 ** (1 - form.bias))
    code = f.select_bits(small, subnormal, normal)
    code = f.select_bits(f.compare_bits("ugt", code, form.greatest), form.overflow, code)
    code = f.select_bits(f.compare("uno", x, x), form.nan, code)
    return f.op("or", code, sign)


def round_at(f: Arithmetic, x: str, places: int) -> str:
    """The bits of ``x`` (no NaN), rounded to nearest even for dropping the last ``places`` bits.

    Rounding up may carry into the exponent, as far as infinity.
    """
    code = f.bits(x)
    odd = f.op("and", f.op("lshr", code, places), 1)
    return f.op("add", f.op("add", code, (1 << (places - 1)) - 1), odd)
