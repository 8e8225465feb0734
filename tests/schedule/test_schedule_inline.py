"""inline: golden texts, results, refusals."""

from __future__ import annotations

import random

import pytest

from schedule_cases import becomes, equal
from tilewright.errors import ScheduleError
from tilewright.ir import parse_kernel
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.inline import inline
from tilewright.schedule.staging.stage import stage
from tilewright.schedule.staging.staging import Shape


def test_inline() -> None:
    """A value that is not zero of zeros is selected where the mask hides it."""
    becomes(
        """
        kernel f(in w: s8[8, 6], in scale: f32[6], out y: f32[8, 8]):
          alloc t: f32[8, 6]
          compute scaled(k in 8, n in 6):
            v = w[k, n]
            s = scale[n]
            t[k, n] = f32(v) * s + 1.0
          compute copy(n in 8, k in 8):
            b = t[k, n | n < 6]
            y[n, k] = b
        """,
        lambda k: inline(k, "scaled"),
        """
        kernel f(in w: s8[8, 6], in scale: f32[6], out y: f32[8, 8]):
          compute copy(n in 8, k in 8):
            v = w[k, n | n < 6]
            s = scale[n | n < 6]
            y[n, k] = select(n < 6, f32(v) * s + 1.0, 0.0)
        """,
    )


def test_inline_for_every_reader() -> None:
    """Names of operands that are taken become others; zeros of zeros need no test."""
    becomes(
        """
        kernel f(in x: f32[9], out y: f32[9], inout z: f32[4]):
          alloc t: f32[9]
          compute twice(i in 9):
            a = x[8 - i | i < 7]
            t[i] = a + a
          compute first(i in 9):
            a = t[i]
            b = t[i - 1 | 1 <= i]
            y[i] = a - b
          for k in 4:
            compute second(j in 2):
              a = t[k * 2 + j]
              z[k] max= a * 3.0
        """,
        lambda k: inline(k, "twice"),
        """
        kernel f(in x: f32[9], out y: f32[9], inout z: f32[4]):
          compute first(i in 9):
            a = x[8 - i | i < 7]
            a2 = x[9 - i | 1 <= i and i < 8]
            y[i] = a + a - (a2 + a2)
          for k in 4:
            compute second(j in 2):
              a = x[8 - j - k * 2 | j + k * 2 < 7]
              z[k] max= (a + a) * 3.0
        """,
    )


def test_inline_of_what_is_allocated_further_out() -> None:
    becomes(
        """
        kernel f(in x: f32[9], inout z: f32[4]):
          alloc t: f32[3]
          for k in 3:
            compute moved(i in 3):
              a = x[k * 3 + i]
              t[i] = a
            compute reader(j in 3):
              a = t[j]
              z[j] add= a
        """,
        lambda k: inline(k, "moved"),
        """
        kernel f(in x: f32[9], inout z: f32[4]):
          for k in 3:
            compute reader(j in 3):
              a = x[j + k * 3]
              z[j] add= a
        """,
    )


def test_inline_of_digits() -> None:
    """The dims of a buffer that were made one are its digits."""
    becomes(
        """
        kernel f(in x: f32[3, 4], out y: f32[12]):
          alloc t: f32[12]
          compute twice(i in 3, j in 4):
            a = x[i, j]
            t[i * 4 + j] = a + a
          compute copy(m in 12):
            a = t[11 - m]
            y[m] = a
        """,
        lambda k: inline(k, "twice"),
        """
        kernel f(in x: f32[3, 4], out y: f32[12]):
          compute copy(m in 12):
            a = x[(3 - m) // 4 + 2, (3 - m) % 4]
            y[m] = a + a
        """,
    )


