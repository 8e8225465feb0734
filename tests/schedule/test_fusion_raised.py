"""Work-items beside computes: those that store elements at their ids become computes."""

from __future__ import annotations

import pytest

import tilewright as tw
from fusion_cases import add_bias, halve_positive, member, mirror, relu_in_place, scale, twos
from tilewright.errors import FusionError
from tilewright.ir.stmt import Kernel
from tilewright.lang.kernel import KernelFunction
from tilewright.schedule.fusion.joined import joined
from tilewright.schedule.fusion.members import Fusion, Member

SIZE = 100
COPY = tw.parse_kernel("""
kernel copy(in a: f32[100], out b: f32[100]):
  compute copy(n in 100):
    x = a[n]
    b[n] = x
""")
COPY_2D = tw.parse_kernel("""
kernel copy(in a: f32[6, 80], out b: f32[6, 80]):
  compute copy(m in 6, n in 80):
    x = a[m, n]
    b[m, n] = x
""")


def body(kernel: Kernel) -> str:
    return str(kernel).split("):\n", 1)[1]


def test_work_items_become_a_compute() -> None:
    members = Member(COPY, {"a": "src", "b": "x"}), member(scale, "axt", SIZE)
    assert (
        body(joined(Fusion(members, promote={"x": "any"})).kernel)
        == """\
  alloc x: f32[100]
  compute copy(n in 100):
    x2 = src[n]
    x[n] = x2
  compute scale(i in 100):
    x3 = x[i]
    t[i] = a * x3
"""[:-1]
    )


@pytest.mark.parametrize("local", [None, (2, 16)])
def test_work_items_of_two_dims_become_computes(local: tuple[int, int] | None) -> None:
    kernels = [f.over(local=local) if local else f.over(2) for f in (add_bias, relu_in_place)]
    sizes = {"x_0": 6, "x_1": 80, "global_0": 6, "global_1": 80}
    members = (
        Member(COPY_2D, {"a": "src", "b": "x"}),
        Member(kernels[0], {"x": "x", "b": "b", "b_0": 80, "y": "y", "y_0": 6, "y_1": 80, **sizes}),
        Member(kernels[1], {"x": "y", **sizes}),
    )
    assert (
        body(joined(Fusion(members, promote={"x": "any"})).kernel).split("\n", 4)[4]
        == """\
  compute add_bias(i in 6, j in 80):
    x3 = x[i, j]
    b2 = b[j]
    y[i, j] = x3 + b2
  compute relu_in_place(i2 in 6, j2 in 80):
    y2 = y[i2, j2]
    y[i2, j2] = max(y2, 0.0)
"""[:-1]
    )


@tw.kernel
def swap(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    i = tw.global_id(0)
    v = x[i]
    x[i] = t[i]
    t[i] = v


@tw.kernel
def diagonal(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    t[0] = x[tw.global_id(0)]


@pytest.mark.parametrize("function", [halve_positive, twos, swap, diagonal])
def test_work_items_that_do_more_stay_apart(function: KernelFunction) -> None:
    members = Member(COPY, {"a": "src", "b": "s"}), member(function, "xt", SIZE)
    with pytest.raises(FusionError, match="launched in another way than the members beside it"):
        joined(Fusion(members))


def test_work_items_may_read_anywhere() -> None:
    """They store at their ids."""
    members = Member(COPY, {"a": "src", "b": "s"}), member(mirror, "xt", 128, 64)
    assert "x3 = x[i // 64 * 64 - i % 64 + 63]" in str(joined(Fusion(members)).kernel)
