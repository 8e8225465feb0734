"""Arithmetic on integer intervals. An `Interval` is (least, greatest); None stands for no bound."""

from __future__ import annotations

from collections.abc import Callable

Interval = tuple[int | None, int | None]

EVERYTHING: Interval = (None, None)
# Shifts by more leave nothing of any integer.
_MOST_BITS = 64
_LEAST = -(2**63)


def intersection(a: Interval, b: Interval) -> Interval:
    """What lies in both."""
    lo = a[0] if b[0] is None or (a[0] is not None and a[0] > b[0]) else b[0]
    hi = a[1] if b[1] is None or (a[1] is not None and a[1] < b[1]) else b[1]
    return (lo, hi)


def union(a: Interval, b: Interval) -> Interval:
    """The least interval that holds both."""
    lo = None if a[0] is None or b[0] is None else min(a[0], b[0])
    hi = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return (lo, hi)


def is_empty(a: Interval) -> bool:
    return a[0] is not None and a[1] is not None and a[0] > a[1]


def add(a: Interval, b: Interval) -> Interval:
    lo = None if a[0] is None or b[0] is None else a[0] + b[0]
    hi = None if a[1] is None or b[1] is None else a[1] + b[1]
    return (lo, hi)


def negate(a: Interval) -> Interval:
    return (None if a[1] is None else -a[1], None if a[0] is None else -a[0])


def subtract(a: Interval, b: Interval) -> Interval:
    return add(a, negate(b))


def scale(a: Interval, factor: int) -> Interval:
    if factor == 0:
        return (0, 0)
    lo, hi = a if factor > 0 else (a[1], a[0])
    return (None if lo is None else lo * factor, None if hi is None else hi * factor)


def multiply(a: Interval, b: Interval) -> Interval:
    if a == (0, 0) or b == (0, 0):
        return (0, 0)
    if a[0] is None or a[1] is None or b[0] is None or b[1] is None:
        return _multiply_unbounded(a, b)
    products = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return (min(products), max(products))


def _multiply_unbounded(a: Interval, b: Interval) -> Interval:
    """Only the products of two intervals that each have one sign are bounded, on one side."""
    if is_empty(a) or is_empty(b):
        return EVERYTHING
    if _nonpositive(a):
        return negate(multiply(negate(a), b))
    if _nonpositive(b):
        return negate(multiply(a, negate(b)))
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return (a[0] * b[0], None)
    return EVERYTHING


def _nonpositive(a: Interval) -> bool:
    return a[1] is not None and a[1] <= 0 and a != (0, 0)


def floordiv(a: Interval, b: Interval) -> Interval:
    """Floor division, where division by zero gives 0."""
    result: Interval | None = None
    for sign in (1, -1):
        divisor = intersection(b if sign > 0 else negate(b), (1, None))
        if is_empty(divisor):
            continue
        # x // -y == -x // y
        part = _floordiv_positive(a if sign > 0 else negate(a), divisor)
        result = part if result is None else union(result, part)
    if result is None:
        return (0, 0)
    return union(result, (0, 0)) if contains(b, 0) else result


def _floordiv_positive(a: Interval, b: Interval) -> Interval:
    """``b`` is at least 1: the quotient grows with ``a`` and goes towards 0 (or -1) with ``b``."""
    least, greatest = b
    assert least is not None

    def quotient(value: int, away: bool) -> int:
        divisor = least if away else greatest
        if divisor is None:
            return 0 if value >= 0 else -1
        return value // divisor

    lo = None if a[0] is None else quotient(a[0], away=a[0] < 0)
    hi = None if a[1] is None else quotient(a[1], away=a[1] >= 0)
    return (lo, hi)


def modulo(a: Interval, b: Interval) -> Interval:
    """Floor modulo: 0 or of the sign of the divisor; modulo zero gives 0."""
    if b[0] is not None and b[0] == b[1] and b[0] > 0 and a[0] is not None and a[1] is not None:
        divisor = b[0]
        if a[0] // divisor == a[1] // divisor:
            return (a[0] % divisor, a[1] % divisor)
    lo = None if b[0] is None else min(0, b[0] + 1)
    hi = None if b[1] is None else max(0, b[1] - 1)
    # With a divisor that is not negative, the result of x >= 0 is at most x.
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0 and a[1] is not None:
        hi = a[1] if hi is None else min(hi, a[1])
    return (lo, hi)


def minimum(a: Interval, b: Interval) -> Interval:
    lo = None if a[0] is None or b[0] is None else min(a[0], b[0])
    hi = b[1] if a[1] is None else a[1] if b[1] is None else min(a[1], b[1])
    return (lo, hi)


def maximum(a: Interval, b: Interval) -> Interval:
    return negate(minimum(negate(a), negate(b)))


