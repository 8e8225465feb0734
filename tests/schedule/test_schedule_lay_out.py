"""Memory of a kernel's own in another order, space or type: before, after, refusals, numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import DType, bf16, f16, f32, f64
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.printer import to_text
from tilewright.schedule.staging.lay_out import lay_out

TEXT = """
kernel product(in x: bf16[4, 6], in y: bf16[6, 5], out z: f32[4, 5]):
  alloc t: bf16[6, 5]
  compute load(k in 6, n in 5):
    y = y[k, n]
    t[k, n] = y
  compute zero(m in 4, n in 5):
    z[m, n] = 0.0
  compute scale(k in 6, n in 5):
    v = t[k, n]
    t[k, n] = v + v
  for n in 5:
    t[0, n] = bf16(f32(t[0, n]) * 2.0)
  compute mad(m in 4, n in 5, k in 6):
    a = x[m, k]
    b = t[k, n]
    z[m, n] add= f32(a) * f32(b)
"""


def test_elements_are_kept_in_another_order_and_a_wider_type() -> None:
    before = tw.parse_kernel(TEXT)
    after = lay_out(before, "t", [(1, None), (0, None), (1, 4)], dtype=f32, space=Space.PRIVATE)
    assert to_text(after).splitlines()[1:] == (
        """\
  alloc t: f32[6, 5] {1:2:24 0:6:4 1:4:1} private
  compute load(k in 6, n in 5):
    y = y[k, n]
    t[k, n] = f32(y)
  compute zero(m in 4, n in 5):
    z[m, n] = 0.0
  compute scale(k in 6, n in 5):
    v = t[k, n]
    t[k, n] = f32(bf16(v) + bf16(v))
  for n in 5:
    t[0, n] = f32(bf16(t[0, n] * 2.0))
  compute mad(m in 4, n in 5, k in 6):
    a = x[m, k]
    b = t[k, n]
    z[m, n] add= f32(a) * b""".splitlines()
    )
    g = np.random.default_rng(0)
    x = g.standard_normal((4, 6)).astype(ml_dtypes.bfloat16)
    y = g.standard_normal((6, 5)).astype(ml_dtypes.bfloat16)
    result = [tw.compile(kernel, "interpreter")(x=x, y=y) for kernel in (before, after)]
    np.testing.assert_array_equal(*result)


@pytest.mark.parametrize(
    ("buffer", "dtype", "what"),
    [
        ("u", f32, "the kernel allocates no 'u'"),
        ("z", f32, "the kernel allocates no 'z'"),
        ("t", f16, "f16 does not hold all values of bf16"),
        ("s", f32, "'sum' takes 's' as bf16"),
        ("c", f64, "'atomic_add' takes 'c' as f32"),
    ],
)
def test_what_would_change_values_is_refused(buffer: str, dtype: DType, what: str) -> None:
    text = """
kernel others(in x: bf16[6], inout z: s32[1]):
  alloc t: bf16[6]
  alloc s: bf16[1]
  alloc c: f32[1]
  s[0] = bf16(0.0)
  c[0] = 0.0
  atomic_add(&c[0], 1.0)
  compute sum(k in 6):
    x = x[k]
    s[0] add= x
  t[0] = s[0]
"""
    with pytest.raises(ScheduleError) as caught:
        lay_out(tw.parse_kernel(text), buffer, dtype=dtype)
    assert what in caught.value.what and caught.value.cure


def test_nothing_to_do_changes_no_statement() -> None:
    before = tw.parse_kernel(TEXT)
    assert lay_out(before, "t", dtype=bf16) is before


LATE = """
kernel late(in x: f32[3, 4], out y: f32[3, 4]):
  alloc t: f32[3, 4] private
  compute zero(i in 3, j in 4):
    t[i, j] = 0.0
  for k in 2:
    compute add(i in 3, j in 4):
      x = x[i, j]
      t = t[i, j]
      t[i, j] = t + x
  compute twice(i in 3, j in 4):
    t = t[i, j]
    t[i, j] = t * 2.0
  compute store(i in 3, j in 4):
    t = t[i, j]
    y[i, j] = t
"""


def test_from_there_on_a_copy_is_used() -> None:
    before = tw.parse_kernel(LATE)
    after = lay_out(before, "t", space=Space.GLOBAL, since="twice")
    assert to_text(after).splitlines()[9:] == (
        """\
  alloc t_late: f32[3, 4]
  compute t_copy(t_0 in 3, t_1 in 4):
    value = t[t_0, t_1]
    t_late[t_0, t_1] = value
  compute twice(i in 3, j in 4):
    t = t_late[i, j]
    t_late[i, j] = t * 2.0
  compute store(i in 3, j in 4):
    t = t_late[i, j]
    y[i, j] = t""".splitlines()
    )
    x = np.random.default_rng(0).integers(-9, 9, (3, 4)).astype(np.float32)
    np.testing.assert_array_equal(tw.compile(after, "interpreter")(x=x), 4 * x)


def test_the_copy_may_be_of_another_type_and_order() -> None:
    before = tw.parse_kernel(LATE)
    after = lay_out(before, "t", [(1, None), (0, None)], dtype=f64, since="twice")
    text = to_text(after)
    assert "alloc t: f32[3, 4] private" in text
    assert "alloc t_late: f64[3, 4] {1:4:3 0:3:1} private" in text
    assert "t_late[t_0, t_1] = f64(value)" in text
    x = np.random.default_rng(0).integers(-9, 9, (3, 4)).astype(np.float32)
    np.testing.assert_array_equal(tw.compile(after, "interpreter")(x=x), 4 * x)


@pytest.mark.parametrize("compute", ["add", "go"])
def test_where_the_next_iteration_would_go_back_is_refused(compute: str) -> None:
    loop = "  for r in 2:\n    compute go(i in 3):\n      y[i, 0] = x[i, 0]\n"
    with pytest.raises(ScheduleError, match=f"'t' is not allocated in the block of '{compute}'"):
        lay_out(tw.parse_kernel(LATE + loop + loop), "t", since=compute)
