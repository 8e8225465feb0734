"""Arrays without elements, and sums and maxima of nothing."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, need_device

ELEMENTWISE = """
kernel k(in x: f32[{0}, {1}], out y: f32[{0}, {1}], out z: f32[3]):
  compute f(i in {0}, j in {1}):
    x = x[i, j]
    y[i, j] = x + 1.0
  compute g(j in 3):
    z[j] = 1.0
"""
SUM = """
kernel k(in x: f32[{0}, {1}], out y: f32[{0}], out z: f32[3]):
  compute clear(i in {0}):
    y[i] = 2.0
  compute sum(i in {0}, j in {1}):
    x = x[i, j]
    y[i] add= x
  compute g(j in 3):
    z[j] = 1.0
"""
PRODUCT = """
kernel k(in x: f32[{0}, {1}], in w: f32[{1}, 4], out y: f32[{0}, 4], out z: f32[3]):
  compute clear(i in {0}, n in 4):
    y[i, n] = 2.0
  compute product(i in {0}, n in 4, j in {1}):
    x = x[i, j]
    w = w[j, n]
    y[i, n] add= x * w
  compute g(j in 3):
    z[j] = 1.0
"""


MAXIMA = """
kernel k(m: s64 in 0..64, n: s64 in 0..256, in x: f32[m, n], out most: f32[m], out all: f32[1]):
  compute clear(i in m):
    most[i] = -inf
  compute none(i in 1):
    all[i] = 3.0
  compute most(i in m, j in n):
    x = x[i, j]
    most[i] max= x
  compute all(i in m, j in n):
    x = x[i, j]
    all[0] max= x
"""


@pytest.mark.parametrize("target", ["x86", *DEVICES])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("text", [ELEMENTWISE, SUM, PRODUCT])
def test_nothing_is_computed_of_nothing(text: str, shape: tuple[int, int], target: str) -> None:
    need_device(target)
    kernel = tw.parse_kernel(text.format(*shape))
    values = {"x": np.zeros(shape, np.float32)}
    if "w" in [array.name for array in kernel.arrays]:
        values["w"] = np.zeros((shape[1], 4), np.float32)
    result = tw.compile(kernel, target=target)(**values)
    wanted = tw.compile(kernel, target="interpreter")(**values)
    for name in ("y", "z"):
        np.testing.assert_array_equal(result[name], wanted[name])


@pytest.mark.parametrize("target", ["x86", *DEVICES, "interpreter"])
def test_symbols_that_are_zero_or_break_their_promise(target: str) -> None:
    need_device(target)
    kernel = tw.compile(tw.parse_kernel(MAXIMA), target=target)
    for shape in ((0, 0), (0, 5), (5, 0), (3, 4), (64, 256)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        result = kernel(x=x)
        np.testing.assert_array_equal(result["most"], x.max(1, initial=-np.inf))
        np.testing.assert_array_equal(result["all"], [x.max(initial=3.0)])
    for shape, name in (((65, 1), "m"), ((1, 257), "n")):
        with pytest.raises(tw.TilewrightError, match=f"the argument {name} is {max(shape)}, but"):
            kernel(x=np.zeros(shape, np.float32))


def test_arrays_without_elements_share_no_memory() -> None:
    run = tw.compile(tw.parse_kernel(ELEMENTWISE.format(0, 1000)), "interpreter")
    memory = np.zeros((4, 1000), np.float32)
    assert run(x=memory[:0], y=memory[1:1])["z"].tolist() == [1, 1, 1]
