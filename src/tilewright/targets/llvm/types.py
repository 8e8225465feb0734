"""How scalar types and constants are spelled in LLVM IR."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

from tilewright.dtypes import DType

_LLVM = {
    "f64": "double",
    "f32": "float",
    "tf32": "float",
    "f16": "half",
    "bf16": "i16",  # its bits: some targets lack the type
    "f8_e4m3": "i8",
    "f8_e5m2": "i8",
    "s64": "i64",
    "s32": "i32",
    "s16": "i16",
    "s8": "i8",
    "u64": "i64",
    "u32": "i32",
    "u16": "i16",
    "u8": "i8",
    "s4": "i8",  # a byte whose upper 4 bits are undefined
    "u4": "i8",
    "bool": "i1",
}
# The letter that names a type in an intrinsic's suffix, as in llvm.fma.v16f32.
_SUFFIX = {"double": "f64", "float": "f32", "half": "f16"}


def scalar_type(dtype: DType) -> str:
    """The LLVM type of one element."""
    return _LLVM[dtype.name]


def memory_type(dtype: DType) -> str:
    """The LLVM type of one element in memory, where a bool is a byte."""
    return "i8" if dtype.kind == "bool" else scalar_type(dtype)


@cache
def llvm_type(dtype: DType, lanes: int = 1) -> str:
    """The LLVM type of a value of ``lanes`` elements; a plain scalar for one."""
    scalar = scalar_type(dtype)
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def suffix(dtype: DType, lanes: int = 1) -> str:
    """How an overloaded intrinsic spells the type: ``f32``, ``v16f32``."""
    scalar = scalar_type(dtype)
    name = _SUFFIX.get(scalar, scalar)
    return name if lanes == 1 else f"v{lanes}{name}"


def constant(value: Any, dtype: DType) -> str:
    """``value`` as an LLVM constant of ``dtype`` (without the type)."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_nibble:
        return str(int(value) & 0xF)
    if dtype.is_integer:
        return str(int(value))
    name = scalar_type(dtype)
    if name in ("i8", "i16"):
        return str(int.from_bytes(np.asarray(value).astype(dtype.numpy).tobytes(), "little"))
    if name == "half":
        return f"0xH{int(np.asarray(value, np.float16).view(np.uint16)):04X}"
    # LLVM writes float and double constants alike: as the bits of the double.
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"


def splat(text: str, dtype: DType, lanes: int) -> str:
    """A constant repeated over ``lanes``."""
    return text if lanes == 1 else f"splat ({scalar_type(dtype)} {text})"


@cache
def lane_numbers(lanes: int, dtype: DType) -> str:
    """The constant vector 0, 1, 2, ..."""
    type_ = scalar_type(dtype)
    return "<" + ", ".join(f"{type_} {lane}" for lane in range(lanes)) + ">"


def lane_mask(active: int, lanes: int) -> str:
    """The constant mask with the first ``active`` of ``lanes`` on."""
    return "<" + ", ".join(f"i1 {'true' if i < active else 'false'}" for i in range(lanes)) + ">"
