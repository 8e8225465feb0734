"""Ops that no part of core ATen is, or that PyTorch takes apart: natively, as PyTorch has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
resize = torch.nn.functional.interpolate
sample = torch.nn.functional.grid_sample


def _numbers(*shape: int) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape))) * 4 - 2


_X, _IMAGE, _ROWS = _numbers(6, 7), _numbers(2, 3, 5, 6), torch.tensor([0, 2, 2])
_GRID, _SOME, _PLACES = _numbers(2, 4, 5, 2) * 0.7, _numbers(3, 7), torch.tensor([[0, 5, 2, 2, 1]])
_UNUSUAL = torch.tensor(
    [[1.0, 3.0, 3.0, -1.0], [-0.0, 0.0, math.nan, 2.0], [5.0, math.inf, -5.0, 0]]
)
CASES: dict[str, Callable[[], Any]] = {
    "lgamma": lambda: (torch.lgamma, _X),
    "lgamma where it is 0": lambda: (
        lambda x: 1e6 * torch.lgamma(x),
        torch.tensor([1.0, 2.0, 3.0]),
    ),
    "digamma of 0": lambda: (torch.digamma, torch.tensor([0.0, -0.0, 1.0])),
    "digamma": lambda: (torch.digamma, _X),
    "polygamma": lambda: (lambda x: torch.polygamma(3, 4 * x), _X),
    "polygamma of poles": lambda: (
        lambda x: torch.cat([torch.polygamma(2, x), torch.polygamma(3, x)]),
        torch.tensor([0.0, -1.0, 2.0]),
    ),
    "erfc": lambda: (torch.erfc, _X),
    "erfinv": lambda: (torch.erfinv, _X / 2),
    "addbmm": lambda: (
        lambda x, a: torch.addbmm(x, a, a.transpose(1, 2), beta=2, alpha=0.5),
        _numbers(6, 6),
        _numbers(3, 6, 7),
    ),
    "copies of views": lambda: (
        lambda x: [*torch.unbind_copy(x), torch.view_copy(x, [7, 6])],
        _X,
    ),
    "round": lambda: (lambda x: torch.round(100 * x, decimals=-1) + torch.round(x, decimals=2), _X),
    "unfold": lambda: (lambda x: x.unfold(1, 3, 2) + 1, _X),
    "unfold of a result": lambda: (lambda x: (2 * x).unfold(0, 4, 1) + 1, _X),
    "index_reduce": lambda: (lambda x, s: x.index_reduce(0, _ROWS, s, "amax"), _X, _SOME),
    "index_reduce without": lambda: (
        lambda x, s: x.index_reduce(0, _ROWS, s, "prod", include_self=False),
        *(_X, _SOME),
    ),
    "index_reduce by means": lambda: (lambda x, s: x.index_reduce(0, _ROWS, s, "mean"), _X, _SOME),
    "index_reduce by means without": lambda: (
        lambda x, s: x.index_reduce(0, _ROWS, s, "mean", include_self=False),
        *((10 * _X).long(), (10 * _SOME).long()),
    ),
    "scatter_reduce by means": lambda: (
        lambda x, s: x.scatter_reduce(1, _PLACES, s, "mean"),
        *((10 * _X).long(), (10 * _SOME).long()),
    ),
    "scatter_reduce by means without": lambda: (
        lambda x, s: x.scatter_reduce(1, _PLACES, s, "mean", include_self=False),
        *(_X, _SOME),
    ),
    "scatter of products": lambda: (
        lambda x, s: x.scatter(1, _PLACES, s, reduce="multiply").scatter(
            0, _PLACES, 3.0, reduce="add"
        ),
        *(_X, _SOME),
    ),
    "cummax": lambda: (lambda x: [*x.cummax(0), *x.cummin(1)], _UNUSUAL),
    "fmax": lambda: (lambda x, y: torch.fmax(x, y) + torch.fmin(y, 2 * x), _UNUSUAL, -_UNUSUAL),
    "copysign": lambda: (
        lambda x, y: [torch.copysign(x, y), torch.signbit(y), torch.signbit(x.bfloat16())],
        *(_X[:3, :4], _UNUSUAL),
    ),
    "hypot": lambda: (
        lambda x, y: [torch.hypot(x, y), torch.hypot(1e30 * x, y), torch.hypot(x, x.t())],
        *(_UNUSUAL[:, :3], torch.zeros(3)),
    ),
    "logaddexp": lambda: (
        lambda x, y: [
            *(torch.logaddexp(x, y), torch.logaddexp(x, x), torch.logaddexp(-90 - y, x)),
            *(torch.logaddexp2(x, y), torch.logaddexp2(y, y), torch.logaddexp2(x, -x)),
        ],
        *(_UNUSUAL, _UNUSUAL.t().reshape(_UNUSUAL.shape)),
    ),
    "a vector by matrices": lambda: (
        lambda v, m: [v @ m, v @ m.transpose(0, 2), torch.einsum("k,nmkj->mnj", v, m)],
        *(_numbers(6), _numbers(6, 3, 6, 5)),
    ),
    "weight_norm": lambda: (
        lambda v, g: torch._weight_norm_interface(v, g, 0),
        *(_X, _numbers(6, 1)),
    ),
    "addmv": lambda: (
        lambda v, m: torch.addmv(v, m, m[0], beta=2) + torch.dist(m, m[0]),
        *(_numbers(6), _X),
    ),
    "ldexp": lambda: (torch.ldexp, _X, _PLACES[0, :1]),
    "histc of all": lambda: (lambda x: [torch.histc(x, 5), torch.histc(x[:1, :1], 4)], _X),
    "rfft": lambda: (lambda x: torch.fft.rfft(x, norm="ortho"), _X),
    "rfft along another dim": lambda: (lambda x: torch.fft.rfft(x.t(), 9, dim=0).abs(), _X),
    "fft and back": lambda: (
        lambda x: [torch.fft.ifft2(torch.fft.fft2(x) * (2 + 1j), norm="forward"), torch.fft.fft(x)],
        _X,
    ),
    "irfft": lambda: (
        lambda z: [
            torch.fft.irfftn(z, dim=(1, 0)),
            torch.fft.irfft(z.conj(), 9),
            torch.fft.hfft(z),
        ],
        torch.complex(_X, _X.flip(0)),
    ),
    "complex numbers": lambda: (
        lambda z, y: [z * y + z.conj() - 1, y / z, z.abs(), z.angle(), torch.exp(z).real, z @ y.mT],
        *(torch.complex(_X, _X.flip(0)), torch.complex(_X.flip(1), _X)),
    ),
    "complex numbers and real ones": lambda: (
        lambda z, x: [
            *(torch.cat([x, z]), torch.stack([z, x]), z.clone().copy_(x), x * 2j, x / 2j),
            *(x.sum(dtype=z.dtype), x.sum(1, dtype=z.dtype), x.mean(0, dtype=z.dtype)),
            *(torch.nn.functional.pad(z, (1, 0), value=2.0), (x * 1j).bool(), (z * 0).bool()),
        ],
        *(torch.complex(_X, _X.flip(0)), _X),
    ),
    "exp of great numbers": lambda: (
        torch.exp,
        torch.tensor([1000, complex(-1000, 2), complex(2, -0.0), complex(9, 3)]),
    ),
    "complex views": lambda: (
        lambda z: [
            *(
                torch.view_as_real(z.resolve_conj()).sum(0),
                torch.view_as_complex(torch.view_as_real(z + 0) * 2),
            ),
            *(torch.cat([z, z.mT.mT]).reshape(-1)[1:5], z.sum(1), torch.polar(z.real, z.imag)),
        ],
        torch.complex(_X, _X.flip(0)).conj(),
    ),
    "a view that negates": lambda: (
        lambda x, z: [x + 1, z.conj().imag * 2],
        *(torch.complex(_X, _X).conj().imag, torch.complex(_X, _X)),
    ),
    "diagonal_scatter": lambda: (lambda x, s: x.diagonal_scatter(s, 1), _X, _numbers(6)),
    "diagonal_scatter below": lambda: (
        lambda x, s: x.diagonal_scatter(s, -1, 2, 1),
        *(_numbers(2, 3, 5), _numbers(2, 3)),
    ),
    "histc": lambda: (lambda x: torch.histc(x, 5, -1, 1), _X),
    "sort of s64": lambda: (lambda x: torch.sort(x, stable=True), (_X * 1e9).long()),
    "sort of bool": lambda: (lambda x: torch.sort(x, stable=True), _X > 0),
    "index_add of bool": lambda: (lambda x, s: x.index_add(0, _ROWS, s), _X > 0, _SOME > 0),
    "scatter_reduce of bool": lambda: (
        lambda x, s: x.scatter_reduce(1, _PLACES, s, "sum"),
        *(_X > 0, _SOME > 0),
    ),
    "nearest": lambda: (lambda x: resize(x, (7, 12)), _IMAGE),
    "linear": lambda: (lambda x: resize(x, 11, mode="linear"), _numbers(2, 3, 5)),
    "bilinear": lambda: (lambda x: resize(x, scale_factor=1.7, mode="bilinear"), _IMAGE),
    "bilinear, corners": lambda: (
        lambda x: resize(x, (3, 11), mode="bilinear", align_corners=True),
        _IMAGE,
    ),
    "bicubic": lambda: (lambda x: resize(x, (4, 13), mode="bicubic"), _IMAGE),
    "trilinear": lambda: (
        lambda x: resize(x, scale_factor=2, mode="trilinear"),
        _numbers(1, 2, 3, 4, 2),
    ),
    **{
        f"grid_sample {mode}, {outside}": lambda mode=mode, outside=outside: (
            lambda x, g: sample(x, g, mode, outside, align_corners=False),
            *(_IMAGE, _GRID),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for outside in ("zeros", "border", "reflection")
        if (mode, outside) != ("bicubic", "border")
    },
}


@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta", "ignore:The reduce argument")
@pytest.mark.parametrize("name", CASES)
def test_natively(name: str) -> None:
    function, *tensors = CASES[name]()
    torch._dynamo.reset()
    # An op that stays with PyTorch is an error.
    compiled = torch.compile(function, backend="tilewright", options={"strict": True})
    result, expected = compiled(*tensors), function(*tensors)
    close = {"rtol": 1e-5, "atol": 2e-5, "equal_nan": True}
    torch.testing.assert_close(result, expected, **close)
    exact = function(*map(_wide, tensors))
    torch.testing.assert_close(result, exact, **close, check_dtype=False)


def _wide(x: Any) -> Any:
    """What is computed of it in f64 by PyTorch is close to exact."""
    wide = torch.complex128 if x.dtype.is_complex else torch.float64
    return x.to(wide) if x.dtype in (torch.complex64, torch.float32) else x


def test_quotients_of_complex_numbers_do_not_overflow() -> None:
    """Where PyTorch's own do; beside sums of products in f64."""
    parts = torch.tensor([0.0, -0.4, 1.0, 2e-38, -3e38])
    every = torch.complex(*torch.meshgrid(parts, parts, indexing="ij")).flatten()
    x, y = (array.flatten() for array in torch.meshgrid(every, every[1:], indexing="ij"))
    a, b, c, d = (part.double() for part in (x.real, x.imag, y.real, y.imag))
    exact = torch.complex(a * c + b * d, b * c - a * d) / (c * c + d * d)
    info = torch.finfo(torch.float32)
    is_normal = (exact.abs() < info.max) & (exact.abs() > 4 * info.tiny)
    assert is_normal.sum() > len(x) / 2
    torch._dynamo.reset()
    compiled = torch.compile(torch.div, backend="tilewright", options={"strict": True})
    off = (compiled(x, y) - exact).abs() / exact.abs()
    assert off[is_normal].max() < 8 * info.eps
    assert torch.isinf(compiled(x[-1:], 0 * y[-1:])).all()


def test_gradients_of_what_is_captured_whole_without_them() -> None:
    x = _IMAGE.clone().requires_grad_()

    def function(x: Any) -> Any:
        return resize(x, scale_factor=2, mode="bilinear")

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="tilewright")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))
    (result,) = torch.autograd.grad(compiled(x).square().sum(), x)
    (expected,) = torch.autograd.grad(function(x).square().sum(), x)
    torch.testing.assert_close(result, expected)


def test_variances_of_short_floats() -> None:
    """A difference reads, besides what is kept in f32, a mean of fewer dims."""
    x = _numbers(5, 6).bfloat16()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.var(1), backend="tilewright", options={"strict": True})
    torch.testing.assert_close(compiled(x), x.var(1), rtol=0.01, atol=0.01)
