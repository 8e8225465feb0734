"""Private memory that a vector loop allocates: each lane has a part of it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.interpret import run as interpret
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.verify import verify
from tilewright.passes.lanes import expand_private_memory

TWO = """
kernel two(in x: f32[12], in c: s32[12], out y: f32[12], out z: f32[12]):
  vector for i in 12:
    alloc t: f32[2] private
    for q in 2:
      t[q] = x[i] + f32(q)
    if c[i] < s32(3):
      t[1] = 7.0
    y[i] = t[0] + t[1]
  vector for i in 12:
    alloc t: f32[3] private
    alloc same: f32[1] private
    t[0] = x[i]
    t[s64(c[i]) % 3] = 5.0
    same[0] = x[3]
    z[i] = t[0] - same[0]
"""


def test_before_and_after() -> None:
    result = expand_private_memory(parse_kernel(TWO))
    verify(result)
    assert (
        "    alloc t: f32[2, 12] private\n"
        "    vector for i in 12:\n"
        "      t[0, i] = 0.0\n"
        "      t[1, i] = 0.0\n"
        "      for q in 2:\n"
        "        t[q, i] = x[i] + f32(q)\n"
    ) in to_text(result)
    # What is the same in all lanes is there once.
    assert "same: f32[1] private" in to_text(result)


def test_nothing_to_do() -> None:
    kernel = parse_kernel(
        "kernel f(out y: f32[8]):\n  alloc t: f32[8] private\n  vector for i in 8:\n"
        "    t[i] = 1.0\n    y[i] = t[i]\n"
    )
    assert expand_private_memory(kernel) is kernel


@pytest.mark.parametrize("target", ["x86", "x86:sse42", *DEVICES])
def test_as_interpreted(target: str) -> None:
    kernel = parse_kernel(TWO)
    x, c = np.arange(12, dtype=np.float32) - 4, np.arange(12, dtype=np.int32)
    wanted, got = ({name: np.zeros(12, np.float32) for name in ("y", "z")} for _ in range(2))
    interpret(kernel, {"x": x, "c": c, **wanted})
    interpret(expand_private_memory(kernel), {"x": x, "c": c, **got})
    for name in ("y", "z"):
        np.testing.assert_array_equal(got[name], wanted[name])
    tw.compile(kernel, target=target)(x, c, **got)
    for name in ("y", "z"):
        np.testing.assert_array_equal(got[name], wanted[name])
