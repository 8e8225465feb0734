"""Complex numbers, part by part, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch

from tilewright.dtypes import boolean
from tilewright.frontends.torch.aten.promotion import pointwise
from tilewright.frontends.torch.complexes import PARTS, Complex
from tilewright.frontends.torch.table import TABLE, Place, aten_complex, refuse
from tilewright.ir.expr import Expr, binary, const, maximum, select, unary
from tilewright.problems import functions
from tilewright.tensor.contractions import complex_product
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.fourier import Pair, fourier, mirrored
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import part, transpose

Given = Complex | Tensor | int | float | complex

# What moves elements does so with both parts.
_APART = (
    *("view", "view_copy", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand"),
    *("permute", "t", "split_with_sizes", "flip", "repeat", "diagonal", "roll"),
    *("clone", "alias", "detach", "neg", "index_select", "gather"),
)
_OTHERS = (
    *("squeeze.dim", "squeeze.dims", "transpose.int", "slice.Tensor", "select.int"),
    *("split.Tensor", "unbind.int", "index.Tensor"),
)
# All tensors of these are elements, of which some may be real.
_MIXED = (
    *("cat.default", "stack.default", "copy.default"),
    *("sum.default", "sum.dim_IntList", "mean.default", "mean.dim"),
)


def _in_parts(at: Place) -> Place:
    """Where a part of the op's complex results stands."""

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in PARTS:
            return value
        return torch.empty_like(value, dtype=PARTS[value.dtype])

    return replace(at, results=tuple(map(real, at.results)))


def _part(value: Any, which: str) -> Any:
    if isinstance(value, Complex):
        return getattr(value, which)
    if isinstance(value, complex):
        return value.real if which == "real" else value.imag
    if isinstance(value, list | tuple):
        return type(value)(_part(entry, which) for entry in value)
    return value


@aten_complex(*(f"{name}.default" for name in _APART), *_OTHERS)
def part_by_part(at: Place, *arguments: Any, **more: Any) -> Any:
    """The op on real parts, and on imaginary ones."""
    real, imaginary = (
        TABLE[at.op](_in_parts(at), *_part(arguments, which), **more)
        for which in ("real", "imaginary")
    )
    if isinstance(real, tuple):
        return tuple(map(Complex, real, imaginary))
    return Complex(real, imaginary)


def _as_complex(at: Place, value: Given) -> Complex:
    if isinstance(value, Complex):
        return value
    type_ = _in_parts(at).dtype
    if isinstance(value, Tensor):
        real = convert(value, type_)
        return Complex(real, at.builder.splat(0, type_, real.shape))
    number = complex(value)
    return Complex(at.builder.splat(number.real, type_), at.builder.splat(number.imag, type_))


@aten_complex(*_MIXED)
def of_elements(at: Place, *arguments: Any, **more: Any) -> Any:
    """The op on real parts, and on imaginary ones, which are 0 of real tensors."""
    if at.type not in PARTS:
        refuse("a real tensor of complex elements is PyTorch's")

    def whole(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(whole, value))
        return _as_complex(at, value) if isinstance(value, Tensor) else value

    return part_by_part(at, *map(whole, arguments), **more)


@aten_complex("constant_pad_nd.default")
def padded(at: Place, x: Complex, pad: Sequence[int], value: complex = 0) -> Any:
    return part_by_part(at, x, pad, complex(value))


@aten_complex("add.Tensor", "sub.Tensor")
def sums(at: Place, a: Given, b: Given, alpha: complex = 1) -> Any:
    if isinstance(alpha, complex):
        refuse("a sum with a complex factor is PyTorch's")
    return part_by_part(at, _as_complex(at, a), _as_complex(at, b), alpha=alpha)


@aten_complex("where.self")
def where(at: Place, condition: Tensor, a: Given, b: Given) -> Any:
    return part_by_part(at, condition, _as_complex(at, a), _as_complex(at, b))


@aten_complex("mul.Tensor")
def products(at: Place, a: Given, b: Given) -> Any:
    if not isinstance(b, Complex | complex) or not isinstance(a, Complex | complex):
        return part_by_part(at, a, b)
    x, y, at = _as_complex(at, a), _as_complex(at, b), _in_parts(at)
    four = (x.real, x.imaginary, y.real, y.imaginary)
    return Complex(
        pointwise(at, lambda a, b, c, d: a * c - b * d, *four),
        pointwise(at, lambda a, b, c, d: a * d + b * c, *four),
    )


@aten_complex("div.Tensor")
def quotients(at: Place, a: Given, b: Given) -> Any:
    if not isinstance(b, Complex | complex):
        return part_by_part(at, a, b)
    x, y, at = _as_complex(at, a), _as_complex(at, b), _in_parts(at)

    def real(a: Expr, b: Expr, c: Expr, d: Expr) -> Expr:
        """All are divided by the greater part of the divisor, so that no square overflows."""
        large = maximum(unary("abs", c), unary("abs", d))
        a, b, c, d = (number / large for number in (a, b, c, d))
        squares = c * c + d * d
        is_zero = binary("eq", large, const(0.0, large.type))
        return select(is_zero, a, a * (c / squares) + b * (d / squares))

    four = (x.real, x.imaginary, y.real, y.imaginary)
    return Complex(
        pointwise(at, real, *four), pointwise(at, lambda a, b, c, d: real(b, -a, c, d), *four)
    )


@aten_complex("mm.default", "bmm.default")
def matrices(at: Place, a: Complex, b: Complex) -> Complex:
    product = partial(TABLE[at.op], _in_parts(at))
    return Complex(*complex_product((a.real, a.imaginary), (b.real, b.imaginary), product))


