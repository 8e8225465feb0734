"""Graphs in text whose sizes calls pass, as programs of several kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import needs_x86
from tilewright.graph.compiling import compile_graph

STEP = """
kernel step(n: s64 in 0..99, in x: f32[n, 4, 8], inout s: f32[4 * n, 8], out z: f32[4 * n, 8]):
  alloc m: f32[n, 4]
  alloc h: f32[n, 4, 8]
  compute clear(i in n, j in 4):
    m[i, j] = 0.0
  compute sums(i in n, j in 4, k in 8):
    m[i, j] add= x[i, j, k]
  compute h(i in n, j in 4, k in 8):
    h[i, j, k] = x[i, j, k] + m[i, j]
  compute old(i in 4 * n, k in 8):
    z[i, k] = s[i, k] * 2.0
  compute keep(i in n, j in 4, k in 8):
    v = h[i, j, k]
    s[i * 4 + j, k] = v
"""


@needs_x86
def test_an_argument_that_is_still_read_is_not_another_shape_of_what_goes_there() -> None:
    """`h` is `s` in another shape, but may not lie there before `z` is made."""
    program = compile_graph(tw.parse_kernel(STEP), threads=1)
    generator = np.random.default_rng(0)
    for n in (3, 1, 0):
        x = generator.integers(-4, 5, (n, 4, 8)).astype(np.float32)
        s, z = np.ones((4 * n, 8), np.float32), np.zeros((4 * n, 8), np.float32)
        program(x=x, s=s, z=z)
        assert (z == 2).all()
        assert np.array_equal(s, (x + x.sum(2, keepdims=True)).reshape(4 * n, 8))


PLAIN = """
kernel plain(n: s64 in 1..9, in x: f32[2 * n], in w: f32[99], in q: f32[n], out y: f32[2 * n]):
  compute y(i in 2 * n):
    v = x[i]
    u = w[{index}]
    y[i] = v + u
"""
LOOP = """
  for t in 2 * n:
    compute more(i in 2 * n):
      v = y[i]
      y[i] = v + 1.0
"""


@needs_x86
@pytest.mark.parametrize("text", [PLAIN.format(index="2 * n"), PLAIN.format(index="0") + LOOP[1:]])
def test_an_extent_that_something_else_is_too(text: str) -> None:
    """An index, or how often a loop runs: the kernel needs the number there, too."""
    program = compile_graph(tw.parse_kernel(text))
    x, w = np.arange(6, dtype=np.float32), np.arange(99, dtype=np.float32)
    result = program(x=x, w=w, q=np.zeros(3, np.float32))
    assert np.array_equal(result, x + 6)
