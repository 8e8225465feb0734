"""Arrays without elements, and sums of nothing, on x86."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

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


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("text", [ELEMENTWISE, SUM, PRODUCT])
def test_nothing_is_computed_of_nothing(text: str, shape: tuple[int, int]) -> None:
    kernel = tw.parse_kernel(text.format(*shape))
    given = {"x": np.zeros(shape, np.float32)}
    if "w" in [each.name for each in kernel.arrays]:
        given["w"] = np.zeros((shape[1], 4), np.float32)
    found = tw.compile(kernel, target="x86")(**given)
    wanted = tw.compile(kernel, target="interpreter")(**given)
    for name in ("y", "z"):
        np.testing.assert_array_equal(found[name], wanted[name])