@aten_complex("abs.default")
def size(at: Place, x: Complex) -> Tensor:
    return pointwise(at, functions.hypot, x.real, x.imaginary)


@aten_complex("angle.default")
def angle(at: Place, x: Complex) -> Tensor:
    return pointwise(at, functions.atan2, x.imaginary, x.real)


@aten_complex("exp.default")
def exponential(at: Place, x: Complex) -> Complex:
    at = _in_parts(at)

    def imaginary(a: Expr, b: Expr) -> Expr:
        """That of a real number is 0, however great the exponential is."""
        is_zero = binary("eq", b, const(0.0, b.type))
        return select(is_zero, b, unary("exp", a) * unary("sin", b))

    return Complex(
        pointwise(at, lambda a, b: unary("exp", a) * unary("cos", b), x.real, x.imaginary),
        pointwise(at, imaginary, x.real, x.imaginary),
    )


@aten_complex("polar.default")
def polar(at: Place, size: Tensor, angle: Tensor) -> Complex:
    real, imaginary = (
        pointwise(_in_parts(at), lambda r, s, f=f: r * unary(f, s), size, angle)
        for f in ("cos", "sin")
    )
    return Complex(real, imaginary)


@aten_complex("complex.default")
def of_parts(at: Place, real: Tensor, imaginary: Tensor) -> Complex:
    a, b = (pointwise(_in_parts(at), lambda s: s, tensor) for tensor in (real, imaginary))
    return Complex(a, b)


@aten_complex("_conj.default", "_conj_physical.default", "conj_physical.default")
def conjugate(at: Place, x: Complex) -> Complex:
    return Complex(x.real, elementwise(lambda s: -s, x.imaginary))


@aten_complex("resolve_conj.default", "resolve_neg.default", "lift_fresh_copy.default")
def same(at: Place, x: Complex) -> Complex:
    return x


@aten_complex("view_as_real.default")
def view_as_real(at: Place, x: Complex) -> Tensor:
    return x.pairs()


@aten_complex("view_as_complex.default")
def view_as_complex(at: Place, x: Tensor) -> Complex:
    return Complex.of_pairs(x)


@aten_complex("real.default")
def real_part(at: Place, x: Complex) -> Tensor:
    return x.real


@aten_complex("imag.default")
def imaginary_part(at: Place, x: Complex) -> Tensor:
    return x.imaginary


@aten_complex("_to_copy.default", "prims.convert_element_type.default")
def converted(at: Place, x: Complex | Tensor, *_: Any, **__: Any) -> Any:
    if at.type is torch.bool and isinstance(x, Complex):
        real, imaginary = (convert(tensor, boolean) for tensor in (x.real, x.imaginary))
        return elementwise(lambda a, b: a | b, real, imaginary)
    if at.type not in PARTS:
        return convert(x.real if isinstance(x, Complex) else x, at.dtype)
    number, type_ = _as_complex(at, x), _in_parts(at).dtype
    return Complex(convert(number.real, type_), convert(number.imaginary, type_))


# PyTorch's transforms take less time, but are kernels of their own: of few points and elements, to
# go on in one program is worth more.
_POINTS, _ELEMENTS = 64, 8192


def _transformed(
    at: Place, x: Complex, dims: Sequence[int], normalization: int, inverse: bool
) -> Complex:
    """The transform along ``dims``, scaled as PyTorch's number for it says: not, by the root of the
    number of points, or by that number."""
    points = [x.shape[dim] for dim in dims]
    if any(count > _POINTS for count in points) or x.real.elements > _ELEMENTS:
        refuse(f"transforms of more than {_POINTS} points or {_ELEMENTS} elements are PyTorch's")
    pair: Pair = fourier((x.real, x.imaginary), dims, inverse=inverse)
    count = prod(points)
    factor = (1.0, count**-0.5, 1 / count)[normalization] * (count if inverse else 1)
    if abs(factor - 1) > 1e-9:
        return Complex(*(elementwise(lambda s: s * factor, tensor) for tensor in pair))
    return Complex(*pair)


@aten_complex("_fft_c2c.default")
def complex_transform(
    at: Place, x: Complex, dims: Sequence[int], normalization: int, forward: bool
) -> Complex:
    dims = [dim % len(x.shape) for dim in dims]
    return _transformed(at, x, dims, normalization, not forward)


@aten_complex("_fft_r2c.default")
def real_transform(
    at: Place, x: Tensor, dims: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    dims = [dim % x.rank for dim in dims]
    transformed = _transformed(at, _as_complex(at, x), dims, normalization, False)
    if not onesided:
        return transformed
    last, half = dims[-1], x.shape[dims[-1]] // 2 + 1
    return Complex(
        part(transformed.real, last, 0, half), part(transformed.imaginary, last, 0, half)
    )


@aten_complex("_fft_c2r.default")
def transform_to_real(
    at: Place, x: Complex, dims: Sequence[int], normalization: int, size: int
) -> Tensor:
    *others, last = (dim % len(x.shape) for dim in dims)
    if others:
        x = _transformed(at, x, others, normalization, True)
    # The last dim is in the last place for what mirrors it.
    order = [n for n in range(len(x.shape)) if n != last] + [last]
    whole = mirrored(
        (transpose(x.real, order), transpose(x.imaginary, order)), size, [len(order) - 1]
    )
    transformed = _transformed(at, Complex(*whole), [len(order) - 1], normalization, True)
    return transpose(transformed.real, [order.index(n) for n in range(len(order))])
