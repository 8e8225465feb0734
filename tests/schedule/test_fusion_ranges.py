"""Members with ranges of different sizes and dims: each work-item keeps the ids of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

import numpy as np
import pytest

import tilewright as tw
from fusion_cases import ids_1, ids_2, ids_3
from needs import needs_opencl, needs_x86
from tilewright.errors import FusionError
from tilewright.lang.kernel import KernelFunction
from tilewright.schedule.fusion.joined import joined
from tilewright.schedule.fusion.members import Fusion, Member

FUNCTIONS: dict[int, KernelFunction] = {1: ids_1, 2: ids_2, 3: ids_3}
TARGETS = (
    "interpreter",
    pytest.param("x86", marks=needs_x86),
    pytest.param("spirv", marks=needs_opencl),
)


def over(sizes: Sequence[int], name: str, local: Sequence[int] | None = None) -> Member:
    """The ids of a range as a member, into memory of that name."""
    function = FUNCTIONS[len(sizes)]
    kernel = function.over(local=tuple(local)) if local else function.over(len(sizes))
    ranges = {f"global_{dim}": size for dim, size in enumerate(sizes)}
    return Member(kernel, {"out": name, "out_0": prod(sizes), "out_1": 2, **ranges})


def ids(sizes: Sequence[int]) -> np.ndarray:
    """The ids that the kernel for such a range stores."""
    out = np.full((prod(sizes), 2), -1, np.int32)
    FUNCTIONS[len(sizes)].launch(tuple(sizes), out, target="interpreter")
    return out


def check(ranges: Sequence[Sequence[int]], local: Sequence[int] | None, target: str) -> str:
    """Fuses the ids of all ``ranges``; gives the text of the kernel."""
    members = tuple(
        over(sizes, f"out_{n}", None if local is None else local[-len(sizes) :])
        for n, sizes in enumerate(ranges)
    )
    kernel = joined(Fusion(members)).kernel
    out = {f"out_{n}": np.full((prod(s), 2), -1, np.int32) for n, s in enumerate(ranges)}
    tw.compile(kernel, target=target)(**out)
    for n, sizes in enumerate(ranges):
        np.testing.assert_array_equal(out[f"out_{n}"], ids(sizes))
    return str(kernel)


@pytest.mark.parametrize("target", TARGETS)
def test_ranges_of_1_2_and_3_dims(target: str) -> None:
    text = check(((50,), (5, 13), (2, 3, 7)), None, target)
    assert text.count("grid for") == 1


@pytest.mark.parametrize("ranges", [*permutations([(130,), (2, 65), (3, 2, 20)], 2)], ids=str)
def test_ranges_two_by_two(ranges: Sequence[Sequence[int]]) -> None:
    assert "if " in check(ranges, None, "interpreter")


@pytest.mark.parametrize(
    ("ranges", "local"),
    [
        (((128,), (64,)), (64,)),
        (((64,), (192,)), (64,)),
        (((8, 32), (4, 32)), (2, 16)),
        (((3, 64), (64,)), (1, 64)),
        (((2, 2, 32), (3, 2, 32), (2, 32)), (1, 2, 16)),
    ],
    ids=str,
)
def test_ranges_that_differ_in_their_first_dim(
    ranges: Sequence[Sequence[int]], local: Sequence[int]
) -> None:
    assert "if group_" in check(ranges, local, "interpreter")


@pytest.mark.parametrize("plain", [(5, 13), (300,), (2, 3, 50)], ids=str)
@pytest.mark.parametrize(("sizes", "local"), [((128,), (16,)), ((4, 32), (2, 16))], ids=str)
def test_ranges_without_a_local_size_take_that_of_others(
    plain: Sequence[int], sizes: Sequence[int], local: Sequence[int]
) -> None:
    """In either order; they may have more work-items."""
    members = over(sizes, "a", local), over(plain, "b")
    for fusion in (Fusion(members), Fusion(members[::-1])):
        kernel = joined(fusion).kernel
        assert str(kernel).count("in 16:") == 1
        both = (("a", sizes), ("b", plain))
        out = {name: np.full((prod(range_), 2), -1, np.int32) for name, range_ in both}
        tw.compile(kernel, target="interpreter")(**out)
        np.testing.assert_array_equal(out["a"], ids(sizes))
        np.testing.assert_array_equal(out["b"], ids(plain))


def test_ranges_that_a_call_says_differ_in_their_first_dim() -> None:
    members = (
        Member(ids_1.over(1, local=64), {"out": "a", "global_0": "m"}),
        Member(ids_1.over(1, local=64), {"out": "b", "global_0": "n"}),
    )
    kernel = joined(Fusion(members)).kernel
    out = [np.full((size, 2), -1, np.int32) for size in (192, 64)]
    tw.compile(kernel, target="interpreter")(a=out[0], b=out[1], m=192, n=64)
    np.testing.assert_array_equal(out[0], ids((192,)))
    np.testing.assert_array_equal(out[1], ids((64,)))


def test_higher_dims_that_differ_are_refused_with_local_sizes() -> None:
    members = over((4, 32), "a", (2, 16)), over((4, 64), "b", (2, 16))
    with pytest.raises(FusionError, match="ranges of 2 x 2 and of 2 x 4 workgroups"):
        joined(Fusion(members))


def test_different_local_sizes_are_refused() -> None:
    members = over((128,), "a", (64,)), over((128,), "b", (32,))
    with pytest.raises(FusionError, match="workgroups of 64 and of 32 work-items"):
        joined(Fusion(members))


def test_workgroups_that_do_not_divide_the_range_are_refused() -> None:
    with pytest.raises(FusionError, match="of 64 work-items do not divide a range of 100"):
        joined(Fusion((over((100,), "a", (64,)),)))
