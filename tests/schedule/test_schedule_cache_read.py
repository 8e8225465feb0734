"""Memory that goes on in another place: before, after, refusals, numbers."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.printer import to_text
from tilewright.schedule import cache_read

TEXT = """
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
    before = tw.parse_kernel(TEXT)
    after = cache_read(before, "t", "twice", space=Space.GLOBAL)
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


@pytest.mark.parametrize(
    ("buffer", "compute"), [("t", "add"), ("u", "twice"), ("y", "twice"), ("x", "add")]
)
def test_where_the_next_iteration_would_go_back_is_refused(buffer: str, compute: str) -> None:
    with pytest.raises(ScheduleError, match=f"'{buffer}' is not allocated in the block of"):
        cache_read(tw.parse_kernel(TEXT), buffer, compute)


def test_several_computes_of_that_name_and_none_beside_the_memory() -> None:
    loop = "  for r in 2:\n    compute go(i in 3):\n      y[i] = x[i]\n"
    kernel = tw.parse_kernel(f"kernel k(in x: f32[3], out y: f32[3]):\n{loop}{loop}")
    with pytest.raises(ScheduleError, match="'t' is not allocated in the block of 'go'"):
        cache_read(kernel, "t", "go")