def xor(a: Interval, b: Interval) -> Interval:
    """Exclusive or of the bits, the sign's included: no longer than the longer of the two."""
    if is_empty(a) or is_empty(b):
        return EVERYTHING
    signs = [_sign(a), _sign(b)]
    size = _magnitude_bits(a, b)
    lo = None if size is None else -(1 << size)
    hi = None if size is None else (1 << size) - 1
    if None not in signs:
        return (0, hi) if signs[0] == signs[1] else (lo, -1)
    return (lo, hi)


def conjunction(a: Interval, b: Interval) -> Interval:
    """And of the bits: no greater than an operand that is not negative."""
    if is_empty(a) or is_empty(b):
        return EVERYTHING
    signs = [_sign(a), _sign(b)]
    if 1 in signs:
        ends = [interval[1] for interval, sign in zip((a, b), signs, strict=True) if sign == 1]
        return (0, min((end for end in ends if end is not None), default=None))
    size = _magnitude_bits(a, b)
    lo = None if size is None else -(1 << size)
    if signs == [-1, -1]:
        return (lo, -1)
    return (lo, None if a[1] is None or b[1] is None else max(a[1], b[1]))


def complement(a: Interval) -> Interval:
    """Not of the bits, the sign's included."""
    return (None if a[1] is None else -1 - a[1], None if a[0] is None else -1 - a[0])


def disjunction(a: Interval, b: Interval) -> Interval:
    """Or of the bits."""
    return complement(conjunction(complement(a), complement(b)))


def shift_left(a: Interval, b: Interval) -> Interval:
    """``a * 2**b``, before it wraps."""
    least, most = b
    if least is None or most is None or not 0 <= least <= most < _MOST_BITS or is_empty(a):
        return EVERYTHING
    lo = None if a[0] is None else min(a[0] << least, a[0] << most)
    hi = None if a[1] is None else max(a[1] << least, a[1] << most)
    return (lo, hi)


def shift_right(a: Interval, b: Interval) -> Interval:
    """``a // 2**b``. Amounts are unsigned: a negative one counts as a large one."""
    least, most = b
    if is_empty(a) or is_empty(b):
        return EVERYTHING
    least = 0 if least is None or least < 0 else min(least, _MOST_BITS)
    most = _MOST_BITS if most is None or b[0] is None or b[0] < 0 else min(most, _MOST_BITS)
    lo = None if a[0] is None else min(a[0] >> least, a[0] >> most)
    hi = None if a[1] is None else max(a[1] >> least, a[1] >> most)
    return (lo, hi)


def leading_zeros(a: Interval, bits: int) -> Interval:
    """The number of leading zeros of numbers of so many bits."""
    least, most = (0, bits)
    if a[0] is not None and a[0] >= 0 and not is_empty(a):
        least = 0 if a[1] is None else bits - a[1].bit_length()
        most = bits - a[0].bit_length()
    return (least, most)


def population(a: Interval, bits: int) -> Interval:
    """The number of ones among so many bits."""
    if a[0] is None or a[0] < 0 or a[1] is None or is_empty(a):
        return (0, bits)
    return (min(a[0], 1), min(a[1].bit_length(), bits))


def _magnitude_bits(a: Interval, b: Interval) -> int | None:
    """The bits beside the sign of the longest number in both; None without a bound."""
    longest = 0
    for end in (*a, *b):
        if end is None:
            return None
        # -1 is as short as 0: all its bits are the sign's.
        longest = max(longest, end if end >= 0 else -end - 1)
    return longest.bit_length()


def _sign(a: Interval) -> int | None:
    """1 where no number is negative, -1 where all are, None otherwise."""
    if a[0] is not None and a[0] >= 0:
        return 1
    return -1 if a[1] is not None and a[1] < 0 else None


def absolute(a: Interval) -> Interval:
    if a[0] is not None and a[0] >= 0:
        return a
    if a[0] is None or a[0] <= _LEAST:
        return EVERYTHING  # The least s64 is its own absolute value.
    if a[1] is not None and a[1] <= 0:
        return negate(a)
    return (0, None if a[1] is None else max(-a[0], a[1]))


def contains(a: Interval, value: int) -> bool:
    return (a[0] is None or a[0] <= value) and (a[1] is None or value <= a[1])


def is_within(a: Interval, b: Interval) -> bool:
    """Whether all of ``a`` lies in ``b``."""
    return (b[0] is None or (a[0] is not None and a[0] >= b[0])) and (
        b[1] is None or (a[1] is not None and a[1] <= b[1])
    )


BINARY: dict[str, Callable[[Interval, Interval], Interval]] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "floordiv": floordiv,
    "mod": modulo,
    "and": conjunction,
    "or": disjunction,
    "xor": xor,
    "shl": shift_left,
    "shr": shift_right,
    "min": minimum,
    "max": maximum,
}
UNARY: dict[str, Callable[[Interval], Interval]] = {
    "neg": negate,
    "abs": absolute,
    "not": complement,
}
# By the bits of the operand's type.
COUNTS: dict[str, Callable[[Interval, int], Interval]] = {
    "clz": leading_zeros,
    "popcount": population,
}
