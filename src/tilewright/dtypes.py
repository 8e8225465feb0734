"""Scalar types: their names, sizes, ranges, and their numpy counterparts.

Names are oneDNN's short ones (``f32``, ``bf16``, ``s8``); numpy's names are accepted as aliases.
bf16, fp8 and the integers of 4 bits come from `ml_dtypes`.

s4 and u4 are stored, but not computed on: their values are converted first. In memory, also in the
arrays of a caller, each element takes a byte. Its lower 4 bits count; the others may be anything.
Weights with two elements to a byte are a buffer of u8 (`ops.group_factors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import frexp
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.errors import UnsupportedError, one_of


@dataclass(frozen=True, eq=False)
class DType:
    """A scalar type. Two are the same type exactly when they are the same object."""

    name: str
    kind: str  # "float", "int" (signed), "uint" or "bool"
    bits: int
    numpy_name: str

    @property
    def bytes(self) -> int:
        """Bytes that one element takes in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_nibble(self) -> bool:
        """Whether it has 4 bits, in a byte of its own: its values are stored and converted only."""
        return self.bits == 4

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type that holds one element."""
        source = ml_dtypes if hasattr(ml_dtypes, self.numpy_name) else np
        result: np.dtype[Any] = np.dtype(getattr(source, self.numpy_name))
        return result

    @cached_property
    def _finfo(self) -> Any:
        return ml_dtypes.finfo(self.numpy)  # type: ignore[no-untyped-call]  # it has no types

    @cached_property
    def lowest(self) -> int | float:
        """The least value: minus infinity where there is one."""
        if self.kind == "bool":
            return False
        if self.is_integer:
            return -(2 ** (self.bits - 1)) if self.kind == "int" else 0
        return float(self._finfo.min) if self.name == "f8_e4m3" else -float("inf")

    @cached_property
    def highest(self) -> int | float:
        """The greatest value: infinity where there is one."""
        if self.kind == "bool":
            return True
        if self.is_integer:
            return (1 << (self.bits - (1 if self.kind == "int" else 0))) - 1
        return float(self._finfo.max) if self.name == "f8_e4m3" else float("inf")

    @cached_property
    def epsilon(self) -> float:
        """Distance from 1 to the next greater value; 0 for integers."""
        return float(self._finfo.eps) if self.is_float else 0.0

    @cached_property
    def digits(self) -> int:
        """Binary digits of a float's significand: integers of so many are exact."""
        return 11 if self.name == "tf32" else 2 - frexp(self.epsilon)[1]

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        """Copied and pickled by name: there is one object of each type."""
        return dtype, (self.name,)


f64 = DType("f64", "float", 64, "float64")
f32 = DType("f32", "float", 32, "float32")
tf32 = DType("tf32", "float", 32, "float32")
f16 = DType("f16", "float", 16, "float16")
bf16 = DType("bf16", "float", 16, "bfloat16")
f8_e4m3 = DType("f8_e4m3", "float", 8, "float8_e4m3fn")
f8_e5m2 = DType("f8_e5m2", "float", 8, "float8_e5m2")
s64 = DType("s64", "int", 64, "int64")
s32 = DType("s32", "int", 32, "int32")
s16 = DType("s16", "int", 16, "int16")
s8 = DType("s8", "int", 8, "int8")
u64 = DType("u64", "uint", 64, "uint64")
u32 = DType("u32", "uint", 32, "uint32")
u16 = DType("u16", "uint", 16, "uint16")
u8 = DType("u8", "uint", 8, "uint8")
s4 = DType("s4", "int", 4, "int4")
u4 = DType("u4", "uint", 4, "uint4")
boolean = DType("bool", "bool", 1, "bool")

_FLOATS = (f64, f32, tf32, f16, bf16, f8_e4m3, f8_e5m2)
_INTEGERS = (s64, s32, s16, s8, u64, u32, u16, u8)
ALL = (*_FLOATS, *_INTEGERS, s4, u4, boolean)
# The types that expressions compute on.
COMPUTED = tuple(t for t in ALL if not t.is_nibble)
_BY_NAME = {t.name: t for t in ALL} | {t.numpy_name: t for t in ALL if t is not tf32}


def dtype(name: object) -> DType:
    """The type called ``name``: ``"bf16"``, ``"bfloat16"``, a type of numpy's, torch's or JAX's
    (``np.float32``, ``torch.bfloat16``), or a `DType`.

    Raises `UnsupportedError` for an unknown one.
    """
    if isinstance(name, DType):
        return name
    key = name if isinstance(name, str) else _name_elsewhere(name)
    type_ = _BY_NAME.get(key)
    if type_ is None:
        raise UnsupportedError(
            f"unknown element type {key!r}",
            cure=one_of(key, [t.name for t in ALL]),
        )
    return type_


def _name_elsewhere(foreign: object) -> str:
    """The name of an element type of another library; for other objects, a description."""
    if getattr(type(foreign), "__module__", "") == "torch":  # which need not be installed
        return str(foreign).removeprefix("torch.")
    if isinstance(foreign, np.dtype):
        return foreign.name if foreign.isnative else str(foreign)
    if not isinstance(foreign, type):
        return f"a {type(foreign).__name__}" if foreign is not None else "None"
    try:
        return np.dtype(foreign).name
    except TypeError:
        return foreign.__name__
