"""Types of StableHLO as values: tensors of elements, tuples, tokens, functions.

Sizes that a text leaves open (``?``) are None.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from tilewright import dtypes
from tilewright.dtypes import DType

FLOATS: dict[str, str] = {
    "f64": "float64",
    "f32": "float32",
    "tf32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "f8E3M4": "float8_e3m4",
    "f8E4M3": "float8_e4m3",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f6E2M3FN": "float6_e2m3fn",
    "f6E3M2FN": "float6_e3m2fn",
    "f4E2M1FN": "float4_e2m1fn",
}
WIDTHS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Integer:
    """``i32``, ``ui8``; one bit is a truth value. Signless integers count as signed."""

    bits: int
    signed: bool = True

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}i{self.bits}"

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed and self.bits > 1 else 0

    @property
    def high(self) -> int:
        return (1 << (self.bits - (1 if self.signed and self.bits > 1 else 0))) - 1


@dataclass(frozen=True)
class Float:
    """``f32``, ``bf16``, ``f8E4M3FN``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Complex:
    """``complex<f32>``: a pair of floats."""

    part: Float

    def __str__(self) -> str:
        return f"complex<{self.part}>"


@dataclass(frozen=True)
class Index:
    """``index``: an integer as wide as a place in memory."""

    def __str__(self) -> str:
        return "index"


@dataclass(frozen=True)
class Quantized:
    """``!quant.uniform<i8:f32, 0.1:-30>``: integers that stand for ``(value - zero) * scale``.

    One scale and zero for all, or for each index along ``axis``; ``low`` and ``high`` are the least
    and the greatest integer. Scales by blocks of several dims have ``blocks``: (dim, size) each.
    """

    storage: Integer
    expressed: Float
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int | None = None
    low: int = 0
    high: int = 0
    blocks: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        pairs = [
            f"{scale!r}:{zero}" if zero else f"{scale!r}"
            for scale, zero in zip(self.scales, self.zeros, strict=True)
        ]
        axis = "" if self.axis is None else f":{self.axis}"
        inner = pairs[0] if self.axis is None else "{" + ", ".join(pairs) + "}"
        return f"!quant.uniform<{self.storage}:{self.expressed}{axis}, {inner}>"


Element = Integer | Float | Complex | Index | Quantized


def part_count(element: Element) -> int:
    """How many tensors of the graph hold such elements: two for complex numbers."""
    return 2 if isinstance(element, Complex) else 1


@dataclass(frozen=True)
class Tensor:
    """``tensor<2x?xf32>``; ``bounds`` has the greatest size of open dims where that is said."""

    shape: tuple[int | None, ...]
    element: Element
    bounds: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        dims = "".join(f"{'?' if size is None else size}x" for size in self.shape)
        return f"tensor<{dims}{self.element}>"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of a tensor that leaves none open."""
        return tuple(size for size in self.shape if size is not None)

    @property
    def count(self) -> int:
        """How many elements it has, where no size is open."""
        return prod(self.sizes)


@dataclass(frozen=True)
class Unranked:
    """``tensor<*xf32>``: of a rank that the text leaves open."""

    element: Element

    def __str__(self) -> str:
        return f"tensor<*x{self.element}>"


@dataclass(frozen=True)
class Token:
    """``!stablehlo.token``: orders side effects."""

    def __str__(self) -> str:
        return "!stablehlo.token"


@dataclass(frozen=True)
class Tuple:
    """``tuple<a, b>``."""

    parts: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.parts))}>"


@dataclass(frozen=True)
class Function:
    """``(a, b) -> c``."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        results = ", ".join(map(str, self.results))
        return f"({', '.join(map(str, self.inputs))}) -> ({results})"


@dataclass(frozen=True)
class Foreign:
    """A type that is none of StableHLO's: values of it are refused where they are used."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = (
    Tensor
    | Unranked
    | Token
    | Tuple
    | Function
    | Foreign
    | Integer
    | Float
    | Complex
    | Index
    | Quantized
)


def numpy_type(element: Element) -> np.dtype[Any]:
    """How numpy holds constants of it. Narrow integers take a byte each."""
    if isinstance(element, Integer):
        if element.bits == 1:
            return np.dtype(bool)
        return np.dtype(f"{'' if element.signed else 'u'}int{max(8, element.bits)}")
    if isinstance(element, Complex):
        return np.dtype("complex128" if element.part.name == "f64" else "complex64")
    if isinstance(element, Index):
        return np.dtype("int64")
    if isinstance(element, Quantized):
        return numpy_type(element.storage)
    name = FLOATS[element.name]
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


_OWN = {"f8E4M3FN": dtypes.f8_e4m3, "f8E5M2": dtypes.f8_e5m2}


def computed_type(element: Element) -> DType | None:
    """The type in which kernels hold it, or a part of a complex number; None where there is none.

    Integers of 2 and 4 bits are held in a byte, wrapped by what computes on them.
    """
    if isinstance(element, Integer):
        if element.bits == 1:
            return dtypes.boolean
        return dtypes.dtype(f"{'s' if element.signed else 'u'}{max(8, element.bits)}")
    if isinstance(element, Complex):
        return computed_type(element.part)
    if isinstance(element, Quantized):
        return computed_type(element.storage)
    if isinstance(element, Index):
        return dtypes.s64
    if element.name in ("f64", "f32", "f16", "bf16"):
        return dtypes.dtype(element.name)
    return _OWN.get(element.name)
