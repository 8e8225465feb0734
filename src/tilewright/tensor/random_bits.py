"""Random bits of a counter: ThreeFry and Philox (J. K. Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC 2011)."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import u32, u64
from tilewright.ir.expr import Expr, binary, cast, const

Words = tuple[Expr, Expr]
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_KEYS = (0x9E3779B9, 0xBB67AE85)
_PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)


def _word(value: int) -> Expr:
    return const(value & 0xFFFFFFFF, u32)


def halves(x: Expr) -> Words:
    """The lower and the upper 32 bits of a number of 64."""
    return cast(u32, x), cast(u32, binary("shr", x, const(32, u64)))


def joined(low: Expr, high: Expr) -> Expr:
    """The number of 64 bits that has these halves."""
    return cast(u64, low) | binary("shl", cast(u64, high), const(32, u64))


def _rotated(x: Expr, bits: int) -> Expr:
    return binary("shl", x, _word(bits)) | binary("shr", x, _word(32 - bits))


def threefry(key: Words, counter: Words) -> Words:
    """ThreeFry 2x32 with 20 rounds."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _word(_PARITY))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for step in range(5):
        for bits in _ROTATIONS[step % 2]:
            x = x + y
            y = _rotated(y, bits) ^ x
        x = x + keys[(step + 1) % 3]
        y = y + keys[(step + 2) % 3] + _word(step + 1)
    return x, y


def philox(key: Words, counter: Sequence[Expr]) -> tuple[Expr, ...]:
    """Philox 4x32 with 10 rounds."""
    x = list(counter)
    first, second = key
    for _ in range(10):
        low = [x[0] * _word(_PHILOX_FACTORS[0]), x[2] * _word(_PHILOX_FACTORS[1])]
        high = [
            binary("mulhi", x[0], _word(_PHILOX_FACTORS[0])),
            binary("mulhi", x[2], _word(_PHILOX_FACTORS[1])),
        ]
        x = [high[1] ^ x[1] ^ first, low[1], high[0] ^ x[3] ^ second, low[0]]
        first, second = first + _word(_PHILOX_KEYS[0]), second + _word(_PHILOX_KEYS[1])
    return tuple(x)
