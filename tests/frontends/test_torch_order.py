"""PyTorch's ops that ask for an order, and functions with formulas: native, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PLACES: dict[str, Callable[[Any], Any]] = {
    "kthvalue": lambda x: torch.kthvalue(x, 3, 1, keepdim=True),
    "median": lambda x: torch.median(x, 1, keepdim=True),
    "nanmedian": lambda x: torch.nanmedian(x, 1, keepdim=True),
    "mode": lambda x: torch.mode(torch.round(4 * x), 1, keepdim=True),
    "adaptive_max_pool2d": lambda x: torch.nn.functional.adaptive_max_pool2d(x, (3, 4), True),
    "adaptive_max_pool3d": lambda x: torch.nn.functional.adaptive_max_pool3d(x, (2, 3, 4), True),
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "median": torch.median,
    "nanmedian": torch.nanmedian,
    "angle": torch.angle,
    "spherical_bessel_j0": torch.special.spherical_bessel_j0,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
    "zeta": lambda x: torch.special.zeta(x.clamp(-9, 9) + 2, 1.5 - x.clamp(-9, 9)),
    "nextafter": lambda x: torch.nextafter(x, x.flip(0)),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "narrow_copy": lambda x: torch.narrow_copy(x, 1, 1, 2),
    "adaptive_avg_pool2d": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (3, 4)),
}


def _numbers() -> Any:
    x = torch.randn(2, 5, 7, 10, generator=torch.Generator().manual_seed(0))
    x[0, 1, 2, 3] = float("nan")
    x[1, :, 0, 0] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 30.0])
    return x


def _compiled(function: Callable[..., Any], *tensors: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="tilewright", options={"strict": True})(*tensors)


@pytest.mark.parametrize("name", PLACES)
def test_elements_and_their_places(name: str) -> None:
    """Which of equal elements is named is open."""
    x = _numbers()
    values, places = _compiled(PLACES[name], x)
    torch.testing.assert_close(values, PLACES[name](x)[0], rtol=0, atol=0, equal_nan=True)
    if "pool" in name:
        flat = x.flatten(-3 if "3d" in name else -2)
        there = flat.gather(-1, places.flatten(-3 if "3d" in name else -2)).reshape(values.shape)
    else:
        there = (torch.round(4 * x) if name == "mode" else x).gather(1, places)
    torch.testing.assert_close(there, values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    x = _numbers()
    torch.testing.assert_close(
        _compiled(FUNCTIONS[name], x), FUNCTIONS[name](x), rtol=1e-5, atol=1e-6, equal_nan=True
    )


@pytest.mark.parametrize("name", ["sort", "kthvalue", "median", "mode", "topk"])
def test_a_single_element_is_a_row(name: str) -> None:
    options = {"sort": (), "kthvalue": (1,), "median": (0,), "mode": (), "topk": (1,)}[name]
    for x in (torch.tensor(2.5), torch.tensor(3)):
        value, place = _compiled(lambda x: tuple(getattr(torch, name)(x, *options)), x)
        assert value.equal(x) and place.equal(torch.tensor(0))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("size", [1, 2, 11, 16])
def test_places_in_sorted_rows(size: int, right: bool) -> None:
    g = torch.Generator().manual_seed(size)
    rows = torch.rand(3, size, generator=g).sort(-1)[0]
    x = torch.cat([rows, rows.new_tensor([[-1.0, 2.0, float("nan")]] * 3)], 1)

    def places(rows: Any, x: Any) -> tuple[Any, ...]:
        row = rows[1].contiguous()
        return (
            torch.searchsorted(rows, x, right=right),
            torch.searchsorted(row, x, right=right, out_int32=True),
            torch.bucketize(x, row, right=right),
            torch.searchsorted(row, 0.5, right=right),
        )

    wanted = places(rows, x)
    assert len(wanted) == 4
    for ours, theirs in zip(_compiled(places, rows, x), wanted, strict=True):
        assert ours.dtype is theirs.dtype and ours.equal(theirs)
