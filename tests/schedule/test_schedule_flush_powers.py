"""Exponentials that are 0 where they would be less than all normal numbers."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.ir.verify import verify
from tilewright.schedule.reductions.flush_powers import flush_powers

POWERS = """
kernel powers(in x: f32[9], in m: f32[1], out p: f32[9]):
  compute powers(i in 9):
    p[i] = exp(x[i] - m[0])
"""


def test_what_is_no_normal_number_is_0() -> None:
    after = flush_powers(tw.parse_kernel(POWERS), "powers")
    verify(after)
    assert "exp(select(x[i] - m[0] < -87.33646, -inf, x[i] - m[0]))" in to_text(after)
    x = np.array([0, -1, -87, -87.4, -100, -103, -104, -np.inf, np.nan], np.float32)
    result = tw.compile(after, "interpreter")(x=x, m=np.zeros(1, np.float32))
    np.testing.assert_allclose(result[:3], np.exp(x[:3].astype(np.float64)), rtol=1e-6)
    assert (result[3:8] == 0).all() and np.isnan(result[8])


def test_of_f64() -> None:
    after = flush_powers(tw.parse_kernel(POWERS.replace("f32", "f64")), "powers")
    x = np.linspace(-720, -700, 9)
    result = tw.compile(after, "interpreter")(x=x, m=np.zeros(1))
    assert ((result == 0) == (x < -708.4)).all()


@pytest.mark.parametrize(("old", "new"), [("exp(", "log("), ("f32", "f16")])
def test_refusals(old: str, new: str) -> None:
    kernel = tw.parse_kernel(POWERS.replace(old, new))
    with pytest.raises(ScheduleError, match="computes no exponential of f32 or f64"):
        flush_powers(kernel, "powers")


@pytest.mark.usefixtures("own_cache")
def test_softmax_of_what_is_masked_makes_no_subnormal_numbers() -> None:
    """Those would take some processors ten times as long."""
    kernel = tw.compile(tw.softmax("4x49"), target="x86:avx2", threads=1)
    assert "flush_powers" in kernel.source("schedule")
    x = np.random.default_rng(0).standard_normal((4, 49)).astype(np.float32)
    x[:, 20:] -= 100
    result = tw.compile(tw.softmax("4x49"), threads=1)(src=x)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(result, wide / wide.sum(axis=1, keepdims=True), 1e-5, 1e-37)
    assert (result[:, 20:] == 0).all()