def test_inline_into_random_copies() -> None:
    """Whatever becomes of the reader before: in other orders, blocks and boxes, under masks."""
    rng = random.Random(0)
    for _ in range(25):
        rows, columns, step = rng.randint(2, 6), rng.randint(2, 6), rng.randint(1, 2)
        value = rng.choice(["v * s", "v - s", "max(v, s) + 2.0", "v + f32(p)", "v"])
        naive = parse_kernel(
            f"""
kernel f(in x: f32[{rows}, {columns}], in c: f32[{columns}], out y: f32[{rows}, {columns}]):
  alloc t: f32[{rows}, {columns}]
  compute made(p in {rows}, q in {columns}):
    v = x[p, q | q < {columns - 1}]
    s = c[q]
    t[p, q] = {value}
  compute clear(i in {rows}, j in {columns}):
    y[i, j] = 0.0
  compute sums(i in {rows}, j in {columns}, k in 3):
    a = t[i * {step} + k - 1, j | 0 <= i * {step} + k - 1 and i * {step} + k - 1 < {rows}]
    y[i, j] add= a
"""
        )
        kernel = naive
        if rng.random() < 0.4:
            kernel = fuse_dims(kernel, ["p", "q"], "whole", digits=True)
        at = None
        if rng.random() < 0.6:
            kernel = tile(kernel, "sums", {"i": rng.randint(1, 3), "j": 1})
            at = rng.choice([None, "j"])
        shape: Shape = rng.choice(["box", "dims"])
        layout = [("k", 2)] if shape == "dims" and rng.random() < 0.5 else ()
        if rng.random() < 0.8:
            kernel = stage(kernel, "sums", "a", at, shape=shape, layout=layout)
        equal(naive, inline(kernel, "made"))


REFUSED = {
    "is no compute": ("", "there is no compute 'made'"),
    "accumulates": (
        "  compute made(i in 4):\n    v = x[i]\n    t[i] add= v\n",
        "'made' accumulates, or an instruction",
    ),
    "loads": ("  compute made(i in 4):\n    t[i] = x[i] + 1.0\n", "'made' loads in its value"),
    "not all": (
        "  compute made(i in 2):\n    v = x[i]\n    t[i] = v\n",
        "'made' gives not each element of 't' once",
    ),
    "masked": (
        "  compute made(i in 4):\n    v = x[i]\n    t[i | i < 3] = v\n",
        "'made' gives not each element of 't' once",
    ),
    "twice": (
        "  compute made(i in 4, j in 3):\n    v = x[i]\n    t[i] = v\n",
        "'made' gives not each element of 't' once",
    ),
    "filled before": (
        "  compute other(i in 4):\n    t[i] = 0.0\n"
        "  compute made(i in 4):\n    v = x[i]\n    t[i] = v\n",
        "'t' is used before 'made'",
    ),
    "changes": (
        "  compute made(i in 4):\n    v = z[i]\n    t[i] = v\n"
        "  compute other(i in 4):\n    z[i] = 0.0\n",
        "'z' is written behind 'made'",
    ),
    "not a compute": (
        "  compute made(i in 4):\n    v = x[i]\n    t[i] = v\n  for i in 4:\n    z[i] = t[i]\n",
        "'t' is used by `z[i] = t[i]`",
    ),
    "divides": (
        "  alloc u: s32[4]\n  compute made(i in 4):\n    v = n[i]\n    u[i] = v // v\n"
        "  compute other(i in 4):\n    a = u[i | i < 3]\n    z[i] = f32(a)\n",
        "'made' divides, and 'other' reads under a mask",
    ),
    "elsewhere": (
        "  for k in 2:\n    compute made(i in 4):\n      v = x[i]\n      t[i] = v\n",
        "nothing reads what 'made' gives",
    ),
    "unread": (
        "  compute made(i in 4):\n    v = x[i]\n    z[i] = v\n",
        "'z' is not allocated by the kernel",
    ),
    "outside": (
        "  for k in 2:\n    compute made(i in 4):\n      v = x[i]\n      t[i] = v\n"
        "    compute other(i in 4):\n      a = t[i]\n      z[i] = a\n",
        "'t' is used outside of the block of 'made'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_inline_refuses(name: str) -> None:
    body, what = REFUSED[name]
    kernel = parse_kernel(
        "kernel f(in x: f32[4], in n: s32[4], out z: f32[4], out y: f32[4]):\n"
        f"  alloc t: f32[4]\n{body}"
        "  compute reader(i in 4):\n    a = t[i]\n    y[i] = a\n"
    )
    with pytest.raises(ScheduleError) as caught:
        inline(kernel, "made")
    assert f"inline: {what}" in str(caught.value)


def test_inline_in_readers_of_any_kind() -> None:
    """A reader may have several results, and combiners of its own."""
    becomes(
        """
        kernel f(in x: f32[9], inout y: f32[1], inout z: f32[1]):
          alloc t: f32[9]
          compute twice(i in 9):
            a = x[i]
            t[i] = a + a
          compute both(i in 9):
            v = t[i]
            y[0] add= v
            z[0] max= v * 2.0
        """,
        lambda k: inline(k, "twice"),
        """
        kernel f(in x: f32[9], inout y: f32[1], inout z: f32[1]):
          compute both(i in 9):
            a = x[i]
            y[0] add= a + a
            z[0] max= (a + a) * 2.0
        """,
    )
